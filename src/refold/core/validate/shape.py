"""What the rules look at: each message read once, and the questions that several providers ask of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.blocks import Block, blocks_of, unwrapped
from refold.core.messages import Call, answers_of, calls_of, role_of

Role: TypeAlias = Literal["system", "human", "ai", "tool", "other"]

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""The widest set of tool names that any of the four takes (Gemini adds dot and colon to the others' set)."""

GEMINI_SIGNATURES: Final = "__gemini_function_call_thought_signatures__"
"""Where langchain-google-genai keeps thought signatures: a map from call id, in `additional_kwargs`."""

_CARRIERS = ("audio", "function_call", "refusal", "tool_outputs", "tool_calls")
"""Keys of `additional_kwargs` that langchain-openai sends as content of an otherwise empty message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """A rule that a window breaks: which rule, at which message of the list, and in words for the reader."""

    rule: str
    index: int
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One message as the rules see it. `blocks` is empty for plain string content."""

    message: BaseMessage
    role: Role
    calls: tuple[Call, ...]
    answers: tuple[str, ...]
    blocks: tuple[Block, ...]


def shapes_of(messages: Sequence[BaseMessage]) -> tuple[Shape, ...]:
    """Read every message once."""
    return tuple(
        Shape(
            message=message,
            role=role_of(message),
            calls=calls_of(message),
            answers=answers_of(message),
            blocks=() if isinstance(message.content, str) else blocks_of(message),
        )
        for message in messages
    )


def made_by(message: BaseMessage) -> str | None:
    """The provider that LangChain's partner packages stamp on an answer (`openai`, `anthropic`, `google_genai`)."""
    provider = message.response_metadata.get("model_provider")
    return provider if isinstance(provider, str) else None


def is_blank(message: BaseMessage, blocks: Sequence[Block]) -> bool:
    """Whether a message shows nothing: no text but white space, and no other block."""
    if isinstance(message.content, str):
        return not message.content.strip()
    return all(block.kind == "text" and not block.text.strip() for block in blocks)


def is_void(message: BaseMessage, blocks: Sequence[Block], calls: Sequence[Call]) -> bool:
    """Whether an AI message says and asks nothing: no call, no text, at most reasoning."""
    if calls or not isinstance(message, AIMessage) or any(key in message.additional_kwargs for key in _CARRIERS):
        return False
    if isinstance(message.content, str):
        return not message.content.strip()
    return all(block.kind == "reasoning" or (block.kind == "text" and not block.text.strip()) for block in blocks)


def is_signed_thinking(block: Block) -> bool:
    """Whether Anthropic made the block and checks it by its signature, in its own or the standard spelling."""
    raw = unwrapped(block)
    if block.type == "redacted_thinking":
        return True
    if block.type == "thinking":
        return bool(raw.get("signature"))
    extras = raw.get("extras")
    return block.type == "reasoning" and isinstance(extras, Mapping) and bool(extras.get("signature"))


def is_unsigned_thinking(message: BaseMessage, block: Block) -> bool:
    """Whether Anthropic refuses a thinking block: no signature, or the empty one of a stream that was cut off.

    An empty signature on a finished answer is left alone: servers that speak Anthropic's dialect sign that way.
    """
    if block.type != "thinking" or made_by(message) not in (None, "anthropic"):
        return False
    signature = unwrapped(block).get("signature")
    cut_off = made_by(message) == "anthropic" and not message.response_metadata.get("stop_reason")
    return signature is None or (signature == "" and cut_off)


def is_reasoning_item(block: Block) -> bool:
    """Whether a reasoning block is an item of OpenAI Responses, which pairs it with the item after it."""
    raw = unwrapped(block)
    if block.type != "reasoning":
        return False
    return (
        str(raw.get("id") or "").startswith("rs_") or "encrypted_content" in raw or isinstance(raw.get("summary"), list)
    )


def item_id(block: Block) -> str | None:
    """The id of a Responses item, as OpenAI gave it (`rs_`, `msg_`, `fc_`, ...); LangChain's own ids do not count."""
    raw = unwrapped(block)
    extras = raw.get("extras")
    value = extras.get("item_id") if block.type == "tool_call" and isinstance(extras, Mapping) else raw.get("id")
    if not isinstance(value, str) or block.type == "tool_use":
        return None
    return value if _ITEM_ID.match(value) else None


_ITEM_ID = re.compile(r"(rs|msg|fc|ctc|ws|fs|ci|ig|mcp|mcpl|mcpr|cu|lsh|sh|apc|cmp)_")


def trailing_reasoning(shape: Shape) -> frozenset[int]:
    """The blocks of bound reasoning that end a message, so that what they led to is missing.

    OpenAI wants an item after a reasoning item, Anthropic a text or call after thinking (it gets no blank texts).
    Calls that stand only in `tool_calls` are sent after the content, so they count.
    """
    found: set[int] = set()
    if any(call.block is None for call in shape.calls):
        return frozenset()
    blank = False
    for block in reversed(shape.blocks):
        if is_signed_thinking(block) or (is_reasoning_item(block) and not blank):
            found.add(block.index)
        elif block.kind == "text" and not block.text.strip():
            blank = True
        else:
            break
    return frozenset(found)


def lacks_reasoning(shape: Shape) -> bool:
    """Whether a Responses message was made with reasoning that is no longer there, although its item ids are.

    OpenAI remembers which reasoning item an id belongs to and refuses it alone. What tells from outside is that the
    answer reported reasoning tokens (`usage_metadata`).
    """
    message = shape.message
    if not isinstance(message, AIMessage) or message.usage_metadata is None or "reasoning" in message.additional_kwargs:
        return False
    if not message.usage_metadata.get("output_token_details", {}).get("reasoning"):
        return False
    has_item = any(is_reasoning_item(block) for block in shape.blocks)
    return not has_item and any(item_id(block) is not None for block in shape.blocks)


def thought_signed(shape: Shape) -> bool:
    """Whether some call of an AI message carries a Gemini thought signature, wherever it is kept."""
    signatures = shape.message.additional_kwargs.get(GEMINI_SIGNATURES)
    if isinstance(signatures, Mapping) and signatures:
        return True
    for block in shape.blocks:
        raw = unwrapped(block)
        extras = raw.get("extras")
        inside = isinstance(extras, Mapping) and extras.get("signature")
        if block.kind == "call" and (raw.get("thought_signature") or raw.get("thoughtSignature") or inside):
            return True
        if block.type == "function_call_signature":
            return True
    return False
