"""Meters: everything in a message counts as what the provider sees, once."""

import base64
import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel

from refold.core.estimate import estimate_text
from refold.core.family import Family
from refold.core.meter import (
    LEAST_FACTOR,
    MOST_FACTOR,
    Count,
    EstimatingMeter,
    ExactMeter,
    Meter,
    Tool,
    learned_factor,
    tokenizer_meter,
)
from refold.errors import ConfigurationError
from refold.testing.strategies import histories

FAMILIES: tuple[Family, ...] = get_args(Family)
PAYLOAD = base64.b64encode(bytes(range(256)) * 900).decode()
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PAYLOAD}"}}
TEXT = "Read the configuration file and tell me which port the server listens on. " * 20


def calling(**args: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "write_file", "args": args, "id": "call_1"}])


def words(text: str) -> int:
    """A tokenizer for tests: one token per word."""
    return len(text.split())


@tool
def search(query: str, limit: int = 5) -> str:
    """Search the documentation for a query and return the best pages."""
    return query


class Weather(BaseModel):
    """Look up the weather of a city."""

    city: str


def plain_function(path: str) -> str:
    """Read a file.

    Args:
        path: Where the file is.
    """
    return path


SCHEMA: dict[str, object] = {
    "name": "lookup",
    "description": "Look up a customer by id.",
    "input_schema": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "enum": ["a", "b"]},
            "options": {"type": "object", "properties": {"deep": {"type": "boolean", "description": "Follow links"}}},
        },
    },
}
BUILT_IN: dict[str, object] = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
TOOLS: tuple[Tool, ...] = (search, Weather, plain_function, SCHEMA, BUILT_IN)


class TestTextAndFrame:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_text_plus_a_small_frame(self, family: Family) -> None:
        """A message costs its text and a few tokens."""
        counted = EstimatingMeter(family=family).count(HumanMessage(TEXT)).tokens
        assert 1 <= counted - estimate_text(TEXT, family=family) <= 20

    def test_string_and_blocks_cost_the_same(self) -> None:
        """Content as a string, as a text block, or in OpenAI's spelling of one is the same text."""
        meter = EstimatingMeter(family="o200k")
        spellings: list[BaseMessage] = [
            HumanMessage(TEXT),
            HumanMessage([{"type": "text", "text": TEXT}]),
            HumanMessage([{"type": "input_text", "text": TEXT}]),
            SystemMessage(TEXT),
        ]
        assert len({meter.count(message).tokens for message in spellings}) == 1

    def test_results_cost_what_providers_add(self) -> None:
        """A result carries the measured constant of its provider: 12 for Claude up to 4.6, 5 after, 10 for OpenAI."""
        families: tuple[tuple[Family, int], ...] = (("claude3", 12), ("claude48", 5), ("o200k", 10))
        for family, constant in families:
            counted = EstimatingMeter(family=family).count(ToolMessage(TEXT, tool_call_id="1")).tokens
            assert counted == estimate_text(TEXT, family=family) + constant

    def test_unknown_blocks_count_as_what_can_be_read(self) -> None:
        """A block of no known kind counts its names and strings; what only the provider can read is bounded."""
        meter = EstimatingMeter()
        found = {"type": "web_search_tool_result", "tool_use_id": "1", "content": [{"title": TEXT}]}
        readable = meter.count(AIMessage([found])).tokens
        assert readable >= estimate_text(TEXT)
        sealed = {**found, "content": [{"title": TEXT, "encrypted_content": PAYLOAD}]}
        assert readable < meter.count(AIMessage([sealed])).tokens < readable + 17_000


class TestCalls:
    def test_claude_reads_raw_arguments(self) -> None:
        """Claude's calls cost their unescaped values; OpenAI's cost their JSON, escapes included."""
        code = 'def f():\n\treturn "a\\b"\n' * 200
        raw = estimate_text(code, family="claude3")
        assert raw + 34 <= EstimatingMeter(family="claude3").count(calling(text=code)).tokens <= raw + 70
        escaped = estimate_text(json.dumps({"text": code}), family="o200k")
        counted = EstimatingMeter(family="o200k").count(calling(text=code)).tokens
        assert escaped <= counted <= escaped + 30

    @pytest.mark.parametrize("family", FAMILIES)
    def test_a_call_spelled_twice_is_counted_once(self, family: Family) -> None:
        """A call in `tool_calls` and again in the content (Anthropic, Responses) is one call."""
        meter = EstimatingMeter(family=family)
        args = {"path": "/a", "text": TEXT}
        calls = [{"name": "write_file", "args": args, "id": "call_1"}]
        block = {"type": "tool_use", "id": "call_1", "name": "write_file", "input": args}
        item = {"type": "function_call", "call_id": "call_1", "name": "write_file", "arguments": json.dumps(args)}
        once = meter.count(AIMessage("", tool_calls=calls)).tokens
        assert meter.count(AIMessage([block], tool_calls=calls)).tokens == once
        assert meter.count(AIMessage([item], tool_calls=calls)).tokens == once
        assert meter.count(AIMessage([block])).tokens == once

    def test_malformed_calls_count(self) -> None:
        """A call whose arguments do not parse still costs its text."""
        broken = AIMessage("", invalid_tool_calls=[{"name": "f", "args": '{"a": "' + TEXT, "id": "1", "error": None}])
        assert EstimatingMeter().count(broken).tokens > estimate_text(TEXT)


