"""Repaired views as LangChain's partner packages really send them: the check of our validators that does not use them.

Each provider's own conversion makes the request body of a repaired view; what is asserted is the pairing in that body.
"""

import json
import logging
import warnings
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.chat_models import _format_messages
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_google_genai.chat_models import _parse_chat_history
from langchain_openai import ChatOpenAI

from refold.core.repair import drop_bound_reasoning, repair
from refold.testing.strategies import FAULTY, damages, histories

Body = list[dict[str, object]]


def openai_body(messages: Sequence[BaseMessage], *, responses: bool) -> Body:
    model = ChatOpenAI(model="gpt-4o", api_key="none", use_responses_api=responses)  # type: ignore[arg-type]
    payload = model._get_request_payload(list(messages))
    return list(payload["input" if responses else "messages"])


def check_openai_chat(messages: Sequence[BaseMessage]) -> None:
    """Each assistant message's calls are answered by exactly the tool messages that follow it."""
    body = openai_body(messages, responses=False)
    position = 0
    while position < len(body):
        message = body[position]
        position += 1
        assert message["role"] != "tool"
        calls: list[dict[str, dict[str, str]]] = message.get("tool_calls") or []  # type: ignore[assignment]
        assert all(isinstance(json.loads(c["function"]["arguments"]), dict) and c["function"]["name"] for c in calls)
        answers = []
        while position < len(body) and body[position]["role"] == "tool":
            answers.append(body[position]["tool_call_id"])
            position += 1
        ids = [c["id"] for c in calls]
        assert all(ids)
        assert len(set(map(str, ids))) == len(ids)
        assert sorted(map(str, answers)) == sorted(map(str, ids))
        assert message["content"] or calls or message["role"] == "user"


def check_openai_responses(messages: Sequence[BaseMessage]) -> None:
    """Calls and outputs pair by call id, item ids are unique, reasoning is followed by an item of the assistant."""
    items = openai_body(messages, responses=True)
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert all(calls)
    assert len(set(calls)) == len(calls)
    assert sorted(map(str, calls)) == sorted(map(str, outputs))
    ids = [item["id"] for item in items if item.get("id")]
    assert len(set(ids)) == len(ids)
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning" and item.get("id"):
            own = following.get("role") == "assistant" or str(following.get("type")).endswith(("_call", "reasoning"))
            assert own
        if item.get("type") == "function_call":
            assert isinstance(json.loads(str(item["arguments"])), dict)


def check_anthropic(messages: Sequence[BaseMessage]) -> None:
    """Each assistant turn's uses are answered first thing in the next user turn; ids are unique; no blank text."""
    _, body = _format_messages(list(messages), model="claude", mid_conversation_system_messages=True)
    turns = [turn for turn in body if turn["role"] != "system"]
    assert turns[0]["role"] == "user"
    expected: set[str] = set()
    used: set[str] = set()
    for turn in turns:
        content = turn["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(answers) == sorted(expected)
        assert all(block["type"] == "tool_result" for block in blocks[: len(answers)])
        uses = [block for block in blocks if block["type"] == "tool_use"]
        assert all(block["id"] and block["name"] and isinstance(block["input"], dict) for block in uses)
        expected = {block["id"] for block in uses}
        assert len(expected) == len(uses)
        assert not expected & used
        used |= expected
    assert not expected


def check_gemini(messages: Sequence[BaseMessage]) -> None:
    """As many responses as calls in the next turn; calls only after a user turn; no turn without parts."""
    _, turns = _parse_chat_history(list(messages))
    assert turns[0].role == "user"
    before, expected = "", 0
    for turn in turns:
        parts = turn.parts or []
        assert parts
        assert sum(part.function_response is not None for part in parts) == expected
        expected = sum(part.function_call is not None for part in parts)
        assert not expected or before == "user"
        before = str(turn.role)
    assert expected == 0


CHECKS: list[Callable[[Sequence[BaseMessage]], None]] = [
    check_openai_chat,
    check_openai_responses,
    check_anthropic,
    check_gemini,
]


@pytest.fixture(autouse=True)
def _quiet() -> object:
    """The conversions warn of blocks of other providers; that is not what is tested."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


class TestProvidersGetPairedRequests:
    """Media are left out: langchain-google-genai refuses other providers' spellings, and downloads what is a URL."""

    @given(histories(without={"media"}))
    def test_any_history(self, history: list[BaseMessage]) -> None:
        """Histories with every fault, repaired, become well-formed requests of each provider."""
        for check in CHECKS:
            check(repair(history).messages)

    @given(histories(without={*FAULTY, "media"}).flatmap(damages))
    def test_damaged_results(self, history: list[BaseMessage]) -> None:
        """So do sound histories whose results were removed, doubled or moved."""
        for check in CHECKS:
            check(repair(history).messages)

    @given(histories(without={*FAULTY, "media"}))
    def test_without_bound_reasoning(self, history: list[BaseMessage]) -> None:
        """And histories whose reasoning was dropped after a fold."""
        for check in CHECKS:
            check([drop_bound_reasoning(message) for message in history])


class TestTheCheckItself:
    """The checks of this module notice what they are for."""

    @pytest.mark.parametrize("check", CHECKS)
    def test_a_dangling_call(self, check: Callable[[Sequence[BaseMessage]], None]) -> None:
        """A call without result fails each of the four checks."""
        dangling = AIMessage("x", tool_calls=[{"name": "f", "args": {}, "id": "a"}])
        with pytest.raises(AssertionError):
            check([HumanMessage("hi"), dangling])

    @pytest.mark.parametrize("check", CHECKS[:3])
    def test_an_orphan(self, check: Callable[[Sequence[BaseMessage]], None]) -> None:
        """A result without call fails (langchain-google-genai leaves it out by itself)."""
        with pytest.raises(AssertionError):
            check([HumanMessage("hi"), ToolMessage("r", tool_call_id="a"), AIMessage("x")])

    def test_the_public_model_sends_the_same(self) -> None:
        """The private conversion used here is what `ChatAnthropic` builds its request from."""
        model = ChatAnthropic(model="claude-sonnet-4-5", api_key="none")  # type: ignore[call-arg, arg-type]
        history = [HumanMessage("hi"), AIMessage("x"), HumanMessage("y")]
        assert model._get_request_payload(history)["messages"] == _format_messages(history, model="claude")[1]
