"""The programs that remove checkpoints of a namespace and leave what others need.

A checkpoint of a delta channel is rebuilt from its ancestors, so an ancestor that a surviving checkpoint needs is not
removed but *hidden*: complete, readable by its id, in no listing. Which ones those are is told by templates alone.
What becomes unreachable is freed by a collection (see `collect`).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from refold.checkpoint.deletions import note_pruned_gen
from refold.checkpoint.drafts import Context, run_names
from refold.checkpoint.effects import Args, Select, SelectEach, SelectIn, Transaction
from refold.checkpoint.header import channels_of, channels_written
from refold.checkpoint.rows import get_writes, read_templates_gen
from refold.checkpoint.spaces import AWAITED, HIDDEN, LISTED, Space, hold_gen, lock_space
from refold.checkpoint.threads import Node, nodes_gen, select_gen
from refold.core.program import Program


def delete_for_runs_gen(ctx: Context, run_ids: Sequence[str]) -> Program[int]:
    """Remove the checkpoints of runs with their writes; how many. One transaction per namespace."""
    names = [name for run_id in run_ids for name in run_names(ctx, str(run_id))]
    rows = yield from Transaction(program=partial(_run_spaces_gen, names), write=False)
    removed = 0
    for run, space, wide in rows:
        place = Space(id=space, wide=wide)
        removed += yield from Transaction(program=partial(_delete_run_gen, ctx, place, run), write=True)
    return removed


def _run_spaces_gen(names: Sequence[bytes]) -> Program[Sequence[tuple[int, int, bool]]]:
    if not names:
        return []
    rows = yield from SelectIn(statement="run_spaces", keys=names)
    return [(cast("int", run), cast("int", space), bool(wide)) for run, space, wide in rows]


def _delete_run_gen(ctx: Context, found: Space, run: int) -> Program[int]:
    space = yield from hold_gen(found)
    if space is None:
        return 0
    rows = yield from Select(statement="run_checkpoints", args={"space": space.id, "run": run})
    ours = {cast("int", row[0]) for row in rows}
    nodes = yield from nodes_gen(space)
    kept = {node.seq for node in nodes if node.state == LISTED and node.seq not in ours}
    return (yield from remove_gen(ctx, space, nodes, kept))


def remove_gen(ctx: Context, space: Space, nodes: Sequence[Node], kept: set[int]) -> Program[int]:
    """Remove all checkpoints of a space but `kept`, and those whose writes came first; how many are not listed any
    more.

    Ancestors that a delta channel of a kept one is rebuilt from are hidden instead.
    """
    needed = yield from _needed_gen(ctx, nodes, kept)
    going = {node.seq for node in nodes if node.state != AWAITED and node.seq not in kept | needed}
    hide = [node.seq for node in nodes if node.state == LISTED and node.seq in needed - kept]
    yield from SelectEach(statement="checkpoint_state", rows=[{"seq": seq, "state": HIDDEN} for seq in hide])
    waiting = {node.seq for node in nodes if node.state == AWAITED}
    useless = yield from _useless_gen(nodes, waiting, going)
    going |= useless
    orphans = [node.seq for node in nodes if node.parent in going and node.seq not in going]
    yield from SelectEach(statement="checkpoint_orphan", rows=[{"seq": seq} for seq in orphans])
    rows: list[Args] = [{"seq": seq} for seq in sorted(going)]
    yield from SelectEach(statement="checkpoint_hold", rows=rows)  # so that all writes are seen
    yield from SelectEach(statement="writes_delete", rows=[{"checkpoint": seq} for seq in sorted(going)])
    yield from SelectEach(statement="checkpoint_delete", rows=rows)
    gone = [node.checkpoint_id for node in nodes if node.seq in going and node.state != AWAITED]
    if gone:
        yield from note_pruned_gen(space, max(gone), ctx.clock())
    if len(going) == len(nodes):
        yield from Select(statement="runs_delete_space", args={"space": space.id})
        yield from Select(statement="space_delete", args={"space": space.id})
    else:
        yield from Select(statement="runs_delete_unused", args={"space": space.id})
    return len(going) + len(hide)


def sweep_runs_gen() -> Program[None]:
    """Remove the runs to which no checkpoint belongs any more, a namespace at a time: who stores a checkpoint holds its
    namespace while it looks its run up."""
    rows = yield from Transaction(program=partial(select_gen, "runs_unused"), write=False)
    for row in rows:
        yield from Transaction(program=partial(_sweep_runs_gen, cast("int", row[0])), write=True)


def _sweep_runs_gen(space: int) -> Program[None]:
    yield from lock_space(Space(id=space, wide=False))
    yield from Select(statement="runs_delete_unused", args={"space": space})


def _useless_gen(nodes: Sequence[Node], waiting: set[int], going: set[int]) -> Program[set[int]]:
    """Places kept for parents that were never stored, when no child is left and no writes wait there."""
    parents = {node.parent for node in nodes if node.seq not in going}
    lonely = sorted(waiting - {parent for parent in parents if parent is not None})
    if not lonely:
        return set()
    yield from SelectEach(statement="checkpoint_hold", rows=[{"seq": seq} for seq in lonely])
    rows = yield from get_writes(lonely)
    return set(lonely) - {cast("int", row[0]) for row in rows}


def _needed_gen(ctx: Context, nodes: Sequence[Node], kept: set[int]) -> Program[set[int]]:
    """The ancestors from which delta channels of kept checkpoints are rebuilt, down to a stored value or the root."""
    by_seq = {node.seq: node for node in nodes}
    templates = yield from read_templates_gen(ctx, {node.template for node in nodes if node.template is not None})
    shapes = {template: channels_of(data) for template, data in templates.items()}
    written = yield from _written_gen(ctx, nodes, kept, by_seq)
    needed: set[int] = set()
    for seq in kept:
        node = by_seq[seq]
        if node.template is None:
            continue
        shape = shapes[node.template]
        open_channels = (shape.delta | written.get(seq, frozenset())) & (shape.versions - shape.values)
        ancestor = by_seq.get(node.parent) if node.parent is not None else None
        while open_channels and ancestor is not None and ancestor.template is not None:
            needed.add(ancestor.seq)
            open_channels -= shapes[ancestor.template].values
            ancestor = by_seq.get(ancestor.parent) if ancestor.parent is not None else None
    return needed


def _written_gen(
    ctx: Context, nodes: Sequence[Node], kept: set[int], by_seq: Mapping[int, Node]
) -> Program[Mapping[int, frozenset[str]]]:
    """The channels written by the step that made each kept checkpoint. One that has no value after it is a delta
    channel, also where the metadata does not say so."""
    parents = {seq: by_seq[seq].parent for seq in kept}
    rows = yield from SelectIn(statement="write_templates", keys=sorted({p for p in parents.values() if p is not None}))
    templates = yield from read_templates_gen(ctx, {cast("int", template) for _, template in rows})
    channels: dict[int, frozenset[str]] = {}
    for checkpoint, template in cast("Iterable[tuple[int, int]]", rows):
        channels[checkpoint] = channels.get(checkpoint, frozenset()) | channels_written(templates[template])
    return {seq: channels.get(parent, frozenset()) for seq, parent in parents.items() if parent is not None}
