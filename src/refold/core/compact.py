"""One fold pass, as a program: plan, store what must be stored, summarise, and say what became of it.

Nothing leaves the window before its original is stored and read back. A step whose storage or summary fails is left
out, the pass is planned again without it, and the reason is recorded; what could not be folded stays in the window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from langchain_core.messages import BaseMessage

from refold.core.archive import Archive, archive_gen, store_gen
from refold.core.canonical import Json, derived_id
from refold.core.effects import ConfirmFolds, Report
from refold.core.folds import SPAN_KINDS, Fold, FoldKind, make_fold
from refold.core.gauge import Gauge, measure
from refold.core.limits import Budget
from refold.core.messages import is_record, role_of
from refold.core.meter import Meter
from refold.core.passes import Scope
from refold.core.passes.base import tokens_of
from refold.core.plan import plan, zone_of
from refold.core.policy import Policy
from refold.core.program import Program
from refold.core.progress import summaries_allowed
from refold.core.project import project
from refold.core.repair import drop_bound_reasoning
from refold.core.segment import Facts, Recall, pins_alone, pins_text, quotable, segment_text, state_text
from refold.core.situation import ItemStep, Plan, Situation, SummaryStep
from refold.core.summary import Summary, SummaryJob, summary_gen
from refold.core.undo import undo_within
from refold.core.window import Window
from refold.errors import ConfigurationError, FilesError, SummaryError

_MOST_PLANS = 4
"""Plans per pass: the first, and as many more as steps that failed may need to be planned around."""
_SUMMARY_ROOM = 400
"""Tokens that the instruction of a live summary and a short answer need beside the window."""


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
    vetoed: "Veto | None" = None
    """When the hook last refused a summary of this thread, or a whole pass, None where it did not: the next one is
    planned, asked for and paid for only after as many new tokens as after any other attempt."""

    @property
    def budget(self) -> int:
        """Tokens that messages may take."""
        return self.room.messages


@dataclass(frozen=True, kw_only=True, slots=True)
class Veto:
    """What the hook refused: tokens of the window then, and whether it refused the whole pass."""

    used: int
    whole: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """What a fold pass came to: the measured window after it, and the folds that it made, as JSON for the state."""

    gauge: Gauge
    folds: tuple[Mapping[str, Json], ...]
    vetoed: bool = False
    veto: Veto | None = None


@dataclass(slots=True)
class _Made:
    """What a pass has made so far, and what it must not try again."""

    pass_id: str
    reason: str
    before: int
    folds: list[Fold] = field(default_factory=list)
    deny_kinds: set[str] = field(default_factory=set)
    deny_keys: set[tuple[str, str]] = field(default_factory=set)
    storage: bool = True


def situation_of(job: Compaction, gauge: Gauge) -> Situation:
    """What the planner is told about a pass at its start; the dry run tells it the same."""
    return Situation(
        budget=job.budget,
        policy=job.policy,
        scope=job.scope,
        idle=job.idle,
        summaries=job.force
        or job.overflow
        or (not _lately_vetoed(job, gauge) and summaries_allowed(gauge, job.policy, budget=job.budget)),
        force=job.force,
        overflow=job.overflow,
        waiting=job.waiting,
        pinned=round(gauge.scale * tokens_of(pins_text(job.facts.pins))) if job.facts.pins else 0,
    )


def _lately_vetoed(job: Compaction, gauge: Gauge) -> bool:
    if job.vetoed is None:
        return False
    return 0 <= gauge.used - job.vetoed.used < job.policy.summary_spacing * job.budget


def _is_quiet(job: Compaction, gauge: Gauge) -> bool:
    """Whether the hook lately refused everything, and the request can do without."""
    whole = job.vetoed is not None and job.vetoed.whole and _lately_vetoed(job, gauge)
    return whole and not job.force and not job.overflow and gauge.used <= job.budget


def compact_gen(job: Compaction, gauge: Gauge) -> Program[Pass]:
    """Run a fold pass where one is due. The window is unchanged, and no fold made, where none is or all of it failed.

    Storage and summariser failures do not raise; a failure of the `before_fold` hook does.
    """
    window = gauge.window
    if not len(window.log):
        return Pass(gauge=gauge, folds=())
    if _is_quiet(job, gauge):
        return Pass(gauge=gauge, folds=())
    if (room := _room_again(job, gauge)) is not None:
        return (yield from _finish_gen(gauge, room[0], room[0].folds, room[1]))
    situation = situation_of(job, gauge)
    planned = plan(gauge, situation)
    if not planned.steps:
        return Pass(gauge=gauge, folds=())
    made = _Made(pass_id=_pass_id(job, window), reason=planned.reason, before=gauge.used)
    folds, current = list[Fold](), gauge
    for _ in range(_MOST_PLANS):
        before = len(made.folds)
        denied = (len(made.deny_kinds), len(made.deny_keys))
        yield from _carry_out_gen(job, current, planned, made)
        if len(made.folds) > before:
            folds, current = _with_state(job, gauge, made)
        if denied == (len(made.deny_kinds), len(made.deny_keys)) and zone_of(current, situation) != "overflow":
            break
        if not job.force and zone_of(current, replace(situation, overflow=False)) in ("under", "soft"):
            break
        situation = replace(
            situation, deny_kinds=frozenset(made.deny_kinds), deny_keys=frozenset(made.deny_keys),
            overflow=job.overflow and zone_of(current, replace(situation, overflow=False)) == "overflow",
        )  # fmt: skip
        planned = plan(current, situation)
        if not planned.steps:
            break
    return (yield from _finish_gen(gauge, made, folds, current))


def _pass_id(job: Compaction, window: Window) -> str:
    at = window.log.anchor(len(window.log) - 1)
    return derived_id("pass", job.scope.thread, at.key, at.hash, str(len(window.raw_folds)))


def _room_again(job: Compaction, gauge: Gauge) -> tuple[_Made, Gauge] | None:
    """The pass that undoes others, where the policy wants that and the window has room for what they took out."""
    if not job.policy.undo or job.force or job.overflow or not gauge.window.segments:
        return None
    made = _Made(pass_id=_pass_id(job, gauge.window), reason="room again", before=gauge.used)
    most = round(job.policy.soft * job.budget)
    undone = undo_within(gauge, most=most, pass_id=made.pass_id, reason=made.reason)
    if undone is None:
        return None
    made.folds.append(undone[0])
    return made, undone[1]


def _finish_gen(gauge: Gauge, made: _Made, folds: Sequence[Fold], result: Gauge) -> Program[Pass]:
    """Fill in the real numbers of a pass's folds and `result`, the window with them; ask the hook, measure what is
    left."""
    if not folds:
        return Pass(gauge=gauge, folds=())
    final = [replace(fold, after=result.used).to_json() for fold in folds]
    proposed = [fold for fold in final if fold["kind"] != "strike"]
    if proposed:
        answer = yield from ConfirmFolds(folds=proposed, before=made.before, after=result.used, reason=made.reason)
        if (confirmed := _confirmed(final, answer)) != final:
            amended = _measured(gauge, project(gauge.window.log.messages, [*gauge.window.raw_folds, *confirmed]))
            final = [{**fold, "after": amended.used} for fold in confirmed]
    raw = [*gauge.window.raw_folds, *final]
    result = _measured(result, project(gauge.window.log.messages, raw, previous=result.window))
    yield from Report(
        event="fold" if final else "fold_vetoed",
        data={
            "pass": made.pass_id, "reason": made.reason, "before": made.before, "after": result.used,
            "kinds": [str(fold["kind"]) for fold in final],
        },
    )  # fmt: skip
    whole = bool(proposed) and all(fold["kind"] == "strike" for fold in final)
    fewer = sum(fold["kind"] in SPAN_KINDS for fold in final) < sum(fold.kind in SPAN_KINDS for fold in folds)
    veto = Veto(used=result.used, whole=whole) if whole or fewer else None
    return Pass(gauge=result, folds=tuple(final), vetoed=len(final) < len(folds), veto=veto)


def _with_state(job: Compaction, gauge: Gauge, made: _Made) -> tuple[list[Fold], Gauge]:
    """The folds of a pass with the STATE that goes with its summaries, and the window with them; of STATE only the
    pinned notes, or nothing, where it alone would not fit."""
    bare = _remeasured(gauge, made.folds)
    if not any(fold.kind in SPAN_KINDS for fold in made.folds):
        return list(made.folds), bare
    text = state_text(
        bare.window, job.facts, budget=round(job.policy.state_share * job.budget), recall=_recall(job, None)
    )
    for shown in (text, pins_alone(job.facts.pins)) if job.facts.pins else (text,):
        folds = [*made.folds, _fold(gauge, made, "state", {"text": shown})]
        full = _remeasured(gauge, folds)
        if not bare.used <= job.budget < full.used:
            return folds, full
    return list(made.folds), bare


def _confirmed(made: Sequence[Mapping[str, Json]], answer: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """The folds that the hook keeps, with the texts that it gave to segments and STATE.

    A strike is an account of what failed and not the hook's to drop. STATE is written for the summaries of its pass; a
    veto of them all is a veto of it.
    """
    kept = {str(fold["id"]): fold for fold in answer}
    if foreign := kept.keys() - {str(fold["id"]) for fold in made}:
        raise ConfigurationError(
            f"before_fold returned the folds {sorted(foreign)}, which were not proposed: return some of those "
            "that were, with the text of summaries changed at most"
        )
    spans = any(str(fold["id"]) in kept for fold in made if fold["kind"] in SPAN_KINDS)
    return [
        _amended(fold, kept.get(str(fold["id"]), fold))
        for fold in made
        if fold["kind"] == "strike" or (str(fold["id"]) in kept and (spans or fold["kind"] != "state"))
    ]


def _amended(fold: Mapping[str, Json], answered: Mapping[str, Json]) -> Mapping[str, Json]:
    """A fold with the text of the hook's answer. Everything else names what is stored, and stays."""
    data, wished = fold["data"], answered.get("data")
    if not isinstance(data, Mapping) or not isinstance(wished, Mapping) or data.get("text") == wished.get("text"):
        return fold
    return {**fold, "data": {**data, "text": str(wished.get("text"))}}


