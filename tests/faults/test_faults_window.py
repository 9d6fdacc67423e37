"""Faults of groups A to F, by number, in a small world: the smallest input of each kind, and its cousins.

What needs a real agent is in tests/agent, what needs a saver in tests/checkpoint; their tests carry the numbers too.
"""

import base64
from collections.abc import Mapping, Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.canonical import Json
from refold.core.effects import AskSummariser
from refold.core.messages import is_record, text_of
from refold.core.meter import Count, EstimatingMeter
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.usage import read_usage
from refold.core.validate import all_violations
from refold.errors import ConfigurationError, ContextOverflowError
from refold.testing.samples import PNG
from refold.testing.strategies import applied
from refold.testing.threads import Thread
from refold.testing.world import World

POLICY = Policy(output_reserve=200, summary_backoff=0.0, result_min=150, clear_min=40, args_min=100, preview=60)


def world(limit: int | None = 4_000, **options: object) -> World:
    return World(**{"limit": limit, "policy": POLICY, **options})  # type: ignore[arg-type]


def policy(**changes: object) -> Policy:
    return Policy(**{**{name: getattr(POLICY, name) for name in POLICY.__dataclass_fields__}, **changes})


def human(text: str = "Go on.", key: str = "h0", **extra: object) -> HumanMessage:
    return HumanMessage(text, id=key, additional_kwargs=extra)


def call(n: int, *ids: str, text: str = "", **args: object) -> AIMessage:
    return AIMessage(
        text, id=f"a{n}",
        tool_calls=[{"id": i, "name": "run", "args": {"step": n, **args}} for i in (ids or (f"c{n}",))],
    )  # fmt: skip


def result(call_id: str, text: str = "a line of output\n" * 25, **fields: object) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id, id=f"t-{call_id}", **{"name": "run", **fields})


def rounds(count: int, start: int = 1) -> list[BaseMessage]:
    return [m for n in range(start, start + count) for m in (call(n), result(f"c{n}"))]


def tokens(messages: Sequence[BaseMessage]) -> int:
    meter = EstimatingMeter()
    return sum(meter.count(message).tokens for message in messages)


def kinds(folds: Sequence[Mapping[str, Json]]) -> list[str]:
    return [str(fold["kind"]) for fold in folds]


class TestGroupA:
    """Overflow although compaction exists."""

    def test_fault_2_parallel_results_overflow_together(self) -> None:
        """Eight results of one round, each big: the kept round itself is folded."""
        ids = [f"p{n}" for n in range(8)]
        log = [human(), call(1, *ids), *(result(i, f"{i}: output line\n" * 300) for i in ids)]
        here = world()
        outcome = here.call(log)
        assert outcome.gauge.used <= 3_800
        assert all_violations(here.sent[-1]) == {}

    def test_fault_4_the_newest_result_is_larger_than_the_window(self) -> None:
        """Three messages, the last one twice the window: it becomes a preview with a path."""
        here = world()
        log = [human(), call(1), result("c1", "x = compute(41)\n" * 2_000)]
        outcome = here.call(log)
        assert outcome.gauge.used <= 3_800
        path = text_of(here.sent[-1][-1]).split("path=")[1].split()[0]
        assert here.files.read(path).decode() == log[-1].content

    def test_fault_6_tools_count(self) -> None:
        """A chat of ten tokens beside tool schemas that take nearly all: messages get what is left, not the window."""
        here = world(tools=Count(tokens=2_500, bytes=10_000))
        assert here.call([human(), *rounds(9)]).gauge.used <= 4_000 - 200 - 2_500

    def test_fault_12_27_reserves_that_leave_no_room(self) -> None:
        """An output cap as large as the window is a typed error that says what would do, not a loop."""
        with pytest.raises(ConfigurationError, match="max_tokens"):
            world(8_192, policy=policy(output_reserve=8_192)).call([human()])

    def test_fault_16_a_small_agent_and_a_large_summariser(self) -> None:
        """The agent's limit is not the summariser's: a long history goes to it in one piece."""
        log = [human(), *rounds(60)]
        here = world(5_000, live=False, summary_limit=128_000, policy=policy(kinds=frozenset({"summary"})))
        here.call(log)
        assert len(here.summaries) == 1
        assert tokens(here.summaries[0].messages) > 3_000

    def test_fault_19_crossing_the_trigger_is_one_pass(self) -> None:
        """One event per crossing."""
        here = world()
        thread = Thread(world=here)
        log: list[BaseMessage] = [human()]
        for n in range(1, 30):
            log += rounds(1, n)
            before = len(here.events)
            made = thread.call(log).outcome.folds
            assert sum(event == "fold" for event, _ in here.events[before:]) == (1 if made else 0)


