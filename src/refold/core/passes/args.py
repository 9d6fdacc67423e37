"""`args`: long string arguments of a tool call are withheld, whole values only.

A prefix of an argument teaches the model to write truncated arguments (fault 131), so a value is either whole or
replaced by a reference that names the argument, its length, its hash and the message. Short values, and with them paths
and ids, stay. Every spelling of the call in the message is changed alike.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.canonical import Json, digest
from refold.core.messages import calls_of
from refold.core.passes.base import MARK_OPEN, Proposal, Scope, mark, tokens_of

WITHHELD = f"{MARK_OPEN}withheld "
"""How every reference to a withheld argument begins."""

_ANY_MARK = re.compile(re.escape(MARK_OPEN) + "(withheld|result|input|cleared|media) ")
_SHORTEST = 400
"""Characters below which no value is withheld: the reference itself has about 200."""


def propose(message: BaseMessage, key: str, scope: Scope) -> Proposal | None:
    """Withhold every long string in the arguments of the message's calls, at any depth."""
    if not isinstance(message, AIMessage) or scope.log_reader is None:
        return None
    threshold = scope.policy.args_min
    long: dict[str, str] = {}

    def note(path: str, value: str) -> str:
        if len(value) >= _SHORTEST and WITHHELD not in value and tokens_of(value) >= threshold:
            long[digest(value)] = path
        return value

    for call in calls_of(message):
        if call.name in scope.policy.exclude_args:
            continue
        if isinstance(call.args, str):
            note("arguments", call.args)
        else:
            _map_strings(call.args, "", note)
    if not long:
        return None
    return Proposal(data={"values": sorted(long), "message": key, "reader": scope.log_reader})


def show(message: BaseMessage, data: Mapping[str, Json]) -> BaseMessage:
    """The message with the withheld values replaced by references, in `tool_calls` and in its content."""
    if not isinstance(message, AIMessage):
        return message
    withheld = frozenset(str(value) for value in cast("Sequence[Json]", data["values"]))

    def replace(path: str, value: str) -> str:
        if len(value) < _SHORTEST or (mark_of := digest(value)) not in withheld:
            return value
        return mark(
            "withheld", argument=path or "arguments", characters=len(value), blake2b=mark_of,
            message=str(data["message"]), read=f"{data['reader']}",
        )  # fmt: skip

    update: dict[str, object] = {
        "tool_calls": [{**call, "args": _map_strings(call["args"], "", replace)} for call in message.tool_calls],
        "invalid_tool_calls": [
            {**call, "args": replace("arguments", call.get("args") or "")} for call in message.invalid_tool_calls
        ],
        "additional_kwargs": _in_kwargs(message.additional_kwargs, replace),
    }
    if not isinstance(message.content, str):
        update["content"] = [_in_block(block, replace) for block in message.content]
    return message.model_copy(update=update)


def has_reference(args: Mapping[str, object]) -> str | None:
    """The path of an argument that holds a reference instead of content, where a model copied one (fault 131): to a
    withheld value, or to a result, an input or a medium that was moved out."""
    found: list[str] = []

    def note(path: str, value: str) -> str:
        if _ANY_MARK.search(value):
            found.append(path)
        return value

    _map_strings(args, "", note)
    return found[0] if found else None


def _map_strings(value: object, path: str, change: Callable[[str, str], str]) -> object:
    if isinstance(value, str):
        return change(path, value)
    if isinstance(value, Mapping):
        return {key: _map_strings(inner, f"{path}.{key}" if path else str(key), change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(inner, f"{path}[{index}]", change) for index, inner in enumerate(value)]
    return value


def _in_block(block: object, change: Callable[[str, str], str]) -> object:
    """A content block with the strings of its call changed (Anthropic `input`, LangChain `args`, Responses JSON)."""
    if not isinstance(block, Mapping):
        return block
    if isinstance(inner := block.get("functionCall"), Mapping):
        return {**block, "functionCall": {**inner, "args": _map_strings(inner.get("args", {}), "", change)}}
    if block.get("type") == "non_standard" and isinstance(inner := block.get("value"), Mapping):
        return {**block, "value": _in_block(inner, change)}
    if block.get("type") not in ("tool_use", "tool_call", "function_call", "custom_tool_call"):
        return block
    changed = dict(block)
    for name in ("input", "args", "arguments", "partial_json"):
        if name in changed:
            changed[name] = _in_arguments(changed[name], change)
    return changed


def _in_kwargs(kwargs: Mapping[str, object], change: Callable[[str, str], str]) -> Mapping[str, object]:
    """OpenAI integrations keep the raw calls in `additional_kwargs` too."""
    changed = dict(kwargs)
    calls = kwargs.get("tool_calls")
    if isinstance(calls, list):
        changed["tool_calls"] = [
            {
                **call,
                "function": {**call["function"], "arguments": _in_arguments(call["function"].get("arguments"), change)},
            }
            if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)
            else call
            for call in calls
        ]
    if isinstance(legacy := kwargs.get("function_call"), Mapping):
        changed["function_call"] = {**legacy, "arguments": _in_arguments(legacy.get("arguments"), change)}
    return changed


def _in_arguments(arguments: object, change: Callable[[str, str], str]) -> object:
    """Arguments as a mapping, or as the JSON text that some providers use."""
    if not isinstance(arguments, str):
        return _map_strings(arguments, "", change)
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return change("arguments", arguments)
    mapped = _map_strings(parsed, "", change)
    return arguments if mapped == parsed else json.dumps(mapped, ensure_ascii=False)
