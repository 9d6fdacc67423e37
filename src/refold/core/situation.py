"""What the planner is told, and the words of its answer."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from refold.core.folds import FoldKind, Span
from refold.core.passes import Proposal, Scope
from refold.core.policy import Policy

WORTH: Final = 24
"""Tokens below which folding is never worth an entry in the state."""

Zone: TypeAlias = Literal["under", "soft", "trigger", "overflow"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemStep:
    """Fold single messages by one kind. `left` are the window's tokens after this step."""

    kind: FoldKind
    targets: tuple[tuple[int, Proposal], ...]
    saved: int
    left: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryStep:
    """Show the log messages `[start, stop)`, but for `kept`, as one segment.

    `source` are the tokens that it replaces, `expected` those it is expected to take. A `merge` stands for the
    segments of the folds in `merged` and what lies between them.
    """

    span: Span
    start: int
    stop: int
    kept: tuple[int, ...]
    source: int
    expected: int
    left: int
    merged: tuple[str, ...] = ()

    @property
    def kind(self) -> FoldKind:
        return "merge" if self.merged else "summary"


Step: TypeAlias = ItemStep | SummaryStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a pass would do. Tokens are of the window's messages; `budget` is what they may take.

    `fits` says whether the window after all steps is within the budget and the byte limit.
    """

    zone: Zone
    reason: str
    budget: int
    before: int
    after: int
    size: int
    steps: tuple[Step, ...]
    fits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What the planner is told besides the window.

    `budget` is in tokens. `idle` are the seconds since the last call, None when unknown. `summaries` says whether a
    summary may be made now (`refold.core.progress`), `force` asks for a summary of all but the kept part, whatever the
    zone. `pinned` are the tokens of the pinned notes, which STATE shows whole. `deny_kinds` and `deny_keys` name what
    failed in this pass, so that a second plan goes another way.
    """

    budget: int
    policy: Policy
    scope: Scope
    idle: float | None = None
    summaries: bool = True
    force: bool = False
    overflow: bool = False
    waiting: frozenset[str] = frozenset()
    pinned: int = 0
    deny_kinds: frozenset[str] = frozenset()
    deny_keys: frozenset[tuple[str, str]] = frozenset()

    def fits(self, tokens: int, size: int) -> bool:
        """Whether a window of so many tokens and bytes is within the budget and the byte limit."""
        limit = self.policy.body_limit
        return tokens <= self.budget and (limit is None or size <= limit)

    def may(self, kind: str) -> bool:
        """Whether a kind of fold is wanted, and did not fail in this pass."""
        return kind in self.policy.kinds and kind not in self.deny_kinds

    @property
    def readable(self) -> bool:
        """A summary hides whole messages, so there must be a way back: a file to read, or the log itself."""
        return self.scope.file_reader is not None or self.scope.log_reader is not None
