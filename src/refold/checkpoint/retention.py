"""The programs that remove: threads, runs, old checkpoints. And the one that copies.

A checkpoint of a delta channel is rebuilt from its ancestors, so an ancestor that a surviving checkpoint needs is not
removed but *hidden*: complete, readable by its id, in no listing. Which ones those are is told by templates alone.
What becomes unreachable is freed by a collection (see `collect`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias, cast

from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Select, SelectEach, SelectIn, Transaction, one
from refold.checkpoint.header import Header, channels_of, channels_written
from refold.checkpoint.put import run_name
from refold.checkpoint.read import stored_of
from refold.checkpoint.rows import header_of, read_templates_gen
from refold.checkpoint.spaces import (
    AWAITED,
    HIDDEN,
    LISTED,
    Space,
    hold_space_gen,
    note_deletion_gen,
    read_row,
    unpack_id,
)
from refold.core.program import Program
from refold.errors import ConfigurationError

Strategy: TypeAlias = Literal["keep_latest", "keep_last", "older_than", "delete"]


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What a `prune` keeps.

    keep_latest   the newest checkpoint of each namespace
    keep_last     the newest `keep` of each namespace
    older_than    those made at `before` or later, and the newest of each namespace
    delete        nothing; with `before`, only threads whose newest checkpoint is older go
    """

    strategy: Strategy
    keep: int = 1
    before: datetime | None = None


