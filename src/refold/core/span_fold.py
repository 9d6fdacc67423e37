"""Folding one span into a segment, as a program: archive it, have it summarised, and record what the segment shows.

Where neither an archive nor the log can be read back, nothing is folded. A summary that fails is recorded as a strike
and the span stays in the window; where that must fit all the same, the floor stands in for the summary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from langchain_core.messages import BaseMessage

from refold.core.archive import Archive, archive_gen
from refold.core.canonical import Json
from refold.core.compaction import Compaction, Made
from refold.core.effects import Report
from refold.core.folds import SPAN_KINDS
from refold.core.gauge import Gauge
from refold.core.messages import is_record, role_of
from refold.core.passes.base import tokens_of
from refold.core.program import Program
from refold.core.repair import drop_bound_reasoning
from refold.core.segment import quotable, segment_text
from refold.core.situation import SummaryStep
from refold.core.summary import Summary, SummaryJob, summary_gen
from refold.core.window import Window
from refold.errors import FilesError, SummaryError

_SUMMARY_ROOM = 400
"""Tokens that the instruction of a live summary and a short answer need beside the window."""


def fold_span_gen(job: Compaction, gauge: Gauge, step: SummaryStep, made: Made, *, must_fit: bool) -> Program[None]:
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
        most = _segment_tokens(job, step)
        from refold.core.floor import floor_summary  # with the facts: their patterns take long to compile

        summary = Summary(text=floor_summary(span, budget=most, count=tokens_of), route="floor", stored=False)
    data = _segment_data(job, gauge, step, span, summary, path)
    if tokens_of(str(data["text"])) * gauge.scale >= step.source:
        if summary.route != "floor":
            _strike(gauge, made, step, "the segment is not shorter than what it stands for")
        made.deny_kinds |= SPAN_KINDS
        return
    made.folds.append(made.new_fold(gauge, step.kind, data))


def _archive_gen(job: Compaction, gauge: Gauge, step: SummaryStep, made: Made) -> Program[str | None]:
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


def _summary_job(
    job: Compaction, gauge: Gauge, step: SummaryStep, span: Sequence[BaseMessage], *, must_fit: bool
) -> SummaryJob:
    target = _segment_tokens(job, step)
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


def _segment_tokens(job: Compaction, step: SummaryStep) -> int:
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
        recall=replace(job.recall(path), leads_on=bool(step.merged)),
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


def _audited(gauge: Gauge, step: SummaryStep, span: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """What the facts of a segment are taken from: the span, and for a merge of segments the user's own words in it too,
    since constraints are believed from the user only, never from a record."""
    if not step.merged:
        return span
    words = [message for message in _originals(gauge, step) if role_of(message) == "human"]
    return [*words, *(message for message in span if role_of(message) != "human" or is_record(message))]


def _strike(gauge: Gauge, made: Made, step: SummaryStep, error: str) -> None:
    made.deny_kinds |= SPAN_KINDS
    made.folds.append(made.new_fold(gauge, "strike", {"span": step.span.digest, "error": error[:300]}))
