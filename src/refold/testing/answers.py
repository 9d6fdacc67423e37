"""How a provider delivers an answer: finish reasons, usage in its several places, and the chunks of a stream."""

import json
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from refold.core.blocks import blocks_of
from refold.core.validate import Provider

Finish: TypeAlias = Literal["stop", "tool_calls", "length"]

UsageStyle: TypeAlias = Literal["usage_metadata", "openai", "anthropic", "gemini", "none"]
"""Where usage is reported: LangChain's own field, or only in `response_metadata` under a provider's names."""

FINISH: Final[Mapping[Provider, Mapping[Finish, Mapping[str, object]]]] = {
    "openai_chat": {
        "stop": {"finish_reason": "stop", "model_provider": "openai"},
        "tool_calls": {"finish_reason": "tool_calls", "model_provider": "openai"},
        "length": {"finish_reason": "length", "model_provider": "openai"},
    },
    "openai_responses": {
        "stop": {"status": "completed", "model_provider": "openai"},
        "tool_calls": {"status": "completed", "model_provider": "openai"},
        "length": {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "model_provider": "openai",
        },
    },
    "anthropic": {
        "stop": {"stop_reason": "end_turn", "model_provider": "anthropic"},
        "tool_calls": {"stop_reason": "tool_use", "model_provider": "anthropic"},
        "length": {"stop_reason": "max_tokens", "model_provider": "anthropic"},
    },
    "gemini": {
        "stop": {"finish_reason": "STOP", "model_provider": "google_genai"},
        "tool_calls": {"finish_reason": "STOP", "model_provider": "google_genai"},
        "length": {"finish_reason": "MAX_TOKENS", "model_provider": "google_genai"},
    },
}
"""What each provider's LangChain package puts into `response_metadata` when an answer ends."""


def stamped(answer: AIMessage, metadata: Mapping[str, object]) -> AIMessage:
    """The answer with metadata under its own; what the script says wins."""
    return answer.model_copy(update={"response_metadata": {**metadata, **answer.response_metadata}})


def reported(answer: AIMessage, style: UsageStyle, *, spent: tuple[int, int], cached: int) -> AIMessage:
    """The answer with its usage: (input, output) tokens, `cached` of the input read from the cache."""
    sent, made = spent
    match style:
        case "usage_metadata":
            details = InputTokenDetails(cache_read=cached)
            usage = UsageMetadata(
                input_tokens=sent, output_tokens=made, total_tokens=sent + made, input_token_details=details
            )
            return answer.model_copy(update={"usage_metadata": usage})
        case "openai":
            tokens = {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}
            return stamped(answer, {"token_usage": tokens})
        case "anthropic":
            split = {"input_tokens": sent - cached, "cache_read_input_tokens": cached, "output_tokens": made}
            return stamped(answer, {"usage": split})
        case "gemini":
            counts = {"prompt_token_count": sent, "candidates_token_count": made, "total_token_count": sent + made}
            return stamped(answer, {"usage_metadata": counts})
        case "none":
            return answer


def cut_to(answer: AIMessage, characters: int) -> AIMessage:
    """The answer as the output limit leaves it: the beginning of its text, and no calls."""
    content: str | list[object] = answer.content[:characters] if isinstance(answer.content, str) else []
    if isinstance(content, list):
        left = characters
        for block in blocks_of(answer):
            if block.kind == "call" or left <= 0:
                break
            raw = block.raw
            if block.kind == "text" and not isinstance(raw, str):
                raw = {**raw, "text": block.text[:left]}
                left -= len(block.text)
            content.append(raw)
    return answer.model_copy(update={"content": content, "tool_calls": [], "invalid_tool_calls": []})


def chunks_of(answer: AIMessage, size: int) -> Iterator[AIMessageChunk]:
    """The answer as a stream: text in pieces of `size` characters, blocks whole, arguments in pieces, usage last.

    Joined, the chunks give the answer again (blocks keep the `index` that providers add to join them by).
    """
    if isinstance(answer.content, str):
        for piece in _pieces(answer.content, size):
            yield AIMessageChunk(content=piece, id=answer.id)
    else:
        for block in blocks_of(answer):
            raw = {"type": "text", "text": block.raw} if isinstance(block.raw, str) else dict(block.raw)
            yield AIMessageChunk(content=[{**raw, "index": block.index}], id=answer.id)
    for chunk in _call_chunks(answer, size):
        yield AIMessageChunk(content="", tool_call_chunks=[chunk], id=answer.id)
    yield AIMessageChunk(
        content="" if isinstance(answer.content, str) else [],
        id=answer.id,
        additional_kwargs=answer.additional_kwargs,
        response_metadata=answer.response_metadata,
        usage_metadata=answer.usage_metadata,
        chunk_position="last",
    )


def _call_chunks(answer: AIMessage, size: int) -> Iterator[ToolCallChunk]:
    calls = [(c.get("id"), c["name"], json.dumps(c["args"], ensure_ascii=False)) for c in answer.tool_calls]
    calls += [(c.get("id"), c.get("name") or "", c.get("args") or "") for c in answer.invalid_tool_calls]
    for index, (call_id, name, args) in enumerate(calls):
        yield tool_call_chunk(id=call_id, name=name, args="", index=index)
        for piece in _pieces(args, size):
            yield tool_call_chunk(args=piece, index=index)


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]
