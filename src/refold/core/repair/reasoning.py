"""Reasoning that a provider binds to its context: taken out whole, with all that would be refused without it."""

from collections.abc import Callable, Mapping
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.blocks import Block, blocks_of, unwrapped
from refold.core.messages import calls_of, with_content
from refold.core.per_message import PerMessage
from refold.core.validate.shape import is_reasoning_item, is_signed_thinking, is_void, item_id

EMPTY_ANSWER: Final = "(empty answer)"
"""What an AI message that says and asks nothing shows, since providers refuse it empty."""

_LEGACY = ("reasoning", "__openai_function_call_ids__")
"""Where langchain-openai's v0 format keeps a reasoning item and the ids that belong to it, in `additional_kwargs`."""


def drop_bound_reasoning(message: BaseMessage) -> BaseMessage:
    """A copy of an AI message without the reasoning that its provider binds to context which is gone.

    - OpenAI Responses: reasoning items, and with them the ids (`msg_`, `fc_`, ...) of the message's other items and
      server-side calls, which OpenAI refuses without the reasoning that they came from (fault 62).
    - Anthropic: signed `thinking` and `redacted_thinking` blocks, whole, never shortened (fault 66).
    - Gemini: nothing of its calls. Thought signatures stay on them (fault 67).

    Texts and calls keep their content. A message without such reasoning is returned as the very same object, so it is
    safe on any message. It is for messages before the newest human message: with thinking switched on, Anthropic wants
    the thinking of the tool loop that is still open ("must start with a thinking block").
    """
    if not isinstance(message, AIMessage):
        return message
    blocks = () if isinstance(message.content, str) else blocks_of(message)
    items = "reasoning" in message.additional_kwargs or any(map(is_reasoning_item, blocks))
    if items:
        message = detached(message)
        blocks = () if isinstance(message.content, str) else blocks_of(message)
    if any(map(is_signed_thinking, blocks)):
        message = without_blocks(message, is_signed_thinking)
    return message


def unchained(message: BaseMessage) -> BaseMessage:
    """An answer of the Responses API without its response id; any other message as it is.

    With `use_previous_response_id` langchain-openai sends only what follows the newest answer that has one: the server
    keeps the rest, and keeps it as it was before the fold. Without the ids the folded window is sent whole, once; the
    answer to it begins the next chain.
    """
    if isinstance(message, AIMessage) and str(message.response_metadata.get("id", "")).startswith("resp_"):
        return _UNCHAINED(message)
    return message


def _without_response_id(message: BaseMessage) -> BaseMessage:
    metadata = {key: value for key, value in message.response_metadata.items() if key != "id"}
    return message.model_copy(update={"response_metadata": metadata})


_UNCHAINED: Final = PerMessage(_without_response_id)


def detached(message: AIMessage) -> AIMessage:
    """A Responses message as plain content: no reasoning items, no item ids, no server-side calls bound to them."""
    update: dict[str, object] = {}
    if any(key in message.additional_kwargs for key in _LEGACY):
        kwargs = {key: value for key, value in message.additional_kwargs.items() if key not in _LEGACY}
        update["additional_kwargs"] = kwargs
        if str(message.response_metadata.get("id") or "").startswith("resp_") and str(message.id).startswith("msg_"):
            metadata = {key: value for key, value in message.response_metadata.items() if key != "id"}
            update["response_metadata"] = metadata
    if not isinstance(message.content, str):
        kept = [block for block in blocks_of(message) if not is_reasoning_item(block) and not _bound_server_call(block)]
        update["content"] = [_without_id(block) for block in kept]
    return _spoken(message.model_copy(update=update))


def without_blocks(message: AIMessage, unwanted: Callable[[Block], bool]) -> AIMessage:
    """A copy without some blocks; it says `EMPTY_ANSWER` where nothing would be left."""
    kept = [block.raw for block in blocks_of(message) if not unwanted(block)]
    changed = with_content(message, kept)
    assert isinstance(changed, AIMessage)
    return _spoken(changed)


def _spoken(message: AIMessage) -> AIMessage:
    blocks = () if isinstance(message.content, str) else blocks_of(message)
    if not is_void(message, blocks, calls_of(message)):
        return message
    return message.model_copy(update={"content": EMPTY_ANSWER})


def _bound_server_call(block: Block) -> bool:
    return block.kind == "server_call" and item_id(block) is not None


def _without_id(block: Block) -> object:
    if item_id(block) is None or isinstance(block.raw, str) or block.kind not in ("text", "call"):
        return block.raw
    inner = unwrapped(block)
    bare: dict[str, object] = {key: value for key, value in inner.items() if key != "id" or block.type == "tool_call"}
    if isinstance(extras := bare.get("extras"), Mapping):
        bare["extras"] = {key: value for key, value in extras.items() if key != "item_id"}
    return {**block.raw, "value": bare} if inner is not block.raw else bare
