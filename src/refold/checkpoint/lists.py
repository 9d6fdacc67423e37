"""Which elements of a list are the ones that were stored before, without serializing them again.

A list channel mostly grows. `draft_list` compares a list with the state that is remembered of its log, by three rules:

1. The same object as before is compared with its *mark*, a copy of its containers taken before it was last serialized:
   strings compare by identity, so this costs half a microsecond a message (twice that where the messages left the
   processor's caches), and an edit in place, nested or not, shows.
   (Equality is Python's: an edit in place that only turns 1 into 1.0 or True does not show.)
2. Another object that is equal, type by type, all the way down is the element it equals.
3. Anything else is serialized, and its hash decides.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from langchain_core.messages import BaseMessage
from langgraph.types import Send

from refold.checkpoint.caches import Entry, ListState
from refold.checkpoint.drafts import Context, Draft, draft_of
from refold.checkpoint.header import InLog
from refold.checkpoint.lean import NOT_PLAIN, Lean, Mark, copy_plain, mark_of_lean, mark_of_message, same, signature
from refold.checkpoint.serde import MSGPACK, Plain

INLINE_ELEMENT = 96  # bytes: a smaller element that is no message stands in the log itself
_FEW = 16
_NUMBERS = frozenset({int, float, bool})
_UNLOGGED = frozenset({type(None), bytes, bytearray})  # their tags are not msgpack when serialized alone


@dataclass(frozen=True, kw_only=True, slots=True)
class ListDraft:
    """A list to be stored: `head`, which it has in common with the log `base`, then `tail`.

    `known` are `base`'s elements where they were not compared yet: once the tail's ids are known, more of it may turn
    out to be common. `objects` and `marks` are of the whole list, to be remembered.
    """

    base: InLog | None
    head: Sequence[Entry]
    tail: Sequence[Entry | Draft]
    known: Sequence[Entry]
    snapshot: bool
    objects: Sequence[object]
    marks: Sequence[object]

    def settle(self, ids: Mapping[bytes, int]) -> tuple[Sequence[Entry], Sequence[Entry]]:
        """(head, tail) with every element's id."""
        tail: list[Entry] = [ids[item.name] if isinstance(item, Draft) else item for item in self.tail]
        more = 0
        for ours, theirs in zip(tail, self.known[len(self.head) :], strict=False):
            if ours != theirs:
                break
            more += 1
        return [*self.head, *tail[:more]], tail[more:]

    @property
    def drafts(self) -> Sequence[Draft]:
        return [item for item in self.tail if isinstance(item, Draft)]


def is_loggable(value: object) -> bool:
    """Whether a value is a list whose elements are worth storing one by one. Lists of numbers are not."""
    if type(value) is not list or not value:
        return False
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
    ctx: Context, value: list[object], *, base: InLog | None, state: ListState | None, snapshot: bool
) -> ListDraft:
    """The draft of a list. `state` is what is remembered of `base`'s log, at least `base.length` elements of it."""
    if base is None or state is None or len(state.entries) < base.length:
        return _draft_by_element(ctx, value, base=None, state=None, snapshot=snapshot)
    count = base.length
    state = _with_marks(state)
    if len(value) >= count and len(state.objects) >= count and _is_unchanged(value, state, count):
        added = value[count:]
        marks = [mark_of(element) for element in added]
        return ListDraft(
            base=base, head=state.entries[:count], tail=[_entry(ctx, element) for element in added], known=(),
            snapshot=snapshot, objects=[*state.objects[:count], *added], marks=[*state.marks[:count], *marks],
        )  # fmt: skip
    return _draft_by_element(ctx, value, base=base, state=state, snapshot=snapshot)


def _with_marks(state: ListState) -> ListState:
    """The state with marks that can be compared. The live objects that are still as they were stored give their own,
    so that the next comparison is by identity; of the others the mark is what was stored."""
    if Lean not in set(map(type, state.marks)):
        return state
    marks: list[object] = []
    for item, mark in zip(state.objects, state.marks, strict=True):
        if type(mark) is not Lean:
            marks.append(mark)
            continue
        stored = mark_of_lean(mark)
        now = mark_of_message(item)
        marks.append(now if now is not None and is_same_mark(now, stored) else stored)
    return ListState(entries=state.entries, objects=state.objects, marks=marks)


def is_same_mark(left: Mark, right: Mark) -> bool:
    """Whether two marks are of messages that are the same, type by type."""
    return left[2] is right[2] and same(left[0], right[0])


def _is_unchanged(value: list[object], state: ListState, count: int) -> bool:
    """Whether the first `count` elements are the same objects with the same content."""
    head = value[:count]
    if not all(map(operator.is_, head, state.objects)):
        return False
    forms = map(signature, head) if isinstance(head[0] if head else None, BaseMessage) else head
    try:
        return all(map(operator.eq, forms, state.marks))
    except (AttributeError, ValueError, TypeError):  # other kinds in between, or a value that refuses to be compared
        return False


def _draft_by_element(
    ctx: Context, value: list[object], *, base: InLog | None, state: ListState | None, snapshot: bool
) -> ListDraft:
    places = {id(element): place for place, element in enumerate(state.objects)} if state is not None else {}
    entries: list[Entry | Draft] = []
    marks: list[object] = []
    for place, element in enumerate(value):
        mark = mark_of(element)
        before = None if state is None else _known(element, mark, state, places.get(id(element), place))
        entries.append(_entry(ctx, element) if before is None else before)
        marks.append(mark)
    known: Sequence[Entry] = () if base is None or state is None else state.entries[: base.length]
    return ListDraft(base=base, head=(), tail=entries, known=known, snapshot=snapshot, objects=list(value), marks=marks)


def _known(element: object, mark: object, state: ListState, place: int) -> Entry | None:
    """The entry of an element that was stored before and is still like it was."""
    if mark is NOT_PLAIN or place >= len(state.marks) or state.marks[place] is NOT_PLAIN:
        return None
    before = state.marks[place]
    if isinstance(mark, tuple) and isinstance(before, tuple):
        return state.entries[place] if is_same_mark(cast("Mark", mark), cast("Mark", before)) else None
    return state.entries[place] if same(mark, before) else None


def _entry(ctx: Context, element: object) -> Entry | Draft:
    plain: Plain = ctx.serde.dump(element)
    if plain.tag == MSGPACK and len(plain.data) < INLINE_ELEMENT and not isinstance(element, BaseMessage):
        return plain.data
    return draft_of(ctx, plain)
