"""StrictModel: it refuses what a provider refuses, and answers as a provider answers."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from refold.core.overflow import parse_overflow
from refold.core.repair import repair
from refold.core.validate import PROVIDERS, Provider, violations
from refold.testing import (
    DIALECTS,
    BreakOff,
    CutOff,
    Dialect,
    Hang,
    OverflowRefusal,
    ProviderError,
    ScriptEndedError,
    StrictModel,
    utf8_quarter,
)
from refold.testing.strategies import histories

CALL = AIMessage("let me add", tool_calls=[{"type": "tool_call", "name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}])
BLOCKS = AIMessage(
    [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "let me add"},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 2}},
    ],
    tool_calls=CALL.tool_calls,
)
LONG = HumanMessage("word " * 200)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def joined(model: StrictModel, text: str = "hi") -> AIMessageChunk:
    """A whole stream as one message."""
    chunks = list(model.stream(text))
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert isinstance(total, AIMessageChunk)
    return total


class TestItAnswersFromItsScript:
    """Steps in order, or a function of the request."""

    def test_steps_in_order_and_an_end(self) -> None:
        """Each call takes one step; one call too many is an error of the test, and says so."""
        model = StrictModel(script=["one", AIMessage("two")])
        assert [model.invoke("x").content, model.invoke("y").content] == ["one", "two"]
        with pytest.raises(ScriptEndedError, match="call 3 came, but the script has 2 steps"):
            model.invoke("z")

    def test_a_function_sees_the_request(self) -> None:
        """It gets the messages, the system prompt included."""
        model = StrictModel(script=lambda messages: f"{len(messages)} {messages[-1].text}")
        assert model.invoke([SystemMessage("s"), HumanMessage("hi")]).content == "2 hi"

    def test_a_scripted_message_is_never_written_to(self) -> None:
        """LangChain writes ids and metadata into answers; the script keeps its own object."""
        before = CALL.model_dump()
        model = StrictModel(script=[CALL, CALL])
        first, second = model.invoke("x"), model.invoke("x")
        assert CALL.model_dump() == before
        assert first.id != second.id

    def test_errors_empties_and_cut_offs(self) -> None:
        """A script can fail, say nothing, or hit the output limit."""
        cut = CutOff(answer=CALL, characters=6)
        model = StrictModel(script=[ConnectionError("reset"), "", cut])
        with pytest.raises(ConnectionError, match="reset"):
            model.invoke("x")
        assert model.invoke("x").content == ""
        answer = model.invoke("x")
        assert (answer.content, answer.tool_calls, answer.response_metadata["finish_reason"]) == (
            "let me",
            [],
            "length",
        )

    def test_copies_share_script_and_requests(self) -> None:
        """Middleware copies models; the oracle still sees every call."""
        model = StrictModel(script=["one", "two"])
        copy = model.model_copy(update={"stream_usage": False})
        assert [copy.invoke("x").content, model.invoke("x").content] == ["one", "two"]
        assert len(model.requests) == len(copy.requests) == 2

    def test_parallel_calls_take_a_step_each(self) -> None:
        """Threads never share a step."""
        model = StrictModel(script=[str(n) for n in range(16)])
        answers: list[str] = []
        threads = [threading.Thread(target=lambda: answers.append(model.invoke("x").text)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers, key=int) == [str(n) for n in range(16)]

    async def test_a_hanging_call_can_be_cancelled(self) -> None:
        """An async call that never answers ends when it is cancelled, streaming or not."""
        model = StrictModel(script=[Hang(), Hang()])
        for call in (model.ainvoke("x"), model.astream("x").__anext__()):
            task = asyncio.ensure_future(call)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    def test_a_hang_ends_in_a_timeout(self) -> None:
        """Sync and async, the wait ends in `TimeoutError`."""
        model = StrictModel(script=[Hang(seconds=0.0)] * 3)
        with pytest.raises(TimeoutError):
            model.invoke("x")
        with pytest.raises(TimeoutError):
            asyncio.run(model.ainvoke("x"))
        with pytest.raises(TimeoutError):
            list(model.stream("x"))


class TestItEnforcesStructure:
    """The rules of its provider."""

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_a_dangling_call_is_refused(self, provider: Provider) -> None:
        """Before any step is used, with status 400, the place and the rule."""
        model = StrictModel(script=["never"], provider=provider)
        with pytest.raises(ProviderError, match=r"messages\.2: .*unanswered-call") as caught:
            model.invoke([SystemMessage("s"), HumanMessage("hi"), CALL])
        assert caught.value.status_code == 400
        assert [v.rule for v in caught.value.violations] == ["unanswered-call"]
        assert model.requests[0].refusal is caught.value
        assert model.invoke("x").content == "never"

    def test_no_provider_no_rules(self) -> None:
        """`provider=None` takes anything."""
        assert StrictModel(script=["ok"], provider=None).invoke([HumanMessage("hi"), CALL]).content == "ok"

    def test_prefill(self) -> None:
        """Refused where the model is told to."""
        model = StrictModel(script=["ok"], provider="anthropic", allow_prefill=False)
        with pytest.raises(ProviderError, match="prefill"):
            model.invoke([HumanMessage("hi"), AIMessage("Once")])

    @given(histories(max_turns=2))
    def test_it_takes_every_repaired_history_and_refuses_what_the_validators_refuse(
        self, history: list[BaseMessage]
    ) -> None:
        """The model and the validators agree, and repair satisfies both."""
        for provider in PROVIDERS:
            model = StrictModel(script=lambda _: "ok", provider=provider)
            assert model.invoke(list(repair(history).messages)).content == "ok"
            window = history[1:] if isinstance(history[0], SystemMessage) else history
            if violations(window, provider):
                with pytest.raises(ProviderError):
                    model.invoke(history)
            else:
                assert model.invoke(history).content == "ok"


class TestItEnforcesLimits:
    """Tokens, bytes and output."""

    def test_the_limit_is_exact(self) -> None:
        """As many tokens as the limit fit; one less does not, and the error has LangChain's own type."""
        tokens = utf8_quarter([LONG], ())
        assert StrictModel(script=["ok"], limit=tokens).invoke([LONG]).content == "ok"
        with pytest.raises(ContextOverflowError, match=str(tokens)):
            StrictModel(script=["ok"], limit=tokens - 1).invoke([LONG])

    def test_tools_and_system_prompt_count(self) -> None:
        """Fault 6: what is not in the chat history is in the request."""
        model = StrictModel(script=["ok"] * 3, provider=None)
        model.invoke([HumanMessage("hi")])
        model.invoke([SystemMessage("s" * 400), HumanMessage("hi")])
        model.bind_tools([add]).invoke([HumanMessage("hi")])
        plain, prompted, equipped = (request.tokens for request in model.requests)
        assert prompted == plain + 104
        assert equipped > plain + 20

    @pytest.mark.parametrize("dialect", [d for d in DIALECTS if d not in ("langchain", "ollama")])
    def test_every_dialect_refuses_in_its_words(self, dialect: Dialect) -> None:
        """Faults 7, 9: a plain error without LangChain's type; numbers stand in it only where the server says them."""
        model = StrictModel(script=["ok"], limit=100, dialect=dialect)
        with pytest.raises(ProviderError) as caught:
            model.invoke([LONG])
        assert not isinstance(caught.value, ContextOverflowError)
        assert caught.value.status_code in (400, 413)
        assert "{" not in str(caught.value)

    @pytest.mark.parametrize("dialect", [d for d in DIALECTS if d != "ollama"])
    def test_refolds_own_reader_understands_every_dialect(self, dialect: Dialect) -> None:
        """Each refusal is read as an overflow, with the true limit where the text has it; no other refusal is."""
        with pytest.raises(ProviderError) as caught:
            StrictModel(script=["ok"], limit=100, dialect=dialect).invoke([LONG])
        read = parse_overflow(caught.value)
        assert read is not None
        assert read.limit == (100 if "100" in str(caught.value).replace("400", "") else None)
        with pytest.raises(ProviderError) as other:
            StrictModel(script=["ok"], dialect=dialect).invoke([ToolMessage("r", tool_call_id="a")])
        assert parse_overflow(other.value) is None

    def test_llama_cpp_says_the_numbers_in_its_body(self) -> None:
        """The body carries them as fields."""
        with pytest.raises(ProviderError) as caught:
            StrictModel(script=["ok"], limit=100, dialect="llamacpp").invoke([LONG])
        error = caught.value.body["error"]
        assert isinstance(error, dict)
        assert (error["n_ctx"], error["n_prompt_tokens"]) == (100, utf8_quarter([LONG], ()))

    def test_a_server_that_truncates_silently(self) -> None:
        """Ollama: no error, and no more than the limit in the usage."""
        answer = StrictModel(script=["ok"], limit=100, dialect="ollama").invoke([LONG])
        assert answer.usage_metadata is not None
        assert answer.usage_metadata["input_tokens"] == 100

    def test_overflow_in_the_middle_of_a_stream(self) -> None:
        """Fault 9: the error comes after the first chunk; without streaming it comes at once."""
        model = StrictModel(script=["ok"], limit=100, dialect="openai", overflow_at="stream")
        stream = model.stream([LONG])
        assert next(stream).content == "..."
        with pytest.raises(ProviderError, match="maximum context length is 100"):
            list(stream)
        with pytest.raises(ProviderError):
            model.invoke([LONG])

    def test_output_counts_into_a_shared_limit(self) -> None:
        """vLLM: prompt and `max_tokens` together must fit."""
        model = StrictModel(script=["ok"], limit=300, shared_limit=True, dialect="openai_requested")
        with pytest.raises(ProviderError, match="254 in the messages, 100 in the completion"):
            model.invoke([LONG], max_tokens=100)
        assert model.invoke([LONG], max_tokens=40).content == "ok"

    def test_the_output_cap(self) -> None:
        """Fault 12: a larger `max_tokens` than the model allows is refused; an answer over its cap is cut off."""
        model = StrictModel(script=["word " * 100], output_limit=50)
        with pytest.raises(ProviderError, match="max_tokens: 51 > 50"):
            model.invoke("hi", max_tokens=51)
        answer = model.invoke("hi", max_tokens=10)
        assert answer.response_metadata["finish_reason"] == "length"
        assert 0 < len(answer.text) < 100

    def test_bytes(self) -> None:
        """Faults 17, 96: a body over the byte limit is a 413, however few tokens its pictures cost."""
        picture = {"type": "image", "base64": "A" * 40_000, "mime_type": "image/png"}
        model = StrictModel(script=["ok"], limit=5_000, byte_limit=30_000)
        with pytest.raises(ProviderError) as caught:
            model.invoke([HumanMessage([picture])])
        assert caught.value.status_code == 413
        assert model.requests[0].tokens < 1_000
        assert model.requests[0].size > 40_000

    def test_the_profile_tells_the_limits(self) -> None:
        """As partner packages do for models they know; `profile={}` hides it."""
        model = StrictModel(script=[], limit=8_192, output_limit=1_024)
        assert model.profile == {"tool_calling": True, "max_input_tokens": 8_192, "max_output_tokens": 1_024}
        assert StrictModel(script=[], limit=8_192, profile={}).profile == {}

    def test_another_counter(self) -> None:
        """Any callable counts."""

        def per_message(messages: Sequence[BaseMessage], tools: object) -> int:
            return 1_000 * len(messages)

        with pytest.raises(OverflowRefusal, match="2000 tokens"):
            StrictModel(script=["ok"], limit=1_500, count=per_message).invoke([HumanMessage("a"), HumanMessage("b")])


