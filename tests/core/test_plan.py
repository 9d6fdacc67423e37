"""The planner: which folds, in which order, down to where, and when none."""

from collections.abc import Mapping

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.canonical import Json
from refold.core.compact import situation_of
from refold.core.messages import is_record
from refold.core.plan import plan
from refold.core.policy import Policy
from refold.core.situation import ItemStep, Plan, SummaryStep
from refold.core.turn import fit_compaction, open_gauge
from refold.testing.world import World

POLICY = Policy(output_reserve=200, result_min=150, clear_min=40, args_min=100, preview=60)


def rounds(count: int, *, ids: bool = True, start: int = 0) -> list[BaseMessage]:
    return [
        m
        for n in range(start, start + count)
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


class TestNothingThatMayGoIsInTheWay:
    """Long runs whose histories are odd: what stays visible for a reason must not fill the window for ever."""

    @staticmethod
    def run_through(log: list[BaseMessage], limit: int, policy: Policy = POLICY) -> World:
        """A model call after each human message and each answer of a tool to `rounds`."""
        here = World(limit=limit, policy=policy)
        folds: list[Mapping[str, Json]] = []
        for stop in (n for n, m in enumerate(log, start=1) if m.type == "human" or str(m.id).startswith("t")):
            folds += here.call(log[:stop], folds).folds
            newest = next(m for m in reversed(log[:stop]) if isinstance(m, HumanMessage))
            users = [m for m in here.sent[-1] if isinstance(m, HumanMessage) and not is_record(m)]
            assert users[-1].content == newest.content
        return here

    def test_rounds_whose_answers_never_come(self) -> None:
        """Faults 59, 72: each turn crashed in one of its calls. They stay while there is room, then they go."""
        log: list[BaseMessage] = [TASK]
        for n in range(30):
            log += rounds(4, start=4 * n)
            calls = [{"id": f"x{n}-{k}", "name": "run", "args": {"note": "for later " * 6}} for k in range(4)]
            log.append(AIMessage("", id=f"x{n}", tool_calls=calls))
            log += [ToolMessage("a short line", tool_call_id=f"x{n}-{k}", id=f"y{n}-{k}", name="run") for k in range(3)]
            log.append(HumanMessage(f"It crashed again ({n}). Go on.", id=f"h{n}-again"))
        here = self.run_through(log, 4_000)
        assert len(here.sent[-1]) < 60

    def test_human_messages_that_were_the_newest_once(self) -> None:
        """No span swallows the newest human message; once it is not the newest any more, a later pass does."""
        log: list[BaseMessage] = [TASK]
        for n in range(6):
            log.append(HumanMessage(f"Now part {n}: " + "with all its tests " * 230, id=f"p{n}"))
            log += rounds(12, start=12 * n)
        self.run_through(log, 2_500)

    def test_a_system_message_inside_a_late_answered_round(self) -> None:
        """It stays by itself: the round around it, with all that came before the late answer, is folded like others."""
        open_call = AIMessage("", id="open", tool_calls=[{"id": "late", "name": "run", "args": {}}])
        rule = SystemMessage("Be brief.", id="rule")
        answer = ToolMessage("here at last", tool_call_id="late", id="answer", name="run")
        here = World(limit=1_500, policy=POLICY)
        here.call([TASK, open_call, *rounds(20), rule, *rounds(20, start=20), answer, HumanMessage("Well?", id="h1")])
        assert "rule" in {message.id for message in here.sent[-1]}
        assert len(here.sent[-1]) < 10

    def test_the_newest_request_before_the_task(self) -> None:
        """Fault 46: budget smaller than both. The task is moved out, the newest request stays verbatim, and only one
        that alone does not fit is moved out itself, whatever `human_min` says."""
        task, more = "the task, part by part " * 120, "the newest request, word by word " * 180
        here = World(limit=2_000, policy=Policy(output_reserve=200))
        here.call([HumanMessage(task, id="h0"), AIMessage("ok", id="a0"), HumanMessage(more, id="h1")])
        assert here.sent[-1][-1].content == more
        assert here.sent[-1][0].content != task
        here.call([HumanMessage(task, id="h0"), AIMessage("ok", id="a0"), HumanMessage(more * 2, id="h2")])
        assert here.sent[-1][-1].content != more * 2
        assert here.sent[-1][0].content == task
