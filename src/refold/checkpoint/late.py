"""What becomes of a step that comes late: after its thread was deleted, or after what it builds on was removed."""

from collections.abc import Mapping
from typing import cast

from refold.checkpoint.deletions import is_deleted_gen, is_pruned_gen, note_late_gen
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Select, SelectEach
from refold.checkpoint.put_draft import PutDraft, callers_in
from refold.checkpoint.read import stored_of
from refold.checkpoint.rows import header_of, read_templates_gen
from refold.checkpoint.spaces import (
    AWAITED,
    Address,
    CheckpointRow,
    Space,
    find_checkpoint_gen,
    find_gen,
    find_head_gen,
    hold_gen,
)
from refold.checkpoint.threads import delete_space_gen, nodes_gen, spaces_gen
from refold.core.program import Program
from refold.errors import CheckpointError


def is_late_gen(draft: PutDraft) -> Program[bool]:
    """Whether a checkpoint whose parent is not there is of a thread that was deleted since. A caller that is stored is
    not late, whatever its id: a history was put back."""
    thread = draft.address.thread
    if (yield from is_deleted_gen(thread, draft.parent_id)):
        return True
    for ns, caller in draft.callers.items():
        if (yield from is_deleted_gen(thread, caller)):
            found = yield from find_gen(Address(thread=thread, ns=ns, checkpoint_id=caller))
            if found is None or found[1].state == AWAITED:
                return True
    return False


def refuse_orphan_gen(space: Space | None, draft: PutDraft, parent: CheckpointRow | None) -> Program[None]:
    """A delta channel without a value is rebuilt from the parent: it would be empty where that was removed."""
    if space is None or draft.parent_id is None or not draft.rebuilt:
        return
    if parent is not None and parent.state != AWAITED:
        return
    if (yield from is_pruned_gen(space, draft.parent_id)):
        raise CheckpointError(
            f"checkpoint {draft.parent_id} was removed while a run went on from it, and {', '.join(draft.rebuilt)} is "
            "rebuilt from it; the step was not stored. Run it again: it begins at the thread's newest checkpoint"
        )


def bury_gen(ctx: Context, address: Address, space: Space | None) -> Program[None]:
    """A late checkpoint of a deleted thread: what comes after it is late too, and what came before it goes."""
    checkpoint_id = address.checkpoint_id or ""
    yield from note_late_gen(address.thread, checkpoint_id, ctx.clock())
    yield from _bury_called_gen(ctx, address)
    row = None if space is None else (yield from find_checkpoint_gen(space, checkpoint_id))
    if space is None or row is None or row.state != AWAITED:
        return
    nodes = yield from nodes_gen(space)
    if len(nodes) == 1:
        yield from delete_space_gen(space)
        return
    children = [node.seq for node in nodes if node.parent == row.seq]
    yield from SelectEach(statement="checkpoint_orphan", rows=[{"seq": seq} for seq in children])
    yield from Select(statement="writes_delete", args={"checkpoint": row.seq})
    yield from Select(statement="checkpoint_delete", args={"seq": row.seq})


def _bury_called_gen(ctx: Context, late: Address) -> Program[None]:
    """Remove the subgraphs that a late checkpoint called: with durability "async" theirs may be stored before it is."""
    for found, ns in (yield from spaces_gen(late.thread)):
        space = None if ns == late.ns else (yield from hold_gen(found))
        newest = None if space is None else (yield from find_head_gen(space))
        if space is None or newest is None or newest.template is None:
            continue
        templates = yield from read_templates_gen(ctx, [newest.template])
        metadata = stored_of(ctx, header_of(ctx, newest, templates).metadata)
        if late.checkpoint_id in callers_in(cast("Mapping[str, object]", metadata)).values():
            for node in (yield from nodes_gen(space)):  # their writes, and what goes on from them, are late too
                yield from note_late_gen(late.thread, node.checkpoint_id, ctx.clock())
            yield from delete_space_gen(space)