class TestItReportsUsage:
    """Where providers report it."""

    def test_usage_metadata(self) -> None:
        """Input is the request's own count, with what a cache would have served."""
        model = StrictModel(script=["ok", "ok"])
        model.invoke([HumanMessage("a" * 40)])
        answer = model.invoke([HumanMessage("a" * 40), AIMessage("b" * 40), HumanMessage("c")])
        assert answer.usage_metadata == {
            "input_tokens": 14 + 14 + 5,
            "output_tokens": 5,
            "total_tokens": 38,
            "input_token_details": {"cache_read": 14},
        }
        assert model.requests[1].cached == 1

    @pytest.mark.parametrize(
        ("style", "key", "name"),
        [
            ("openai", "token_usage", "prompt_tokens"),
            ("anthropic", "usage", "input_tokens"),
            ("gemini", "usage_metadata", "prompt_token_count"),
        ],
    )
    def test_only_under_a_providers_names(self, style: str, key: str, name: str) -> None:
        """Fault 92: `usage_metadata` is empty, the numbers are in `response_metadata`."""
        answer = StrictModel(script=["ok"], usage=style).invoke([HumanMessage("a" * 40)])  # type: ignore[arg-type]
        assert answer.usage_metadata is None
        assert answer.response_metadata[key][name] == 14

    def test_none(self) -> None:
        """Fault 91: no usage at all, or none in streams."""
        assert StrictModel(script=["ok"], usage="none").invoke("x").usage_metadata is None
        silent = StrictModel(script=["ok", "ok"], stream_usage=False)
        assert joined(silent).usage_metadata is None
        assert silent.invoke("x").usage_metadata is not None

    def test_a_scripted_usage_wins(self) -> None:
        """The script may report what it likes."""
        usage = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
        assert StrictModel(script=[AIMessage("x", usage_metadata=usage)]).invoke("x").usage_metadata == usage  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("provider", "key", "stop", "called", "cut"),
        [
            ("openai_chat", "finish_reason", "stop", "tool_calls", "length"),
            ("openai_responses", "status", "completed", "completed", "incomplete"),
            ("anthropic", "stop_reason", "end_turn", "tool_use", "max_tokens"),
            ("gemini", "finish_reason", "STOP", "STOP", "MAX_TOKENS"),
        ],
    )
    def test_finish_reasons(self, provider: Provider, key: str, stop: str, called: str, cut: str) -> None:
        """In the provider's own words."""
        model = StrictModel(script=["x", CALL, CutOff(answer="x", characters=1)], provider=provider)
        assert [model.invoke("x").response_metadata[key] for _ in range(3)] == [stop, called, cut]


