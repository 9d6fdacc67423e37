"""What a replay found, as values and as the JSON object that docs/cli-json.md describes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, cast

from refold.agent.reach import Recalled
from refold.core.canonical import Json
from refold.core.folds import KINDS
from refold.core.policy import Policy
from refold.core.validate import PROVIDERS
from refold.replay.bill import Bill
from refold.replay.measure import Request
from refold.replay.transcript import Transcript

JSON_VERSION: Final = 1
EXIT_BROKEN: Final = 6
"""Exit status of a replay in which a request was invalid or over the limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One model call: its accepted request, and what the request without refold would have been (tokens).

    `kept` are the tokens of the longest prefix that it shares with the request before it, `breaks` says that it does
    not extend that request, `passes` are the ids of the fold passes recorded for it.
    """

    request: Request
    without: int
    kept: int
    breaks: bool
    passes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The result of replaying one transcript. Tokens are those of the strict counter, sizes are bytes."""

    transcript: Transcript
    limit: int
    policy: Policy
    model: str
    counter: str
    requests: tuple[Request, ...]
    calls: tuple[Call, ...]
    folds: tuple[Mapping[str, Json], ...]
    void: int
    bill: Bill
    recalled: Recalled
    raw_bytes: int
    checkpoint_bytes: int
    whole_copies_bytes: int
    checkpoints: int
    artifact_bytes: int
    seconds: float
    subagents: tuple["Replay", ...] = ()

    @property
    def peak(self) -> int:
        """The largest request that reached the model, refused ones too."""
        return max((request.tokens for request in self.requests), default=0)

    @property
    def peak_without(self) -> int:
        """The largest request of the same session without refold."""
        return max((call.without for call in self.calls), default=0)

    @property
    def over_limit(self) -> int:
        """Requests over the limit."""
        return sum(request.tokens > self.limit for request in self.requests)

    @property
    def invalid(self) -> Mapping[str, int]:
        """Requests that break a provider's rules, by provider."""
        return {name: sum(name in request.invalid for request in self.requests) for name in PROVIDERS}

    @property
    def summaries(self) -> int:
        """Requests for a summary that were answered."""
        return sum(request.kind == "summary" and not request.refused for request in self.requests)

    @property
    def passes(self) -> int:
        """Recorded fold passes."""
        return len({str(fold["pass"]) for fold in self.folds})

    @property
    def breaks(self) -> tuple[Call, ...]:
        """Calls whose request does not extend the one before it."""
        return tuple(call for call in self.calls if call.breaks)

    @property
    def unexplained(self) -> tuple[Call, ...]:
        """Breaks for which no fold pass was recorded."""
        return tuple(call for call in self.breaks if not call.passes)

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong, in words; empty for a clean run."""
        found = [f"request at message {r.position}: {text}" for r in self.requests for text in _problems(r, self.limit)]
        found += [f"call at message {c.request.position}: its prefix broke without a fold" for c in self.unexplained]
        found += [f"message {key}: neither in the window nor read back" for key in self.recalled.unreachable]
        return tuple(found)

    @property
    def holds(self) -> bool:
        """Whether every request was valid and under the limit, subagents' too."""
        own = not self.over_limit and not any(self.invalid.values())
        return own and all(child.holds for child in self.subagents)


def to_json(replay: Replay) -> Mapping[str, Json]:
    """The object of `--json`, described in docs/cli-json.md."""
    kinds = [str(fold["kind"]) for fold in replay.folds]
    skipped = [{"reason": s.reason, "count": s.count, "first_line": s.first_line} for s in replay.transcript.skipped]
    return {
        "version": JSON_VERSION,
        "refold": version("refold"),
        "session": replay.transcript.name,
        "format": replay.transcript.format,
        "model": replay.model,
        "counter": replay.counter,
        "policy": policy_json(replay.policy),
        "messages": len(replay.transcript.messages),
        "calls": len(replay.calls),
        "limit": replay.limit,
        "peak_without": replay.peak_without,
        "peak": replay.peak,
        "over_limit": replay.over_limit,
        "invalid": dict(replay.invalid),
        "folds": {kind: kinds.count(kind) for kind in sorted(KINDS)},
        "passes": replay.passes,
        "void_folds": replay.void,
        "summaries": replay.summaries,
        "prefix_breaks": len(replay.breaks),
        "unexplained_breaks": len(replay.unexplained),
        "unreachable": len(replay.recalled.unreachable),
        "reached": {
            "window": replay.recalled.in_window, "path": replay.recalled.by_path, "id": replay.recalled.by_id,
        },
        "billed": bill_json(replay.bill),
        "cached_share": round(replay.bill.cached_share, 4),
        "raw_bytes": replay.raw_bytes,
        "checkpoint_bytes": replay.checkpoint_bytes,
        "checkpoint_bytes_whole_copies": replay.whole_copies_bytes,
        "checkpoints": replay.checkpoints,
        "artifact_bytes": replay.artifact_bytes,
        "facts": {
            str(cls): {"total": kept.total, "in_view": kept.in_view, "recallable": kept.recallable}
            for cls, kept in replay.recalled.facts.items()
        },
        "skipped_records": sum(s.count for s in replay.transcript.skipped),
        "skipped": cast("Sequence[Json]", skipped),
        "problems": list(replay.problems),
        "seconds": round(replay.seconds, 3),
        "subagents": [to_json(child) for child in replay.subagents],
    }  # fmt: skip


def bill_json(bill: Bill) -> Mapping[str, Json]:
    """What was billed; `money` is null where no price is known."""
    money: Mapping[str, Json] | None = None
    if bill.money is not None:
        money = {
            "currency": bill.money.currency,
            "without": round(bill.money.without, 6),
            "with": round(bill.money.managed, 6),
        }
    return {
        "rules": bill.rules, "without": round(bill.without), "with": round(bill.managed), "money": money,
        "prices": bill.prices,
    }  # fmt: skip


def policy_json(policy: Policy) -> Mapping[str, Json]:
    """Every threshold by name; sets as sorted lists."""
    return {
        item.name: sorted(value) if isinstance(value := getattr(policy, item.name), frozenset) else value
        for item in dataclasses.fields(policy)
    }


def _problems(request: Request, limit: int) -> list[str]:
    over = [f"{request.tokens} tokens, over the limit of {limit}"] if request.tokens > limit else []
    rules = [f"{provider}: {rule}" for provider, broken in request.invalid.items() for rule in broken]
    return [*over, *rules, *request.problems]
