"""The window: what the model sees, message by message, and where each comes from.

Values only. `refold.core.project` makes a window out of the log and the folds, and grows the next one from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from langchain_core.messages import BaseMessage

from refold.core.canonical import Json
from refold.core.folds import Fold, Item, Unreadable
from refold.core.log import Log
from refold.core.repair import Front

EntryKind: TypeAlias = Literal["log", "item", "segment", "state", "repair"]
Items: TypeAlias = Mapping[int, tuple[tuple[Fold, Item], ...]]
"""The item folds in force by log index, in the order in which they were made."""


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
class Growth:
    """What the next window is grown from, besides the window itself.

    `plain` are the entries before pairing was repaired. `settled` says how many of them, and of the entries made of
    them, messages to come cannot change; `front` is where repair stood after those, `unanswered` the ids of the calls
    without an answer among them. `awaited` are the keys of messages that folds were made at, or for where they are
    void.
    """

    plain: tuple[Entry, ...]
    settled: tuple[int, int]
    front: Front
    unanswered: frozenset[str]
    awaited: frozenset[str]


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
    items: Items
    entries: tuple[Entry, ...]
    shared: int
    boundary: int
    grown_from: tuple[Entry, ...] = field(repr=False)
    growth: Growth = field(repr=False)

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages for the request."""
        return [entry.message for entry in self.entries]

    @property
    def floats(self) -> bool:
        """Whether a system message stands last because no AI message follows it yet; what comes next may go before."""
        last = self.growth.plain[-2:]
        return len(last) == 2 and last[1].start < last[0].start

    @property
    def settled(self) -> int:
        """Entries before this index form whole units: messages to come cannot change them, unless one is the late
        answer of a call in them."""
        return self.growth.settled[1]

    def hidden(self) -> frozenset[int]:
        """Indexes of the log messages that stand in the window only by their segment."""
        return frozenset(
            index
            for segment in self.segments
            for index in range(segment.start, segment.stop)
            if self.log.keys[index] not in segment.fold.kept
        )
