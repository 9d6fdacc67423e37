"""The planner: which folds, in which order, down to where, and when none."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.compact import situation_of
from refold.core.plan import ItemStep, Plan, SummaryStep, plan
from refold.core.policy import Policy
from refold.core.turn import fit_compaction, open_gauge
from refold.testing.world import World

POLICY = Policy(output_reserve=200, result_min=150, clear_min=40, args_min=100, preview=60)


def rounds(count: int, *, ids: bool = True) -> list[BaseMessage]:
    return [
        m
        for n in range(count)
        for m in (
            AIMessage(f"Step {n}.", id=f"a{n}", tool_calls=[{"id": f"c{n}" if ids else "", "name": "run", "args": {}}]),
            ToolMessage("a line of output\n" * 40, tool_call_id=f"c{n}" if ids else "", id=f"t{n}", name="run"),
        )
    ]


def planned(log: list[BaseMessage], limit: int, *, idle: float | None = None, policy: Policy = POLICY) -> Plan:
    here = World(limit=limit, policy=policy)
    turn = here.turn(log, idle=idle)
    gauge = open_gauge(turn)
    return plan(gauge, situation_of(fit_compaction(turn, gauge, here.room()), gauge))


TASK = HumanMessage("Go on.", id="h0")


class TestZones:
    def test_below_soft_nothing_is_folded(self) -> None:
        """Room to spare: no steps, and the numbers say so."""
        found = planned([TASK, *rounds(10)], 60_000)
        assert (found.zone, found.steps, found.fits) == ("under", (), True)
        assert found.before == found.after

    def test_a_lapsed_cache_makes_cheap_folds_free(self) -> None:
        """Idle longer than the cache lives: lossless folds are taken below the trigger."""
        log = [TASK, *rounds(20)]
        assert planned(log, 9_000, idle=None).zone == "under"
        found = planned(log, 9_000, idle=10_000.0)
        assert found.reason == "cache lapsed"
        assert all(isinstance(step, ItemStep) for step in found.steps)

    def test_at_the_trigger_one_pass_goes_down_to_the_target(self) -> None:
        """In order of loss: what is stored and previewed or cleared comes before any summary."""
        found = planned([TASK, *rounds(60)], 7_000)
        kinds = [step.kind for step in found.steps]
        assert "summary" in kinds
        assert kinds.index("clear") < kinds.index("summary")
        assert found.after <= 0.45 * found.budget
        assert found.fits

    @pytest.mark.parametrize("kind", ["args", "media", "result", "clear", "human", "summary", "merge"])
    def test_a_kind_that_is_switched_off_is_not_planned(self, kind: str) -> None:
        """The policy names the kinds that may be used."""
        policy = Policy(output_reserve=200, result_min=150, clear_min=40, kinds=Policy().kinds - {kind})
        assert kind not in {step.kind for step in planned([TASK, *rounds(60)], 7_000, policy=policy).steps}

    def test_the_newest_part_is_left_alone(self) -> None:
        """A pass at the trigger does not touch the last round."""
        log = [TASK, *rounds(60)]
        found = planned(log, 7_000)
        touched = {index for step in found.steps if isinstance(step, ItemStep) for index, _ in step.targets}
        spans = [step for step in found.steps if isinstance(step, SummaryStep)]
        assert max(touched) < len(log) - 2
        assert max(step.stop for step in spans) <= len(log) - 2


class TestCuts:
    def test_a_span_is_made_of_whole_rounds(self) -> None:
        """Also where the first or the newest human message stands inside a round."""
        call = AIMessage("", id="early", tool_calls=[{"id": "e", "name": "run", "args": {}}])
        log = [call, TASK, ToolMessage("late", tool_call_id="e", id="te"), *rounds(60)]
        spans = [step for step in planned(log, 7_000).steps if isinstance(step, SummaryStep)]
        assert spans
        assert all(step.start >= 3 for step in spans)

    def test_calls_that_need_repair_are_folded_like_others(self) -> None:
        """A server without call ids: every round is shown repaired, and still counts as what it shows."""
        found = planned([TASK, *rounds(60, ids=False)], 7_000)
        assert found.fits
        assert {"clear", "summary"} <= {step.kind for step in found.steps}

    def test_open_rounds_stay_until_nothing_else_helps(self) -> None:
        """A call without an answer is kept in its span; when the window does not fit otherwise it goes too."""
        opened = [
            AIMessage("x " * 60, id=f"o{n}", tool_calls=[{"id": f"q{n}", "name": "f", "args": {}}]) for n in range(5)
        ]
        calm = planned([TASK, *opened, HumanMessage("on", id="h1"), *rounds(40)], 7_500)
        spans = [step for step in calm.steps if isinstance(step, SummaryStep) and step.start <= 1]
        assert all(set(range(1, 6)) <= set(step.kept) for step in spans)
        many = [
            AIMessage("x " * 60, id=f"o{n}", tool_calls=[{"id": f"q{n}", "name": "f", "args": {}}]) for n in range(60)
        ]
        pressed = planned([TASK, *many, HumanMessage("on", id="h1")], 3_000)
        assert pressed.zone == "overflow"
        assert pressed.fits
