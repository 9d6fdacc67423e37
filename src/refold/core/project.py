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
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage

from refold.core.canonical import Json
from refold.core.folds import ITEM_KINDS, SPAN_KINDS, Fold, Item, Unreadable, read_folds
from refold.core.log import Log, extend_log, read_log
from refold.core.messages import REFOLD_KEY, answers_of, role_of
from refold.core.passes import ITEM_PASSES
from refold.core.repair import START, Front, Repaired, drop_bound_reasoning, repair, unchained
from refold.core.rounds import pair, settled_length

EntryKind: TypeAlias = Literal["log", "item", "segment", "state", "repair"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One message of a window and where it comes from: the log messages `[start, stop)` and the folds that acted."""

    message: BaseMessage
    kind: EntryKind
    start: int
    stop: int
    folds: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Void:
    """A fold that no longer fits the log, and why."""

    fold: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A span fold in force, and the log messages that it stands for."""

    fold: Fold
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """What the model sees, and how it came about.

    `folds` are all readable folds of the state in order, `segments` the span folds in force, `items` the item folds in
    force by log index. `boundary` is the log index after the newest message that any fold was made at: messages before
    it may have been sent otherwise than they are shown now. `shared` leading entries carry the same message objects as
    `grown_from`, the entries of the window that this one was made from.
    """

    log: Log
    raw_folds: Sequence[Mapping[str, Json]]
    folds: tuple[Fold, ...]
    unreadable: tuple[Unreadable, ...]
    void: tuple[Void, ...]
    segments: tuple[Segment, ...]
    items: Mapping[int, tuple[tuple[Fold, Item], ...]]
    entries: tuple[Entry, ...]
    shared: int
    boundary: int
    grown_from: tuple[Entry, ...] = field(repr=False)
    _awaited: frozenset[str] = field(repr=False)
    _plain: tuple[Entry, ...] = field(repr=False)
    _settled: tuple[int, int] = field(repr=False)
    _front: Front = field(repr=False)
    _open: frozenset[str] = field(repr=False)

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages for the request."""
        return [entry.message for entry in self.entries]

    @property
    def floats(self) -> bool:
        """Whether a system message stands last because no AI message follows it yet; what comes next may go before."""
        last = self._plain[-2:]
        return len(last) == 2 and last[1].start < last[0].start

    @property
    def settled(self) -> int:
        """Entries before this index form whole units: messages to come cannot change them, unless one is the late
        answer of a call in them."""
        return self._settled[1]

    def hidden(self) -> frozenset[int]:
        """Indexes of the log messages that stand in the window only by their segment."""
        return frozenset(
            index
            for segment in self.segments
            for index in range(segment.start, segment.stop)
            if self.log.keys[index] not in segment.fold.kept
        )


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
        if list(folds) == previous.raw_folds and not previous.floats and not _answers_settled(previous, log):
            return _grow(previous, log, folds)
        return _walk(log, folds, previous, grown=True)
    return _walk(read_log(messages), folds, None, grown=False)


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


def _revives(previous: Window, log: Log) -> bool:
    """Whether new messages are some that a fold was made for: taken out of the log, or forked away, and put back."""
    return not previous._awaited.isdisjoint(log.keys[len(previous.log) :])


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
    new = log.messages[len(previous.log) :]
    if not previous._open or not any(call in previous._open for message in new for call in answers_of(message)):
        return False
    tail = [entry.message for entry in previous._plain[previous._settled[0] :]]
    return any(call in previous._open for _, call in pair([*tail, *new]).orphans)


def _grow(previous: Window, log: Log, raw: Sequence[Mapping[str, Json]]) -> Window:
    """The window with new messages at its end. It keeps `raw` as it was handed in: the next call is handed the same
    objects, which then need no comparison by value."""
    if len(log) == len(previous.log):
        return replace(
            previous, log=log, raw_folds=list(raw), shared=len(previous.entries), grown_from=previous.entries
        )
    new = tuple(
        Entry(message=log.messages[index], kind="log", start=index, stop=index + 1)
        for index in range(len(previous.log), len(log))
    )
    plain = previous._plain + new
    settled_plain, settled_out = previous._settled
    tail, settled, front, unanswered = _repaired(plain[settled_plain:], previous._front)
    entries = previous.entries[:settled_out] + tail
    return Window(
        log=log,
        raw_folds=list(raw),
        folds=previous.folds,
        unreadable=previous.unreadable,
        void=previous.void,
        segments=previous.segments,
        items=previous.items,
        entries=entries,
        shared=_common(previous.entries, entries, settled_out),
        boundary=previous.boundary,
        grown_from=previous.entries,
        _awaited=previous._awaited,
        _plain=plain,
        _settled=(settled_plain + settled[0], settled_out + settled[1]),
        _front=front,
        _open=previous._open | unanswered,
    )


def _walk(log: Log, raw: Sequence[Mapping[str, Json]], previous: Window | None, *, grown: bool) -> Window:
    """The window from the start. With `grown` the log holds all of the previous one: what that found is so still."""
    folds, unreadable = _read_on(raw, previous)
    undone = frozenset(identity for fold in folds for identity in fold.undone)
    active = [fold for fold in folds if fold.id not in undone]
    known = previous if grown and previous is not None else None
    segments, void = _segments(log, active, known)
    items, void_items = _items(log, active, known)
    void += void_items
    state = _state(log, active, segments)
    chained = max((log.positions.get(f.at.key, -1) + 1 for f in folds if f.kind != "strike"), default=0)
    plain = tuple(_plain_entries(log, segments, items, state, chained, _reusable(previous, log, grown=grown)))
    entries, settled, front, unanswered = _repaired(plain, START)
    return Window(
        log=log,
        raw_folds=list(raw),
        folds=folds,
        unreadable=unreadable,
        void=void,
        segments=segments,
        items=items,
        entries=entries,
        shared=_common(previous.entries, entries, 0) if previous is not None else 0,
        boundary=max((log.positions.get(f.at.key, -1) + 1 for f in folds), default=0),
        grown_from=previous.entries if previous is not None else (),
        _awaited=_awaited(folds, void),
        _plain=plain,
        _settled=settled,
        _front=front,
        _open=unanswered,
    )


def _read_on(
    raw: Sequence[Mapping[str, Json]], previous: Window | None
) -> tuple[tuple[Fold, ...], tuple[Unreadable, ...]]:
    """The folds; those that an earlier window read are not read again."""
    known = len(previous.raw_folds) if previous is not None else 0
    if previous is None or list(raw[:known]) != previous.raw_folds:
        return read_folds(raw)
    folds, unreadable = read_folds(raw[known:])
    return previous.folds + folds, previous.unreadable + unreadable


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


def _items(
    log: Log, folds: Sequence[Fold], known: Window | None
) -> tuple[Mapping[int, tuple[tuple[Fold, Item], ...]], tuple[Void, ...]]:
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


_Shown: TypeAlias = Mapping[tuple[int, tuple[str, ...]], BaseMessage]


def _reusable(previous: Window | None, log: Log, *, grown: bool) -> _Shown:
    """Messages that an earlier window shows by the same folds: rendering a preview again would give the same bytes. In
    a log that has grown they are equal, though they may be other objects."""
    if previous is None:
        return {}
    old = previous.log.messages
    same = {i for i in previous.items if grown or (i < len(log) and log.messages[i] is old[i])}
    return {(e.start, e.folds): e.message for e in previous._plain if e.kind == "item" and e.start in same}


def _plain_entries(
    log: Log,
    segments: Sequence[Segment],
    items: Mapping[int, tuple[tuple[Fold, Item], ...]],
    state: Fold | None,
    chained: int,
    reusable: _Shown,
) -> list[Entry]:
    """The entries before pairing is repaired."""
    entries: list[Entry] = []
    bound = max((_bound_until(log, segment.fold) for segment in segments), default=0)
    index = 0
    remaining = list(segments)
    systems: list[Entry] = []
    while index < len(log):
        if remaining and remaining[0].start == index:
            segment = remaining.pop(0)
            message = segment_message(segment.fold)
            entries.append(
                Entry(
                    message=message, kind="segment", start=index, stop=segment.stop, folds=(segment.fold.id,)
                )
            )  # fmt: skip
            for kept in _kept(log, segment):
                entry = _entry(log, kept, items, bound, chained, reusable)
                (systems if role_of(entry.message) == "system" else entries).append(entry)
            index = segment.stop
            if not remaining and state is not None:
                at = Entry(message=segment_message(state), kind="state", start=index, stop=index, folds=(state.id,))
                entries.append(at)
            continue
        entry = _entry(log, index, items, bound, chained, reusable)
        if systems and not remaining and role_of(entry.message) == "ai":
            entries += systems
            systems = []
        entries.append(entry)
        index += 1
    return entries + systems


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


def _entry(
    log: Log,
    index: int,
    items: Mapping[int, tuple[tuple[Fold, Item], ...]],
    bound: int,
    chained: int,
    reusable: _Shown,
) -> Entry:
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
