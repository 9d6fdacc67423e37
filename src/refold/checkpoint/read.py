"""The programs that read a checkpoint and a delta channel's history."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    writes_sort_key,
)

from refold.checkpoint.blobs import Found
from refold.checkpoint.caches import Tip
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Ahead, Select, SelectIn, Transaction
from refold.checkpoint.header import Cell, Header, Stored, Write, channels_of
from refold.checkpoint.logs import get_logs
from refold.checkpoint.rows import get_templates, get_writes, header_of, read_templates_gen, unpack_task, writes_of
from refold.checkpoint.shape import Shape, plain_copy
from refold.checkpoint.spaces import (
    AWAITED,
    Address,
    CheckpointRow,
    Space,
    address_of,
    find_gen,
    get_found,
    read_row,
    unpack_id,
)
from refold.checkpoint.values import Pulled, lengths_of, pull_cells_gen, value_of
from refold.core.program import Program

_CHAIN = 1_000_000  # ancestors: a bound against a loop in a damaged database


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskWrite:
    task: str
    write: Write


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Checkpoints of one space as read in one transaction, to be turned into tuples outside it."""

    thread: str
    ns: str
    rows: Sequence[CheckpointRow]
    headers: Mapping[int, Header]
    writes: Mapping[int, Sequence[TaskWrite]]
    pulled: Pulled


# --- one checkpoint ---


def get_tuple_gen(ctx: Context, config: RunnableConfig) -> Program[CheckpointTuple | None]:
    """The checkpoint that a config names, or the newest of its namespace."""
    address = address_of(config)
    tip = ctx.caches.tips.get((address.thread, address.ns))  # most probably still the newest
    ahead: Sequence[Select | SelectIn] = [get_found(address), get_writes([] if tip is None else [tip.seq])]
    found_at = yield from Transaction(program=partial(_load_one_gen, ctx, address), write=False, ahead=lambda: ahead)
    if found_at is None:
        return None
    space, loaded = found_at
    row = loaded.rows[0]
    if address.checkpoint_id is None or tip is None:
        ctx.caches.tips.put((address.thread, address.ns), tip_of(row, loaded.headers[row.seq], space))
    found = tuple_of(ctx, loaded, row, remember=True)
    return found if address.checkpoint_id is None else found._replace(config=config)


def tip_of(row: CheckpointRow, header: Header, space: Space) -> Tip:
    """A checkpoint as one that a next one may build on."""
    return Tip(
        checkpoint_id=row.checkpoint_id, seq=row.seq, template=cast("int", row.template), data=cast("bytes", row.data),
        header=header, space=space,
    )  # fmt: skip


def _load_one_gen(ctx: Context, address: Address) -> Program[tuple[Space, Loaded] | None]:
    found = yield from find_gen(address)
    if found is None or found[1].state == AWAITED:
        return None
    space, row = found
    return space, (yield from load_gen(ctx, address.thread, address.ns, [row]))


def load_gen(
    ctx: Context, thread: str, ns: str, rows: Sequence[CheckpointRow], *, share: bool = False
) -> Program[Loaded]:
    """Everything that rows need to become tuples. A fixed number of statements, however many rows. `share`: the tuples
    may have message objects in common."""
    ids = {row.seq: row.checkpoint_id for row in rows}
    wanted = [row.template for row in rows if row.template is not None]
    if (unknown := get_templates(ctx, wanted)).keys:
        yield from Ahead(selects=[get_writes(ids), unknown])
    raw_writes = yield from get_writes(ids)
    templates = yield from read_templates_gen(ctx, wanted)
    headers = {row.seq: header_of(ctx, row, templates) for row in rows}
    cells = [cell for header in headers.values() for cell in header.cells.values()]
    written = {cast("int", row[2]) for row in raw_writes}
    if (unknown := get_templates(ctx, written)).keys:
        yield from Ahead(selects=[unknown, get_logs(ctx, lengths_of(cells))])
    templates = yield from read_templates_gen(ctx, written)
    writes = _writes_by_checkpoint(ctx, raw_writes, templates, ids)
    cells += [item.write.cell for items in writes.values() for item in items]
    pulled = yield from pull_cells_gen(ctx, Found(ctx), cells, share=share)
    return Loaded(thread=thread, ns=ns, rows=rows, headers=headers, writes=writes, pulled=pulled)


def _writes_by_checkpoint(
    ctx: Context, rows: Iterable[Sequence[object]], templates: Mapping[int, bytes], ids: Mapping[int, str]
) -> Mapping[int, Sequence[TaskWrite]]:
    """Writes by checkpoint, in the order in which a live run applies them."""
    found: dict[int, list[TaskWrite]] = {}
    for checkpoint, raw_task, template, data, _ in cast("Iterable[tuple[int, bytes, int, bytes, bytes]]", rows):
        task = unpack_task(raw_task)
        items = writes_of(ctx, templates[template], data, ids[checkpoint], task)
        found.setdefault(checkpoint, []).extend(TaskWrite(task=task, write=item) for item in items)
    for unordered in found.values():
        unordered.sort(key=lambda item: writes_sort_key(item.write.path, item.task, item.write.idx))
    return found


