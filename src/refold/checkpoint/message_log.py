"""A list of messages that knows what it grew from, so that a step on a long log need not look at all of it.

LangGraph makes a new list of the messages at every update, twice a step, and again for each conditional edge. Its
`add_messages` then looks at every id, and a saver must find out what is new. A `MessageLog` is a list like any other,
but logs that grew from each other share a `Growth`: their messages in order and the place of each id. Appending to one
costs a copy of the pointers, and whether a log began as another is one comparison.

Two logs may go on differently from a common beginning: the growth then follows the newer one, and the older is a plain
list from there on. Every place has a stamp for that, new for each message that is put there; a log is as its growth
says while the stamp of its last place is still there. A log that somebody edits as a list (`append`, `del log[0]`)
leaves its growth. Ids are read once, when a message comes in: an id that is edited later, in place, is not seen.

Before a conditional edge LangGraph makes the list that the step will end with, and makes it again when the step ends.
A log keeps what a channel last made of it, for one more time, and gives it back only where nobody else has it by then:
an edge may have put it into a `Send`, and it is that node's to edit.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Final
from weakref import ref

from langchain_core.messages import BaseMessage

_SIBLINGS: Final = 256  # messages: a way on that is longer is not forgotten for another
_stamps = count(1)
_HELD: Final = [object()]
_ALONE: Final = sys.getrefcount(_HELD[0])
"""References of an object that only one list has, as this Python counts them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """A log as it was at some time, without its messages."""

    growth: "Growth"
    length: int
    stamp: int


class KnownIdError(Exception):
    """A message's id is in the log already: that is no appending."""


class Growth:
    """What logs that grew from each other share: messages, a stamp for each place, and the place of each id.

    The messages that it began with stay; of what came after them, only the newest way on is kept. `source` is the plain
    list that it began with, to be recognised by.
    """

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self.source = None if isinstance(messages, MessageLog) else messages  # which would keep another growth alive
        self._begun = len(messages)
        self._messages = list(messages)
        self._stamps = [next(_stamps)] * self._begun
        self._places = {message.id: place for place, message in enumerate(messages) if message.id}
        self._seats = {id(message): place for place, message in enumerate(messages)}
        self._lock = threading.Lock()

    def origin(self) -> Origin:
        """The log that it is now."""
        return Origin(growth=self, length=len(self._stamps), stamp=self._stamps[-1] if self._stamps else 0)

    def holds(self, length: int, stamp: int) -> bool:
        """Whether it begins with the log of that length whose last place has that stamp."""
        with self._lock:
            return self._holds(length, stamp)

    def append(self, origin: Origin, added: Sequence[BaseMessage]) -> Origin | None:
        """Go on with other messages from a log: what it is then.

        None where the log is not held any more, or too much would be forgotten for it.
        Raises `KnownIdError` where one of the messages or of the ids is in the log, or twice among the new ones.
        """
        start, end = origin.length, origin.length + len(added)
        with self._lock:
            if not self._holds(start, origin.stamp):
                return None
            names = [message.id for message in added if message.id]
            if len(set(names)) < len(names) or any(self._places.get(name, start) < start for name in names):
                raise KnownIdError
            if any(self._seats.get(id(message), start) < start for message in added):
                raise KnownIdError  # whose id was edited
            there = self._messages[start:end]
            same = next((at for at, (a, b) in enumerate(zip(there, added, strict=False)) if a is not b), len(there))
            if same < len(added) and not self._append_from(start + same, added[same:]):
                return None
            return Origin(growth=self, length=end, stamp=self._stamps[end - 1] if end else 0)

    def _holds(self, length: int, stamp: int) -> bool:
        return length == 0 or (length <= len(self._stamps) and self._stamps[length - 1] == stamp)

    def _append_from(self, place: int, added: Sequence[BaseMessage]) -> bool:
        if place < self._begun or len(self._messages) - place > _SIBLINGS:
            return False
        for forgotten in self._messages[place:]:
            self._places.pop(forgotten.id or "", None)
            self._seats.pop(id(forgotten), None)
        del self._messages[place:], self._stamps[place:]
        self._places.update((message.id, place + at) for at, message in enumerate(added) if message.id)
        self._seats.update((id(message), place + at) for at, message in enumerate(added))
        self._messages += added
        self._stamps += [next(_stamps)] * len(added)
        return True