class TestGroupB:
    """Loops and thrash."""

    def test_fault_21_an_old_summary_is_not_summarised_again(self) -> None:
        """With nothing but a segment and a tail left, the next calls leave the segment as it is."""
        here = world()
        thread = Thread(world=here)
        log: list[BaseMessage] = [human(), *rounds(40)]
        thread.call(log)
        first = [text_of(m) for m in here.sent[-1] if is_record(m)]
        asked = len(here.summaries)
        for n in range(41, 44):
            log += rounds(1, n)
            thread.call(log)
            assert [text_of(m) for m in here.sent[-1] if is_record(m)] == first
        assert len(here.summaries) == asked

    def test_fault_22_cleared_results_stay_cleared(self) -> None:
        """The set only grows, and between passes the prefix keeps its bytes."""
        thread = Thread(world=world(policy=policy(kinds=frozenset({"clear"}))), remembers=False)
        log: list[BaseMessage] = [human()]
        cleared: set[int] = set()
        for n in range(1, 26):
            log += rounds(1, n)
            window = thread.call(log).outcome.gauge.window
            now = {i for i, acting in window.items.items() if any(f.kind == "clear" for f, _ in acting)} | set(
                window.hidden()
            )
            assert cleared <= now
            cleared = now
        assert cleared

    def test_fault_26_31_a_summary_that_saves_nothing_is_rejected_once(self) -> None:
        """Text as long as its source: one strike, then another way; the range is not asked for again without end."""
        log: list[BaseMessage] = [human(), *rounds(18)]
        here = world(limit=200 + round(tokens(log) / 0.85), policy=policy(kinds=frozenset({"summary"})))
        here.summariser = lambda ask: AIMessage("again and again " * 2_000)
        thread = Thread(world=here, remembers=False)
        asked = []
        for n in range(19, 23):
            thread.call(log)
            asked.append(len(thread.world.summaries))
            log += [AIMessage("ok", id=f"ok{n}"), human("on", f"h{n}")]
        assert asked[0] > 0
        assert asked[2:] == [0, 0]
        assert kinds(thread.folds).count("strike") == 2

    def test_fault_29_a_fixed_prefix_over_the_new_window(self) -> None:
        """After a switch to a model that cannot hold system prompt and tools: a typed error, at once."""
        here = world(2_000, system=Count(tokens=1_200, bytes=5_000), tools=Count(tokens=900, bytes=4_000))
        with pytest.raises(ContextOverflowError, match="system prompt"):
            here.call([human()])
        assert here.sent == []

    def test_fault_32_the_count_is_fresh_after_a_pass(self) -> None:
        """Stale usage of the last response does not make a second pass: no anchor reaches over a fold."""
        usage = {"input_tokens": 3_900, "output_tokens": 5, "total_tokens": 3_905}
        log: list[BaseMessage] = [
            human(),
            *rounds(18),
            AIMessage("so far", id="u", usage_metadata=usage),
            human("on", "h1"),
        ]
        thread = Thread(world=world(4_400))
        assert thread.call(log).outcome.folds
        again = [*log, AIMessage("ok", id="ok"), human("and on", "h2")]
        assert thread.call(again).outcome.folds == ()

    def test_fault_34_each_result_is_most_of_the_window(self) -> None:
        """A tool that returns 60 % of the window every time: every request fits, and each pass is the only one."""
        thread = Thread(world=world())
        log: list[BaseMessage] = [human()]
        for n in range(1, 8):
            log += [call(n), result(f"c{n}", f"row {n} of the table\n" * 400)]
            assert thread.call(log).outcome.gauge.used <= 3_800


class TestGroupC:
    """Lost instructions and lost task state."""

    def test_fault_37_46_the_newest_request_is_last_and_verbatim(self) -> None:
        """X done, Y asked, compaction before the answer: Y is the last human message."""
        log = [human("Do X."), *rounds(30), AIMessage("X is done.", id="done"), human("Do Y.", "h1")]
        here = world()
        here.call(log)
        users = [m for m in here.sent[-1] if m.type == "human" and not is_record(m)]
        assert [text_of(m) for m in users] == ["Do X.", "Do Y."]

    def test_fault_42_the_newest_request_before_the_cut(self) -> None:
        """The last message is a result, the request lies far before it: it stays, verbatim, between the segments."""
        log = [human("Do X."), *rounds(8), human("Do Y, with care.", "h1"), *rounds(20, 9)]
        here = world()
        outcome = here.call(log)
        assert "summary" in kinds(outcome.folds)
        users = [text_of(m) for m in here.sent[-1] if m.type == "human" and not is_record(m)]
        assert users[-1] == "Do Y, with care."

    def test_fault_44_system_messages_in_the_log_stay(self) -> None:
        """A system message in the middle of a folded span is in every request, where each provider takes it."""
        rule = SystemMessage("Answer in French.", id="s1")
        log = [human(), *rounds(3), human("next", "h1"), rule, *rounds(25, 4)]
        here = world()
        here.call(log)
        assert rule in here.sent[-1]
        assert all_violations(here.sent[-1]) == {}

    def test_fault_47_what_comes_between_two_summaries_is_in_the_second(self) -> None:
        """A fact introduced after the first summary is in the input of the second."""
        here = world(live=False)
        thread = Thread(world=here)
        log: list[BaseMessage] = [human(), *rounds(30)]
        thread.call(log)
        asked = len(here.summaries)
        log += [call(50, text="The port is 48123."), result("c50"), *rounds(30, 51)]
        thread.call(log)
        later = "".join(text_of(m) for ask in here.summaries[asked:] for m in ask.messages)
        assert "48123" in later