class TestReasoning:
    def test_visible_reasoning_counts_as_text(self) -> None:
        """Thinking, reasoning and `reasoning_content` cost their text; a signature costs nothing beside it."""
        meter = EstimatingMeter()
        for message in (
            AIMessage([{"type": "thinking", "thinking": TEXT, "signature": PAYLOAD[:4_000]}]),
            AIMessage([{"type": "reasoning", "reasoning": TEXT}]),
            AIMessage("", additional_kwargs={"reasoning_content": TEXT}),
        ):
            assert 0 <= meter.count(message).tokens - estimate_text(TEXT) <= 10

    def test_sealed_reasoning_counts_as_reported(self) -> None:
        """Encrypted reasoning costs the tokens that the provider reported for it, whatever its length."""
        usage = {
            "input_tokens": 900,
            "output_tokens": 700,
            "total_tokens": 1_600,
            "output_token_details": {"reasoning": 640},
        }
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": PAYLOAD}
        message = AIMessage([item], usage_metadata=usage)
        assert EstimatingMeter(family="o200k").count(message).tokens == 644

    def test_sealed_reasoning_without_a_report_is_bounded(self) -> None:
        """Without a report it is judged by size, and never as text."""
        meter = EstimatingMeter()
        redacted = AIMessage([{"type": "redacted_thinking", "data": PAYLOAD[:4_000]}])
        assert 500 <= meter.count(redacted).tokens <= 1_000
        assert meter.count(AIMessage([{"type": "redacted_thinking", "data": PAYLOAD * 10}])).tokens <= 17_000


class TestMedia:
    @pytest.mark.parametrize(
        "block",
        [
            PICTURE,
            {"type": "input_image", "image_url": f"data:image/png;base64,{PAYLOAD}"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PAYLOAD}},
            {"type": "file", "base64": PAYLOAD, "mime_type": "application/pdf"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PAYLOAD}},
            {"type": "audio", "base64": PAYLOAD, "mime_type": "audio/wav"},
            {"type": "input_audio", "input_audio": {"data": PAYLOAD, "format": "mp3"}},
            {"type": "video", "base64": PAYLOAD, "mime_type": "video/mp4"},
            {"type": "media", "mime_type": "image/png", "data": PAYLOAD},
            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "shot"}, PICTURE]},
        ],
        ids=lambda block: str(block["type"]),
    )
    @pytest.mark.parametrize("family", FAMILIES)
    def test_never_as_text(self, family: Family, block: dict[str, object]) -> None:
        """300 kB of base64 in any block cost media tokens, not the 190,000 tokens of its text (fault 89)."""
        count = EstimatingMeter(family=family).count(HumanMessage([block]))
        assert 70 <= count.tokens <= 26_000
        assert len(PAYLOAD) <= count.bytes <= len(PAYLOAD) + 1_000

    def test_pictures_are_dear_in_bytes(self) -> None:
        """20 pictures of 4 MB: few tokens, 80 MB of body; a byte budget sees what a token budget cannot (fault 96)."""
        data = "A" * 4_000_000
        block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        count = EstimatingMeter(family="claude3").count(HumanMessage([block] * 20))
        assert count.tokens < 40_000
        assert count.bytes >= 80_000_000


class TestBytes:
    @given(st.text(max_size=300))
    def test_text_bytes(self, text: str) -> None:
        """Bytes are at least the UTF-8 of the text, and at most its JSON with a frame."""
        counted = EstimatingMeter().count(HumanMessage(text)).bytes
        plain = len(text.encode("utf-8", "surrogatepass"))
        assert plain <= counted <= 2 * plain + 100

    def test_argument_bytes_are_escaped(self) -> None:
        """Arguments travel as JSON inside JSON: escapes count."""
        assert EstimatingMeter().count(calling(text="\n" * 1_000)).bytes >= 3_000


