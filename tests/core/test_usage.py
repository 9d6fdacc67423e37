"""Usage: whatever a provider calls it, the same four numbers come out, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage

from refold.core.usage import LARGEST, Usage, read_usage


def answer(**metadata: object) -> AIMessage:
    return AIMessage("ok", response_metadata=metadata)


REPORTED = [
    pytest.param(
        {
            "token_usage": {
                "prompt_tokens": 1_000,
                "completion_tokens": 50,
                "total_tokens": 1_050,
                "prompt_tokens_details": {"cached_tokens": 600, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 20},
            }
        },
        Usage(input=1_000, output=50, cache_read=600, reasoning=20),
        id="OpenAI Chat, Mistral, Groq, vLLM",
    ),
    pytest.param(
        {
            "usage": {
                "input_tokens": 1_000,
                "output_tokens": 50,
                "input_tokens_details": {"cached_tokens": 600},
                "output_tokens_details": {"reasoning_tokens": 20},
            }
        },
        Usage(input=1_000, output=50, cache_read=600, reasoning=20),
        id="OpenAI Responses",
    ),
    pytest.param(
        {
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": 300,
                "cache_read_input_tokens": 4_000,
                "output_tokens": 50,
                "service_tier": "standard",
            }
        },
        Usage(input=4_312, output=50, cache_read=4_000, cache_write=300),
        id="Anthropic: cached tokens stand beside the input",
    ),
    pytest.param(
        {"usage": {"input_tokens": 12, "cache_creation_input_tokens": None, "output_tokens": 50}},
        Usage(input=12, output=50),
        id="Anthropic without a cache",
    ),
    pytest.param(
        {"usage": {"inputTokens": 12, "outputTokens": 5, "totalTokens": 217, "cacheReadInputTokens": 200}},
        Usage(input=212, output=5, cache_read=200),
        id="Bedrock Converse",
    ),
    pytest.param(
        {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 12, "outputTokenCount": 5, "invocationLatency": 90}},
        Usage(input=12, output=5),
        id="Bedrock invocation metrics",
    ),
    pytest.param(
        {
            "usageMetadata": {
                "promptTokenCount": 900,
                "candidatesTokenCount": 40,
                "thoughtsTokenCount": 60,
                "cachedContentTokenCount": 500,
                "toolUsePromptTokenCount": 30,
            }
        },
        Usage(input=930, output=100, cache_read=500, reasoning=60),
        id="Gemini REST: thoughts beside the candidates",
    ),
    pytest.param(
        {"usage_metadata": {"prompt_token_count": 900, "candidates_token_count": 40, "thoughts_token_count": 60}},
        Usage(input=900, output=100, reasoning=60),
        id="Gemini SDK",
    ),
    pytest.param(
        {"model": "llama3", "prompt_eval_count": 26, "eval_count": 298, "prompt_eval_duration": 130_079_000},
        Usage(input=26, output=298),
        id="Ollama",
    ),
    pytest.param(
        {"token_usage": {"prompt_tokens": 700, "completion_tokens": 9, "prompt_cache_hit_tokens": 640}},
        Usage(input=700, output=9, cache_read=640),
        id="DeepSeek",
    ),
    pytest.param(
        {"usage": {"prompt_tokens": 700, "completion_tokens": 9, "cached_tokens": 640}},
        Usage(input=700, output=9, cache_read=640),
        id="Moonshot",
    ),
    pytest.param(
        {"token_usage": {"input_tokens": 700, "output_tokens": 9, "prompt_tokens_details": {"cached_tokens": 640}}},
        Usage(input=700, output=9, cache_read=640),
        id="DashScope",
    ),
    pytest.param(
        {
            "token_usage": {
                "prompt_tokens": 5_000,
                "completion_tokens": 9,
                "cache_creation_input_tokens": 300,
                "cache_read_input_tokens": 4_000,
            }
        },
        Usage(input=5_000, output=9, cache_read=4_000, cache_write=300),
        id="LiteLLM: Anthropic's names, counted inside",
    ),
    pytest.param(
        {"token_count": {"prompt_tokens": 70, "response_tokens": 9, "total_tokens": 79}},
        Usage(input=70, output=9),
        id="Cohere v1",
    ),
    pytest.param(
        {"usage": {"billed_units": {"input_tokens": 3}, "tokens": {"input_tokens": 70, "output_tokens": 9}}},
        Usage(input=70, output=9),
        id="Cohere v2: what was read, not what was billed",
    ),
    pytest.param({"input_token_count": 70, "generated_token_count": 9}, Usage(input=70, output=9), id="watsonx"),
    pytest.param({"tokens_evaluated": 70, "tokens_predicted": 9}, Usage(input=70, output=9), id="llama.cpp"),
]


class TestEveryNameIsRead:
    @pytest.mark.parametrize(("metadata", "expected"), REPORTED)
    def test_response_metadata(self, metadata: dict[str, object], expected: Usage) -> None:
        """Usage under a provider's own field names is found (fault 92)."""
        assert read_usage(answer(**metadata)) == expected

    def test_usage_metadata_comes_first(self) -> None:
        """LangChain's normalised usage wins over the raw one: its input already holds the cached tokens."""
        message = AIMessage(
            "ok",
            usage_metadata={
                "input_tokens": 4_312,
                "output_tokens": 50,
                "total_tokens": 4_362,
                "input_token_details": {"cache_read": 4_000, "cache_creation": 300},
                "output_token_details": {"reasoning": 7},
            },
            response_metadata={"usage": {"input_tokens": 12, "cache_read_input_tokens": 4_000, "output_tokens": 50}},
        )
        expected = Usage(input=4_312, output=50, cache_read=4_000, cache_write=300, reasoning=7)
        assert read_usage(message) == expected
        assert expected.context == 4_362

    def test_useless_usage_metadata_falls_through(self) -> None:
        """Zeros in `usage_metadata` do not hide the true numbers in `response_metadata`."""
        message = AIMessage(
            "ok",
            usage_metadata={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
            response_metadata={"token_usage": {"prompt_tokens": 10, "completion_tokens": 2}},
        )
        assert read_usage(message) == Usage(input=10, output=2)

    def test_cache_larger_than_input(self) -> None:
        """A part cannot exceed the whole: where an integration left the cache out of its input, it is added."""
        message = AIMessage(
            "ok",
            usage_metadata={
                "input_tokens": 12,
                "output_tokens": 5,
                "total_tokens": 17,
                "input_token_details": {"cache_read": 4_000},
            },
        )
        assert read_usage(message) == Usage(input=4_012, output=5, cache_read=4_000)


class TestNoUsageIsNone:
    @pytest.mark.parametrize(
        "metadata",
        [
            {},
            {"token_usage": None},
            {"token_usage": {}},
            {"token_usage": {"prompt_tokens": 0, "completion_tokens": 0}},
            {"token_usage": {"prompt_tokens": None, "completion_tokens": None}},
            {"token_usage": {"prompt_tokens": -5, "completion_tokens": 1}},
            {"token_usage": {"prompt_tokens": 10, "completion_tokens": -1}},
            {"token_usage": {"prompt_tokens": "many"}},
            {"token_usage": {"prompt_tokens": True}},
            {"token_usage": {"prompt_tokens": float("nan")}},
            {"token_usage": {"prompt_tokens": float("inf")}},
            {"token_usage": {"prompt_tokens": 1.5}},
            {"token_usage": {"prompt_tokens": LARGEST + 1}},
            {"token_usage": [1, 2]},
            {"usage": "12 tokens"},
            {"total_tokens": 70},
        ],
    )
    def test_nonsense(self, metadata: dict[str, object]) -> None:
        """Zero, negative, missing and absurd numbers are no usage, so they never look like an empty context."""
        assert read_usage(answer(**metadata)) is None

    def test_streamed_without_usage(self) -> None:
        """Chunks whose `usage_metadata` is None on all give None (fault 91)."""
        whole = AIMessageChunk("a") + AIMessageChunk("b")
        assert read_usage(whole) is None

    def test_other_messages(self) -> None:
        """Only answers of a model carry usage."""
        usage = {"token_usage": {"prompt_tokens": 10}}
        assert read_usage(HumanMessage("hi", response_metadata=usage)) is None
        assert read_usage(ToolMessage("hi", tool_call_id="1", response_metadata=usage)) is None

    @given(
        st.dictionaries(
            st.sampled_from(["usage", "token_usage", "prompt_tokens", "input_tokens", "tokens", "meta"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(st.sampled_from(["usage", "prompt_tokens", "input_tokens"]), inner, max_size=3)
                ),
                max_leaves=6,
            ),
        )
    )
    def test_any_metadata(self, metadata: dict[str, object]) -> None:
        """Whatever is in the metadata, the answer is None or a usage with a positive input that fits a model."""
        usage = read_usage(answer(**metadata))
        assert usage is None or (0 < usage.input <= LARGEST and 0 <= usage.reasoning <= usage.output)
