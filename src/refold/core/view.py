"""The planner's view of a window: rows that may be folded, and a running account while steps are tried on it.

A `View` starts as the measured window and is changed by planned steps, so that `plan` can say what each step leaves
without any of them being carried out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from langchain_core.messages import BaseMessage

from refold.core.blocks import blocks_of
from refold.core.gauge import Gauge
from refold.core.log import Log
from refold.core.media_parts import parts_of
from refold.core.messages import role_of
from refold.core.passes import ITEM_PASSES, Proposal, Scope
from refold.core.rounds import Unit, pair, units_of
from refold.core.window import Segment

PINNED_KEY: Final = "refold_pinned"
"""A message with this key set in `additional_kwargs` is never folded (fault 36)."""


@dataclass(slots=True)
class Row:
    """A log message that stands in the window by itself. `index` is its place in the log; tokens are the model's.
    `beside` are those of what repair puts next to it: the result that a call lacks goes where the call goes."""

    index: int
    key: str
    original: BaseMessage
    shown: BaseMessage
    tokens: int
    size: int
    kinds: frozenset[str]
    unit: int | None
    beside: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A message, how it would be shown, and what that saves."""

    row: Row
    proposal: Proposal
    message: BaseMessage
    tokens: int
    size: int

    @property
    def saved(self) -> int:
        return self.row.tokens - self.tokens


@dataclass(slots=True)
class View:
    """The account. `total` and `size` are the window's tokens and bytes after the steps tried so far, `state` are the
    tokens of STATE in them. `size_goal` is set where bytes are what is too much: then they must come down to it too.

    `units` are those of the log from `base` on, the end of the last segment: what lies before it was cut already, and a
    long thread must not be walked again for every plan. A row before it has no unit (None).
    """

    gauge: Gauge
    scope: Scope
    waiting: frozenset[str]
    rows: list[Row] = field(default_factory=list)
    base: int = 0
    units: tuple[Unit, ...] = ()
    segments: list[tuple[Segment | None, int, int, int]] = field(default_factory=list)
    total: int = 0
    size: int = 0
    state: int = 0
    size_goal: int | None = None

    def is_down_to(self, goal: int) -> bool:
        """Whether tokens, and bytes where they matter, are down to the goal."""
        return self.total <= goal and (self.size_goal is None or self.size <= self.size_goal)

    def candidate(self, row: Row, kind: str, *, scope: Scope | None = None) -> Candidate | None:
        """How a row could be folded by a kind, when that saves anything."""
        if (kind in row.kinds and kind != "media") or (kind == "result" and "clear" in row.kinds) or self.is_kept(row):
            return None
        acting = ITEM_PASSES[kind]
        proposal = acting.propose(row.original, row.key, scope or self.scope)
        if proposal is None:
            return None
        before = row.original if kind == "clear" else row.shown
        message = acting.show(before, proposal.data)
        count = self.gauge.meter.count(message)
        tokens = round(self.gauge.scale * count.tokens)
        if tokens >= row.tokens and count.bytes >= row.size:
            return None
        return Candidate(row=row, proposal=proposal, message=message, tokens=tokens, size=count.bytes)

    def is_kept(self, row: Row) -> bool:
        """Whether a message may not be changed at all: pinned by the user, or a provider's own compaction item."""
        return is_untouchable(row.original)

    def apply(self, candidate: Candidate, kind: str) -> None:
        """Account for a candidate as folded."""
        row = candidate.row
        self.total += candidate.tokens - row.tokens
        self.size += candidate.size - row.size
        row.shown, row.tokens, row.size = candidate.message, candidate.tokens, candidate.size
        row.kinds |= {kind}

    def hide(self, start: int, stop: int, kept: Iterable[int], tokens: int) -> None:
        """Account for a span as summarised by a segment of so many tokens."""
        stays = frozenset(kept)
        gone = [row for row in self.rows if start <= row.index < stop and row.index not in stays]
        self.total += tokens - sum(row.tokens + row.beside for row in gone)
        self.size += tokens * 4 - sum(row.size for row in gone)
        hidden = {row.index for row in gone}
        self.rows = [row for row in self.rows if row.index not in hidden]
        self.segments.append((None, start, stop, tokens))
        self.segments.sort(key=lambda segment: segment[1])