class TestItStreams:
    """Chunks join to the answer."""

    @pytest.mark.parametrize("answer", [AIMessage("some words of an answer that is long"), CALL, BLOCKS])
    def test_joined_chunks_are_the_answer(self, answer: AIMessage) -> None:
        """Text, calls, blocks and usage come out as without streaming; no whole text in one chunk."""
        whole = StrictModel(script=[answer]).invoke("hi")
        streamed = joined(StrictModel(script=[answer], chunk_size=5))
        assert streamed.tool_calls == whole.tool_calls
        assert streamed.usage_metadata == whole.usage_metadata
        assert streamed.response_metadata == whole.response_metadata
        assert streamed.text == whole.text
        if not isinstance(whole.content, str):
            bare = [{k: v for k, v in block.items() if k != "index"} for block in streamed.content]  # type: ignore[union-attr]
            assert bare == whole.content

    def test_malformed_arguments_come_as_text(self) -> None:
        """An invalid call is streamed as the model wrote it."""
        broken = AIMessage(
            "", invalid_tool_calls=[{"type": "invalid_tool_call", "id": "c", "name": "f", "args": "[1", "error": None}]
        )
        total = joined(StrictModel(script=[broken], chunk_size=1))
        assert [c["args"] for c in total.tool_call_chunks] == ["[1"]
        assert total.tool_calls == []
        assert total.invalid_tool_calls[0]["id"] == "c"

    def test_a_stream_that_breaks_off(self) -> None:
        """The first chunks come, then the error; without streaming only the error."""
        step = BreakOff(answer="a" * 100, error=ConnectionError("reset"), after=2)
        model = StrictModel(script=[step, step], chunk_size=10)
        got: list[str] = []
        with pytest.raises(ConnectionError, match="reset"):
            got.extend(chunk.text for chunk in model.stream("x"))
        assert got == ["a" * 10] * 2
        with pytest.raises(ConnectionError):
            model.invoke("x")

    async def test_async_is_the_same(self) -> None:
        """`astream` gives the chunks of `stream`, `ainvoke` the answer of `invoke`."""
        model = StrictModel(script=lambda _: CALL, provider="anthropic")
        sync = [(c.content, c.tool_call_chunks) for c in model.stream("x")]
        assert [(c.content, c.tool_call_chunks) async for c in model.astream("x")] == sync
        assert (await model.ainvoke("x")).tool_calls == model.invoke("x").tool_calls
        assert [request.stream for request in model.requests] == [True, True, False, False]


