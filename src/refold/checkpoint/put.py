"""The program that writes a checkpoint.

It serializes, hashes and compresses first, then writes in one short transaction. A checkpoint builds on its parent's
row: what the parent has and the new one did not change is pointed at again, without looking at the value. The parent is
read again in the transaction; if another process changed it meanwhile, the draft is made anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from refold.checkpoint.ahead import ahead_of_put
from refold.checkpoint.blobs import store_gen
from refold.checkpoint.caches import Elements, ListState, Tip
from refold.checkpoint.cells import drafts_in, settle_cells_gen
from refold.checkpoint.drafts import Context, every_draft, seal_new
from refold.checkpoint.effects import Select, Transaction, one
from refold.checkpoint.header import Cell, Header, InLog
from refold.checkpoint.late import bury_gen, is_late_gen, refuse_orphan_gen
from refold.checkpoint.logs import read_logs_gen
from refold.checkpoint.lost import refuse_lost_channels_gen
from refold.checkpoint.put_draft import PutDraft, draft_put
from refold.checkpoint.read import tip_of
from refold.checkpoint.rows import header_of, read_templates_gen, store_header_gen
from refold.checkpoint.spaces import (
    AWAITED,
    LISTED,
    Address,
    Space,
    address_of,
    await_gen,
    find_checkpoint_gen,
    find_gen,
    find_head_gen,
    fit_space_gen,
    get_found,
    get_run,
    hold_checkpoint,
    hold_or_claim_gen,
    open_space_gen,
    pack_id,
)
from refold.core.program import Program
from refold.errors import CheckpointError, HeadMovedError

_ATTEMPTS = 8


@dataclass(frozen=True, kw_only=True)
class Stale:
    """The parent's row is not the remembered one."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """The thread was deleted; the late write was not stored."""


@dataclass(frozen=True, kw_only=True)
class Written:
    tip: Tip
    lists: Mapping[int, ListState] = field(default_factory=dict)