def retention_of(strategy: str, keep: int, before: datetime | None) -> Retention:
    """Raises `ConfigurationError` for a strategy that does not exist or lacks its argument."""
    if strategy not in ("keep_latest", "keep_last", "older_than", "delete"):
        raise ConfigurationError(
            f"prune knows no strategy {strategy!r}: use 'keep_latest', 'keep_last', 'older_than' or 'delete'"
        )
    if keep < 1:
        raise ConfigurationError(f"prune cannot keep {keep} checkpoints: keep at least 1, or use strategy='delete'")
    if before is not None and before.tzinfo is None:
        raise ConfigurationError("prune needs a time with a zone: datetime(..., tzinfo=UTC)")
    if strategy == "older_than" and before is None:
        raise ConfigurationError("prune by age needs before=..., a time with a zone")
    return Retention(strategy=cast("Strategy", strategy), keep=keep if strategy == "keep_last" else 1, before=before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A checkpoint as a plan of deletion sees it."""

    seq: int
    checkpoint_id: str
    state: int
    parent: int | None
    template: int | None


# --- threads ---


def delete_thread_gen(ctx: Context, thread: str) -> Program[int]:
    """Remove everything of a thread; how many checkpoints that were."""
    removed = yield from Transaction(program=partial(_delete_thread_gen, thread), write=True)
    return removed


def _delete_thread_gen(thread: str) -> Program[int]:
    removed, newest = 0, ""
    spaces = yield from _spaces_gen(thread)
    for space, _ in spaces:
        yield from Select(statement="space_lock", args={"space": space.id})
        nodes = yield from _nodes_gen(space)
        removed += len(nodes)
        newest = max([newest, *(node.checkpoint_id for node in nodes)])
        yield from _delete_space_gen(space)
    if newest:
        yield from note_deletion_gen(thread, newest)
    return removed


def _delete_space_gen(space: Space) -> Program[None]:
    args: Args = {"space": space.id}
    for statement in ("writes_delete_space", "checkpoints_delete_space", "runs_delete_space", "space_delete"):
        yield from Select(statement=statement, args=args)


def _spaces_gen(thread: str) -> Program[Sequence[tuple[Space, str]]]:
    """A thread's spaces with their namespaces, parents before children."""
    rows = yield from Select(statement="spaces_of_thread", args={"thread": thread})
    spaces = [
        (Space(id=space, wide=bool(wide)), ns) for space, _, ns, wide in cast("list[tuple[int, str, str, int]]", rows)
    ]
    return sorted(spaces, key=lambda item: (item[1].count("|") if item[1] else -1, item[1]))


def _nodes_gen(space: Space) -> Program[Sequence[Node]]:
    """Every checkpoint of a space, newest first."""
    rows = yield from Select(statement="checkpoint_keys", args={"space": space.id})
    return [
        Node(
            seq=seq, checkpoint_id=unpack_id(raw, wide=space.wide), state=state, parent=parent, template=template
        )
        for seq, raw, state, parent, template in cast("list[tuple[int, bytes, int, int | None, int | None]]", rows)
    ]  # fmt: skip


def threads_gen(after: str, count: int) -> Program[Sequence[str]]:
    """The names of threads that follow another, in order."""
    rows = yield from Transaction(
        program=partial(_select_gen, "threads_after", {"after": after, "count": count}), write=False
    )
    return [str(row[0]) for row in rows]


def _select_gen(statement: str, args: Args) -> Program[Sequence[Sequence[object]]]:
    return (yield from Select(statement=statement, args=args))


# --- pruning ---


def prune_gen(ctx: Context, threads: Sequence[str] | None, retention: Retention, batch: int) -> Program[int]:
    """Prune threads, or all when None, each in a transaction of its own; how many checkpoints went. An interrupted
    prune leaves whole threads done and the others untouched."""
    removed = 0
    if threads is not None:
        for thread in threads:
            removed += yield from _prune_one_gen(ctx, thread, retention)
        return removed
    removed += yield from _prune_one_gen(ctx, "", retention)  # a name, too, and no other comes before it
    after = ""
    while page := (yield from threads_gen(after, batch)):
        for thread in page:
            removed += yield from _prune_one_gen(ctx, thread, retention)
        after = page[-1]
    return removed


def _prune_one_gen(ctx: Context, thread: str, retention: Retention) -> Program[int]:
    return (yield from Transaction(program=partial(_prune_thread_gen, ctx, thread, retention), write=True))


def _prune_thread_gen(ctx: Context, thread: str, retention: Retention) -> Program[int]:
    spaces = yield from _spaces_gen(thread)
    if retention.strategy == "delete":
        if retention.before is not None and not (yield from _is_idle_gen(ctx, spaces, retention.before)):
            return 0
        return (yield from _delete_thread_gen(thread))
    removed = 0
    gone: set[tuple[str, str]] = set()  # (namespace, checkpoint id) of what is no longer listed
    for space, ns in spaces:
        yield from Select(statement="space_lock", args={"space": space.id})
        nodes = yield from _nodes_gen(space)
        if (yield from _is_of_gone_call_gen(ctx, space, ns, nodes, gone)):
            yield from _delete_space_gen(space)
            removed += len(nodes)
            continue
        kept = yield from _kept_gen(ctx, space, nodes, retention)
        gone |= {(ns, node.checkpoint_id) for node in nodes if node.state != AWAITED and node.seq not in kept}
        removed += yield from remove_gen(ctx, space, nodes, kept)
    return removed


def _kept_gen(ctx: Context, space: Space, nodes: Sequence[Node], retention: Retention) -> Program[set[int]]:
    listed = [node for node in nodes if node.state == LISTED]
    kept = {node.seq for node in listed[: retention.keep]}
    if retention.before is not None:
        times = yield from _times_gen(ctx, space, [node.seq for node in listed])
        kept |= {seq for seq, made in times.items() if made >= retention.before}
    return kept


def _times_gen(ctx: Context, space: Space, seqs: Sequence[int]) -> Program[Mapping[int, datetime]]:
    headers = yield from _headers_gen(ctx, space, seqs)
    return {seq: datetime.fromisoformat(header.ts) for seq, header in headers.items()}


def _headers_gen(ctx: Context, space: Space, seqs: Sequence[int]) -> Program[Mapping[int, Header]]:
    raw = yield from SelectIn(statement="checkpoint_rows", keys=seqs)
    rows = [read_row(row, space) for row in raw]
    templates = yield from read_templates_gen(ctx, {row.template for row in rows if row.template is not None})
    return {row.seq: header_of(ctx, row, templates) for row in rows if row.template is not None}


def _is_idle_gen(ctx: Context, spaces: Sequence[tuple[Space, str]], before: datetime) -> Program[bool]:
    for space, _ in spaces:
        nodes = yield from _nodes_gen(space)
        newest = [node.seq for node in nodes if node.state == LISTED][:1]
        times = yield from _times_gen(ctx, space, newest)
        if any(made >= before for made in times.values()):
            return False
    return bool(spaces)


def _is_of_gone_call_gen(
    ctx: Context, space: Space, ns: str, nodes: Sequence[Node], gone: set[tuple[str, str]]
) -> Program[bool]:
    """Whether a namespace belongs to one call of a subgraph, and the checkpoint that the call began at goes.

    A namespace whose last part has no task id belongs to a subgraph with a memory of its own: it stays.
    """
    newest = next((node for node in nodes if node.state == LISTED), None)
    if newest is None or ":" not in ns.rsplit("|", 1)[-1]:
        return False
    headers = yield from _headers_gen(ctx, space, [newest.seq])
    metadata = cast("Mapping[str, object]", stored_of(ctx, headers[newest.seq].metadata))
    parents = metadata.get("parents")
    return isinstance(parents, dict) and any((str(of), str(parent)) in gone for of, parent in parents.items())


# --- runs ---


def delete_for_runs_gen(ctx: Context, run_ids: Sequence[str]) -> Program[int]:
    """Remove the checkpoints of runs with their writes; how many. One transaction per namespace."""
    names = [run_name(ctx, str(run_id)) for run_id in run_ids]
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


def _delete_run_gen(ctx: Context, space: Space, run: int) -> Program[int]:
    yield from Select(statement="space_lock", args={"space": space.id})
    rows = yield from Select(statement="run_checkpoints", args={"space": space.id, "run": run})
    ours = {cast("int", row[0]) for row in rows}
    nodes = yield from _nodes_gen(space)
    kept = {node.seq for node in nodes if node.state == LISTED and node.seq not in ours}
    return (yield from remove_gen(ctx, space, nodes, kept))


# --- what a removal has to leave ---


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
    rows: list[Args] = [{"seq": seq, "checkpoint": seq} for seq in sorted(going)]
    yield from SelectEach(statement="writes_delete", rows=[{"checkpoint": row["checkpoint"]} for row in rows])
    yield from SelectEach(statement="checkpoint_delete", rows=[{"seq": row["seq"]} for row in rows])
    if len(going) == len(nodes):
        yield from Select(statement="runs_delete_space", args={"space": space.id})
        yield from Select(statement="space_delete", args={"space": space.id})
    return len(going) + len(hide)


def _useless_gen(nodes: Sequence[Node], waiting: set[int], going: set[int]) -> Program[set[int]]:
    """Places kept for parents that were never stored, when no child is left and no writes wait there."""
    parents = {node.parent for node in nodes if node.seq not in going}
    lonely = sorted(waiting - {parent for parent in parents if parent is not None})
    if not lonely:
        return set()
    rows = yield from SelectIn(statement="writes_of", keys=lonely)
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


# --- copying ---


def copy_thread_gen(ctx: Context, source: str, target: str) -> Program[None]:
    """Copy every checkpoint and write of a thread, hidden ones too. Values are shared, so this costs rows only.

    Raises `ConfigurationError` when the target has checkpoints.
    """
    if source == target:
        raise ConfigurationError(f"a thread cannot be copied to itself ({source!r})")
    yield from Transaction(program=partial(_copy_thread_gen, source, target), write=True)


def _copy_thread_gen(source: str, target: str) -> Program[None]:
    held: list[tuple[Space, str]] = []  # what is read in several statements may not change in between
    for _, ns in (yield from _spaces_gen(source)):
        found = yield from hold_space_gen(source, ns)
        if found is not None:
            held.append((found, ns))
    for space, ns in held:
        yield from Select(statement="space_add", args={"thread": target, "ns": ns, "wide": int(space.wide)})
        copy = yield from hold_space_gen(target, ns)
        assert copy is not None, "a space that was just added is there"
        if one((yield from Select(statement="checkpoint_keys", args={"space": copy.id}))) is not None:
            raise ConfigurationError(
                f"thread {target!r} has checkpoints already: copy to a new thread, or delete it first"
            )
        runs = yield from _copy_runs_gen(space, copy)
        seqs = yield from _copy_checkpoints_gen(space, copy, runs)
        yield from _copy_writes_gen(seqs)


def _copy_runs_gen(space: Space, copy: Space) -> Program[Mapping[int, int]]:
    rows = yield from Select(statement="runs_of_space", args={"space": space.id})
    found: dict[int, int] = {}
    for run, name in cast("list[tuple[int, bytes]]", rows):
        yield from Select(statement="run_add", args={"name": name, "space": copy.id})
        row = one((yield from Select(statement="run_get", args={"name": name, "space": copy.id})))
        assert row is not None, "a run that was just added is there"
        found[run] = cast("int", row[0])
    return found


def _copy_checkpoints_gen(space: Space, copy: Space, runs: Mapping[int, int]) -> Program[Mapping[int, int]]:
    rows = yield from Select(statement="checkpoint_scan_space", args={"space": space.id})
    seqs: dict[int, int] = {}
    late: list[tuple[int, int]] = []
    for seq, raw, state, parent, run, template, data in cast(
        "list[tuple[int, bytes, int, int | None, int | None, int | None, bytes | None]]", rows
    ):
        args: Args = {
            "space": copy.id, "id": raw, "state": state, "parent": None if parent is None else seqs.get(parent),
            "template": template, "data": data, "run": None if run is None else runs[run],
        }  # fmt: skip
        added = yield from Select(statement="checkpoint_add", args=args)
        seqs[seq] = cast("int", added[0][0])
        if parent is not None and parent not in seqs:
            late.append((seq, parent))  # a parent that was stored after its child
    links: list[Args] = [{"seq": seqs[seq], "parent": seqs[parent]} for seq, parent in late if parent in seqs]
    yield from SelectEach(statement="checkpoint_parent", rows=links)
    return seqs


def _copy_writes_gen(seqs: Mapping[int, int]) -> Program[None]:
    rows = yield from SelectIn(statement="writes_of", keys=sorted(seqs))
    copies: list[Args] = [
        {"checkpoint": seqs[checkpoint], "task": task, "template": template, "data": data}
        for checkpoint, task, template, data, _ in cast("list[tuple[int, bytes, int, bytes, bytes]]", sorted(rows))
    ]
    yield from SelectEach(statement="write_put", rows=copies)