def open_view(gauge: Gauge, scope: Scope, *, waiting: frozenset[str]) -> View:
    """The view of a measured window before any step. `waiting` are ids of calls that wait for a human."""
    window = gauge.window
    base = max((segment.stop for segment in window.segments), default=0)
    units = units_from(window.log, base, len(window.log))
    unit_of = {index: number for number, unit in enumerate(units) for index in range(unit.start, unit.stop)}
    view = View(gauge=gauge, scope=scope, waiting=waiting, base=base, units=units, total=gauge.used, size=gauge.size)
    by_fold = {segment.fold.id: segment for segment in window.segments}
    by_index: dict[int, Row] = {}
    latest: Row | None = None
    for number, entry in enumerate(window.entries):
        if entry.kind == "segment":
            view.segments.append((by_fold[entry.folds[0]], entry.start, entry.stop, gauge.tokens(number)))
        elif entry.kind == "repair":
            if latest is not None:
                latest.beside += gauge.tokens(number)
        elif entry.kind == "state":
            view.state = gauge.tokens(number)
        elif entry.kind in ("log", "item"):
            size = gauge.sizes[number + 1] - gauge.sizes[number]
            if (known := by_index.get(entry.start)) is not None:  # one message that repair shows as several
                known.tokens += gauge.tokens(number)
                known.size += size
                continue
            acting = window.items.get(entry.start, ())
            latest = by_index[entry.start] = Row(
                index=entry.start,
                key=window.log.keys[entry.start],
                original=window.log.messages[entry.start],
                shown=entry.message,
                tokens=gauge.tokens(number),
                size=size,
                kinds=frozenset(fold.kind for fold, _ in acting),
                unit=unit_of.get(entry.start),
            )
    view.rows = list(by_index.values())
    return view


def units_from(log: Log, start: int, stop: int) -> tuple[Unit, ...]:
    """The units of a part of the log that begins and ends where a cut is safe, by log index."""
    return tuple(
        replace(unit, start=unit.start + start, stop=unit.stop + start) for unit in units_of(log.messages[start:stop])
    )


def kept_in_span(view: View, start: int, stop: int, *, press: bool = False) -> tuple[int, ...]:
    """The log indexes inside a span that stay in view: what is untouchable, the whole unit of an untouchable call or
    result, and of a call whose answer may still come.

    With `press` the window does not fit otherwise: then only calls that are known to wait for a human stay. Arguments
    that do not parse are never run, so no answer comes to them.
    """
    log = view.gauge.window.log
    messages = log.messages
    kept: list[int] = []
    for unit in view.units if start >= view.base else units_from(log, start, stop):
        if unit.stop <= start or unit.start >= stop:
            continue
        inside = range(unit.start, unit.stop)
        fixed = [i for i in inside if is_untouchable(messages[i])]
        if _waits(view, unit, press=press) or any(role_of(messages[i]) in ("ai", "tool") for i in fixed):
            kept.extend(inside)
        else:
            kept.extend(fixed)  # what belongs to no call stays alone
    return tuple(kept)


def _waits(view: View, unit: Unit, *, press: bool) -> bool:
    """Whether a unit has a call that may still be answered."""
    if not unit.open:
        return False
    unanswered = pair(view.gauge.window.log.messages[unit.start : unit.stop]).unanswered()
    return any(one.call.id in view.waiting or (one.call.valid and not press) for one in unanswered)


def is_untouchable(message: BaseMessage) -> bool:
    """A system message, a message that the user pinned, or a provider's own compaction item (faults 36, 44, 206)."""
    if role_of(message) == "system" or message.additional_kwargs.get(PINNED_KEY) is True:
        return True
    return not isinstance(message.content, str) and any(b.kind == "compaction" for b in blocks_of(message))


@dataclass(frozen=True, kw_only=True, slots=True)
class Crowd:
    """The inline media in view, and what they may be: how many, how many tokens, how many bytes as base64."""

    gauge: Gauge
    count: int
    tokens: float
    size: int
    most: int
    share: float
    limit: int | None

    @classmethod
    def of(cls, gauge: Gauge, *, most: int, share: float, size: int | None) -> Self:
        """Those of a measured window."""
        empty = cls(gauge=gauge, count=0, tokens=0, size=0, most=most, share=share, limit=size)
        return empty._counting(entry.message for entry in gauge.shown_media)

    def without(self, view: "View") -> Self:
        """Those that are left after the steps tried on a view."""
        return self._counting(row.shown for row in view.rows)

    def is_over(self, part: float) -> bool:
        """Whether they are over this part of any of the three."""
        heavy = self.limit is not None and self.size > part * self.limit
        return self.count > part * self.most or self.tokens > part * self.share or heavy

    def _counting(self, messages: Iterable[BaseMessage]) -> Self:
        parts = [part for message in messages for part in parts_of(message) if part.inline]
        tokens = self.gauge.scale * sum(part.tokens for part in parts)
        return replace(self, count=len(parts), tokens=tokens, size=sum(len(part.media.data or "") for part in parts))


def has_inline_media(message: BaseMessage) -> bool:
    """Whether a message carries media bytes."""
    return any(part.inline for part in parts_of(message))
