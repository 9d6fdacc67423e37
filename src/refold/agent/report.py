"""`SessionReport`: what a replay reports, for a live thread, from its state alone.

    values = graph.get_state(config).values
    report = SessionReport.of(values["messages"], values["folds"], files=files)

Everything is derived from log and folds, and from the stored originals where `files` are given: nothing is remembered
on the side, so a report of an old checkpoint says how things stood then.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from refold.agent.reach import Kept, recall
from refold.core.canonical import Json
from refold.core.categories import CATEGORIES, Category, category_of
from refold.core.facts.model import FactClass
from refold.core.folds import KINDS, SPAN_KINDS, Fold
from refold.core.meter import EstimatingMeter, Meter
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.usage import Usage, read_usage
from refold.core.window import Window
from refold.files import Files, MemoryFiles, referenced_paths

JSON_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PassReport:
    """One recorded fold pass: for which model call it was made, why, its folds by kind, the messages that they stand
    for, and the tokens of the window around it. `undone` says that none of its folds acts any more."""

    id: str
    call: int
    reason: str
    kinds: Mapping[str, int]
    covered: int
    before: int
    after: int
    undone: bool

    @property
    def saved(self) -> int:
        """Tokens that the pass took out of the window; negative for one that undid others."""
        return self.before - self.after


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionReport:
    """A thread as its state has it. Tokens are the meter's, but those of `reported`, which are the provider's.

    `tokens` are those of the window by category (system prompt and tool schemas are not in the state: 0), `log_tokens`
    those of the whole log. `last` is what the newest answer reported, `reported` the sums over all. `prefix_breaks` are
    passes that changed what had been sent. Facts and messages are looked for in the window, in the stored files that it
    names, and by id; `stored` says whether there were files to look into.
    """

    messages: int
    calls: int
    log_tokens: int
    tokens: Mapping[Category, int]
    limit: int | None
    last: Usage | None
    reported: Usage
    folds: Mapping[str, int]
    passes: tuple[PassReport, ...]
    void: int
    unreadable: int
    hidden: tuple[str, ...]
    in_window: int
    by_path: int
    by_id: int
    unreachable: tuple[str, ...]
    stored: bool
    facts: Mapping[FactClass, Kept]
    artifact_bytes: int | None
    checkpoint_bytes: int | None

    @classmethod
    def of(
        cls,
        messages: Sequence[BaseMessage],
        folds: Sequence[Mapping[str, Json]] = (),
        *,
        files: Files | None = None,
        meter: Meter | None = None,
        limit: int | None = None,
        checkpoint_bytes: int | None = None,
        page: int = Policy().read_page,
    ) -> "SessionReport":
        """The report of a log and its folds.

        Args:
            files: Where the originals are; without them only log and window are looked into.
            meter: Counts tokens; by default the estimator.
            limit: The model's input limit, for the occupancy.
            checkpoint_bytes: What the checkpoints take, where that is known.
            page: Tokens of one page of `read_history`, with which messages are read back.
        """
        window, meter = project(messages, folds), meter or EstimatingMeter()
        found = recall(window, files if files is not None else MemoryFiles(), page=page)
        usages = [usage for message in messages if (usage := read_usage(message)) is not None]
        hidden = window.hidden()
        return cls(
            messages=len(window.log),
            calls=sum(isinstance(message, AIMessage) for message in messages),
            log_tokens=sum(meter.count(message).tokens for message in messages),
            tokens=_categories(window, meter),
            limit=limit,
            last=usages[-1] if usages else None,
            reported=_sum(usages),
            folds={kind: sum(fold.kind == kind for fold in window.folds) for kind in sorted(KINDS)},
            passes=_passes(window),
            void=len(window.void),
            unreadable=len(window.unreadable),
            hidden=tuple(key for index, key in enumerate(window.log.keys) if index in hidden),
            in_window=found.in_window,
            by_path=found.by_path,
            by_id=found.by_id,
            unreachable=found.unreachable,
            stored=files is not None,
            facts=found.facts,
            artifact_bytes=None if files is None else _artifact_bytes(files, messages, folds),
            checkpoint_bytes=checkpoint_bytes,
        )

    @property
    def used(self) -> int:
        """Tokens of the window's messages."""
        return sum(self.tokens.values())

    @property
    def occupancy(self) -> float | None:
        """The part of the limit that the newest request took, as the provider counted it, else the window's messages by
        the meter; None without a limit."""
        if self.limit is None:
            return None
        return (self.last.context if self.last is not None else self.used) / self.limit

    @property
    def prefix_breaks(self) -> int:
        """Passes that changed what had been sent."""
        return sum(any(kind != "strike" for kind in one.kinds) for one in self.passes)

    def to_json(self) -> Mapping[str, Json]:
        """The object of `refold report --json`, described in docs/cli-json.md."""
        return {
            "version": JSON_VERSION,
            "messages": self.messages,
            "calls": self.calls,
            "log_tokens": self.log_tokens,
            "window_tokens": self.used,
            "categories": {category: self.tokens[category] for category in CATEGORIES},
            "limit": self.limit,
            "occupancy": None if self.occupancy is None else round(self.occupancy, 4),
            "last_request": None if self.last is None else usage_json(self.last),
            "reported": usage_json(self.reported),
            "folds": dict(self.folds),
            "passes": [_pass_json(one) for one in self.passes],
            "prefix_breaks": self.prefix_breaks,
            "void_folds": self.void,
            "unreadable_folds": self.unreadable,
            "hidden": list(self.hidden),
            "reached": {"window": self.in_window, "path": self.by_path, "id": self.by_id},
            "unreachable": list(self.unreachable),
            "stored_originals": self.stored,
            "facts": {
                str(cls): {"total": kept.total, "in_view": kept.in_view, "recallable": kept.recallable}
                for cls, kept in self.facts.items()
            },
            "artifact_bytes": self.artifact_bytes,
            "checkpoint_bytes": self.checkpoint_bytes,
        }

    def rows(self) -> list[tuple[str, str]]:
        """(what, how much), for a table."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.folds.items() if count)
        share = "" if self.occupancy is None else f" ({self.occupancy:.0%} of {self.limit:,})"
        rows = [
            ("messages / model calls", f"{self.messages:,} / {self.calls:,}"),
            ("log, tokens", f"{self.log_tokens:,}"),
            ("window, tokens", f"{self.used:,}"),
            *((f"  {name}", f"{tokens:,}") for name, tokens in self.tokens.items() if tokens),
        ]
        if self.last is not None:
            rows.append(("last request and answer, reported", f"{self.last.context:,}{share}"))
            cached = self.reported.cache_read / max(1, self.reported.input)
            rows.append(("all input, reported (from the cache)", f"{self.reported.input:,} ({cached:.0%})"))
        elif share:
            rows.append(("occupancy", share.strip(" ()")))
        rows += [
            ("fold passes", f"{len(self.passes)}" + (f" ({kinds})" if kinds else "")),
            ("prefix breaks", f"{self.prefix_breaks}"),
            ("folds that no longer fit the log", f"{self.void}"),
            ("messages behind summaries", f"{len(self.hidden):,}"),
            ("messages in the window / by path / by id", f"{self.in_window:,} / {self.by_path:,} / {self.by_id:,}"),
            ("messages that cannot be reached", f"{len(self.unreachable):,}"),
        ]
        for cls, kept in self.facts.items():
            if kept.total:
                seen, reached = kept.in_view / kept.total, kept.recallable / kept.total
                rows.append((f"facts: {cls} ({kept.total:,}), in view / recallable", f"{seen:.0%} / {reached:.0%}"))
        for name, size in (("stored originals", self.artifact_bytes), ("checkpoints", self.checkpoint_bytes)):
            rows += [(f"{name}, bytes", f"{size:,}")] if size is not None else []
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def usage_json(usage: Usage) -> Mapping[str, Json]:
    """Reported tokens as JSON."""
    return {
        "input": usage.input, "output": usage.output, "cache_read": usage.cache_read, "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
    }  # fmt: skip


def _pass_json(one: PassReport) -> Mapping[str, Json]:
    return {
        "pass": one.id, "call": one.call, "reason": one.reason, "kinds": dict(one.kinds), "covered": one.covered,
        "before": one.before, "after": one.after, "saved": one.saved, "undone": one.undone,
    }  # fmt: skip


def _categories(window: Window, meter: Meter) -> Mapping[Category, int]:
    found: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
    for entry in window.entries:
        found[category_of(entry.message)] += meter.count(entry.message).tokens
    return found


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(
        input=sum(usage.input for usage in usages),
        output=sum(usage.output for usage in usages),
        cache_read=sum(usage.cache_read for usage in usages),
        cache_write=sum(usage.cache_write for usage in usages),
        reasoning=sum(usage.reasoning for usage in usages),
    )


def _passes(window: Window) -> tuple[PassReport, ...]:
    """The recorded passes in order. The call of a pass is the one whose request it was made for."""
    undone = {identity for fold in window.folds for identity in fold.undone}
    calls_until = [0]
    for message in window.log.messages:
        calls_until.append(calls_until[-1] + isinstance(message, AIMessage))
    by_pass: dict[str, list[Fold]] = {}
    for fold in window.folds:
        by_pass.setdefault(fold.pass_id, []).append(fold)
    reports: list[PassReport] = []
    for identity, folds in by_pass.items():
        place = window.log.positions.get(folds[0].at.key)
        reports.append(
            PassReport(
                id=identity,
                call=0 if place is None else calls_until[place + 1] + 1,
                reason=folds[0].reason,
                kinds=dict(Counter(fold.kind for fold in folds)),
                covered=sum(fold.span.count if fold.kind in SPAN_KINDS else len(fold.items) for fold in folds),
                before=folds[0].before,
                after=folds[-1].after,
                undone=bool(made := {fold.id for fold in folds if fold.kind != "strike"}) and made <= undone,
            )
        )
    return tuple(reports)


def _artifact_bytes(files: Files, messages: Sequence[BaseMessage], folds: Sequence[Mapping[str, Json]]) -> int:
    """Bytes of the stored originals that the state names."""
    found = (files.stat(path) for path in sorted(referenced_paths(messages, folds)))
    return sum(info.size for info in found if info is not None)
