"""Token usage as providers report it, under any of their names, in one form.

LangChain fills `usage_metadata` for most providers; the others leave their own words in `response_metadata`. The two
traps are zero (a stream that reported nothing; not "no tokens") and the cache: OpenAI, Gemini and LangChain count
cached tokens inside the input, Anthropic and Bedrock beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

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


_Names: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Spelling:
    """One provider's words, each a path of keys. `beside`: the input does not include the cache counts."""

    input: _Names
    output: _Names
    cache_read: _Names = ()
    cache_write: _Names = ()
    reasoning: _Names = ()
    beside: bool = False


def _names(*paths: str) -> _Names:
    return tuple(tuple(path.split(".")) for path in paths)


_READ: Final = _names("cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount")
_WRITE: Final = _names(
    "cache_creation_input_tokens", "cacheWriteInputTokens", "cacheCreationInputTokens", "cacheWriteInputTokenCount"
)
_LANGCHAIN: Final = _Spelling(
    # usage_metadata, and OpenAI Responses and DashScope, which use the same words.
    input=_names("input_tokens", "inputTokens", "inputTokenCount", "input_token_count"),
    output=_names("output_tokens", "outputTokens", "outputTokenCount", "generated_token_count"),
    cache_read=_names(
        "input_token_details.cache_read",
        "input_tokens_details.cached_tokens",
        "prompt_tokens_details.cached_tokens",
    ),
    cache_write=_names("input_token_details.cache_creation"),
    reasoning=_names("output_token_details.reasoning", "output_tokens_details.reasoning_tokens"),
)
_GEMINI: Final = _Spelling(
    # In both spellings. Thoughts are not among the candidates' tokens.
    input=_names("promptTokenCount", "prompt_token_count"),
    output=_names("candidatesTokenCount", "candidates_token_count"),
    cache_read=_names("cachedContentTokenCount", "cached_content_token_count"),
    reasoning=_names("thoughtsTokenCount", "thoughts_token_count"),
)
_GEMINI_TOOLS: Final = _names("toolUsePromptTokenCount", "tool_use_prompt_token_count")
_SPELLINGS: Final = (
    # OpenAI Chat and what is compatible with it; DeepSeek and Moonshot with their own cache counts; LiteLLM adds
    # Anthropic's names, but counts them inside.
    _Spelling(
        input=_names("prompt_tokens", "promptTokens"),
        output=_names("completion_tokens", "completionTokens", "response_tokens"),
        cache_read=(
            *_names(
                "prompt_tokens_details.cached_tokens",
                "promptTokensDetails.cachedTokens",
                "prompt_cache_hit_tokens",
                "cached_tokens",
            ),
            *_READ,
        ),
        cache_write=(*_names("prompt_tokens_details.cache_write_tokens"), *_WRITE),
        reasoning=_names("completion_tokens_details.reasoning_tokens", "completionTokensDetails.reasoningTokens"),
    ),
    _LANGCHAIN,
    # Anthropic; Bedrock Converse and its invocation metrics.
    _Spelling(
        input=_names("input_tokens", "inputTokens", "inputTokenCount"),
        output=_names("output_tokens", "outputTokens", "outputTokenCount"),
        cache_read=_READ,
        cache_write=_WRITE,
        beside=True,
    ),
    _GEMINI,
    # Ollama.
    _Spelling(input=_names("prompt_eval_count"), output=_names("eval_count")),
    # llama.cpp's own endpoint.
    _Spelling(input=_names("tokens_evaluated"), output=_names("tokens_predicted"), cache_read=_names("tokens_cached")),
)
_INPUT_WORDS: Final = frozenset(name[0] for words in _SPELLINGS for name in words.input)
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
    if message.usage_metadata is not None and (usage := _usage(message.usage_metadata, _LANGCHAIN)) is not None:
        return usage
    for place in _nested(message.response_metadata, depth=3):
        if (words := _spelling(place)) is not None and (usage := _usage(place, words)) is not None:
            return usage
    return None


def _nested(place: object, *, depth: int) -> Iterator[Mapping[str, object]]:
    """A mapping and the usage that may lie in it, outermost first."""
    if not isinstance(place, Mapping):
        return
    yield place
    if depth:
        for name in _PLACES:
            if name in place:
                yield from _nested(place[name], depth=depth - 1)


def _spelling(place: Mapping[str, object]) -> _Spelling | None:
    """Whose words these are; of two spellings with the same word for input, the one whose cache counts are there."""
    if _INPUT_WORDS.isdisjoint(place):
        return None
    matching = [words for words in _SPELLINGS if any(name[0] in place for name in words.input)]
    for words in matching:
        if any(_found(place, name) is not None for name in (*words.cache_read, *words.cache_write)):
            return words
    return matching[0] if matching else None


def _usage(place: Mapping[str, object], words: _Spelling) -> Usage | None:
    read, written = _first(place, words.input), _first(place, words.output)
    cache_read, cache_write = _first(place, words.cache_read), _first(place, words.cache_write)
    reasoning = _first(place, words.reasoning)
    if read is None or written is None or cache_read is None or cache_write is None or reasoning is None:
        return None
    if words is _GEMINI:
        written += reasoning
        read += _first(place, _GEMINI_TOOLS) or 0
    if not read and not words.beside:
        return None
    if words.beside or cache_read + cache_write > read:  # a part cannot exceed the whole: it stands beside
        read += cache_read + cache_write
    if not 0 < read <= LARGEST or written > LARGEST:
        return None
    return Usage(
        input=read, output=written, cache_read=cache_read, cache_write=cache_write, reasoning=min(reasoning, written)
    )


def _first(place: Mapping[str, object], names: _Names) -> int | None:
    """The first count under any of the names; 0 when there is none, None when one is nonsense."""
    for name in names:
        value = _found(place, name)
        if value is not None:
            return int(value) if _is_count(value) else None
    return 0


def _found(place: Mapping[str, object], name: tuple[str, ...]) -> object | None:
    value = place.get(name[0])
    for key in name[1:]:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _is_count(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == value and 0 <= value < float("inf") and value == int(value)