def _carry_out_gen(job: Compaction, gauge: Gauge, planned: Plan, made: _Made) -> Program[None]:
    must_fit = planned.zone == "overflow"
    for step in planned.steps:
        if isinstance(step, ItemStep):
            yield from _items_gen(gauge, step, made)
        else:
            yield from _span_gen(job, gauge, step, made, must_fit=must_fit)


def _items_gen(gauge: Gauge, step: ItemStep, made: _Made) -> Program[None]:
    """Store what the step's messages need, and fold those whose originals are safe."""
    log = gauge.window.log
    entries: list[Mapping[str, Json]] = []
    for index, proposal in step.targets:
        if proposal.artifacts and not made.storage:
            made.deny_keys.add((step.kind, log.keys[index]))
            continue
        failed = yield from store_gen(proposal.artifacts)
        if failed is None:
            entries.append({"m": log.keys[index], "h": log.anchor(index).hash, **proposal.data})
            continue
        made.storage = False
        made.deny_keys.add((step.kind, log.keys[index]))
        yield from Report(event="artifact_failed", data={"message": log.keys[index], "error": repr(failed)[:300]})
    if entries:
        made.folds.append(_fold(gauge, made, step.kind, {"items": entries}))


def _span_gen(job: Compaction, gauge: Gauge, step: SummaryStep, made: _Made, *, must_fit: bool) -> Program[None]:
    """Archive a span, have it summarised, and fold it into a segment; or record why that failed."""
    span = _source(job, gauge, step)
    path = yield from _archive_gen(job, gauge, step, made)
    if path is None and job.scope.log_reader is None:
        made.deny_kinds |= SPAN_KINDS
        return
    try:
        summary = yield from summary_gen(_summary_job(job, gauge, step, span, must_fit=must_fit))
    except (SummaryError, FilesError) as error:
        yield from Report(event="summary_strike", data={"error": str(error)[:300]})
        if not must_fit:
            _strike(gauge, made, step, str(error))
            return
        most = segment_tokens(job, step)
        from refold.core.floor import floor_summary  # with the facts: their patterns take long to compile

        summary = Summary(text=floor_summary(span, budget=most, count=tokens_of), route="floor", stored=False)
    data = _segment_data(job, gauge, step, span, summary, path)
    if tokens_of(str(data["text"])) * gauge.scale >= step.source:
        if summary.route != "floor":
            _strike(gauge, made, step, "the segment is not shorter than what it stands for")
        made.deny_kinds |= SPAN_KINDS
        return
    made.folds.append(_fold(gauge, made, step.kind, data))


