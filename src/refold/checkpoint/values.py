"""From cells to values: which rows are needed, and what they give."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from refold.checkpoint.blobs import Found, pull_gen
from refold.checkpoint.caches import Entry, ListState
from refold.checkpoint.drafts import Context
from refold.checkpoint.header import Cell, InBlob, Inline, InLog
from refold.checkpoint.lean import thaw
from refold.checkpoint.lists import mark_of
from refold.checkpoint.logs import read_logs_gen
from refold.checkpoint.serde import MSGPACK
from refold.core.program import Program


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """Everything that a set of cells needs, fetched in one transaction."""

    found: Found
    logs: Mapping[int, Sequence[Entry]] = field(default_factory=dict)


def pull_cells_gen(ctx: Context, found: Found, cells: Iterable[Cell]) -> Program[Pulled]:
    """Fetch what cells need. Messages that are remembered are not fetched."""
    lengths: dict[int, int] = {}
    blobs: set[int] = set()
    elements: set[int] = set()
    for cell in cells:
        match cell:
            case InLog(log=log, length=length):
                lengths[log] = max(length, lengths.get(log, 0))
            case InBlob(blob=blob):
                blobs.add(blob)
            case Inline(tag=tag, pieces=pieces, refs=refs):
                (elements if is_array(tag, pieces) else blobs).update(refs)
    logs = yield from read_logs_gen(ctx, lengths)
    for log, entries in logs.items():
        elements.update(entry for entry in entries[: lengths[log]] if isinstance(entry, int))
    blobs.update(blob for blob in elements if ctx.caches.frozen.get(blob) is None)
    yield from pull_gen(found, blobs)
    return Pulled(found=found, logs=logs)


def is_array(tag: str, pieces: Sequence[bytes]) -> bool:
    """Whether a composite is a msgpack array of exactly its references: such a list is rebuilt element by element."""
    if tag != MSGPACK or any(pieces[1:]):
        return False
    first, count = pieces[0], len(pieces) - 1
    if count < 16:
        return first == bytes([0x90 | count])
    return first == b"\xdc" + count.to_bytes(2, "big")


def value_of(ctx: Context, pulled: Pulled, cell: Cell) -> object:
    """A cell's value, made anew each time. Raises `CorruptionError` where something stored is missing or damaged."""
    match cell:
        case Inline(tag=tag, pieces=pieces, refs=refs):
            if refs and ctx.serde.lean and is_array(tag, pieces):
                return [_element(ctx, pulled.found, ref) for ref in refs]
            return ctx.serde.load(tag, pulled.found.fill(pieces, refs))
        case InBlob(blob=blob):
            return ctx.serde.load(*pulled.found.full(blob))
        case InLog(log=log, length=length, snapshot=snapshot):
            items = [_element(ctx, pulled.found, entry) for entry in pulled.logs[log][:length]]
            return _DeltaSnapshot(items) if snapshot else items


def _element(ctx: Context, found: Found, entry: Entry) -> object:
    if isinstance(entry, bytes):
        return ctx.serde.load(MSGPACK, entry)
    frozen = found.frozen(entry) if ctx.serde.lean else None
    return thaw(frozen) if frozen is not None else ctx.serde.load(*found.full(entry))


def remember_list(ctx: Context, pulled: Pulled, cell: Cell, value: object) -> None:
    """Recognise the elements just handed out when they come back in the next `put`."""
    if not isinstance(cell, InLog):
        return
    items = cast("list[object]", value.value if isinstance(value, _DeltaSnapshot) else value)
    entries = pulled.logs[cell.log][: cell.length]
    marks = [
        (isinstance(entry, int) and ctx.caches.frozen.get(entry)) or mark_of(item)
        for entry, item in zip(entries, items, strict=True)
    ]
    ctx.caches.lists.put(cell.log, ListState(entries=entries, objects=list(items), marks=marks))