class MessageLog(list[BaseMessage]):
    """A list of messages that remembers its growth until it is edited as a list. Its deep copies and pickles are plain
    lists."""

    __slots__ = ("__weakref__", "_before", "_growth", "_next", "_stamp")

    def __init__(self, messages: Iterable[BaseMessage] = (), origin: Origin | None = None) -> None:
        super().__init__(messages)
        self._growth = None if origin is None else origin.growth
        self._stamp = 0 if origin is None else origin.stamp
        self._before: ref[MessageLog] | None = None
        self._next: MessageLog | None = None

    @classmethod
    def begun(cls, messages: Sequence[BaseMessage]) -> "MessageLog":
        """A log with a growth of its own."""
        return cls(messages, Growth(messages).origin())

    @property
    def origin(self) -> Origin | None:
        """What a later log can be asked about with `grew_from`; None where this one left its growth."""
        growth = self._growth
        if growth is None or not growth.holds(len(self), self._stamp):
            return None
        return Origin(growth=growth, length=len(self), stamp=self._stamp)

    def grew_from(self, origin: Origin) -> bool:
        """Whether it begins with the messages that a log had: the same objects at the same places."""
        own = self.origin
        return (
            own is not None
            and own.growth is origin.growth
            and own.length >= origin.length
            and own.growth.holds(origin.length, origin.stamp)
        )

    def appended(self, added: Sequence[BaseMessage], *, by_channel: bool) -> "MessageLog | None":
        """A log of it and some messages after it. None where it left its growth, or that went on elsewhere. A channel
        that asks for the same twice in turn may get the same log.

        Raises `KnownIdError` where one of the messages or of the ids is in the log, or twice among the new ones.
        """
        origin = self.origin
        grown = None if origin is None else origin.growth.append(origin, added)
        if grown is None:
            return None
        if self._before is not None and (before := self._before()) is not None:
            before._next = None  # who keeps an early log would keep all that came of it
        kept, self._next = [self._next], None
        if by_channel and kept[0] is not None and sys.getrefcount(kept[0]) == _ALONE and kept[0].origin == grown:
            return kept[0]
        result = MessageLog(self, grown)
        list.extend(result, added)
        if by_channel:
            self._next, result._before = result, ref(self)
        return result

    def __copy__(self) -> "MessageLog":
        return MessageLog(self, self.origin)

    def __reduce_ex__(self, protocol: object) -> tuple[type[list[BaseMessage]], tuple[list[BaseMessage]]]:
        return list, (list(self),)


def origin_of(value: object) -> Origin | None:
    """The origin of a `MessageLog` that did not leave its growth; None for anything else."""
    return value.origin if isinstance(value, MessageLog) else None


def _leaving(edit: Callable[..., object]) -> Callable[..., object]:
    """A list's method that edits, for a log: it leaves its growth first."""

    @wraps(edit)
    def edited(self: MessageLog, *args: object, **kwargs: object) -> object:
        self._growth = None
        return edit(self, *args, **kwargs)

    return edited


for _edit in (
    list.append, list.extend, list.insert, list.pop, list.remove, list.clear, list.sort, list.reverse,
    list.__setitem__, list.__delitem__, list.__iadd__, list.__imul__,
):  # fmt: skip
    setattr(MessageLog, _edit.__name__, _leaving(_edit))


def is_reducing() -> bool:
    """Whether the caller was called as a channel's reducer. A list that anybody else makes of a log may hold messages
    that he edited, and must not pass for one that only grew."""
    caller = sys._getframe(2)  # as logging and warnings find theirs
    return str(caller.f_globals.get("__name__")).startswith("langgraph.channels.")


def appended(
    log: Sequence[BaseMessage], added: Sequence[BaseMessage], *, by_channel: bool = False
) -> MessageLog | None:
    """A log and some messages after it. None where an id is known already, or twice among the new ones: then it is no
    appending. A message without an id is new. See `MessageLog.appended` for `by_channel`."""
    try:
        grown = log.appended(added, by_channel=by_channel) if isinstance(log, MessageLog) else None
        return grown if grown is not None else MessageLog.begun(log).appended(added, by_channel=False)
    except KnownIdError:
        return None
