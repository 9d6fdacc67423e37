"""From cells to values: which rows are needed, and what they give."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from refold.checkpoint.blobs import Found, pull_gen
from refold.checkpoint.caches import Elements, Entry, ListState, weight_of
from refold.checkpoint.drafts import Context
from refold.checkpoint.header import Cell, InBlob, Inline, InLog
from refold.checkpoint.lean import Lean, cut_text, thaw
from refold.checkpoint.lists import mark_of
from refold.checkpoint.logs import read_logs_gen
from refold.checkpoint.serde import MSGPACK
from refold.core.program import Program

_MANY = 256  # elements: fewer are made in a millisecond or two


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """Everything that a set of cells needs, fetched in one transaction.

    `known` are the stored forms of messages, as far as they are remembered. `shared` has the messages that were made
    already, where values may share them: the tuples of one page of a listing, which differ in a few messages of
    thousands.
    """

    found: Found
    logs: Mapping[int, Sequence[Entry]] = field(default_factory=dict)
    known: dict[int, Lean] = field(default_factory=dict)
    shared: dict[int, BaseMessage] | None = None


def pull_cells_gen(ctx: Context, found: Found, cells: Iterable[Cell], *, share: bool = False) -> Program[Pulled]:
    """Fetch what cells need. Messages that are remembered are not fetched. `share`: see `Pulled.shared`."""
    cells = list(cells)
    lengths = lengths_of(cells)
    blobs: set[int] = set()
    elements: set[int] = set()
    for cell in cells:
        match cell:
            case InBlob(blob=blob):
                blobs.add(blob)
            case Inline(tag=tag, pieces=pieces, refs=refs):
                (elements if is_array(tag, pieces) else blobs).update(refs)
            case InLog():
                pass
    logs = yield from read_logs_gen(ctx, lengths)
    for log, entries in logs.items():
        elements.update(entry for entry in entries[: lengths[log]] if isinstance(entry, int))
    known = ctx.caches.lean.get_many(elements)
    blobs |= elements - known.keys()
    yield from pull_gen(found, blobs)
    return Pulled(found=found, logs=logs, known=known, shared={} if share else None)


def lengths_of(cells: Iterable[Cell]) -> Mapping[int, int]:
    """How much of each log some cells need."""
    lengths: dict[int, int] = {}
    for cell in cells:
        if isinstance(cell, InLog):
            lengths[cell.log] = max(cell.length, lengths.get(cell.log, 0))
    return lengths


def is_array(tag: str, pieces: Sequence[bytes]) -> bool:
    """Whether a composite is a msgpack array of exactly its references: such a list is rebuilt element by element."""
    if tag != MSGPACK or any(pieces[1:]):
        return False
    first, count = pieces[0], len(pieces) - 1
    if count < 16:
        return first == bytes([0x90 | count])
    return first == b"\xdc" + count.to_bytes(2, "big")


def value_of(ctx: Context, pulled: Pulled, cell: Cell, *, remember: bool = False) -> object:
    """A cell's value, made anew each time. `remember`: recognise a list's elements when they come back in a `put`.

    Raises `CorruptionError` where something stored is missing or damaged.
    """
    match cell:
        case Inline(tag=tag, pieces=pieces, refs=refs):
            if refs and ctx.serde.lean and is_array(tag, pieces):
                return _elements(ctx, pulled, refs)[0]
            return ctx.serde.load(tag, pulled.found.fill(pieces, refs))
        case InBlob(blob=blob):
            return ctx.serde.load(*pulled.found.full(blob))
        case InLog(log=log, length=length, snapshot=snapshot):
            entries = pulled.logs[log][:length]
            items, forms = _elements(ctx, pulled, entries)
            if remember:
                marks = [mark_of(item) if form is None else form for item, form in zip(items, forms, strict=True)]
                elements = Elements(list(entries), items[:], marks)
                ctx.caches.lists.put(
                    log, ListState(elements=elements, length=length, weight=weight_of(marks), source=items)
                )
            return _DeltaSnapshot(items) if snapshot else items


def _elements(ctx: Context, pulled: Pulled, entries: Sequence[Entry]) -> tuple[list[object], list[Lean | None]]:
    """The elements of a list, each made anew unless it may be shared, and the stored form of those that are lean."""
    if len(entries) < _MANY:
        return _make_elements(ctx, pulled, entries)
    with _collector_paused():
        return _make_elements(ctx, pulled, entries)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's cycle collector waits while thousands of objects are made of which none is garbage: it would go through
    them, and all that the application holds, again and again, which is half the time of reading a history. Stays off
    where it was off, also where another thread is at this."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _make_elements(ctx: Context, pulled: Pulled, entries: Sequence[Entry]) -> tuple[list[object], list[Lean | None]]:
    known = pulled.known if ctx.serde.lean else {}
    made: dict[int, BaseMessage] = {} if pulled.shared is None else pulled.shared
    if ctx.serde.lean:
        new = [entry for entry in entries if isinstance(entry, int) and entry not in known and entry not in made]
        if new:
            forms_found, built = pulled.found.messages(new)
            known.update(forms_found)
            made.update(built)
    share, given = pulled.shared is not None, pulled.found.given
    items: list[object] = []
    forms: list[Lean | None] = []
    cuts: dict[int, Lean] = {}
    for entry in entries:
        form = None
        if isinstance(entry, bytes):
            items.append(ctx.serde.load(MSGPACK, entry))
        elif entry in made:
            items.append(made[entry] if share else made.pop(entry))
            form = known.get(entry)
        elif (form := known.get(entry)) is not None and (message := thaw(form, given)) is not None:
            items.append(message)
            if share:
                made[entry] = message
            if type(form) is bytes and (cut := cut_text(form, message)) is not None:  # it may be thawed often
                cuts[entry] = form = cut
        else:
            items.append(ctx.serde.load(*pulled.found.full(entry)))
        forms.append(form)
    if cuts:
        known.update(cuts)
        ctx.caches.lean.replace_many(cuts)
    return items, forms