class TestItWorksInAnAgent:
    """`create_agent` runs on it."""

    def test_a_loop_with_a_tool(self) -> None:
        """Tools are bound and recorded, the system prompt is told apart, the cached prefix grows."""
        model = StrictModel(script=[CALL, "It is 3."], limit=10_000, provider="openai_responses")
        agent = create_agent(model, [add], system_prompt="Be brief.")
        result = agent.invoke({"messages": [HumanMessage("1 + 2?")]})
        assert [m.type for m in result["messages"]] == ["human", "ai", "tool", "ai"]
        first, second = model.requests
        assert first.tools[0]["function"]["name"] == "add"  # type: ignore[index]
        assert (first.system, len(first.window), len(second.window)) == ("Be brief.", 1, 3)
        assert (first.cached, second.cached) == (0, 2)

    async def test_streaming_and_async(self) -> None:
        """Tokens reach the stream of the agent."""
        model = StrictModel(script=[CALL, "It is 3."], chunk_size=3)
        agent = create_agent(model, [add])
        texts = [
            chunk.text
            async for chunk, _ in agent.astream({"messages": [HumanMessage("1 + 2?")]}, stream_mode="messages")
            if isinstance(chunk, AIMessageChunk)
        ]
        assert "".join(texts) == "let me addIt is 3."
        assert len(texts) > 5

    def test_bound_options_are_recorded(self) -> None:
        """`tool_choice` and other options are in `kwargs`; nothing is bound where none is given."""
        model = StrictModel(script=["x", "y"])
        model.bind_tools([add], tool_choice="none").invoke("x", temperature=0.5)
        model.bind_tools([add]).invoke("x")
        assert model.requests[0].kwargs == {"tool_choice": "none", "temperature": 0.5}
        assert "tool_choice" not in model.requests[1].kwargs

    def test_structured_output(self) -> None:
        """LangChain's own structured output runs over the bound tool."""

        class Answer(BaseModel):
            """An answer."""

            value: int

        call = AIMessage("", tool_calls=[{"type": "tool_call", "name": "Answer", "args": {"value": 3}, "id": "c"}])
        assert StrictModel(script=[call]).with_structured_output(Answer).invoke("x") == Answer(value=3)


