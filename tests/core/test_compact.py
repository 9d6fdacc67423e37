"""Fold passes: the summariser's faults, its limit, strikes, hooks, and what a pass leaves behind."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.canonical import Json
from refold.core.effects import AskSummariser, ConfirmFolds
from refold.core.folds import read_folds
from refold.core.messages import text_of
from refold.core.meter import EstimatingMeter
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.segment import Facts
from refold.testing import utf8_quarter
from refold.testing.world import SUMMARY, World

POLICY = Policy(
    args_min=100, result_min=120, clear_min=40, human_min=400, preview=60, clear_keep=1, output_reserve=200,
    summary_backoff=0.5, kinds=frozenset({"summary", "merge"}),
)  # fmt: skip


def rounds(count: int, *, start: int = 0, text: str = "line of output\n") -> list[BaseMessage]:
    return [
        message
        for n in range(start, start + count)
        for message in (
            AIMessage(f"Step {n}.", id=f"a{n}", tool_calls=[{"id": f"c{n}", "name": "run", "args": {"step": n}}]),
            ToolMessage(text * 30, tool_call_id=f"c{n}", name="run", id=f"t{n}"),
        )
    ]


LOG: list[BaseMessage] = [HumanMessage("Do all of it.", id="h0"), *rounds(24)]
ROOMY = 200 + round(sum(EstimatingMeter().count(message).tokens for message in LOG) / 0.85)
"""A limit whose trigger the log passes while it still fits."""


def raising(ask: AskSummariser) -> AIMessage:
    raise RuntimeError("503 service unavailable")


def timing_out(ask: AskSummariser) -> AIMessage:
    raise TimeoutError("no answer in time")


BAD: dict[str, Callable[[AskSummariser], AIMessage]] = {
    "raises": raising,
    "hangs": timing_out,
    "empty": lambda ask: AIMessage("  \n"),
    "cut off": lambda ask: AIMessage("The work", response_metadata={"finish_reason": "length"}),
    "cut off (Anthropic)": lambda ask: AIMessage("The work", response_metadata={"stop_reason": "max_tokens"}),
    "cut off (Responses)": lambda ask: AIMessage(
        "The work",
        response_metadata={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ),
    "a tool call": lambda ask: AIMessage("", tool_calls=[{"id": "x", "name": "run", "args": {}}]),
    "longer than its source": lambda ask: AIMessage("on and on " * 9000),
    "an error text": lambda ask: AIMessage("Error: 500 internal server error"),
    "only a scratchpad": lambda ask: AIMessage("<think>let me think about"),
}


class TestSegmentsAreToldAnew:
    """Where a new segment would pass the segments' share, it tells the older ones too."""

    def test_one_request_a_pass(self) -> None:
        """Over many passes each asks the summariser once, in the live prefix, and ends near its target."""
        log: list[BaseMessage] = [HumanMessage("Do all of it.", id="h0"), *rounds(120)]
        here, folds = World(limit=3_000, policy=POLICY), list[Mapping[str, Json]]()
        for stop in range(3, len(log) + 1, 2):
            folds += here.call(log[:stop], folds).folds
        merges = [fold for fold in folds if fold["kind"] == "merge"]
        assert len(merges) > 3
        assert len({fold["pass"] for fold in folds}) == len(here.summaries)
        assert {ask.route for ask in here.summaries} == {"live"}
        assert max(int(str(fold["after"])) for fold in merges) < 0.45 * (3_000 - 200)


