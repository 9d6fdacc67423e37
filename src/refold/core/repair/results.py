"""The results that a repaired view shows: synthetic ones for unanswered calls, real ones under their call's id."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from refold.core.blocks import Block, blocks_of, unwrapped
from refold.core.canonical import derived_id
from refold.core.messages import REFOLD_KEY, content_hash, with_content

Reason: TypeAlias = Literal["never_run", "malformed", "cancelled", "rejected", "interrupted", "crashed", "unknown"]

TEXTS: Final[Mapping[Reason, str]] = {
    "never_run": "This call was not run, so there is no result.",
    "malformed": "This call was not run: its arguments are no valid JSON object. Call the tool again with valid ones.",
    "cancelled": "This call was cancelled before it returned a result. Whether it had an effect is not known.",
    "rejected": "A human reviewer rejected this call. It was not run.",
    "interrupted": "The run was interrupted before this call returned a result. Whether it had an effect is not known.",
    "crashed": "The process stopped before this call returned a result. Whether it had an effect is not known.",
    "unknown": "No result was recorded for this call. Whether it ran is not known: check before you rely on it.",
}
"""What a synthetic result says. Each claims only what its reason proves; the default claims nothing (fault 76)."""

_LIFTED = frozenset({"tool_result", "function_call_output", "functionResponse"})


def anchor(message: BaseMessage) -> str:
    """What ids derived from a message build on: its id, or its content hash where it has none."""
    return message.id or content_hash(message)


def synthetic_result(made_by: BaseMessage, *, call_id: str, name: str, reason: Reason) -> ToolMessage:
    """The result that stands for one that does not exist. The same call always gets the same message."""
    return ToolMessage(
        content=TEXTS[reason],
        tool_call_id=call_id,
        name=name,
        status="error",
        id=derived_id("repair", "answer", anchor(made_by), call_id),
        additional_kwargs={REFOLD_KEY: {"kind": "repair", "reason": reason}},
    )


def retargeted(result: ToolMessage, call_id: str) -> ToolMessage:
    """A result under its call's id in the view; the very same object where that is its id already."""
    if result.tool_call_id == call_id:
        return result
    update: dict[str, object] = {"tool_call_id": call_id}
    if not isinstance(result.content, str):
        update["content"] = [_renamed(block, call_id) for block in blocks_of(result)]
    return result.model_copy(update=update)


def split_results(message: BaseMessage) -> tuple[BaseMessage, ...]:
    """A human message that carries result blocks, as `ToolMessage`s and the rest of it; any other message alone.

    Anthropic's own format puts results into user turns; only langchain-anthropic sends them from there.
    """
    if not isinstance(message, HumanMessage) or isinstance(message.content, str):
        return (message,)
    blocks = blocks_of(message)
    lifted = [block for block in blocks if block.kind == "answer" and block.type in _LIFTED]
    if not lifted:
        return (message,)
    rest = [block.raw for block in blocks if block not in lifted]
    results: list[BaseMessage] = [_lifted(message, block) for block in lifted]
    return (*results, with_content(message, rest)) if rest else tuple(results)


def _lifted(message: BaseMessage, block: Block) -> ToolMessage:
    raw = unwrapped(block)
    inner = raw.get("functionResponse")
    source = inner if isinstance(inner, Mapping) else raw
    content = next((source[key] for key in ("content", "output", "response") if source.get(key)), "")
    return ToolMessage(
        content=content if isinstance(content, str | list) else str(content),
        tool_call_id=block.call_id or "",
        status="error" if raw.get("is_error") else "success",
        id=derived_id("repair", "lifted", anchor(message), str(block.index)),
    )


def _renamed(block: Block, call_id: str) -> object:
    if block.kind != "answer" or isinstance(block.raw, str):
        return block.raw
    inner = unwrapped(block)
    renamed = {**inner, **{key: call_id for key in ("call_id", "tool_use_id") if key in inner}}
    return {**block.raw, "value": renamed} if inner is not block.raw else renamed