def _source(job: Compaction, gauge: Gauge, step: SummaryStep) -> list[BaseMessage]:
    """What is summarised: the originals; for a merge whose originals do not fit one request, the segments that it
    stands for and what is shown between them: originals merged again and again would cost the square of the thread."""
    originals = _originals(gauge, step)
    sizes = accumulate(job.summariser.meter.count(message).tokens for message in originals)
    room = job.summariser.limit // 2
    if not step.merged or all(size <= room for size in sizes):
        return originals
    return [
        entry.message
        for entry in gauge.window.entries
        if entry.kind in ("segment", "log", "item")
        and step.start <= entry.start < step.stop
        and entry.start not in step.kept
    ]


def _originals(gauge: Gauge, step: SummaryStep) -> list[BaseMessage]:
    """The log messages that a step takes out of the window."""
    kept = frozenset(step.kept)
    return [gauge.window.log.messages[index] for index in range(step.start, step.stop) if index not in kept]


def _audited(gauge: Gauge, step: SummaryStep, span: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """What the facts of a segment are taken from: the span, and for a merge of segments the user's own words in it too,
    since constraints are believed from the user only, never from a record."""
    if not step.merged:
        return span
    words = [message for message in _originals(gauge, step) if role_of(message) == "human"]
    return [*words, *(message for message in span if role_of(message) != "human" or is_record(message))]


def segment_tokens(job: Compaction, step: SummaryStep) -> int:
    """The wished length of a summary's own text, in tokens: by policy, and never over a quarter of its source."""
    most = min(job.policy.summary_tokens, round(job.policy.summary_share * job.budget))
    return max(48, min(most, step.source // 4))


def _segment_data(
    job: Compaction, gauge: Gauge, step: SummaryStep, span: Sequence[BaseMessage], summary: Summary, path: str | None
) -> Mapping[str, Json]:
    from refold.core.facts import audit  # loaded at the first fold: its patterns take long to compile

    log = gauge.window.log
    share = min(1.0, step.source / max(1, job.budget))
    facts_budget = round(min(job.policy.facts_share * job.budget, 0.15 * step.source))
    found = audit(_audited(gauge, step, span), summary.text, budget=facts_budget, count=tokens_of)
    quote_budget = round(min(job.policy.quote_share * job.budget, max(120, share * step.source)))
    text = segment_text(
        summary.text,
        appendix=found.appendix,
        quoted=quotable(log, step.start, step.stop, kept=step.kept),
        quote_budget=quote_budget,
        messages=step.stop - step.start - len(step.kept),
        recall=replace(_recall(job, path), leads_on=bool(step.merged)),
        floor=summary.route == "floor",
    )
    return {
        "span": step.span.to_json(),
        "text": text,
        "path": path,
        "kept": [log.keys[index] for index in step.kept],
        "merged": list(step.merged),
        "route": summary.route,
        "source": step.source,
        "facts": {
            str(cls): [kept.total, kept.in_text, kept.in_appendix] for cls, kept in found.survival.items() if kept.total
        },
    }


def _archive_gen(job: Compaction, gauge: Gauge, step: SummaryStep, made: _Made) -> Program[str | None]:
    """Store every message of the span. Returns the archive's path; None when that failed, which was reported."""
    if job.scope.file_reader is None or not made.storage:
        return None
    window = gauge.window
    archive = Archive(
        thread=job.scope.thread,
        sequence=sum(1 for fold in window.folds if fold.kind in SPAN_KINDS),
        digest=step.span.digest,
        log=window.log,
        start=step.start,
        stop=step.stop,
        retold=[segment for segment in window.segments if segment.fold.id in step.merged],
        beside=() if job.scope.log_reader is not None else _unbound(window, step),
    )
    try:
        return (yield from archive_gen(archive))
    except FilesError as error:
        made.storage = False
        yield from Report(event="artifact_failed", data={"span": step.span.digest, "error": repr(error)[:300]})
        return None


def _unbound(window: Window, step: SummaryStep) -> list[BaseMessage]:
    """The messages beside the span that stay, but without the reasoning that is bound to what the span takes away."""
    newest, log = window.log.newest_human() or 0, window.log
    beside = (entry for entry in window.entries if entry.kind in ("log", "item") and entry.start < newest)
    return [
        log.messages[entry.start]
        for entry in beside
        if not step.start <= entry.start < step.stop and drop_bound_reasoning(entry.message) is not entry.message
    ]


def _summary_job(
    job: Compaction, gauge: Gauge, step: SummaryStep, span: Sequence[BaseMessage], *, must_fit: bool
) -> SummaryJob:
    target = segment_tokens(job, step)
    answer = max(target, job.room.reserved)  # a provider that counts both together counts the answer's cap, not it
    fits = gauge.used + gauge.fixed + answer + _SUMMARY_ROOM <= job.room.limit
    so_far = step.stop > max((segment.stop for segment in gauge.window.segments), default=0)
    live = job.summariser.live and fits and not must_fit and so_far
    return SummaryJob(
        span_digest=step.span.digest,
        span=span,
        live=gauge.window.messages if live else None,
        limit=job.summariser.limit,
        fallback_limit=job.summariser.fallback_limit,
        source=step.source,
        target=target,
        retries=job.policy.summary_retries,
        backoff=job.policy.summary_backoff,
        timeout=job.policy.summary_timeout,
        focus=job.focus,
        count=job.summariser.meter.count_text,
    )


def _recall(job: Compaction, path: str | None) -> Recall:
    return Recall(path=path, file_reader=job.scope.file_reader, log_reader=job.scope.log_reader, search=job.search)


def _strike(gauge: Gauge, made: _Made, step: SummaryStep, error: str) -> None:
    made.deny_kinds |= SPAN_KINDS
    made.folds.append(_fold(gauge, made, "strike", {"span": step.span.digest, "error": error[:300]}))


def _fold(gauge: Gauge, made: _Made, kind: FoldKind, data: Mapping[str, Json]) -> Fold:
    log = gauge.window.log
    return make_fold(
        kind, data, pass_id=made.pass_id, reason=made.reason, at=log.anchor(len(log) - 1), before=made.before,
        after=made.before, scale=gauge.scale,
    )  # fmt: skip


def _remeasured(gauge: Gauge, folds: Sequence[Fold]) -> Gauge:
    raw = [*gauge.window.raw_folds, *(fold.to_json() for fold in folds)]
    return _measured(gauge, project(gauge.window.log.messages, raw, previous=gauge.window))


def _measured(gauge: Gauge, window: Window) -> Gauge:
    """The gauge of another window of the same request: what is known of the model stays known."""
    return measure(window, gauge.meter, system=gauge.system, tools=gauge.tools, scale=gauge.scale, previous=gauge)