class TestASummariserThatFails:
    """Faults 141 and 142."""

    @pytest.mark.parametrize("fault", list(BAD))
    def test_the_run_goes_on_while_it_fits(self, fault: str) -> None:
        """The request is sent whole, a strike says why, nothing is folded, and retries were bounded."""
        here = World(limit=ROOMY, policy=POLICY, summariser=BAD[fault])
        outcome = here.call(LOG)
        assert [fold["kind"] for fold in outcome.folds] == ["strike"]
        assert list(here.sent[-1]) == LOG
        assert len(here.summaries) <= 2 * (1 + POLICY.summary_retries)
        assert here.slept[:2] in ([], [0.5], [0.5, 1.0])

    @pytest.mark.parametrize("fault", list(BAD))
    def test_the_floor_stands_in_where_it_does_not_fit(self, fault: str) -> None:
        """Fault 11, 1: over the limit, a summary made by code takes its place, and the request is sent."""
        here = World(limit=3_000, policy=POLICY, summariser=BAD[fault])
        outcome = here.call(LOG)
        spans = [fold for fold in outcome.folds if fold["kind"] == "summary"]
        assert spans
        assert {fold["data"]["route"] for fold in spans} == {"floor"}  # type: ignore[index, call-overload]
        assert outcome.gauge.used <= 2_800
        assert "no summary could be had" in "".join(text_of(m) for m in here.sent[-1])

    def test_the_second_attempt_may_succeed(self) -> None:
        """Fault 141: one time-out disables nothing."""
        answers = iter([TimeoutError("slow"), None, None, None, None])

        def summariser(ask: AskSummariser) -> AIMessage:
            error = next(answers)
            if error is not None:
                raise error
            return AIMessage(SUMMARY)

        here = World(limit=ROOMY, policy=POLICY, summariser=summariser)
        outcome = here.call(LOG)
        assert "summary" in {fold["kind"] for fold in outcome.folds}
        assert "strike" not in {fold["kind"] for fold in outcome.folds}

    def test_strikes_block_and_new_tokens_unblock(self) -> None:
        """Two failing passes in a row pause automatic summaries until enough new tokens came; the count is in the
        folds, so another process keeps it."""
        early = Policy(**{**_fields(POLICY), "trigger": 0.5, "soft": 0.4})
        here = World(limit=round(ROOMY * 1.5), policy=early, summariser=raising)
        folds: list[object] = []
        asked: list[int] = []
        log = list(LOG)
        for turn in range(5):
            here = here.renewed()
            outcome = here.call(log, folds)  # type: ignore[arg-type]
            folds = [*folds, *outcome.folds]
            asked.append(len(here.summaries))
            log.append(AIMessage("ok", id=f"ok{turn}"))
            log.append(HumanMessage("go on", id=f"go{turn}"))
        assert asked[0] > 0
        assert asked[1] > 0
        assert asked[2:] == [0, 0, 0]
        here = here.renewed()
        here.summariser = lambda ask: AIMessage(SUMMARY)
        outcome = here.call([*log, AIMessage("more", id="m"), *rounds(8, start=40)], folds)  # type: ignore[arg-type]
        assert "summary" in {fold["kind"] for fold in outcome.folds}

    def test_a_failing_live_route_is_followed_by_a_request_of_its_own(self) -> None:
        """An answer with a tool call in the live prefix is not asked for again there."""
        here = World(
            limit=ROOMY, policy=POLICY,
            summariser=lambda ask: BAD["a tool call"](ask) if ask.route == "live" else AIMessage(SUMMARY),
        )  # fmt: skip
        here.call(LOG)
        assert [ask.route for ask in here.summaries][:2] == ["live", "summary"]


class TestTheSummarisersOwnLimit:
    """Faults 1, 12, 16, 144: the summariser is another model, with another window."""

    @pytest.mark.parametrize(
        "text", ["line of output\n", "第三步的輸出，檔案已經寫好了。\n", "결과가 나왔습니다. ", "x" * 900 + "\n", "ÿ☃ "]
    )
    @pytest.mark.parametrize("limit", [1_000, 1_500])
    def test_no_request_is_over_it(self, text: str, limit: int) -> None:
        """A summariser with a 1k limit gets no request over 1k, by a counter that is not refold's own."""
        log: list[BaseMessage] = [HumanMessage("Do all of it.", id="h0"), *rounds(20, text=text)]
        log.insert(9, AIMessage(text * 300, id="big"))
        here = World(
            limit=200 + round(sum(EstimatingMeter().count(message).tokens for message in log) / 0.85),
            policy=POLICY,
            live=False,
            summary_limit=limit,
        )
        here.call(log)
        assert here.summaries
        assert all(utf8_quarter(ask.messages, ()) <= limit for ask in here.summaries)

    def test_a_limit_without_room_is_a_strike_not_a_request(self) -> None:
        """A summary model whose limit leaves no room for a transcript is not asked."""
        here = World(limit=ROOMY, policy=POLICY, live=False, summary_limit=150)
        outcome = here.call(LOG)
        assert here.summaries == []
        assert [fold["kind"] for fold in outcome.folds] == ["strike"]

    @pytest.mark.parametrize(
        "words", ["The input of {sent} tokens is longer than the {limit} tokens of the model.", ""]
    )
    @pytest.mark.parametrize("live", [False, True])
    def test_a_limit_that_no_one_declared_is_learnt(self, words: str, live: bool) -> None:
        """A summary model that takes less than was assumed of it refuses; it is asked for smaller pieces."""
        refused: list[int] = []

        def small(ask: AskSummariser) -> AIMessage:
            sent = utf8_quarter(ask.messages, ())
            if sent > 1_000:
                refused.append(sent)
                raise RuntimeError(words.format(sent=sent, limit=1_000) or "Input is too long for requested model.")
            return AIMessage(SUMMARY)

        here = World(limit=ROOMY, policy=POLICY, live=live, summary_limit=64_000, summariser=small)
        made = [fold["kind"] for fold in here.call(LOG).folds]
        assert "summary" in made
        assert "strike" not in made
        assert 1 <= len(refused) <= 4

    def test_every_word_reaches_the_summariser(self) -> None:
        """Faults 49, 52: the chunks hold every message of the span, whole, also the end of a long argument."""
        log = list(LOG)
        args = {"path": "/a.md", "content": "x " * 2450 + "THE KEY FACT"}
        log[5] = AIMessage("", id="long", tool_calls=[{"id": "c2", "name": "run", "args": args}])
        here = World(limit=ROOMY, policy=POLICY, live=False, summary_limit=2_000)
        here.call(log)
        seen = "".join(text_of(m) for ask in here.summaries for m in ask.messages)
        assert "THE KEY FACT" in seen

    def test_the_live_request_extends_the_window(self) -> None:
        """Fault 124: the summary is asked for in the very request that the agent makes, with one message more."""
        here = World(limit=ROOMY, policy=POLICY)
        here.call(LOG)
        assert here.summaries[0].route == "live"
        assert list(here.summaries[0].messages[:-1]) == LOG


