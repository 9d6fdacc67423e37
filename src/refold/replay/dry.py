"""The dry run: what a fold pass over a whole recorded log would do, without doing any of it."""

from collections.abc import Mapping

from refold.agent.models import facts_of
from refold.agent.recall import READ_HISTORY
from refold.core.canonical import Json
from refold.core.compact import situation_of
from refold.core.compaction import Compaction, Summariser
from refold.core.effects import Room
from refold.core.limits import Budget, resolve_limits
from refold.core.meter import Count, EstimatingMeter
from refold.core.passes import Scope
from refold.core.plan import plan
from refold.core.policy import Policy
from refold.core.situation import ItemStep, Plan
from refold.core.turn import Turn, fit_compaction, open_gauge
from refold.replay.measure import Scale
from refold.replay.model import RecordedModel
from refold.replay.run import THREAD
from refold.replay.tape import Tape, playable
from refold.replay.transcript import Transcript


def dry_run(transcript: Transcript, *, policy: Policy, limit: int, model: str) -> Plan:
    """The plan for the transcript's whole log, as its next model call would make it. Nothing is stored or changed."""
    transcript = playable(transcript)
    facts = facts_of(
        RecordedModel.playing(Tape(transcript=transcript), scale=Scale.strict(), limit=limit, model_name=model), {}
    )
    meter = EstimatingMeter(family=facts.family)
    nothing = Count(tokens=0, bytes=0)
    scope = Scope(thread=THREAD, policy=policy, file_reader=READ_HISTORY, log_reader=READ_HISTORY)
    turn = Turn(
        messages=transcript.messages,
        folds=(),
        system=nothing if transcript.system is None else Count(tokens=meter.count_text(transcript.system), bytes=0),
        tools=meter.count_tools([schema.as_openai() for schema in transcript.tools]),
        meter=meter,
        scale=1.0,
        room=Room(
            limits=resolve_limits(explicit=limit), learned=None, reserve=policy.output_reserve,
            body_limit=policy.body_limit,
        ),
        compaction=Compaction(
            room=Budget(limit=0, reserved=0, system=0, tools=0, messages=0),
            policy=policy,
            scope=scope,
            summariser=Summariser(live=True, limit=limit, meter=EstimatingMeter(family=facts.family, upper_bound=True)),
        ),
        provider=facts.provider,
        same_model=lambda message: False,
    )  # fmt: skip
    gauge = open_gauge(turn)
    return plan(gauge, situation_of(fit_compaction(turn, gauge, turn.room), gauge))


def plan_json(found: Plan) -> Mapping[str, Json]:
    """A plan as the JSON object of `--dry-run --json`."""
    return {
        "zone": found.zone,
        "reason": found.reason,
        "budget": found.budget,
        "before": found.before,
        "after": found.after,
        "fits": found.fits,
        "steps": [
            {"kind": step.kind, "messages": len(step.targets), "saved": step.saved, "left": step.left}
            if isinstance(step, ItemStep)
            else {
                "kind": step.kind, "messages": step.stop - step.start - len(step.kept),
                "saved": step.source - step.expected, "left": step.left,
            }
            for step in found.steps
        ],
    }  # fmt: skip
