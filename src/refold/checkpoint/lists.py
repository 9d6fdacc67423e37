"""Which elements of a list are the ones that were stored before, without serializing them again.

A list channel mostly grows. `draft_list` compares a list with the state that is remembered of its log, by three rules:

1. The same object as before is compared with its *mark*, a copy of its containers taken before it was last serialized:
   strings compare by identity, so this costs half a microsecond a message (twice that where the messages left the
   processor's caches), and an edit in place, nested or not, shows.
   (Equality is Python's: an edit in place that only turns 1 into 1.0 or True does not show.)
   Of a `MessageLog` that only got longer just the newest elements are compared: the others are values.
2. Another object that is equal, type by type, all the way down is the element it equals.
3. Anything else is serialized, and its hash decides.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from langchain_core.messages import BaseMessage
from langgraph.types import Send

from refold.checkpoint.caches import Elements, Entry, ListState, weight_of
from refold.checkpoint.drafts import Context, Draft, draft_of
from refold.checkpoint.header import InLog
from refold.checkpoint.lean import NOT_PLAIN, Cut, Mark, copy_plain, mark_of_lean, mark_of_message, same, signature
from refold.checkpoint.message_log import MessageLog, Origin, origin_of
from refold.checkpoint.serde import MSGPACK, Plain

INLINE_ELEMENT = 96  # bytes: a smaller element that is no message stands in the log itself
NEWEST = 256
"""Elements at the end of a `MessageLog` that are compared with what they were."""

_FEW = 16
_STORED = frozenset({bytes, Cut})  # the form of a stored message: `Lean`
_NUMBERS = frozenset({int, float, bool})
_UNLOGGED = frozenset({type(None), bytes, bytearray})  # their tags are not msgpack when serialized alone


@dataclass(frozen=True, kw_only=True, slots=True)
class ListDraft:
    """A list to be stored: `keep` elements that it has in common with the log `base`, then `tail`.

    `objects` and `marks` are of the elements from `since` on, to be remembered, `before` is what was.
    """

    base: InLog | None
    before: ListState | None
    keep: int
    tail: Sequence[Entry | Draft]
    snapshot: bool
    since: int
    objects: Sequence[object]
    marks: Sequence[object]
    origin: Origin | None

    def settle(self, ids: Mapping[bytes, int]) -> tuple[int, Sequence[Entry]]:
        """(`keep`, `tail`) with every element's id: once those are known, more may turn out to be common."""
        tail: list[Entry] = [ids[item.name] if isinstance(item, Draft) else item for item in self.tail]
        more = 0
        if self.base is not None and self.before is not None:
            for ours, theirs in zip(tail, self.before.entries(self.base.length, self.keep), strict=False):
                if ours != theirs:
                    break
                more += 1
        return self.keep + more, tail[more:]

    def head(self, length: int) -> Sequence[Entry]:
        """The entries of the first elements of `base`."""
        return () if self.before is None else self.before.entries(length)

    def remembered(self, keep: int, tail: Sequence[Entry]) -> ListState:
        """What is known of the list once it is stored."""
        if self.before is not None and self.since:
            new = keep - self.since
            return self.before.grown(keep, tail, self.objects[new:], self.marks[new:], self.origin)
        elements = Elements([*self.head(keep), *tail], list(self.objects), list(self.marks))
        return ListState(elements=elements, length=keep + len(tail), weight=weight_of(self.marks), origin=self.origin)

    @property
    def drafts(self) -> Sequence[Draft]:
        return [item for item in self.tail if isinstance(item, Draft)]


def is_loggable(value: object) -> bool:
    """Whether a value is a list whose elements are worth storing one by one. Lists of numbers are not."""
    if origin_of(value) is not None:
        return bool(value)
    if type(value) not in (list, MessageLog) or not value:
        return False
    assert isinstance(value, list)
    kinds = set(map(type, value))
    if kinds & _UNLOGGED or kinds <= _NUMBERS:
        return False
    if any(issubclass(kind, Send) for kind in kinds):
        return False
    if kinds <= {str, int, float, bool}:
        return len(value) >= _FEW
    return True


def mark_of(element: object) -> object:
    """What an element is like now. `NOT_PLAIN` (equal to nothing) where that cannot be told cheaply."""
    if isinstance(element, BaseMessage):
        return mark_of_message(element) or NOT_PLAIN
    return copy_plain(element)


def draft_list(
    ctx: Context, value: list[object], *, base: InLog | None, state: ListState | None, snapshot: bool, trust: bool
) -> ListDraft:
    """The draft of a list. `state` is what is remembered of `base`'s log, at least `base.length` elements of it.
    `trust` says of a `MessageLog` that it is the work of a reducer since then."""
    if base is None or state is None or state.length < base.length:
        return _draft_from(ctx, value, 0, base=None, state=None, snapshot=snapshot)
    keep = base.length
    start = max(0, keep - NEWEST) if trust and state.compares and _has_grown(value, state, keep) else 0
    if len(value) >= keep and state.compares and _is_unchanged(value, state, start, keep):
        start = keep
    # What is remembered beyond the parent's elements is of another branch, and may be gone from the database.
    return _draft_from(ctx, value, start, base=base, state=replace(state, length=keep), snapshot=snapshot)


