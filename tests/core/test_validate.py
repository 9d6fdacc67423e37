"""Validators: each rule refuses what its provider refuses, and nothing that a sound history holds."""

import sys
from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.rounds import units_of
from refold.core.validate import PROVIDERS, Provider, all_violations, violations
from refold.testing.strategies import FAULTY, STYLES, damages, histories

ALL = set(PROVIDERS)
USER = HumanMessage("hi")


def call(call_id: str | None = "a", name: str = "f") -> dict[str, object]:
    return {"type": "tool_call", "id": call_id, "name": name, "args": {}}


def calls(*ids: str | None, **fields: object) -> AIMessage:
    return AIMessage(**{"content": "", "tool_calls": [call(i) for i in ids], **fields})  # type: ignore[arg-type]


def result(call_id: str = "a") -> ToolMessage:
    return ToolMessage("r", tool_call_id=call_id)


def who_refuses(messages: list[BaseMessage], rule: str) -> set[Provider]:
    """The providers for which exactly this rule is broken."""
    found = all_violations(messages)
    return {provider for provider, broken in found.items() if {v.rule for v in broken} == {rule}}


PAIRING = {
    "unanswered-call": [USER, calls("a")],
    "a call without result before a human": [USER, calls("a"), HumanMessage("still there?")],
    "one of two": [USER, calls("a", "b"), result("b")],
    "a human in between": [USER, calls("a"), HumanMessage("wait"), result("a")],
    "a system message in between": [USER, calls("a"), SystemMessage("s"), result("a")],
    "an AI message in between": [USER, calls("a"), AIMessage("thinking"), result("a")],
    "an orphan": [USER, result("a")],
    "a result before its call": [USER, result("a"), calls("a")],
    "a second result": [USER, calls("a"), result("a"), result("a")],
    "a result of the round before": [USER, calls("a"), calls("b"), result("b"), result("a")],
    "a duplicate id": [USER, calls("a", "a"), result("a"), result("a")],
    "no id": [USER, calls(None), result("")],
    "an empty id": [USER, calls(""), result("")],
    "an invalid call without result": [
        USER,
        AIMessage("", invalid_tool_calls=[{"id": "a", "name": "f", "args": "{", "error": None}]),
    ],
    "malformed arguments": [
        USER,
        AIMessage("", invalid_tool_calls=[{"id": "a", "name": "f", "args": "{", "error": None}]),
        result("a"),
    ],
    "no name": [USER, AIMessage("", tool_calls=[call("a", "")]), result("a")],
    "a name with spaces": [USER, AIMessage("", tool_calls=[call("a", "run the command")]), result("a")],
}


class TestPairing:
    """Every call answered exactly once, directly after its message; no result without its call."""

    @pytest.mark.parametrize("messages", PAIRING.values(), ids=PAIRING.keys())
    def test_all_four_refuse(self, messages: list[BaseMessage]) -> None:
        """Each break of pairing or form is refused by every provider."""
        assert set(all_violations(messages)) == ALL

    def test_rules_are_told_apart(self) -> None:
        """A second result is no orphan, and a call behind unanswered calls breaks pairing, not the order of turns."""
        assert who_refuses([USER, calls("a"), result(), result()], "duplicate-result") == ALL
        assert who_refuses([USER, calls("a"), calls("b"), result("b")], "unanswered-call") == ALL

    def test_parallel_calls_may_be_answered_in_any_order(self) -> None:
        """Order among the results of one message is free."""
        assert all_violations([USER, calls("a", "b"), result("b"), result("a"), AIMessage("ok")]) == {}

    def test_violations_name_rule_place_and_call(self) -> None:
        """The reader learns what, where and which call."""
        (violation,) = violations([USER, calls("abc"), AIMessage("x")], "openai_chat")
        assert (violation.rule, violation.index) == ("unanswered-call", 1)
        assert "abc" in violation.detail

    def test_violations_come_in_order(self) -> None:
        """Indexes never go down, whichever rule found them first."""
        broken = violations([AIMessage(""), calls(None), USER, result("z")], "anthropic")
        assert [v.index for v in broken] == sorted(v.index for v in broken)
        assert len({v.rule for v in broken}) > 3

    def test_an_edited_call_id_is_seen(self) -> None:
        """Fault 84: an interrupt that edits the id of a call leaves both halves alone."""
        broken = violations([USER, calls("edited"), result("original")], "anthropic")
        assert [v.rule for v in broken] == ["unanswered-call", "orphan-result"]

    def test_an_id_used_again_in_a_later_round(self) -> None:
        """OpenAI chat takes it; Anthropic and Responses refuse, and Gemini would be shown the wrong result."""
        messages = [USER, calls("a"), result(), calls("a"), result()]
        assert who_refuses(messages, "reused-call-id") == {"openai_responses", "anthropic", "gemini"}


