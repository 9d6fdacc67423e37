"""The log as the fold sees it: an immutable snapshot of the messages, each with a key.

A key is the message's id; a message without one gets a key from its content, and a key that stands in the log already
gets a number (recordings and foreign stores do hold duplicate ids). Keys are stable while the log only grows.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from langchain_core.messages import BaseMessage

from refold.core.appended import Appended
from refold.core.folds import Anchor, Span, span_digest
from refold.core.messages import content_hash, is_record, role_of

_fields_of = attrgetter("__dict__", "__pydantic_extra__")
_MANY: Final = 512
"""New positions that are copied at each append; more become part of the rest, which is shared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """A snapshot. `positions` maps each key to its index."""

    messages: Appended[BaseMessage]
    keys: Appended[str]
    positions: ChainMap[str, int]

    def __len__(self) -> int:
        return len(self.messages)

    def anchor(self, index: int) -> Anchor:
        """The key and content hash of the message at an index."""
        return Anchor(key=self.keys[index], hash=content_hash(self.messages[index]))

    def anchors(self, start: int, stop: int) -> tuple[Anchor, ...]:
        return tuple(self.anchor(index) for index in range(start, stop))

    def find(self, anchor: Anchor) -> int | None:
        """The index of a message that is still what the anchor says, or None."""
        index = self.positions.get(anchor.key)
        if index is None or content_hash(self.messages[index]) != anchor.hash:
            return None
        return index

    def locate(self, span: Span) -> tuple[int, int] | None:
        """`[start, stop)` of a span, or None when the log has changed under it."""
        start = self.positions.get(span.first.key)
        if start is None or start + span.count > len(self):
            return None
        stop = start + span.count
        if self.keys[stop - 1] != span.last.key or span_digest(self.anchors(start, stop)) != span.digest:
            return None
        return start, stop

    def first_human(self) -> int | None:
        """The index of the task: the first human message."""
        return next((i for i, m in enumerate(self.messages) if _is_user(m)), None)

    def newest_human(self) -> int | None:
        """The index of the newest human message."""
        return next((i for i in range(len(self) - 1, -1, -1) if _is_user(self.messages[i])), None)


EMPTY_LOG = Log(messages=Appended(), keys=Appended(), positions=ChainMap({}, {}))


def extend_log(previous: Log, messages: Sequence[BaseMessage]) -> Log | None:
    """The log that `previous` has grown to, or None when it did not only grow.

    Equal messages count as the same: a thread read again from its checkpoint is made of new objects. They are compared
    by value once; after that a call of a long thread costs a look at each pointer. The snapshot takes the new objects,
    so that the old ones, a whole log of them, can go; what a window shows keeps those that it has.
    """
    if messages is previous.messages:
        return previous
    known, given = len(previous), messages if isinstance(messages, list) else list(messages)
    if len(given) < known:
        return None
    if known and given[known - 1] is not previous.messages[-1]:  # read again
        if not _are_equal(previous.messages, given):
            return None
        previous = replace(previous, messages=Appended(given[:known]))
    elif not previous.messages.begins(given):
        return None
    return _append(previous, given[known:]) if len(given) > known else previous


def _are_equal(left: Sequence[BaseMessage], right: Sequence[BaseMessage]) -> bool:
    """Whether messages are equal, as far as the shorter goes. Most are what they were, field by field, which is seen
    several times as fast as pydantic compares."""
    for a, b in zip(left, right, strict=False):
        if a is b or (type(a) is type(b) and _fields_of(a) == _fields_of(b)):
            continue
        if a != b:
            return False
    return True


def read_log(messages: Sequence[BaseMessage]) -> Log:
    """The snapshot of a message list."""
    return _append(EMPTY_LOG, messages)


def is_of(anchor: Anchor, message: BaseMessage) -> bool:
    """Whether an anchor was made for a message with this id, or an equal one of the same log, and with this content."""
    same = anchor.key == _key(message) or anchor.key.startswith(f"{_key(message)}#")
    return same and anchor.hash == content_hash(message)


def _key(message: BaseMessage) -> str:
    """The key of a message where no other has it."""
    return message.id or f"~{content_hash(message)[:16]}"


def _append(log: Log, messages: Sequence[BaseMessage]) -> Log:
    rest, begin = log.positions.maps
    rest, keys = dict(rest), list[str]()
    for message in messages:
        base = _key(message)
        key, number = base, 2
        while key in rest or key in begin:
            key, number = f"{base}#{number}", number + 1
        rest[key] = len(log) + len(keys)
        keys.append(key)
    positions = ChainMap(rest, begin) if len(rest) <= _MANY else ChainMap({}, {**begin, **rest})
    return Log(messages=log.messages.plus(messages), keys=log.keys.plus(keys), positions=positions)


def _is_user(message: BaseMessage) -> bool:
    return role_of(message) == "human" and not is_record(message)
