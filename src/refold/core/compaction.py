"""What a fold pass is given, what it has made so far, and what it comes to. `refold.core.compact` runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from refold.core.canonical import Json
from refold.core.folds import Fold, FoldKind, make_fold
from refold.core.gauge import Gauge
from refold.core.limits import Budget
from refold.core.meter import Meter
from refold.core.passes import Scope
from refold.core.policy import Policy
from refold.core.segment import Facts, Recall


@dataclass(frozen=True, kw_only=True, slots=True)
class Summariser:
    """Who writes summaries. Limits are tokens of a whole request, as `meter` (an upper bound) counts it.

    `live` says that the request's own model may be asked in the live prefix. `fallback_limit` is None where there is no
    fall-back model.
    """

    live: bool
    limit: int
    meter: Meter
    fallback_limit: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Veto:
    """What the hook refused: tokens of the window then, and whether it refused the whole pass."""

    used: int
    whole: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """What a fold pass is given. `room` divides the model's window."""

    room: Budget
    policy: Policy
    scope: Scope
    summariser: Summariser
    facts: Facts = field(default_factory=Facts)
    idle: float | None = None
    waiting: frozenset[str] = frozenset()
    search: str | None = None
    focus: str | None = None
    force: bool = False
    overflow: bool = False
    vetoed: Veto | None = None
    """When the hook last refused a summary of this thread, or a whole pass, None where it did not: the next one is
    planned, asked for and paid for only after as many new tokens as after any other attempt."""

    @property
    def budget(self) -> int:
        """Tokens that messages may take."""
        return self.room.messages

    def recall(self, path: str | None) -> Recall:
        """How the model reads back what a record stands for; `path` is that of the archive, if there is one."""
        return Recall(
            path=path, file_reader=self.scope.file_reader, log_reader=self.scope.log_reader, search=self.search
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """What a fold pass came to: the measured window after it, and the folds that it made, as JSON for the state."""

    gauge: Gauge
    folds: tuple[Mapping[str, Json], ...]
    vetoed: bool = False
    veto: Veto | None = None


@dataclass(slots=True)
class Made:
    """What a pass has made so far, and what it must not try again."""

    pass_id: str
    reason: str
    before: int
    folds: list[Fold] = field(default_factory=list)
    deny_kinds: set[str] = field(default_factory=set)
    deny_keys: set[tuple[str, str]] = field(default_factory=set)
    storage: bool = True

    def new_fold(self, gauge: Gauge, kind: FoldKind, data: Mapping[str, Json]) -> Fold:
        """A fold of this pass, made at the end of the log. What the window holds after it is filled in at the end."""
        log = gauge.window.log
        return make_fold(
            kind, data, pass_id=self.pass_id, reason=self.reason, at=log.anchor(len(log) - 1), before=self.before,
            after=self.before, scale=gauge.scale,
        )  # fmt: skip