class TestGroupD:
    """Pairing: calls, results, reasoning."""

    def test_fault_54_results_of_two_messages_interleaved(self) -> None:
        """Whatever the cut, results stay with their calls: every request is valid for all providers."""
        log: list[BaseMessage] = [human()]
        for n in range(1, 40, 2):
            first, second = call(n, f"x{n}"), call(n + 1, f"y{n}", f"z{n}")
            log += [first, second, result(f"z{n}"), result(f"x{n}"), result(f"y{n}")]
        thread = Thread(world=world())
        for stop in range(6, len(log) + 1, 5):
            assert all_violations(thread.call(log[:stop]).sent) == {}

    @pytest.mark.parametrize("answered", [True, False])
    def test_fault_59_61_a_call_without_answer_is_kept_with_its_late_answer(self, answered: bool) -> None:
        """An unanswered call, ten turns, a pass, then the answer: the call is still there to be answered."""
        log: list[BaseMessage] = [human(), call(0, "late"), human("meanwhile", "h1"), *rounds(30)]
        thread = Thread(world=world())
        assert "summary" in kinds(thread.call(log).outcome.folds)
        log += [result("late", "approved") if answered else AIMessage("ok", id="ok"), human("on", "h2")]
        sent = thread.call(log).sent
        reply = next(m for m in sent if isinstance(m, ToolMessage) and m.tool_call_id == "late")
        assert ("approved" in text_of(reply)) is answered
        assert all_violations(sent) == {}

    def test_fault_62_66_reasoning_goes_or_stays_whole(self) -> None:
        """Reasoning items and signatures are never cut: each block in a request is one of the log's, byte for byte."""
        log: list[BaseMessage] = [human()]
        blocks = []
        for n in range(1, 25):
            thought = {"type": "thinking", "thinking": f"so {n} " * 40, "signature": f"sig{n}"}
            blocks.append(thought)
            use = {"type": "tool_use", "id": f"c{n}", "name": "run", "input": {"step": n}}
            calls = [{"type": "tool_call", "id": f"c{n}", "name": "run", "args": {"step": n}}]
            log += [AIMessage([thought, use], id=f"a{n}", tool_calls=calls), result(f"c{n}")]
        here = world(provider="anthropic")
        here.call(log)
        shown = [b for m in here.sent[-1] if isinstance(m.content, list) for b in m.content if b["type"] == "thinking"]  # type: ignore[index, call-overload]
        assert all(block in blocks for block in shown)
        assert all_violations(here.sent[-1]) == {}

    def test_fault_69_a_timeout_in_a_pass_leaves_no_orphans(self) -> None:
        """Three failing passes with a call unanswered: every request is valid and the log is not touched."""

        def slow(ask: AskSummariser) -> AIMessage:
            raise TimeoutError("slow")

        log: list[BaseMessage] = [human(), *rounds(30), call(90, "open"), human("well?", "h1")]
        before = list(log)
        thread = Thread(world=world(summariser=slow))
        for n in range(3):
            assert all_violations(thread.call(log).sent) == {}
            log = [*log, AIMessage("ok", id=f"ok{n}"), human("on", f"on{n}")]
        assert log[: len(before)] == before

    def test_fault_71_the_summarisers_input_is_valid_too(self) -> None:
        """The live request of a summary passes every validator, though the log has an orphan and an open call."""
        log = [human(), result("nobody"), *rounds(20), call(90, "open"), human("well?", "h1")]
        here = world(limit=round(tokens(log) / 0.85) + 900)
        here.call(log)
        live = [ask for ask in here.summaries if ask.route == "live"]
        assert all(all_violations(ask.messages) == {} for ask in here.summaries)
        assert live or not here.summaries

    def test_fault_72_a_stored_bad_history_heals_in_view(self) -> None:
        """A dangling call, a stray result and a duplicate id in storage: later requests are valid all the same."""
        log = [human(), call(1, "a"), human("x", "h1"), result("stray"), call(2, "b"), result("b"), result("b")]
        here = world()
        here.call([*log, human("y", "h1")])
        assert all_violations(here.sent[-1]) == {}


