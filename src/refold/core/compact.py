"""One fold pass, as a program: plan, store what must be stored, summarise, and say what became of it.

Nothing leaves the window before its original is stored and read back. A step whose storage or summary fails is left
out, the pass is planned again without it, and the reason is recorded; what could not be folded stays in the window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from refold.core.archive import store_gen
from refold.core.canonical import Json, derived_id
from refold.core.compaction import Compaction, Made, Pass, Veto
from refold.core.effects import ConfirmFolds, Report
from refold.core.folds import SPAN_KINDS, Fold
from refold.core.gauge import Gauge, measure
from refold.core.passes.base import tokens_of
from refold.core.plan import plan, zone_of
from refold.core.program import Program
from refold.core.progress import summaries_allowed
from refold.core.project import project
from refold.core.segment import pins_alone, pins_text, state_text
from refold.core.situation import ItemStep, Plan, Situation
from refold.core.span_fold import fold_span_gen
from refold.core.undo import undo_within
from refold.core.window import Window
from refold.errors import ConfigurationError

_MOST_PLANS = 4
"""Plans per pass: the first, and as many more as steps that failed may need to be planned around."""


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
    made = Made(pass_id=_pass_id(job, window), reason=planned.reason, before=gauge.used)
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


def _room_again(job: Compaction, gauge: Gauge) -> tuple[Made, Gauge] | None:
    """The pass that undoes others, where the policy wants that and the window has room for what they took out."""
    if not job.policy.undo or job.force or job.overflow or not gauge.window.segments:
        return None
    made = Made(pass_id=_pass_id(job, gauge.window), reason="room again", before=gauge.used)
    most = round(job.policy.soft * job.budget)
    undone = undo_within(gauge, most=most, pass_id=made.pass_id, reason=made.reason)
    if undone is None:
        return None
    made.folds.append(undone[0])
    return made, undone[1]


def _carry_out_gen(job: Compaction, gauge: Gauge, planned: Plan, made: Made) -> Program[None]:
    must_fit = planned.zone == "overflow"
    for step in planned.steps:
        if isinstance(step, ItemStep):
            yield from _items_gen(gauge, step, made)
        else:
            yield from fold_span_gen(job, gauge, step, made, must_fit=must_fit)


def _items_gen(gauge: Gauge, step: ItemStep, made: Made) -> Program[None]:
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
        made.folds.append(made.new_fold(gauge, step.kind, {"items": entries}))


def _with_state(job: Compaction, gauge: Gauge, made: Made) -> tuple[list[Fold], Gauge]:
    """The folds of a pass with the STATE that goes with its summaries, and the window with them; of STATE only the
    pinned notes, or nothing, where it alone would not fit."""
    bare = _remeasured(gauge, made.folds)
    if not any(fold.kind in SPAN_KINDS for fold in made.folds):
        return list(made.folds), bare
    text = state_text(
        bare.window, job.facts, budget=round(job.policy.state_share * job.budget), recall=job.recall(None)
    )
    for shown in (text, pins_alone(job.facts.pins)) if job.facts.pins else (text,):
        folds = [*made.folds, made.new_fold(gauge, "state", {"text": shown})]
        full = _remeasured(gauge, folds)
        if not bare.used <= job.budget < full.used:
            return folds, full
    return list(made.folds), bare


def _finish_gen(gauge: Gauge, made: Made, folds: Sequence[Fold], result: Gauge) -> Program[Pass]:
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


def _remeasured(gauge: Gauge, folds: Sequence[Fold]) -> Gauge:
    raw = [*gauge.window.raw_folds, *(fold.to_json() for fold in folds)]
    return _measured(gauge, project(gauge.window.log.messages, raw, previous=gauge.window))


def _measured(gauge: Gauge, window: Window) -> Gauge:
    """The gauge of another window of the same request: what is known of the model stays known."""
    return measure(window, gauge.meter, system=gauge.system, tools=gauge.tools, scale=gauge.scale, previous=gauge)
