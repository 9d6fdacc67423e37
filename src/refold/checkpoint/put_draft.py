"""A checkpoint as it will be written: which values are the parent's, which are new, and where each goes.

Values are serialized here, before any transaction. What the parent has and the new checkpoint did not change is pointed
at again, without looking at the value.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import cast

from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from refold.checkpoint.caches import Tip
from refold.checkpoint.cells import CellDraft, draft_cell
from refold.checkpoint.drafts import Context, run_name
from refold.checkpoint.header import Cell, Header, InLog, Stored
from refold.checkpoint.lists import draft_list, is_loggable
from refold.checkpoint.message_log import Growth, origin_of
from refold.checkpoint.shape import Shape, is_plain, plain_copy
from refold.checkpoint.spaces import Address

_INLINE_VALUE = 12  # bytes: an inline value is repeated in every checkpoint that keeps it
_KNOWN_KEYS = frozenset({"id", "ts", "channel_values", "channel_versions", "versions_seen"})


@dataclass(frozen=True, kw_only=True)
class PutDraft:
    """A checkpoint ready to be written, given that its parent still is what `tip` says.

    `callers` are the checkpoints of the graphs around a subgraph, by namespace; `rebuilt` are delta channels that have
    no value here.
    """

    address: Address
    parent_id: str | None
    tip: Tip | None
    header: Header
    cells: Mapping[str, CellDraft]
    run: bytes | None
    fork: bool
    callers: Mapping[str, str]
    rebuilt: Collection[str]


def draft_put(
    ctx: Context,
    address: Address,
    parent_id: str | None,
    tip: Tip | None,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> PutDraft:
    before = None if tip is None else tip.header
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    growths = _growths_to_trust(ctx, before, metadata, values)
    cells: dict[str, CellDraft] = {}
    for channel, value in values.items():
        cells[channel] = _carried(channel, versions, new_versions, before) or _draft_value(
            ctx, channel, value, before, growths
        )
    trails: dict[str, InLog] = {}
    for channel in versions:
        if channel in cells:
            continue
        carried = _carried(channel, versions, new_versions, before)
        if carried is not None:  # a delta channel's snapshot, while the channel did not move
            cells[channel] = carried
        elif (trail := _trail(channel, before)) is not None:
            trails[channel] = trail
    rest = {key: value for key, value in checkpoint.items() if key not in _KNOWN_KEYS}
    header = Header(  # copies: the caller may go on with its objects
        ts=checkpoint["ts"],
        versions=dict(versions),
        seen={node: dict(seen) for node, seen in checkpoint["versions_seen"].items()},
        cells={},
        trails=trails,
        metadata=_storable(ctx, metadata),
        rest=_storable(ctx, rest),
    )
    run = metadata.get("run_id")
    counters = metadata.get("counters_since_delta_snapshot")
    return PutDraft(
        address=address, parent_id=parent_id, tip=tip, header=header, cells=cells,
        run=None if run is None else run_name(ctx, str(run)), fork=metadata.get("source") == "fork",
        callers=callers_in(metadata),
        rebuilt=[channel for channel in counters or () if channel in versions and channel not in cells],
    )  # fmt: skip


def callers_in(metadata: Mapping[str, object]) -> Mapping[str, str]:
    """The checkpoints that the graphs around a subgraph were at, by namespace: LangGraph's metadata say so."""
    parents = metadata.get("parents")
    return {str(ns): str(parent) for ns, parent in parents.items()} if isinstance(parents, Mapping) else {}


def _carried(
    channel: str, versions: ChannelVersions, new_versions: ChannelVersions, before: Header | None
) -> Cell | None:
    """The parent's cell of a channel that did not move."""
    if before is None or channel in new_versions or channel not in versions:
        return None
    return before.cells.get(channel) if before.versions.get(channel) == versions[channel] else None


def _trail(channel: str, before: Header | None) -> InLog | None:
    """The log of a delta channel's last snapshot: its next one goes on from there."""
    if before is None:
        return None
    cell = before.cells.get(channel)
    return cell if isinstance(cell, InLog) and cell.snapshot else before.trails.get(channel)


def _growths_to_trust(
    ctx: Context, before: Header | None, metadata: Mapping[str, object], values: Mapping[str, object]
) -> Collection[Growth]:
    """The growths of logs that a reducer made since the parent, one update after the other.

    Several supersteps in one checkpoint (durability "exit") may hide that a log was edited and overwrote itself, and a
    log that stands in two channels was put into one of them by something that is no reducer.
    """
    if before is None:
        return ()
    was = before.metadata
    known = ctx.serde.load(was.tag, was.data) if isinstance(was, Stored) else was
    step = known.get("step") if isinstance(known, Mapping) else None
    if not isinstance(step, int) or metadata.get("step") != step + 1:
        return ()
    origins = map(origin_of, map(_items_of, values.values()))
    growths = [origin.growth for origin in origins if origin is not None]
    return [growth for growth in growths if growths.count(growth) == 1]


def _items_of(value: object) -> object:
    return value.value if isinstance(value, _DeltaSnapshot) else value


def _draft_value(
    ctx: Context, channel: str, value: object, before: Header | None, growths: Collection[Growth]
) -> CellDraft:
    snapshot = isinstance(value, _DeltaSnapshot)
    items = _items_of(value)
    if ctx.serde.cuts and is_loggable(items):
        base = None if before is None else before.cells.get(channel) or before.trails.get(channel)
        base = base if isinstance(base, InLog) else None
        state = None if base is None else ctx.caches.lists.get(base.log)
        own = origin_of(items)
        trust = own is not None and own.growth in growths and not snapshot  # of many steps, seldom enough to look
        return draft_list(ctx, cast("list[object]", items), base=base, state=state, snapshot=snapshot, trust=trust)
    return draft_cell(ctx, value, _INLINE_VALUE)


def _storable(ctx: Context, value: Mapping[str, object]) -> Mapping[str, Shape] | Stored:
    if is_plain(value):
        return cast("Mapping[str, Shape]", plain_copy(value))
    plain = ctx.serde.dump(value)
    return Stored(tag=plain.tag, data=plain.data)