class TestGroupsEAndF:
    """Dangling calls; counting."""

    def test_fault_76_79_81_repair_is_in_view_and_claims_nothing(self) -> None:
        """An error with a neutral text; folds and log are not written to for it; a clean log is sent as it is."""
        log = [human(), call(1, "lost"), human("and?", "h1")]
        here = world()
        assert here.call(log).folds == ()
        made = here.sent[-1][2]
        assert isinstance(made, ToolMessage)
        assert made.status == "error"
        assert "cancel" not in text_of(made).lower()
        clean = [human(), *rounds(2)]
        here.call(clean)
        assert all(a is b for a, b in zip(here.sent[-1], clean, strict=True))

    def test_fault_77_a_call_that_stands_in_the_content_alone(self) -> None:
        """A Responses `function_call` block with empty `tool_calls` is answered in view too."""
        block = {"type": "function_call", "id": "fc_1", "call_id": "k1", "name": "run", "arguments": "{}"}
        here = world()
        here.call([human(), AIMessage([block], id="a1"), human("and?", "h1")])
        assert any(isinstance(m, ToolMessage) and m.tool_call_id == "k1" for m in here.sent[-1])

    def test_fault_86_87_chinese_fires_the_trigger(self) -> None:
        """Characters of Chinese are counted as what they cost, so folding begins in time."""
        log = [
            human("开始。"),
            *(m for n in range(1, 12) for m in (call(n), result(f"c{n}", "第三步的输出已经写好。" * 40))),
        ]
        here = world()
        assert here.call(log).gauge.used <= 3_800
        assert tokens([human("汉" * 100)]) >= 60

    @pytest.mark.parametrize("reported", [True, False])
    def test_fault_91_92_usage_missing_or_elsewhere(self, reported: bool) -> None:
        """Without any usage the estimate fires; with usage under a provider's own names it is the base."""
        meta = (
            {"token_usage": {"prompt_tokens": 3_700, "completion_tokens": 3, "total_tokens": 3_703}} if reported else {}
        )
        reply = AIMessage("fine", id="r", response_metadata=meta)
        log = [human(), *rounds(17), reply, human("on", "h1")]
        assert (read_usage(reply) is not None) is reported
        assert world(4_300 if reported else 200 + round(tokens(log) / 0.85)).call(log).folds

    def test_fault_96_pictures_that_are_cheap_in_tokens(self) -> None:
        """Twenty large pictures: the body's bytes are what is folded for."""
        data = base64.b64encode(base64.b64decode(PNG) + bytes(300_000)).decode()
        log: list[BaseMessage] = [human()]
        for n in range(20):
            picture = {"type": "image", "base64": data, "mime_type": "image/png"}
            log += [call(n), ToolMessage([picture], tool_call_id=f"c{n}", id=f"p{n}", name="shot")]
        here = world(400_000, policy=policy(body_limit=4_000_000))
        outcome = here.call(log)
        assert "media" in kinds(outcome.folds)
        assert outcome.gauge.size <= 4_000_000

    def test_fault_97_each_message_is_counted_once(self) -> None:
        """A call over an unchanged log counts nothing; a call over one more message counts one."""
        meter = EstimatingMeter()
        here = world(60_000, meter=meter)
        log: list[BaseMessage] = [human(), *rounds(20)]
        first = here.call(log)
        counted = meter.count_calls
        assert counted == len(log)
        second = here.call(log, first.folds, previous=first.gauge)
        assert meter.count_calls == counted
        here.call([*log, AIMessage("ok", id="ok"), human("on", "h1")], second.folds, previous=second.gauge)
        assert meter.count_calls == counted + 2


class TestGroupN:
    """Logs that users change."""

    def test_fault_176_an_undone_turn_leaves_no_ghost(self) -> None:
        """Undo the newest turn, then go on: neither its words nor a STATE that names it are in the request."""
        from langchain_core.messages import RemoveMessage

        thread = Thread(world=world())
        log: list[BaseMessage] = [human(), *rounds(20), human("Delete the BLUE server.", "undo"), *rounds(12, 60)]
        assert "state" in kinds(thread.call(log).outcome.folds)
        gone = [RemoveMessage(id=m.id) for m in log[41:] if m.id is not None]
        after = applied(log, gone)
        sent = thread.call([*after, human("Never mind.", "h9")]).sent
        assert "BLUE" not in "".join(text_of(m) for m in sent)
        assert project(after, thread.folds).void