class TestEverySpelling:
    """Fault 71: a validator for the wrong part types does nothing."""

    BLOCKS: ClassVar[dict[str, dict[str, object]]] = {
        "tool_use": {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        "tool_call": {"type": "tool_call", "id": "a", "name": "f", "args": {}},
        "function_call": {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        "functionCall": {"functionCall": {"id": "a", "name": "f", "args": {}}},
    }

    @pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
    def test_a_call_in_the_content_counts(self, block: dict[str, object]) -> None:
        """Fault 77: a dangling call block with empty `tool_calls` is seen by all four."""
        found = all_violations([USER, AIMessage([block]), HumanMessage("x")])
        assert all("unanswered-call" in {v.rule for v in found[provider]} for provider in PROVIDERS)

    @pytest.mark.parametrize(
        ("kind", "refusing"),
        [
            ("tool_use", ALL - {"anthropic"}),
            ("tool_call", ALL - {"openai_responses"}),
            ("function_call", ALL - {"openai_responses"}),
            ("functionCall", ALL),
        ],
    )
    def test_a_call_that_would_not_be_sent_leaves_its_result_alone(self, kind: str, refusing: set[Provider]) -> None:
        """A block that a provider's package drops must be in `tool_calls`, or its result is an orphan there."""
        messages = [USER, AIMessage([self.BLOCKS[kind]]), result("a")]
        assert who_refuses(messages, "unlifted-call") == refusing
        lifted = [USER, AIMessage([self.BLOCKS[kind]], tool_calls=[call("a")]), result("a")]
        assert all_violations(lifted) == {}

    def test_results_in_a_human_message(self) -> None:
        """Only langchain-anthropic sends `tool_result` blocks of a user turn."""
        turn = HumanMessage([{"type": "tool_result", "tool_use_id": "a", "content": "r"}])
        assert who_refuses([USER, calls("a"), turn], "result-spelling") == ALL - {"anthropic"}


class TestContent:
    """Messages that show nothing."""

    @pytest.mark.parametrize(
        "content",
        ["", " \n", [], [{"type": "text", "text": " "}], [{"type": "thinking", "thinking": "x", "signature": "s"}]],
    )
    def test_an_ai_message_that_says_nothing(self, content: object) -> None:
        """No text and no call: refused, also when there is reasoning."""
        assert who_refuses([USER, AIMessage(content), USER], "empty-message") == ALL  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "message",
        [
            calls("a"),
            AIMessage([{"type": "image_generation_call", "id": "ig_1"}]),
            AIMessage("", additional_kwargs={"audio": {"id": "audio_1"}}),
            AIMessage([{"type": "compaction", "content": "opaque"}]),
        ],
        ids=["calls", "picture", "audio", "compaction"],
    )
    def test_an_ai_message_without_text_that_says_something(self, message: AIMessage) -> None:
        """Calls, generated media and provider-side compaction items (fault 206) are content."""
        found = all_violations([USER, message, *([result()] if message.tool_calls else [])])
        assert found == {}

    @pytest.mark.parametrize("content", ["", "  ", [], [{"type": "text", "text": ""}]])
    def test_a_blank_human_message(self, content: object) -> None:
        """Anthropic and Gemini refuse it; OpenAI does not."""
        assert who_refuses([USER, AIMessage("a"), HumanMessage(content)], "empty-message") == {"anthropic", "gemini"}  # type: ignore[arg-type]

    def test_an_empty_text_beside_a_picture(self) -> None:
        """Gemini refuses an empty text part; langchain-anthropic leaves it out."""
        picture = {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}}
        messages = [HumanMessage([{"type": "text", "text": ""}, picture])]
        assert who_refuses(messages, "empty-text") == {"gemini"}