class TestCountedOnce:
    @given(histories())
    def test_second_pass_counts_nothing(self, history: list[BaseMessage]) -> None:
        """Counting a history again is free and gives the same counts (fault 97)."""
        meter = EstimatingMeter(family="claude3")
        first = [meter.count(message) for message in history]
        counted = meter.count_calls
        assert [meter.count(message) for message in history] == first
        assert meter.count_calls == counted <= len(history)

    def test_copies_are_known(self) -> None:
        """A message read back from a checkpoint is another object with the same content: not counted again."""
        meter = EstimatingMeter()
        message = calling(text=TEXT)
        count = meter.count(message)
        again = AIMessage.model_validate(json.loads(message.model_dump_json()))
        assert meter.count(again) == count
        assert meter.count_calls == 1

    def test_changed_content_is_counted_again(self) -> None:
        """Other content, also set on the same object, is another count."""
        meter = EstimatingMeter()
        message = HumanMessage("short")
        before = meter.count(message)
        message.content = TEXT
        assert meter.count(message).tokens > before.tokens
        assert meter.count_calls == 2

    def test_scaling_recounts_nothing(self) -> None:
        """A learned factor applies to what was counted before; bytes are not scaled."""
        meter = EstimatingMeter()
        message = HumanMessage(TEXT)
        count = meter.count(message)
        scaled = meter.scaled(2.0)
        assert scaled.count(message) == Count(tokens=2 * count.tokens, bytes=count.bytes)
        assert scaled.scaled(1.0).count(message) == count
        assert meter.count_calls == scaled.count_calls == 1
        assert scaled.count_text(TEXT) == 2 * meter.count_text(TEXT)

    def test_tools_once_per_set(self) -> None:
        """The same tools are counted once, another set anew."""
        calls: list[str] = []

        def encode(text: str) -> int:
            calls.append(text)
            return len(text)

        meter = ExactMeter(encode=encode)
        first = meter.count_tools(TOOLS)
        seen = len(calls)
        assert meter.count_tools(list(TOOLS)) == first
        assert len(calls) == seen
        assert meter.count_tools(TOOLS[:2]).tokens < first.tokens


class TestTools:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("given_tool", TOOLS, ids=["BaseTool", "pydantic", "function", "schema", "built-in"])
    def test_every_kind_of_tool(self, family: Family, given_tool: Tool) -> None:
        """What create_agent accepts as a tool has a cost of tens of tokens."""
        meter = EstimatingMeter(family=family)
        base = meter.count_tools([search]).tokens
        count = meter.count_tools([search, given_tool])
        assert 8 <= count.tokens - base <= 200
        assert count.bytes > 0

    def test_no_tools_cost_nothing(self) -> None:
        """Without tools there is no prompt for tools."""
        assert EstimatingMeter(family="claude3").count_tools([]) == Count(tokens=0, bytes=0)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_twenty_large_schemas(self, family: Family) -> None:
        """20 tools with 6,000 characters of description each are seen as what they are (fault 6)."""
        tools = [
            StructuredTool.from_function(func=plain_function, name=f"tool_{n}", description=TEXT * 4) for n in range(20)
        ]
        assert 20_000 <= EstimatingMeter(family=family).count_tools(tools).tokens <= 45_000

    def test_no_tool(self) -> None:
        """What is no tool is refused with a clear error."""
        with pytest.raises(ConfigurationError, match="no tool"):
            EstimatingMeter().count_tools([3])  # type: ignore[list-item]

    def test_schema_that_refers_to_itself(self) -> None:
        """A cyclic schema has a finite cost."""
        node: dict[str, object] = {"type": "object", "properties": {}}
        node["properties"] = {"child": node, "children": {"type": "array", "items": node}}
        schema: dict[str, object] = {"name": "tree", "description": "A tree.", "parameters": node}
        assert EstimatingMeter(family="o200k").count_tools([schema]).tokens < 200_000