def tuple_of(ctx: Context, loaded: Loaded, row: CheckpointRow, *, remember: bool = False) -> CheckpointTuple:
    """A row as LangGraph's tuple. Every call makes new values."""
    pulled = loaded.pulled
    header = loaded.headers[row.seq]
    checkpoint: dict[str, Any] = {
        **cast("dict[str, Any]", stored_of(ctx, header.rest)),
        "id": row.checkpoint_id,
        "ts": header.ts,
        "channel_values": {name: value_of(ctx, pulled, cell, remember=remember) for name, cell in header.cells.items()},
        "channel_versions": dict(header.versions),
        "versions_seen": {node: dict(seen) for node, seen in header.seen.items()},
    }
    return CheckpointTuple(
        config=config_of(loaded.thread, loaded.ns, row.checkpoint_id),
        checkpoint=cast("Checkpoint", checkpoint),
        metadata=cast("CheckpointMetadata", stored_of(ctx, header.metadata)),
        parent_config=None if row.parent_id is None else config_of(loaded.thread, loaded.ns, row.parent_id),
        pending_writes=[
            (item.task, item.write.channel, value_of(ctx, loaded.pulled, item.write.cell))
            for item in loaded.writes.get(row.seq, ())
        ],
    )


def stored_of(ctx: Context, value: Mapping[str, Shape] | Stored) -> object:
    """Metadata or fields of a checkpoint, made anew each time."""
    return ctx.serde.load(value.tag, value.data) if isinstance(value, Stored) else plain_copy(value)


def config_of(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


# --- delta channels ---


def delta_history_gen(
    ctx: Context, config: RunnableConfig, channels: Sequence[str]
) -> Program[Mapping[str, DeltaChannelHistory]]:
    """Per channel: the value at the nearest ancestor that stores one, and the writes from there on, oldest first.

    The walk reads the templates of ancestors only: a template says which channels have a value.
    """
    if not channels:
        return {}
    address = address_of(config)
    program = partial(_walk_gen, ctx, address, channels)
    walk = yield from Transaction(program=program, write=False, ahead=lambda: [get_found(address)])
    if walk is None:
        return {channel: {"writes": []} for channel in channels}
    found: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        writes: list[PendingWrite] = [
            (item.task, channel, value_of(ctx, walk.pulled, item.write.cell)) for item in walk.writes[channel]
        ]
        entry: DeltaChannelHistory = {"writes": writes}
        if channel in walk.seeds:
            seed = walk.seeds[channel]
            entry["seed"] = value_of(ctx, walk.pulled, seed, remember=True)
        found[channel] = entry
    return found


@dataclass(frozen=True, kw_only=True)
class _Walk:
    seeds: Mapping[str, Cell]
    writes: Mapping[str, Sequence[TaskWrite]]
    pulled: Pulled


def _walk_gen(ctx: Context, address: Address, channels: Sequence[str]) -> Program[_Walk | None]:
    found = yield from find_gen(address)
    if found is None:
        return None
    space, row = found
    seeds_at, spans = yield from find_seeds_gen(ctx, row.seq, channels)
    seeds = yield from _seed_cells_gen(ctx, space, seeds_at)
    writes = yield from _span_writes_gen(ctx, space, spans)
    cells = [*seeds.values(), *(item.write.cell for items in writes.values() for item in items)]
    pulled = yield from pull_cells_gen(ctx, Found(ctx), cells)
    return _Walk(seeds=seeds, writes=writes, pulled=pulled)


def find_seeds_gen(
    ctx: Context, seq: int, channels: Sequence[str]
) -> Program[tuple[Mapping[str, int], Mapping[str, Sequence[int]]]]:
    """Per channel: the ancestor that stores a value (none at the root), and the ancestors from the nearest to it."""
    seeds: dict[str, int] = {}
    spans: dict[str, list[int]] = {channel: [] for channel in channels}
    remaining = set(channels)
    count, done = 64, 0
    while remaining:
        rows = yield from Select(statement="checkpoint_chain", args={"seq": seq, "count": count})
        chain = cast("list[tuple[int, int]]", rows)
        templates = yield from read_templates_gen(ctx, {template for _, template in chain[done:]})
        stored = {template: channels_of(data).values for template, data in templates.items()}
        for ancestor, template in chain[done:]:
            for channel in sorted(remaining):
                spans[channel].append(ancestor)
                if channel in stored[template]:
                    seeds[channel] = ancestor
            remaining -= seeds.keys()
            if not remaining:
                break
        if len(chain) < count or count >= _CHAIN:
            break
        done, count = len(chain), count * 8
    return seeds, spans


def _seed_cells_gen(ctx: Context, space: Space, seeds_at: Mapping[str, int]) -> Program[Mapping[str, Cell]]:
    rows = yield from SelectIn(statement="checkpoint_rows", keys=sorted(set(seeds_at.values())))
    found = {row.seq: row for row in (read_row(raw, space) for raw in rows)}
    templates = yield from read_templates_gen(ctx, [r.template for r in found.values() if r.template is not None])
    headers = {seq: header_of(ctx, row, templates) for seq, row in found.items()}
    return {channel: headers[seq].cells[channel] for channel, seq in seeds_at.items()}


def _span_writes_gen(
    ctx: Context, space: Space, spans: Mapping[str, Sequence[int]]
) -> Program[Mapping[str, Sequence[TaskWrite]]]:
    wanted = sorted({seq for span in spans.values() for seq in span})
    raw = yield from get_writes(wanted)
    ids = {cast("int", row[0]): unpack_id(cast("bytes", row[4]), wide=space.wide) for row in raw}
    templates = yield from read_templates_gen(ctx, {cast("int", row[2]) for row in raw})
    by_checkpoint = _writes_by_checkpoint(ctx, raw, templates, ids)
    return {
        channel: [
            item for seq in reversed(span) for item in by_checkpoint.get(seq, ()) if item.write.channel == channel
        ]
        for channel, span in spans.items()
    }
