"""Reading a message in any spelling: its text, calls and answers, its role, and its content hash.

`refold.core.blocks` reads the parts of its content. A call may stand in `tool_calls`, in the content, or in both; here
each counts once. Messages are read, and changed copies of them are made; none is edited.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.blocks import Block, blocks_of, unwrapped
from refold.core.canonical import canonical_bytes, digest
from refold.core.per_message import PerMessage
from refold.core.spellings import NATIVE_CALLS, string_of

REFOLD_KEY: Final = "refold"
"""The key in `additional_kwargs` under which refold marks the messages that it wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool call that a model made. `args` are the parsed arguments, or the raw text where they do not parse.

    `id` is None where the server gave none (an empty id counts as none), `name` is empty where it gave no name.
    `block` is the index in the content of the block that spells the call too, None where only `tool_calls` has it;
    `lifted` says that `tool_calls` or `invalid_tool_calls` has it. `native` marks OpenAI's own client-side tools
    (computer, shell, patch), which LangChain never lifts.
    """

    id: str | None
    name: str
    args: Mapping[str, object] | str
    valid: bool
    block: int | None = None
    lifted: bool = True
    native: bool = False


def text_of(message: BaseMessage) -> str:
    """The text of a message: its text blocks joined by newlines, without reasoning, calls or media."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in blocks_of(message) if block.kind == "text" and block.text)


def calls_of(message: BaseMessage) -> tuple[Call, ...]:
    """Every client-side call of an AI message, valid or not, in whatever spelling, each once.

    `tool_calls` come first, then `invalid_tool_calls`, then calls that stand only in the content (Anthropic
    `tool_use`, Responses `function_call`, Gemini `functionCall`, standard `tool_call`), which LangChain does not always
    lift. The n-th block with an id is the n-th lifted call with that id; more of them are calls of their own, so that
    duplicates show. Read once per message object.
    """
    if not isinstance(message, AIMessage) or (
        isinstance(message.content, str) and not message.tool_calls and not message.invalid_tool_calls
    ):
        return ()
    return _calls(message)


def _read_calls(message: BaseMessage) -> tuple[Call, ...]:
    if not isinstance(message, AIMessage):
        return ()
    calls = [Call(id=c.get("id") or None, name=c["name"], args=c["args"], valid=True) for c in message.tool_calls]
    calls += [
        Call(id=c.get("id") or None, name=c.get("name") or "", args=c.get("args") or "", valid=False)
        for c in message.invalid_tool_calls
    ]
    if isinstance(message.content, str):
        return tuple(calls)
    lifted: dict[str | None, deque[int]] = {}
    for number, call in enumerate(calls):
        lifted.setdefault(call.id, deque()).append(number)
    blocks = blocks_of(message)
    hosted = {block.call_id for block in blocks if block.kind == "answer"}  # run by the provider, answered in place
    for block in blocks:
        if block.kind != "call" or (block.call_id in hosted and block.type in NATIVE_CALLS):
            continue
        if same := lifted.get(block.call_id):
            number = same.popleft()
            calls[number] = replace(calls[number], block=block.index)
        else:
            calls.append(_call_in_content(block))
    return tuple(calls)


_calls = PerMessage(_read_calls)


def answers_of(message: BaseMessage) -> tuple[str, ...]:
    """The ids of the calls that a message answers: one for a `ToolMessage`, any number for result blocks of others. A
    result without an id counts as one with the empty id: servers without ids pair by order.

    An AI message answers nothing: results in it are of tools that the provider ran itself.
    """
    if isinstance(message, ToolMessage):
        return (message.tool_call_id,)
    if isinstance(message.content, str) or isinstance(message, AIMessage):
        return ()
    return tuple(b.call_id or "" for b in blocks_of(message) if b.kind == "answer")


def awaits_server_result(message: BaseMessage, block: Block) -> bool:
    """Whether a server-side call has its result in a block of its own, as Anthropic's tools have. OpenAI's carry it."""
    if block.type == "server_tool_call":
        return message.response_metadata.get("model_provider") == "anthropic"
    return block.type in ("server_tool_use", "mcp_tool_use")


def is_record(message: BaseMessage) -> bool:
    """Whether refold wrote the message into a window (a segment or STATE)."""
    return isinstance(message, HumanMessage) and REFOLD_KEY in message.additional_kwargs


def role_of(message: BaseMessage) -> Literal["system", "human", "ai", "tool", "other"]:
    """The role of a message, the same for a message and its streaming chunk."""
    match message:
        case SystemMessage():
            return "system"
        case HumanMessage():
            return "human"
        case AIMessage():
            return "ai"
        case ToolMessage():
            return "tool"
        case _:
            return "other"


def with_content(message: BaseMessage, content: str | Sequence[object]) -> BaseMessage:
    """A copy of a message with other content; every other field is kept."""
    return message.model_copy(update={"content": content if isinstance(content, str) else list(content)})


def content_hash(message: BaseMessage) -> str:
    """The hash of what a model sees of a message: 32 hex characters (BLAKE2b-128).

    Stable under key order; message ids, artifacts, usage and response metadata do not count. Computed once per message
    object.
    """
    return _hashes(message)


_hashes = PerMessage(lambda message: digest(canonical_bytes(_seen(message))))


def _seen(message: BaseMessage) -> Mapping[str, object]:
    seen: dict[str, object] = {
        "role": role_of(message) if role_of(message) != "other" else message.type,
        "content": message.content,
        "name": message.name,
        "extra": message.additional_kwargs,
    }
    if isinstance(message, AIMessage):
        seen["calls"] = [[c.get("id"), c["name"], c["args"]] for c in message.tool_calls]
        seen["invalid"] = [[c.get("id"), c.get("name"), c.get("args")] for c in message.invalid_tool_calls]
    if isinstance(message, ToolMessage):
        seen["answers"] = [message.tool_call_id, message.status]
    return seen


def _call_in_content(block: Block) -> Call:
    raw = unwrapped(block)
    source = cast("Mapping[str, object]", raw.get("functionCall") or raw)
    name = string_of(source.get("name"))
    args, valid = _arguments(block.type, source)
    return Call(
        id=block.call_id,
        name=name or (block.type if block.type in NATIVE_CALLS else ""),
        args=args,
        valid=valid,
        block=block.index,
        lifted=False,
        native=block.type in NATIVE_CALLS,
    )


def _arguments(kind: str, source: Mapping[str, object]) -> tuple[Mapping[str, object] | str, bool]:
    """The arguments of a call in the content, and whether they parse to an object."""
    if kind in NATIVE_CALLS:
        return {}, True
    args = next((source[key] for key in ("args", "input", "arguments") if source.get(key)), None)
    if args is None:  # a block of a stream that was cut off holds the text so far
        args = source.get("partial_json") or {}
    if kind == "custom_tool_call":  # free text by definition; LangChain's own name for it is `__arg1`
        return {"__arg1": args}, True
    if isinstance(args, Mapping):
        return cast("Mapping[str, object]", args), kind != "invalid_tool_call"
    if isinstance(args, str):
        parsed = _json_object(args)
        return (args, False) if parsed is None else (parsed, kind != "invalid_tool_call")
    return str(args), False


def _json_object(text: str) -> Mapping[str, object] | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