class TestTheFirstMessage:
    """Anthropic and Gemini start with a human message."""

    def test_an_ai_message_first(self) -> None:
        """Fault 57: a window that starts with a call or an answer is refused, unless it continues another."""
        messages = [calls("a"), result(), AIMessage("ok")]
        assert who_refuses(messages, "first-message") == {"anthropic", "gemini"}
        assert all_violations(messages, continues=True) == {}

    def test_system_messages_do_not_count_as_first(self) -> None:
        """A leading system message joins the system prompt."""
        assert all_violations([SystemMessage("s"), USER]) == {}
        assert who_refuses([SystemMessage("s")], "no-messages") == {"anthropic", "gemini"}

    def test_nothing_at_all(self) -> None:
        """An empty window is no request."""
        assert who_refuses([], "no-messages") == {"anthropic", "gemini"}

    def test_prefill_is_refused_on_request(self) -> None:
        """The flag is for models that do not go on from the beginning of an answer."""
        messages = [USER, AIMessage("Once upon")]
        for provider in PROVIDERS:
            assert violations(messages, provider) == ()
            assert [v.rule for v in violations(messages, provider, allow_prefill=False)] == ["prefill"]
        assert violations([*messages, USER], "gemini", allow_prefill=False) == ()


class TestSystemMessages:
    """Where langchain-anthropic can send a later system message."""

    @pytest.mark.parametrize(
        ("messages", "fine"),
        [
            ([USER, SystemMessage("s")], True),
            ([USER, SystemMessage("s"), SystemMessage("t"), AIMessage("a")], True),
            ([USER, SystemMessage("s"), AIMessage("a")], True),
            ([USER, calls("a"), result(), SystemMessage("s"), AIMessage("a")], True),
            ([USER, SystemMessage("s"), HumanMessage("h")], False),
            ([USER, AIMessage("a"), SystemMessage("s"), HumanMessage("h")], False),
            ([USER, SystemMessage("s"), SystemMessage("t"), HumanMessage("h")], False),
            ([SystemMessage("s"), SystemMessage("t"), USER], True),
        ],
    )
    def test_positions(self, messages: list[BaseMessage], fine: bool) -> None:
        """After a human or tool message, and last or before an AI message; the others take it anywhere."""
        assert who_refuses(messages, "system-position") == (set() if fine else {"anthropic"})


class TestResponses:
    """Reasoning items and the items that belong to them."""

    REASONING: ClassVar[dict[str, object]] = {"type": "reasoning", "id": "rs_1", "summary": []}
    TEXT: ClassVar[dict[str, object]] = {"type": "text", "text": "a", "id": "msg_1"}
    THOUGHT: ClassVar[dict[str, object]] = {
        "usage_metadata": {
            "input_tokens": 1,
            "output_tokens": 9,
            "total_tokens": 10,
            "output_token_details": {"reasoning": 8},
        }
    }

    def test_reasoning_without_the_item_after_it(self) -> None:
        """A reasoning item at the end of a message is refused by Responses."""
        assert who_refuses([USER, AIMessage([self.TEXT, self.REASONING])], "reasoning-without-item") == {
            "openai_responses"
        }
        assert all_violations([USER, AIMessage([self.REASONING, self.TEXT])]) == {}
        assert all_violations([USER, calls("a", content=[self.REASONING]), result()]) == {}

    def test_an_item_without_its_reasoning(self) -> None:
        """Fault 62: the reasoning is stripped, the ids that need it are kept."""
        sound = AIMessage([self.REASONING, self.TEXT], **self.THOUGHT)  # type: ignore[arg-type]
        stripped = AIMessage([self.TEXT], **self.THOUGHT)  # type: ignore[arg-type]
        assert all_violations([USER, sound]) == {}
        assert who_refuses([USER, stripped], "item-without-reasoning") == {"openai_responses"}

    def test_ids_of_a_model_that_does_not_reason(self) -> None:
        """Item ids alone are fine: nothing was stripped. So is reasoning of chat completions, which has no items."""
        assert all_violations([USER, AIMessage([self.TEXT])]) == {}
        assert all_violations([USER, AIMessage("a", id="chatcmpl-1", **self.THOUGHT)]) == {}  # type: ignore[arg-type]

    def test_an_item_twice(self) -> None:
        """A message that got into the history twice repeats its item ids."""
        messages = [USER, AIMessage([self.TEXT]), USER, AIMessage([self.TEXT])]
        assert who_refuses(messages, "duplicate-item-id") == {"openai_responses"}

    def test_texts_and_summaries_share_their_items_id(self) -> None:
        """Several texts of one message item, and several parts of one reasoning item, are no repetition."""
        parts = [{"type": "reasoning", "id": "rs_1", "reasoning": text} for text in ("a", "b")]
        assert violations([USER, AIMessage([*parts, self.TEXT, self.TEXT])], "openai_responses") == ()