def _is_unchanged(value: list[object], state: ListState, start: int, stop: int) -> bool:
    """Whether elements are the same objects with the same content: rule 1."""
    known = state.elements
    whole = not start and len(known.objects) == stop  # as mostly: then the shorter list ends the comparison
    head, objects = (value, known.objects) if whole else (value[start:stop], known.objects[start:stop])
    if not all(map(operator.is_, head, objects)):
        return False
    return _are_as_marked(head, known.marks if whole else known.marks[start:stop]) or (
        _settle_marks(known, start, stop) and _are_as_marked(head, known.marks[start:stop])
    )


def _are_as_marked(head: list[object], marks: list[object]) -> bool:
    """Whether elements are like their marks, as many as there are."""
    forms = map(signature, head) if isinstance(head[0], BaseMessage) else head
    try:
        return all(map(operator.eq, forms, marks))
    except (AttributeError, ValueError, TypeError):  # other kinds in between, or a value that refuses to be compared
        return False


def _has_grown(value: list[object], state: ListState, count: int) -> bool:
    """Whether a list is a `MessageLog` that only got longer since the first `count` elements were stored or read."""
    own = origin_of(value)
    if own is None or len(value) == count:
        return False
    if state.origin is not None:
        return state.origin.length >= count and cast("MessageLog", value).grew_from(state.origin)
    if state.source is None or own.growth.source is not state.source:
        return False
    return all(map(operator.is_, value[:count], state.elements.objects))


def _settle_marks(known: Elements, start: int, stop: int) -> bool:
    """Give stored messages marks that can be compared, where a comparison is due; whether there were any. The live
    objects that are still as they were stored give their own, so that the next comparison is by identity; of the others
    the mark is what was stored."""
    marks = known.marks
    if _STORED.isdisjoint(map(type, marks[start:stop])):
        return False
    for place in range(start, stop):
        mark = marks[place]
        if isinstance(mark, bytes | Cut):
            stored = mark_of_lean(mark)
            now = mark_of_message(known.objects[place])
            marks[place] = now if now is not None and stored is not None and is_same_mark(now, stored) else stored
    return True


def is_same_mark(left: Mark, right: Mark) -> bool:
    """Whether two marks are of messages that are the same, type by type."""
    return left[2] is right[2] and same(left[0], right[0])


def _draft_from(
    ctx: Context, value: list[object], start: int, *, base: InLog | None, state: ListState | None, snapshot: bool
) -> ListDraft:
    """The draft of a list that is known to be as it was up to `start`."""
    compared = state if state is not None and state.compares and base is not None and start < base.length else None
    known = () if compared is None else compared.elements.objects[start : compared.length]
    places = {id(element): place for place, element in enumerate(known, start)}
    entries: list[Entry | Draft] = []
    marks: list[object] = []
    for place, element in enumerate(value[start:], start):
        was = places.get(id(element), place)
        if compared is not None and _is_as_marked(element, compared, was):
            entries.append(compared.elements.entries[was])
            marks.append(compared.elements.marks[was])
            continue
        mark = mark_of(element)  # before it is serialized: what is edited later shows
        before = None if compared is None else _known(element, mark, compared, was)
        entries.append(_entry(ctx, element) if before is None else before)
        marks.append(mark)
    return ListDraft(
        base=base, before=state, keep=start, tail=entries, snapshot=snapshot, since=start, objects=value[start:],
        marks=marks, origin=origin_of(value),
    )  # fmt: skip


def _is_as_marked(element: object, state: ListState, place: int) -> bool:
    """Whether a message is the very object that stood at a place, as it was: rule 1."""
    if place >= state.length or element is not state.elements.objects[place]:
        return False
    mark = state.elements.marks[place]
    try:
        return type(mark) is tuple and isinstance(element, BaseMessage) and signature(element) == mark
    except (ValueError, TypeError):  # a value that refuses to be compared
        return False


def _known(element: object, mark: object, state: ListState, place: int) -> Entry | None:
    """The entry of an element that was stored before and is still like it was."""
    if mark is NOT_PLAIN or place >= state.length:
        return None
    _settle_marks(state.elements, place, place + 1)
    before = state.elements.marks[place]
    if isinstance(mark, tuple) and isinstance(before, tuple):
        return state.elements.entries[place] if is_same_mark(cast("Mark", mark), cast("Mark", before)) else None
    return state.elements.entries[place] if before is not NOT_PLAIN and same(mark, before) else None


def _entry(ctx: Context, element: object) -> Entry | Draft:
    plain: Plain = ctx.serde.dump(element)
    if plain.tag == MSGPACK and len(plain.data) < INLINE_ELEMENT and not isinstance(element, BaseMessage):
        return plain.data
    return draft_of(ctx, plain)
