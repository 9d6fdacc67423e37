"""Projection: log and folds in, window out. Pure: the same input gives the same bytes, in any process.

What the model sees is walked out of the log in order. A message that an items fold names is shown by its pass; a span
that a summary covers is one segment message at the place of the span; STATE stands after the last segment; then pairing
is repaired in view. A fold that no longer fits the log (a removal, an edit, a fork to before it) is void: the originals
show again, and `Window.void` says so.

A window can be grown from the one before it. When the log only grew and the folds are the same, the work is that of the
new messages: entries that can no longer change are shared with the earlier window (`Window.shared` of them), which is
also what makes the next request a prefix extension of the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage

from refold.core.canonical import Json
from refold.core.entries import plain_entries
from refold.core.folds import SPAN_KINDS, Fold
from refold.core.in_force import in_force
from refold.core.log import Log, extend_log, read_log
from refold.core.messages import answers_of
from refold.core.repair import START, Front, Repaired, repair
from refold.core.rounds import pair, settled_length
from refold.core.window import Entry, Growth, Void, Window


def project(
    messages: Sequence[BaseMessage], folds: Sequence[Mapping[str, Json]], *, previous: Window | None = None
) -> Window:
    """The window of a log and its folds.

    `previous` is an earlier window of the same thread, if there is one at hand: it changes the cost, never the result.
    """
    if previous is not None:
        log = extend_log(previous.log, messages)
        if log is None or _revives(previous, log):
            return _walk(log or read_log(messages), folds, previous, grown=False)
        if _are_same(folds, previous.raw_folds) and not previous.floats and not _answers_settled(previous, log):
            return _grow(previous, log, folds)
        return _walk(log, folds, previous, grown=True)
    return _walk(read_log(messages), folds, None, grown=False)


def _revives(previous: Window, log: Log) -> bool:
    """Whether new messages are some that a fold was made for: taken out of the log, or forked away, and put back."""
    return not previous.growth.awaited.isdisjoint(log.keys[len(previous.log) :])


def _awaited(folds: Sequence[Fold], void: Sequence[Void]) -> frozenset[str]:
    """The keys of messages that folds were made at, or for where they are void."""
    lost = {each.fold for each in void}
    named = {fold.at.key for fold in folds}
    for fold in folds:
        if fold.id in lost:
            ends = (fold.span.first, fold.span.last) if fold.kind in SPAN_KINDS else ()
            named.update(anchor.key for anchor in (*ends, *(item.anchor for item in fold.items)))
    return frozenset(named)


def _answers_settled(previous: Window, log: Log) -> bool:
    """Whether a new message answers a call that the window took for one without an answer."""
    new, unanswered = log.messages[len(previous.log) :], previous.growth.unanswered
    if not unanswered or not any(call in unanswered for message in new for call in answers_of(message)):
        return False
    tail = [entry.message for entry in previous.growth.plain[previous.growth.settled[0] :]]
    return any(call in unanswered for _, call in pair([*tail, *new]).orphans)


def _are_same(folds: Sequence[Mapping[str, Json]], known: Sequence[Mapping[str, Json]]) -> bool:
    """Whether two states hold equal folds. Lists are compared by pointers first, without a copy."""
    return (folds if isinstance(folds, list) else list(folds)) == known


def _grow(previous: Window, log: Log, raw: Sequence[Mapping[str, Json]]) -> Window:
    """The window with new messages at its end. It keeps `raw` as it was handed in: the next call is handed the same
    objects, which then need no comparison by value."""
    known = previous.raw_folds if raw and raw[-1] is previous.raw_folds[-1] else list(raw)
    if len(log) == len(previous.log):
        return replace(previous, log=log, raw_folds=known, shared=len(previous.entries), grown_from=previous.entries)
    new = tuple(
        Entry(message=log.messages[index], kind="log", start=index, stop=index + 1)
        for index in range(len(previous.log), len(log))
    )
    growth = previous.growth
    plain = growth.plain + new
    settled_plain, settled_out = growth.settled
    tail, settled, front, unanswered = _repaired(plain[settled_plain:], growth.front)
    entries = previous.entries[:settled_out] + tail
    return Window(
        log=log,
        raw_folds=known,
        folds=previous.folds,
        unreadable=previous.unreadable,
        void=previous.void,
        segments=previous.segments,
        items=previous.items,
        entries=entries,
        shared=_common(previous.entries, entries, settled_out),
        boundary=previous.boundary,
        grown_from=previous.entries,
        growth=Growth(
            plain=plain,
            settled=(settled_plain + settled[0], settled_out + settled[1]),
            front=front,
            unanswered=growth.unanswered | unanswered,
            awaited=growth.awaited,
        ),
    )


def _walk(log: Log, raw: Sequence[Mapping[str, Json]], previous: Window | None, *, grown: bool) -> Window:
    """The window from the start. With `grown` the log holds all of the previous one: what that found is so still."""
    found = in_force(log, raw, previous, grown=grown)
    plain = plain_entries(log, found, previous, grown=grown)
    entries, settled, front, unanswered = _repaired(plain, START)
    return Window(
        log=log,
        raw_folds=list(raw),
        folds=found.folds,
        unreadable=found.unreadable,
        void=found.void,
        segments=found.segments,
        items=found.items,
        entries=entries,
        shared=_common(previous.entries, entries, 0) if previous is not None else 0,
        boundary=max((log.positions.get(f.at.key, -1) + 1 for f in found.folds), default=0),
        grown_from=previous.entries if previous is not None else (),
        growth=Growth(
            plain=plain, settled=settled, front=front, unanswered=unanswered, awaited=_awaited(found.folds, found.void)
        ),
    )


def _repaired(
    plain: tuple[Entry, ...], front: Front
) -> tuple[tuple[Entry, ...], tuple[int, int], Front, frozenset[str]]:
    """The entries with pairing repaired, how many (plain, repaired) entries are settled, the front that these are for
    later ones, and the ids of the calls without an answer among them.

    The newest unit is not settled, nor is one whose server tool still runs. One with an unanswered call is: should its
    answer come after all, the window is walked anew, which costs less than repairing the rest of a thread at each call.
    """
    before = [entry.message for entry in plain]
    settled = settled_length(before)
    first = repair(before[:settled], front=front)
    rest = repair(before[settled:], front=first.front)
    unanswered = frozenset(paired.call.id or "" for paired in pair(before[:settled]).unanswered())
    if not first.repairs and not rest.repairs:
        return plain, (settled, settled), first.front, unanswered
    entries = (*_matched(plain[:settled], first), *_matched(plain[settled:], rest))
    return entries, (settled, len(first.messages)), first.front, unanswered


def _matched(plain: Sequence[Entry], repaired: Repaired) -> tuple[Entry, ...]:
    """Entries for repaired messages: what shows a log message in another form stays its entry, what shows none is an
    entry of the repair, placed at the log message before it."""
    entries: list[Entry] = []
    place = plain[0].start if plain else 0
    for message, source in zip(repaired.messages, repaired.sources, strict=True):
        if source is None:
            entries.append(Entry(message=message, kind="repair", start=place, stop=place))
            continue
        entry = plain[source]
        place = entry.stop
        entries.append(entry if entry.message is message else replace(entry, message=message))
    return tuple(entries)


def _common(before: Sequence[Entry], after: Sequence[Entry], known: int) -> int:
    """How many leading entries of two windows are the same objects or carry the same message object."""
    count = known
    for old, new in zip(before[known:], after[known:], strict=False):
        if old.message is not new.message:
            break
        count += 1
    return count