class TestAnthropic:
    """Thinking and server tools."""

    SIGNED: ClassVar[dict[str, object]] = {"type": "thinking", "thinking": "hm", "signature": "s"}
    TEXT: ClassVar[dict[str, object]] = {"type": "text", "text": "a"}
    USE: ClassVar[dict[str, object]] = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    SERVER: ClassVar[dict[str, object]] = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    FOUND: ClassVar[dict[str, object]] = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}

    @pytest.mark.parametrize(
        ("content", "rule"),
        [
            ([SIGNED, TEXT], None),
            ([{"type": "redacted_thinking", "data": "x"}, USE], None),
            ([{"type": "thinking", "thinking": "", "signature": "s"}, TEXT], None),
            ([{"type": "thinking", "signature": "s"}, TEXT], None),
            ([{"type": "thinking", "thinking": "hm"}, TEXT], "unsigned-thinking"),
            ([TEXT, SIGNED], "thinking-last"),
            ([TEXT, SIGNED, {"type": "text", "text": " "}], "thinking-last"),
            ([USE, SIGNED, TEXT], "thinking-after-call"),
        ],
    )
    def test_thinking(self, content: list[object], rule: str | None) -> None:
        """Signed, before its call, and not last."""
        message = AIMessage(content, tool_calls=[call()] if self.USE in content else [])  # type: ignore[arg-type]
        messages = [USER, message, *([result()] if self.USE in content else [])]
        assert [v.rule for v in violations(messages, "anthropic")] == ([rule] if rule else [])

    def test_an_empty_signature(self) -> None:
        """It tells a stream that was cut off; servers of Anthropic's dialect finish answers with one."""
        block = {"type": "thinking", "thinking": "hm", "signature": ""}
        cut = AIMessage([block, self.TEXT], response_metadata={"model_provider": "anthropic"})
        done = AIMessage(
            [block, self.TEXT], response_metadata={"model_provider": "anthropic", "stop_reason": "end_turn"}
        )
        assert [v.rule for v in violations([USER, cut], "anthropic")] == ["unsigned-thinking"]
        assert violations([USER, done], "anthropic") == ()

    @pytest.mark.parametrize(
        ("messages", "rule"),
        [
            ([USER, AIMessage([SERVER, FOUND, TEXT])], None),
            ([USER, AIMessage([SERVER])], None),
            ([USER, AIMessage([SERVER]), AIMessage([FOUND, TEXT])], None),
            ([USER, AIMessage([SERVER, USE], tool_calls=[call()]), result(), AIMessage([FOUND, TEXT])], None),
            ([USER, AIMessage([SERVER, TEXT]), USER], "unanswered-server-tool"),
            ([USER, AIMessage([FOUND, TEXT])], "orphan-server-result"),
            ([USER, AIMessage([FOUND, SERVER, TEXT])], "orphan-server-result"),
            ([USER, AIMessage([SERVER, FOUND, FOUND, TEXT])], "orphan-server-result"),
        ],
    )
    def test_server_tools(self, messages: list[BaseMessage], rule: str | None) -> None:
        """Fault 64: use and result together, in one turn; a turn that still runs may wait for its result."""
        assert {v.rule for v in violations(messages, "anthropic")} == ({rule} if rule else set())

    def test_tools_that_other_providers_ran_are_theirs(self) -> None:
        """A search item of Responses has no separate result."""
        assert (
            violations([USER, AIMessage([{"type": "web_search_call", "id": "ws_1"}, self.TEXT]), USER], "anthropic")
            == ()
        )