class TestThePrefixCache:
    """`Request.cached` is what a provider's prompt cache could serve."""

    def test_a_changed_message_ends_the_prefix(self) -> None:
        """Everything before it is cached, nothing after it."""
        model = StrictModel(script=lambda _: "ok", provider=None)
        messages: list[BaseMessage] = [HumanMessage(str(n)) for n in range(10)]
        model.invoke(messages)
        model.invoke([*messages, HumanMessage("new")])
        model.invoke([*messages[:4], HumanMessage("changed"), *messages[5:]])
        model.invoke([*messages[1:]])
        assert [request.cached for request in model.requests] == [0, 10, 4, 0]

    def test_other_tools_have_no_cache(self) -> None:
        """Fault 124: tools come before the messages; leaving them out starts anew."""
        model = StrictModel(script=lambda _: "ok")
        model.bind_tools([add]).invoke("hi")
        model.invoke("hi")
        model.bind_tools([add]).invoke("hi")
        assert [request.cached for request in model.requests] == [0, 0, 1]

    def test_ids_do_not_matter(self) -> None:
        """A cache sees what is sent, and message ids are not."""
        model = StrictModel(script=lambda _: "ok")
        model.invoke([HumanMessage("hi", id="a")])
        model.invoke([HumanMessage("hi", id="b")])
        assert model.requests[1].cached == 1


class TestTheCounter:
    """`utf8_quarter` is exact and simple."""

    @pytest.mark.parametrize(
        ("message", "tokens"),
        [
            (HumanMessage("abcd"), 5),
            (HumanMessage(""), 4),
            (HumanMessage("汉" * 100), 79),
            (AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]), 6),
            (HumanMessage([{"type": "image", "base64": "A" * 100_000, "mime_type": "image/png"}]), 804),
            (AIMessage([{"type": "thinking", "thinking": "abcd", "signature": "s" * 4_000}]), 5),
            (AIMessage("", additional_kwargs={"reasoning_content": "a" * 40}), 14),
            (ToolMessage("abcd", tool_call_id="c" * 100), 5),
        ],
    )
    def test_counts(self, message: BaseMessage, tokens: int) -> None:
        """Bytes / 4 rounded up, 4 per message, 800 per picture; signatures are free."""
        assert utf8_quarter([message], ()) == tokens

    def test_it_adds_up(self) -> None:
        """The count of a list is the sum of its messages and its tools."""
        assert utf8_quarter([HumanMessage("abcd")] * 7, ()) == 35
        assert utf8_quarter([], [{"name": "f"}]) == 4