def put_gen(
    ctx: Context,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Program[RunnableConfig]:
    """Store a checkpoint. The config of what was stored.

    Raises `HeadMovedError` in an exclusive saver when the thread went on from elsewhere.
    """
    parent = address_of(config)
    address = Address(thread=parent.thread, ns=parent.ns, checkpoint_id=checkpoint["id"])
    if parent.checkpoint_id == address.checkpoint_id:  # a copy: `put(saved.config, saved.checkpoint, ...)`
        parent = yield from _parent_gen(ctx, parent)
    full_metadata = get_checkpoint_metadata(config, metadata)
    for _ in range(_ATTEMPTS):
        tip = yield from _tip_gen(ctx, parent)
        if (
            parent.checkpoint_id is not None
        ):  # where it is not stored, it may be that it was refused: then its parent counts
            before = tip or (yield from _read_tip_gen(ctx, replace(parent, checkpoint_id=None)))
            yield from refuse_lost_channels_gen(ctx, parent, before, checkpoint, full_metadata)
        yield from _recall_lists_gen(ctx, tip, checkpoint["channel_values"])
        draft = draft_put(ctx, address, parent.checkpoint_id, tip, checkpoint, full_metadata, new_versions)
        seal_new(ctx, drafts_in(draft.cells.values()))
        outcome = yield from Transaction(
            program=partial(_write_put_gen, ctx, draft), write=True, ahead=partial(ahead_of_put, ctx, draft)
        )
        match outcome:
            case Stale():
                ctx.caches.tips.drop((parent.thread, parent.ns))
            case Written():
                _remember(ctx, address, draft, outcome)
                break
            case Dropped():
                break
    else:
        raise CheckpointError(
            f"checkpoint {checkpoint['id']} could not be stored: its parent changes all the time; "
            "let one writer at a time work on a thread"
        )
    return {
        "configurable": {
            "thread_id": config["configurable"]["thread_id"],
            "checkpoint_ns": parent.ns,
            "checkpoint_id": checkpoint["id"],
        }
    }


def _parent_gen(ctx: Context, address: Address) -> Program[Address]:
    """Where a checkpoint goes on from that is stored already; from nowhere where it is not."""
    found = yield from Transaction(program=partial(find_gen, address), write=False, ahead=lambda: [get_found(address)])
    return replace(address, checkpoint_id=None if found is None else found[1].parent_id)


def _tip_gen(ctx: Context, parent: Address) -> Program[Tip | None]:
    """The parent as remembered, or as read in a transaction of its own."""
    if parent.checkpoint_id is None:
        return None
    tip = ctx.caches.tips.get((parent.thread, parent.ns))
    if tip is not None and tip.checkpoint_id == parent.checkpoint_id:
        return tip
    return (yield from _read_tip_gen(ctx, parent))


def _read_tip_gen(ctx: Context, address: Address) -> Program[Tip | None]:
    """A checkpoint, or the newest of its space."""
    program = partial(_find_tip_gen, ctx, address)
    return (yield from Transaction(program=program, write=False, ahead=lambda: [get_found(address)]))


def _find_tip_gen(ctx: Context, address: Address) -> Program[Tip | None]:
    found = yield from find_gen(address)
    if found is None:
        return None
    space, row = found
    if row.template is None or row.data is None:
        return None
    templates = yield from read_templates_gen(ctx, [row.template])
    return tip_of(row, header_of(ctx, row, templates), space)


def _recall_lists_gen(ctx: Context, tip: Tip | None, values: Mapping[str, object]) -> Program[None]:
    """After a restart, or when the caches were full: read which elements the parent's lists have."""
    if tip is None:
        return
    logs: dict[int, int] = {}
    for channel in values:
        cell = tip.header.cells.get(channel) or tip.header.trails.get(channel)
        if isinstance(cell, InLog):
            state = ctx.caches.lists.get(cell.log)
            if state is None or state.length < cell.length:
                logs[cell.log] = cell.length
    if logs:
        found = yield from Transaction(program=partial(read_logs_gen, ctx, logs), write=False)
        for log, entries in found.items():
            ctx.caches.lists.put(
                log, ListState(elements=Elements(list(entries), [], []), length=len(entries), weight=32 * len(entries))
            )


def _write_put_gen(ctx: Context, draft: PutDraft) -> Program[Written | Stale | Dropped]:
    address, checkpoint_id = draft.address, draft.address.checkpoint_id or ""
    space = yield from hold_or_claim_gen(address.thread, address.ns)
    parent = None
    if draft.parent_id is not None and space is not None:
        parent = yield from find_checkpoint_gen(space, draft.parent_id)
    if parent is None and (yield from is_late_gen(draft)):
        yield from bury_gen(ctx, address, space)
        return Dropped()
    content = None if parent is None else (parent.seq, parent.template, parent.data)
    expected = None if draft.tip is None else (draft.tip.seq, draft.tip.template, draft.tip.data)
    if content != expected and not (draft.tip is None and parent is not None and parent.state == AWAITED):
        return Stale()
    yield from refuse_orphan_gen(space, draft, parent)
    if space is None:
        space = yield from open_space_gen(address.thread, address.ns, checkpoint_id)
    else:
        space = yield from fit_space_gen(space, checkpoint_id)
    if draft.parent_id is not None:
        space = yield from fit_space_gen(space, draft.parent_id)
    if ctx.exclusive:
        yield from _check_head_gen(address, space, draft)
    existing = yield from find_checkpoint_gen(space, checkpoint_id)
    if existing is not None:
        yield from hold_checkpoint(existing.seq)
    ids = yield from store_gen(ctx, drafts_in(draft.cells.values()))
    cells, lists = yield from settle_cells_gen(ctx, draft.cells, ids)
    header = _with_cells(draft.header, cells)
    template, data = yield from store_header_gen(ctx, header, checkpoint_id)
    run = None if draft.run is None else (yield from _run_gen(draft.run, space))
    parent_seq = None
    if draft.parent_id is not None:  # a parent that is not stored keeps its place, so that the link is not lost
        parent_seq = parent.seq if parent is not None else (yield from await_gen(space, draft.parent_id))
    row = {"state": LISTED, "parent": parent_seq, "run": run, "template": template, "data": data}
    if existing is None:
        packed = pack_id(checkpoint_id, wide=space.wide)
        added = yield from Select(statement="checkpoint_add", args={**row, "space": space.id, "id": packed}, last=True)
        seq = cast("int", added[0][0])
    else:
        seq = existing.seq
        yield from Select(statement="checkpoint_set", args={**row, "seq": seq}, last=True)
    tip = Tip(checkpoint_id=checkpoint_id, seq=seq, template=template, data=data, header=header, space=space)
    return Written(tip=tip, lists=lists)


def _with_cells(header: Header, cells: Mapping[str, Cell]) -> Header:
    return Header(
        ts=header.ts, versions=header.versions, seen=header.seen, cells=cells, trails=header.trails,
        metadata=header.metadata, rest=header.rest,
    )  # fmt: skip


def _check_head_gen(address: Address, space: Space, draft: PutDraft) -> Program[None]:
    if draft.fork:
        return
    head = yield from find_head_gen(space)
    found = None if head is None else head.checkpoint_id
    if found != draft.parent_id and found != address.checkpoint_id:
        raise HeadMovedError(address.thread, expected=draft.parent_id, found=found)


def _run_gen(name: bytes, space: Space) -> Program[int]:
    for _ in range(2):
        row = one((yield from get_run(name, space)))
        if row is not None:
            return cast("int", row[0])
        yield from Select(statement="run_add", args={"name": name, "space": space.id})
    return (yield from _run_gen(name, space))


def _remember(ctx: Context, address: Address, draft: PutDraft, written: Written) -> None:
    ctx.caches.tips.put((address.thread, address.ns), written.tip)
    if draft.tip is not None:
        ctx.caches.followers.put((draft.tip.template,), written.tip.template)
    for log, state in written.lists.items():
        ctx.caches.lists.put(log, state)
    for item in every_draft(drafts_in(draft.cells.values())):
        ctx.caches.stored.put(item.name, item.name)