class TestGemini:
    """Turns and thought signatures."""

    SIGNED: ClassVar[dict[str, object]] = {"__gemini_function_call_thought_signatures__": {"a": "c2ln"}}

    def test_a_call_after_another_ai_message(self) -> None:
        """Fault 57: a call follows a human message or results."""
        messages = [USER, AIMessage("let me see"), calls("a"), result()]
        assert who_refuses(messages, "call-after-model-turn") == {"gemini"}

    def test_a_lost_signature(self) -> None:
        """Fault 67: in a turn whose other calls are signed, a call without signature has lost it."""
        signed, bare = calls("a", additional_kwargs=self.SIGNED), calls("b")
        assert who_refuses([USER, signed, result("a"), bare, result("b")], "missing-thought-signature") == {"gemini"}
        assert all_violations([USER, signed, result("a"), AIMessage("x"), USER, bare, result("b")]) == {}
        assert all_violations([USER, bare, result("b")]) == {}

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "function_call_signature", "signature": "c2ln", "index": 0},
            {"type": "tool_call", "id": "a", "name": "f", "args": {}, "extras": {"signature": "c2ln"}},
            {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": "c2ln"},
        ],
    )
    def test_signatures_in_the_content(self, block: dict[str, object]) -> None:
        """They are found wherever langchain-google-genai keeps them."""
        signed = AIMessage([block], tool_calls=[call("a")])
        broken = violations([USER, signed, result("a"), calls("b"), result("b")], "gemini")
        assert [(v.rule, v.index) for v in broken] == [("missing-thought-signature", 3)]


class TestSoundHistoriesPass:
    """No false alarm."""

    @given(st.data())
    def test_a_sound_history_is_valid_for_all(self, data: st.DataObject) -> None:
        """Histories without faults, in any provider's spelling, break no rule."""
        style = data.draw(st.sampled_from(STYLES))
        history = data.draw(histories(without=FAULTY, styles=[style]))
        assert all_violations(history) == {}

    @given(histories(without=FAULTY), st.data())
    def test_a_tail_cut_between_units_is_valid(self, history: list[BaseMessage], data: st.DataObject) -> None:
        """With `continues`, the rest of a valid window is valid from every unit on that a human message starts."""
        starts = [u.start for u in units_of(history) if isinstance(history[u.start], HumanMessage | AIMessage)]
        start = data.draw(st.sampled_from(starts))
        assert all_violations(history[start:], continues=True) == {}

    @given(histories(without=FAULTY).flatmap(damages))
    def test_a_lost_or_doubled_result_is_always_seen(self, history: list[BaseMessage]) -> None:
        """The four agree whether results are in place; a count of each id shows it independently."""
        found = all_violations(history)
        made = sorted(str(c["id"]) for m in history if isinstance(m, AIMessage) for c in m.tool_calls)
        given_back = sorted(m.tool_call_id for m in history if isinstance(m, ToolMessage))
        if made != given_back:
            assert set(found) == ALL

    @given(histories())
    def test_all_violations_is_the_four_together(self, history: list[BaseMessage]) -> None:
        """`all_violations` says for each provider what `violations` says."""
        one_by_one = {provider: violations(history, provider) for provider in PROVIDERS}
        assert all_violations(history) == {provider: broken for provider, broken in one_by_one.items() if broken}


def count_steps(function: Callable[[], object]) -> int:
    """Function calls made, Python and C: a measure of work that does not depend on the machine."""
    steps = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return steps


class TestWorkIsLinear:
    """Twice the history, twice the work."""

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_validation(self, provider: Provider) -> None:
        """Also where every rule fires: dangling, reused and orphaned all the way."""

        def history(size: int) -> list[BaseMessage]:
            round_: list[BaseMessage] = [USER, calls("a", "b"), result("b"), result("b"), calls("a"), result("z")]
            return round_ * size

        small, large = (count_steps(lambda n=n: violations(history(n), provider)) for n in (50, 200))  # type: ignore[misc]
        assert large <= 4.2 * small
