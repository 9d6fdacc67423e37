"""What a prune keeps, and the program that prunes: see `removal` for what goes and what is hidden."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeAlias, cast

from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import SelectIn, Transaction
from refold.checkpoint.header import Header, id_time
from refold.checkpoint.read import stored_of
from refold.checkpoint.removal import remove_gen
from refold.checkpoint.rows import header_of, read_templates_gen
from refold.checkpoint.spaces import AWAITED, LISTED, Space, hold_gen, read_row
from refold.checkpoint.threads import Node, delete_space_gen, delete_spaces_gen, nodes_gen, spaces_gen, threads_gen
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


@dataclass(frozen=True, kw_only=True)
class _Left:
    """What a prune leaves of a namespace: the ids of its checkpoints, and the newest that there was."""

    ids: frozenset[str]
    newest: str

    def lacks(self, checkpoint_id: str) -> bool:
        """Whether a checkpoint goes or is gone. One that is newer than all may still be on its way."""
        return checkpoint_id not in self.ids and checkpoint_id <= self.newest


def retention_of(strategy: str, keep: int, before: datetime | None) -> Retention:
    """Raises `ConfigurationError` for a strategy that does not exist or lacks its argument."""
    if strategy not in ("keep_latest", "keep_last", "older_than", "delete"):
        raise ConfigurationError(
            f"prune knows no strategy {strategy!r}: use 'keep_latest', 'keep_last', 'older_than' or 'delete'"
        )
    if keep < 1:
        raise ConfigurationError(f"prune cannot keep {keep} checkpoints: keep at least 1, or use strategy='delete'")
    if keep != 1 and strategy != "keep_last":
        raise ConfigurationError(
            f"prune keeps {keep} checkpoints with strategy='keep_last' only, not with {strategy!r}"
        )
    if before is not None and before.tzinfo is None:
        raise ConfigurationError("prune needs a time with a zone: datetime(..., tzinfo=UTC)")
    if strategy == "older_than" and before is None:
        raise ConfigurationError("prune by age needs before=..., a time with a zone")
    return Retention(strategy=cast("Strategy", strategy), keep=keep if strategy == "keep_last" else 1, before=before)


def prune_gen(ctx: Context, threads: Sequence[str] | None, retention: Retention, batch: int) -> Program[int]:
    """Prune threads, or all when None, each in a transaction of its own; how many checkpoints went. An interrupted
    prune leaves whole threads done and the others untouched.

    Raises `ConfigurationError` for a `batch` without a thread.
    """
    if batch < 1:
        raise ConfigurationError(f"prune cannot take {batch} threads at a time: batch_size is at least 1")
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
    spaces = yield from spaces_gen(thread)
    if retention.strategy == "delete":
        if retention.before is not None and not (yield from _is_idle_gen(ctx, spaces, retention.before)):
            return 0
        return (yield from delete_spaces_gen(ctx, thread))
    removed = 0
    left: dict[str, _Left] = {}
    for found, ns in spaces:
        space = yield from hold_gen(found)
        if space is None:
            continue
        nodes = yield from nodes_gen(space)
        if (yield from _is_of_gone_call_gen(ctx, space, ns, nodes, left)):
            left[ns] = _left_of(nodes, frozenset())
            yield from delete_space_gen(space)
            removed += len(nodes)
            continue
        kept = yield from _kept_gen(ctx, space, nodes, retention)
        left[ns] = _left_of(nodes, kept)
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
    return {seq: _time_of(header.ts) for seq, header in headers.items()}


def _time_of(ts: str) -> datetime:
    """When a checkpoint was made. One whose time cannot be read is never too old: nothing is removed for it."""
    try:
        made = datetime.fromisoformat(ts)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return made if made.tzinfo is not None else made.replace(tzinfo=UTC)


def _headers_gen(ctx: Context, space: Space, seqs: Sequence[int]) -> Program[Mapping[int, Header]]:
    raw = yield from SelectIn(statement="checkpoint_rows", keys=seqs)
    rows = [read_row(row, space) for row in raw]
    templates = yield from read_templates_gen(ctx, {row.template for row in rows if row.template is not None})
    return {row.seq: header_of(ctx, row, templates) for row in rows if row.template is not None}


def _is_idle_gen(ctx: Context, spaces: Sequence[tuple[Space, str]], before: datetime) -> Program[bool]:
    for space, _ in spaces:
        nodes = yield from nodes_gen(space)
        newest = [node.seq for node in nodes if node.state == LISTED][:1]
        times = yield from _times_gen(ctx, space, newest)
        early = [id_time(node.checkpoint_id) for node in nodes if node.state == AWAITED]  # of a run that has just begun
        if any(made >= before for made in (*times.values(), *early)):
            return False
    return bool(spaces)


def _left_of(nodes: Sequence[Node], kept: Collection[int]) -> _Left:
    return _Left(
        ids=frozenset(node.checkpoint_id for node in nodes if node.state == AWAITED or node.seq in kept),
        newest=max((node.checkpoint_id for node in nodes if node.state == LISTED), default=""),
    )


def _is_of_gone_call_gen(
    ctx: Context, space: Space, ns: str, nodes: Sequence[Node], left: Mapping[str, _Left]
) -> Program[bool]:
    """Whether a namespace belongs to one call of a subgraph, and the checkpoint that the call began at goes, or went
    before.

    A namespace whose last name has no task id belongs to a subgraph with a memory of its own: it stays. (The second
    call and those after it of one task have its number behind their name.)
    """
    newest = next((node for node in nodes if node.state == LISTED), None)
    names = [part for part in ns.split("|") if not part.isdigit()]
    if newest is None or not names or ":" not in names[-1]:
        return False
    headers = yield from _headers_gen(ctx, space, [newest.seq])
    metadata = cast("Mapping[str, object]", stored_of(ctx, headers[newest.seq].metadata))
    parents = metadata.get("parents")
    if not isinstance(parents, dict):
        return False
    return any(str(of) in left and left[str(of)].lacks(str(parent)) for of, parent in parents.items())
