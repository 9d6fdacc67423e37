"""Token usage as providers report it, under any of their names, in one form.

LangChain fills `usage_metadata` for most providers; the others leave their own words in `response_metadata`. The two
traps are zero (a stream that reported nothing; not "no tokens") and the cache: OpenAI, Gemini and LangChain count
cached tokens inside the input, Anthropic and Bedrock beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from langchain_core.messages import AIMessage, BaseMessage

LARGEST: Final = 100_000_000
"""No model reads more; a larger number is no usage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one model call. `input` is all that the model read, cached or not; `output` all that it wrote.

    `cache_read` and `cache_write` are parts of `input`, `reasoning` is a part of `output`.
    """

    input: int
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def context(self) -> int:
        """What the conversation holds after the call: input and output."""
        return self.input + self.output


@dataclass(frozen=True, kw_only=True)
class _Spelling:
    """One provider's words. `beside` names cache counts that its input does not include."""

    input: tuple[str, ...]
    output: tuple[str, ...] = ()
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    beside: bool = False


_READ: Final = ("cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount")
_WRITE: Final = (
    "cache_creation_input_tokens",
    "cacheWriteInputTokens",
    "cacheCreationInputTokens",
    "cacheWriteInputTokenCount",
)
_SPELLINGS: Final = (
    # OpenAI Chat and what is compatible with it; DeepSeek and Moonshot with their own cache counts; LiteLLM adds
    # Anthropic's names, but counts them inside.
    _Spelling(
        input=("prompt_tokens", "promptTokens"),
        output=("completion_tokens", "completionTokens", "response_tokens"),
        cache_read=(
            "prompt_tokens_details.cached_tokens",
            "promptTokensDetails.cachedTokens",
            "prompt_cache_hit_tokens",
            "cached_tokens",
            *_READ,
        ),
        cache_write=("prompt_tokens_details.cache_write_tokens", *_WRITE),
        reasoning=("completion_tokens_details.reasoning_tokens", "completionTokensDetails.reasoningTokens"),
    ),
    # LangChain's usage_metadata and OpenAI Responses; DashScope.
    _Spelling(
        input=("input_tokens", "inputTokens", "inputTokenCount", "input_token_count"),
        output=("output_tokens", "outputTokens", "outputTokenCount", "generated_token_count"),
        cache_read=(
            "input_token_details.cache_read",
            "input_tokens_details.cached_tokens",
            "prompt_tokens_details.cached_tokens",
        ),
        cache_write=("input_token_details.cache_creation",),
        reasoning=("output_token_details.reasoning", "output_tokens_details.reasoning_tokens"),
    ),
    # Anthropic; Bedrock Converse and its invocation metrics.
    _Spelling(
        input=("input_tokens", "inputTokens", "inputTokenCount"),
        output=("output_tokens", "outputTokens", "outputTokenCount"),
        cache_read=_READ,
        cache_write=_WRITE,
        beside=True,
    ),
    # Gemini, in both spellings. Thoughts are not among the candidates' tokens.
    _Spelling(
        input=("promptTokenCount", "prompt_token_count"),
        output=("candidatesTokenCount", "candidates_token_count"),
        cache_read=("cachedContentTokenCount", "cached_content_token_count"),
        reasoning=("thoughtsTokenCount", "thoughts_token_count"),
    ),
    # Ollama.
    _Spelling(input=("prompt_eval_count",), output=("eval_count",)),
    # llama.cpp's own endpoint.
    _Spelling(input=("tokens_evaluated",), output=("tokens_predicted",), cache_read=("tokens_cached",)),
)
_PLACES: Final = (
    "token_usage",
    "usage",
    "usage_metadata",
    "usageMetadata",
    "token_count",
    "tokens",
    "amazon-bedrock-invocationMetrics",
    "metrics",
    "meta",
)


def read_usage(message: BaseMessage) -> Usage | None:
    """The usage that came with an answer, or None when there is none that can be true.

    None also for zero, negative, missing or absurd input: a stream without usage must not look like an empty context.
    """
    if not isinstance(message, AIMessage):
        return None
    if message.usage_metadata is not None and (usage := _usage(message.usage_metadata)) is not None:
        return usage
    for place in _nested(message.response_metadata, depth=3):
        if (usage := _usage(place)) is not None:
            return usage
    return None


def _nested(place: object, *, depth: int) -> Iterator[Mapping[str, object]]:
    """A mapping and the usage that may lie in it, outermost first."""
    if not isinstance(place, Mapping):
        return
    yield place
    if depth:
        for name in _PLACES:
            yield from _nested(place.get(name), depth=depth - 1)


def _usage(place: Mapping[str, object]) -> Usage | None:
    matching = [s for s in _SPELLINGS if any(_found(place, name) is not None for name in s.input)]
    # Of two spellings with the same word for input, the one whose cache counts are there.
    matching.sort(key=lambda s: all(_found(place, name) is None for name in (*s.cache_read, *s.cache_write)))
    if not matching:
        return None
    words = matching[0]
    counts = [_first(place, names) for names in (words.input, words.output, words.cache_read, words.cache_write)]
    reasoning = _first(place, words.reasoning)
    if None in counts or reasoning is None:
        return None
    read, written, cache_read, cache_write = (count or 0 for count in counts)
    if words.beside or cache_read + cache_write > read:  # a part cannot exceed the whole: it stands beside
        read += cache_read + cache_write
    if words.output[0] == "candidatesTokenCount":
        written += reasoning
        read += _first(place, ("toolUsePromptTokenCount", "tool_use_prompt_token_count")) or 0
    if not 0 < read <= LARGEST or written > LARGEST:
        return None
    return Usage(
        input=read,
        output=written,
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=min(reasoning, written),
    )


def _first(place: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    """The first count under any of the names; 0 when there is none, None when one is nonsense."""
    for name in names:
        value = _found(place, name)
        if value is not None:
            return int(value) if _is_count(value) else None
    return 0


def _found(place: Mapping[str, object], path: str) -> object | None:
    value: object = place
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _is_count(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == value and 0 <= value < float("inf") and value == int(value)
