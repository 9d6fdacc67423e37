"""Token counters for tests: exact, simple, and not refold's own estimate."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.blocks import blocks_of
from refold.core.canonical import canonical_bytes

Counter: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[Mapping[str, object]]], int]
"""Tokens of messages and tool schemas together."""

MESSAGE_OVERHEAD: Final = 4
MEDIA_TOKENS: Final = 800


def utf8_quarter(messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, object]]) -> int:
    """UTF-8 bytes / 4, rounded up per message, plus 4 per message; a picture or file is 800, however large.

    Text, visible reasoning, names and arguments count; signatures and encrypted reasoning do not. Tool schemas count as
    their JSON. For English that is close to OpenAI's tokenizers; for Chinese, Japanese and Korean it is 0.75 a
    character.
    """
    schemas = -(-len(canonical_bytes(list(tools))) // 4) if tools else 0
    return schemas + sum(map(_message_tokens, messages))


def _message_tokens(message: BaseMessage) -> int:
    size, media = 0, 0
    for block in blocks_of(message):
        match block.kind:
            case "text" | "reasoning":
                size += _bytes(block.text)
            case "media":
                media += 1
            case "call":
                pass  # counted with `tool_calls`, which every provider is sent
            case _:
                size += len(canonical_bytes(block.raw))
    if isinstance(message, AIMessage):
        size += sum(_bytes(call["name"]) + len(canonical_bytes(call["args"])) for call in message.tool_calls)
        size += sum(_bytes(call["name"]) + _bytes(call["args"]) for call in message.invalid_tool_calls)
    reasoning = message.additional_kwargs.get("reasoning_content")
    size += _bytes(reasoning if isinstance(reasoning, str) else "")
    return MESSAGE_OVERHEAD + MEDIA_TOKENS * media - (-size // 4)


def _bytes(text: str | None) -> int:
    return len((text or "").encode("utf-8", "surrogatepass"))
