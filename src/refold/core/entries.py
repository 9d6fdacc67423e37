"""The entries of a window before pairing is repaired: the log in order, with what folds show in the place of what they
took out.

A message that item folds name is shown by their passes, a span that a summary covers is one segment message at the
place of the span, STATE stands after the last segment.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage

from refold.core.folds import Fold, Item
from refold.core.in_force import InForce
from refold.core.log import Log
from refold.core.messages import REFOLD_KEY, role_of
from refold.core.passes import ITEM_PASSES
from refold.core.repair import drop_bound_reasoning, unchained
from refold.core.window import Entry, EntryKind, Items, Segment, Window

_Shown: TypeAlias = Mapping[tuple[int, tuple[str, ...]], BaseMessage]


def plain_entries(log: Log, found: InForce, previous: Window | None, *, grown: bool) -> tuple[Entry, ...]:
    """The entries before pairing is repaired. Messages that the previous window shows by the same folds are taken over;
    with `grown` the log holds all of that window's."""
    entry_at = partial(
        _entry,
        log,
        found.items,
        bound=max((_bound_until(log, segment.fold) for segment in found.segments), default=0),
        chained=_chained_until(log, found.folds),
        reusable=_reusable(previous, log, grown=grown),
    )
    entries: list[Entry] = []
    index = 0
    remaining = list(found.segments)
    systems: list[Entry] = []
    while index < len(log):
        if remaining and remaining[0].start == index:
            segment = remaining.pop(0)
            entries.append(_record(segment.fold, "segment", index, segment.stop))
            for kept in _kept(log, segment):
                entry = entry_at(kept)
                (systems if role_of(entry.message) == "system" else entries).append(entry)
            index = segment.stop
            if not remaining and found.state is not None:
                entries.append(_record(found.state, "state", index, index))
            continue
        entry = entry_at(index)
        if systems and not remaining and role_of(entry.message) == "ai":
            entries += systems
            systems = []
        entries.append(entry)
        index += 1
    return (*entries, *systems)


def segment_message(fold: Fold) -> HumanMessage:
    """The window message of a summary, a merge or STATE."""
    return HumanMessage(
        content=fold.text, id=fold.id, additional_kwargs={REFOLD_KEY: {"kind": fold.kind, "fold": fold.id}}
    )


def shown(message: BaseMessage, acting: Sequence[tuple[Fold, Item]]) -> BaseMessage:
    """A log message as the item folds on it show it, in the order in which they were made."""
    cleared = max((n for n, (fold, _) in enumerate(acting) if fold.kind == "clear"), default=-1)
    for number, (fold, item) in enumerate(acting):
        if fold.kind == "result" and number < cleared:
            continue  # a preview that was cleared later
        message = ITEM_PASSES[fold.kind].show(message, item.data)
    return message


def _reusable(previous: Window | None, log: Log, *, grown: bool) -> _Shown:
    """Messages that an earlier window shows by the same folds: rendering a preview again would give the same bytes. In
    a log that has grown they are equal, though they may be other objects."""
    if previous is None:
        return {}
    old = previous.log.messages
    same = {i for i in previous.items if grown or (i < len(log) and log.messages[i] is old[i])}
    return {(e.start, e.folds): e.message for e in previous.growth.plain if e.kind == "item" and e.start in same}


def _record(fold: Fold, kind: EntryKind, start: int, stop: int) -> Entry:
    return Entry(message=segment_message(fold), kind=kind, start=start, stop=stop, folds=(fold.id,))


def _kept(log: Log, segment: Segment) -> list[int]:
    """The log messages inside a span that stay in view, in order.

    A system message among them is shown after all segments, before the next AI message or last: Anthropic takes one
    that is not the first message nowhere else.
    """
    places = sorted(log.positions[key] for key in segment.fold.kept if key in log.positions)
    return [index for index in places if segment.start <= index < segment.stop]


def _bound_until(log: Log, fold: Fold) -> int:
    """Before this index reasoning is dropped: it was bound to context that the fold took away. The tool loop that was
    open then keeps its reasoning, without which Anthropic refuses it."""
    at = log.positions.get(fold.at.key, -1)
    return next((i for i in range(at, -1, -1) if role_of(log.messages[i]) == "human"), 0)


def _chained_until(log: Log, folds: Sequence[Fold]) -> int:
    """The log index after the newest message that a fold which shows something was made at."""
    return max((log.positions.get(f.at.key, -1) + 1 for f in folds if f.kind != "strike"), default=0)


def _entry(log: Log, items: Items, index: int, *, bound: int, chained: int, reusable: _Shown) -> Entry:
    message = log.messages[index]
    acting = items.get(index, ())
    ids = tuple(fold.id for fold, _ in acting)
    if acting:
        message = reusable.get((index, ids)) or shown(message, acting)
    if index < bound:
        message = drop_bound_reasoning(message)
    if index < chained:
        message = unchained(message)
    return Entry(message=message, kind="item" if acting else "log", start=index, stop=index + 1, folds=ids)