class TestExactMeter:
    def test_the_callable_decides(self) -> None:
        """Text is counted by the given callable, the frame by the family."""
        meter = ExactMeter(encode=words, family="claude48")
        assert meter.count(ToolMessage("one two three", tool_call_id="1")).tokens == 3 + 5
        assert meter.count_text("one two three") == 3

    @given(st.integers(min_value=1, max_value=60), st.text(alphabet="ab \n", max_size=400))
    def test_long_texts_in_pieces(self, longest: int, text: str) -> None:
        """A tokenizer never sees more than `longest` characters, and words are not lost at the seams."""
        longest_seen = 0

        def encode(piece: str) -> int:
            nonlocal longest_seen
            longest_seen = max(longest_seen, len(piece))
            return len(piece)

        assert ExactMeter(encode=encode, longest=longest).count_text(text) == len(text)
        assert longest_seen <= longest

    @pytest.mark.parametrize("model", ["gpt-4o", "gpt-4-turbo"])
    def test_tokenizer_of_openai(self, model: str) -> None:
        """With bpe-openai installed, OpenAI's models are counted exactly, long texts and special tokens included."""
        bpe = pytest.importorskip("bpe_openai")
        meter = tokenizer_meter(model)
        assert isinstance(meter, ExactMeter)
        encoding = bpe.get_encoding(f"{meter.family}_base")
        assert meter.count_text(TEXT) == len(encoding.encode(TEXT))
        assert meter.count_text("<|endoftext|>") > 1
        long = TEXT * 400
        assert meter.count_text(long) == pytest.approx(400 * meter.count_text(TEXT), rel=0.005)

    def test_other_models_are_estimated(self) -> None:
        """Where no tokenizer is known, the meter estimates for the model's family."""
        assert tokenizer_meter("claude-opus-4-8") == EstimatingMeter(family="claude48")


class TestFactor:
    @pytest.mark.parametrize("factor", [0.0, -1.0, 0.49, 5.01, float("nan"), float("inf")])
    def test_out_of_range(self, factor: float) -> None:
        """A factor that cannot be learned is refused."""
        with pytest.raises(ConfigurationError, match="factor"):
            EstimatingMeter(factor=factor)
        with pytest.raises(ConfigurationError, match="factor"):
            EstimatingMeter().scaled(factor)

    @given(st.integers(-10, 10**9), st.integers(-10, 10**9))
    def test_learned_factors_are_accepted(self, reported: int, estimated: int) -> None:
        """Whatever was reported, the learned factor is one that a meter takes."""
        factor = learned_factor(reported, estimated)
        assert LEAST_FACTOR <= factor <= MOST_FACTOR
        assert EstimatingMeter().scaled(factor).factor == factor

    def test_learning(self) -> None:
        """The factor makes the estimate the reported number."""
        assert learned_factor(1_300, 1_000) == 1.3
        assert learned_factor(0, 1_000) == learned_factor(10, 0) == 1.0
        assert learned_factor(10**9, 1) == MOST_FACTOR
        assert learned_factor(1, 10**9) == LEAST_FACTOR


KEYS = ["type", "text", "content", "source", "data", "id", "name", "input", "image_url", "value"]
TYPES = ["image", "tool_use", "tool_result", "thinking", "reasoning", "file", "non_standard"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(TYPES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


class TestNothingRaises:
    @given(
        st.lists(st.text(max_size=20) | st.dictionaries(st.sampled_from(KEYS), VALUES), max_size=4),
        st.sampled_from(FAMILIES),
    )
    def test_garbage_blocks(self, content: list[str | dict[str, object]], family: Family) -> None:
        """Any blocks in any message have a count."""
        meter = EstimatingMeter(family=family, upper_bound=True)
        for message in (HumanMessage(content), AIMessage(content), ToolMessage(content, tool_call_id="1")):
            count = meter.count(message)
            assert count.tokens >= 1
            assert count.bytes >= 1

    def test_deep_nesting(self) -> None:
        """A schema nested deeper than Python's stack has a count."""
        deep: object = "end"
        for _ in range(100_000):
            deep = [deep]
        schema: dict[str, object] = {"name": "f", "parameters": deep}
        assert EstimatingMeter(family="claude3").count_tools([schema]).tokens >= 346

    @given(histories())
    def test_upper_bound_is_above(self, history: list[BaseMessage]) -> None:
        """The upper bound of a message is never below its estimate."""
        estimate, upper = EstimatingMeter(family="qwen3"), EstimatingMeter(family="qwen3", upper_bound=True)
        assert all(upper.count(m).tokens >= estimate.count(m).tokens for m in history)


def test_meters_keep_the_protocol() -> None:
    """Both kinds of meter are a `Meter`."""
    meters: list[Meter] = [EstimatingMeter(), ExactMeter(encode=words)]
    assert [meter.count_text("") for meter in meters] == [0, 0]