class TestTenCompactions:
    """Faults 21, 47, 49, 51, 36."""

    def test_segments_stay_bounded_and_whole(self) -> None:
        """A summariser that echoes: the window stays small, each segment keeps its bytes until it is merged, a pinned
        message is byte-identical, and what is neither shown nor in an archive does not exist."""
        here = World(limit=4_000, policy=POLICY)
        here.summariser = lambda ask: AIMessage("Earlier: " + text_of(ask.messages[-1])[:400])
        pinned = HumanMessage("RULES: never push to main.", id="rules", additional_kwargs={"refold_pinned": True})
        log: list[BaseMessage] = [HumanMessage("Do all of it.", id="h0"), pinned]
        folds: list[object] = []
        seen: dict[str | None, str] = {}
        passes = 0
        for n in range(160):
            log += rounds(1, start=n)
            outcome = here.call(log, folds)  # type: ignore[arg-type]
            passes += any(fold["kind"] in ("summary", "merge") for fold in outcome.folds)
            folds = [*folds, *outcome.folds]
            assert outcome.gauge.used <= 3_800
            assert pinned in here.sent[-1]
            for message in here.sent[-1]:
                if message.additional_kwargs.get("refold", {}).get("kind") in ("summary", "merge"):
                    assert seen.setdefault(message.id, text_of(message)) == text_of(message)
        assert passes >= 10
        window = project(log, folds)  # type: ignore[arg-type]
        shown = {entry.start for entry in window.entries if entry.kind in ("log", "item")}
        assert shown | window.hidden() == set(range(len(log)))
        spans, _ = read_folds(folds)  # type: ignore[arg-type]
        assert all(here.files.read(str(f.data["path"])) for f in spans if f.kind in ("summary", "merge"))

    def test_todos_and_pins_stand_in_state(self) -> None:
        """Faults 39, 41: carried as data in every pass."""
        facts = Facts(todos=({"content": "step five", "status": "pending"},), pins={"style": "write British English"})
        here = World(limit=3_000, policy=POLICY, facts=facts)
        here.call(LOG)
        state = next(text_of(m) for m in here.sent[-1] if m.additional_kwargs.get("refold", {}).get("kind") == "state")
        assert "[pending] step five" in state
        assert "style: write British English" in state


class TestTheHook:
    def test_what_it_keeps_is_what_is_made(self) -> None:
        """Fault 194: none, some, or other words; strikes are not its to drop."""
        here = World(limit=ROOMY, policy=POLICY, confirm=lambda effect: ())
        outcome = here.call(LOG)
        assert outcome.folds == ()
        assert list(here.sent[-1]) == LOG
        here = World(limit=ROOMY, policy=POLICY, summariser=raising, confirm=lambda effect: ())
        assert [fold["kind"] for fold in here.call(LOG).folds] == ["strike"]


def _fields(policy: Policy) -> dict[str, object]:
    return {name: getattr(policy, name) for name in policy.__dataclass_fields__}


def test_a_fold_says_what_is_left_when_the_hook_amended_it() -> None:
    """`after` is of the window that is sent, not of the one that was proposed; a veto is no pass."""

    def wordy(effect: ConfirmFolds) -> Sequence[Mapping[str, Json]]:
        return [{**fold, "data": {**fold["data"], "text": "word " * 900}} for fold in effect.folds]  # type: ignore[dict-item]

    here = World(limit=ROOMY, policy=POLICY, confirm=wordy)
    outcome = here.call(LOG)
    assert {fold["after"] for fold in outcome.folds} == {outcome.gauge.used}
    here = World(limit=ROOMY, policy=POLICY, confirm=lambda effect: ())
    assert here.call(LOG).folds == ()
    assert [event for event, _ in here.events] == ["fold_vetoed"]


def test_typed_sequences_are_accepted() -> None:
    """Messages and folds may come as any sequence."""
    here = World(limit=ROOMY, policy=POLICY)
    folds: Sequence[object] = ()
    assert here.call(tuple(LOG), folds).gauge.used > 0  # type: ignore[arg-type]
