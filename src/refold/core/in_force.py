"""Which folds of a state act on a log: those that are not undone, still fit the log, and are not overruled.

A fold that no longer fits the log (a removal, an edit, a fork to before it) is void: the originals show again. What an
earlier window of the same thread found is taken over where it must still be so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from refold.core.canonical import Json
from refold.core.folds import ITEM_KINDS, SPAN_KINDS, Fold, Item, Unreadable, read_folds
from refold.core.log import Log
from refold.core.window import Items, Segment, Void, Window


@dataclass(frozen=True, kw_only=True, slots=True)
class InForce:
    """All readable folds of a state in order, and what of them acts: segments, item folds, STATE."""

    folds: tuple[Fold, ...]
    unreadable: tuple[Unreadable, ...]
    void: tuple[Void, ...]
    segments: tuple[Segment, ...]
    items: Items
    state: Fold | None


def in_force(log: Log, raw: Sequence[Mapping[str, Json]], previous: Window | None, *, grown: bool) -> InForce:
    """What acts of the folds. With `grown` the log holds all of the previous window's: what that found is so still."""
    folds, unreadable = _read_on(raw, previous)
    undone = frozenset(identity for fold in folds for identity in fold.undone)
    active = [fold for fold in folds if fold.id not in undone]
    known = previous if grown else None
    segments, void = _segments(log, active, known)
    items, void_items = _items(log, active, known)
    return InForce(
        folds=folds,
        unreadable=unreadable,
        void=void + void_items,
        segments=segments,
        items=items,
        state=_state(log, active, segments),
    )


def _read_on(
    raw: Sequence[Mapping[str, Json]], previous: Window | None
) -> tuple[tuple[Fold, ...], tuple[Unreadable, ...]]:
    """The folds; those that an earlier window read are not read again. At the end of a pass its own have other numbers
    than while it was made, and all before them are the same."""
    if previous is None:
        return read_folds(raw)
    before = previous.raw_folds
    both = min(len(before), len(raw))
    known = next((n for n in range(both) if before[n] is not raw[n] and before[n] != raw[n]), both)
    if known < len(before) and previous.unreadable:  # which of the folds these were is not known
        return read_folds(raw)
    folds, unreadable = read_folds(raw[known:])
    return previous.folds[:known] + folds, previous.unreadable + unreadable


def _segments(log: Log, folds: Sequence[Fold], known: Window | None) -> tuple[tuple[Segment, ...], tuple[Void, ...]]:
    """The span folds in force, in log order. The newest wins where two overlap, so a merge stands for what it merged,
    and what it merged acts again when the merge is void."""
    segments: list[Segment] = []
    void: list[Void] = []
    found = {segment.fold.id: segment for segment in known.segments} if known is not None else {}
    for fold in reversed(folds):
        if fold.kind not in SPAN_KINDS:
            continue
        if fold.id in found:
            place: tuple[int, int] | None = (found[fold.id].start, found[fold.id].stop)
        elif _is_covered(log, fold, segments):
            continue
        else:
            place = log.locate(fold.span)
        if place is None:
            void.append(Void(fold=fold.id, reason="the log changed under it"))
        elif not any(place[0] < other.stop and other.start < place[1] for other in segments):
            segments.append(Segment(fold=fold, start=place[0], stop=place[1]))
    return tuple(sorted(segments, key=lambda segment: segment.start)), tuple(reversed(void))


def _is_covered(log: Log, fold: Fold, segments: Sequence[Segment]) -> bool:
    """Whether a newer segment in force stands where the fold's span begins; its digest need not be taken then."""
    start = log.positions.get(fold.span.first.key, -1)
    return any(segment.start <= start < segment.stop for segment in segments)


def _items(log: Log, folds: Sequence[Fold], known: Window | None) -> tuple[Items, tuple[Void, ...]]:
    """The item folds in force by log index. What an earlier window of the same log found is taken over."""
    acting: dict[int, tuple[tuple[Fold, Item], ...]] = {}
    void: list[Void] = []
    active = {fold.id for fold in folds}
    if known is not None:  # what was undone then acts again where the undo itself is gone: a fork to before it
        active.difference_update(identity for fold in known.folds for identity in fold.undone)
    done: set[str] = set()
    if known is not None and all(fold.id in active for fold in known.folds if fold.kind in ITEM_KINDS):
        acting = dict(known.items)
        kinds = {fold.id: fold.kind for fold in folds}
        void = [lost for lost in known.void if kinds.get(lost.fold) in ITEM_KINDS]
        done = {fold.id for fold in known.folds}
    for fold in folds:
        if fold.kind not in ITEM_KINDS or fold.id in done:
            continue
        lost = 0
        for item in fold.items:
            index = log.find(item.anchor)
            if index is None:
                lost += 1
            else:
                acting[index] = (*acting.get(index, ()), (fold, item))
        if lost:
            void.append(Void(fold=fold.id, reason=f"{lost} of its messages changed or are gone"))
    return acting, tuple(void)


def _state(log: Log, folds: Sequence[Fold], segments: Sequence[Segment]) -> Fold | None:
    """The newest STATE, as long as there is a segment for it to stand after. One that was written over messages which
    are gone since (an undone turn, a fork to before it) says what is no longer so (fault 176)."""
    if not segments:
        return None
    return next((fold for fold in reversed(folds) if fold.kind == "state" and fold.at.key in log.positions), None)
