"""Calls that no provider takes, in a form that all of them take: the same call under a fit id, name and arguments.

All spellings of a call in a message change together: `tool_calls`, the block in the content, and the maps in
`additional_kwargs` that partner packages key by call id (a call that loses its Gemini thought signature breaks the
thread, fault 67).
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage

from refold.core.blocks import Block, blocks_of, unwrapped
from refold.core.canonical import derived_id
from refold.core.messages import Call
from refold.core.names import Seen
from refold.core.repair.results import anchor
from refold.core.validate.shape import GEMINI_SIGNATURES, TOOL_NAME

_KEYED_BY_CALL = (GEMINI_SIGNATURES, "__openai_function_call_ids__")
_UNFIT = re.compile(r"[^A-Za-z0-9_.:-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownCall:
    """A call as the view shows it, and what had to change: any of `id`, `name`, `arguments`, `lifted`."""

    call: Call
    id: str
    name: str
    args: Mapping[str, object]
    changes: tuple[str, ...]


@dataclass(kw_only=True)
class CallIds:
    """The call ids that a view has used so far. Ids made for it are derived from the message and the old id."""

    used: Seen
    made: Counter[tuple[str, str]] = field(default_factory=Counter)

    def fit(self, message: AIMessage, call: Call) -> str:
        """The call's own id where it is there and new, else a derived one that is new."""
        if call.id is not None and call.id not in self.used:
            self.used.add((call.id,))
            return call.id
        key = (anchor(message), call.id or "")
        while True:
            self.made[key] += 1
            made = derived_id("repair", "call", *key, str(self.made[key]))
            if made not in self.used:
                self.used.add((made,))
                return made


def shown_calls(message: AIMessage, calls: Sequence[Call], ids: CallIds) -> tuple[ShownCall, ...]:
    """How the calls of a message are shown, in their order. OpenAI's native calls are shown as they are."""
    return tuple(_shown(message, call, ids) for call in calls)


def with_calls(message: AIMessage, shown: Sequence[ShownCall]) -> AIMessage:
    """A copy of a message with its calls as shown; the very same object where nothing changes."""
    if not any(call.changes for call in shown):
        return message
    kwargs = dict(message.additional_kwargs)
    renamed = {call.call.id: call.id for call in shown if call.call.id is not None and call.id != call.call.id}
    for key in _KEYED_BY_CALL:
        if isinstance(by_call := kwargs.get(key), Mapping):
            kwargs[key] = {**by_call, **{new: by_call[old] for old, new in renamed.items() if old in by_call}}
    tool_calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "args": dict(call.args)}
        for call in shown
        if not call.call.native
    ]
    update: dict[str, object] = {"tool_calls": tool_calls, "invalid_tool_calls": [], "additional_kwargs": kwargs}
    if not isinstance(message.content, str):
        by_block = {call.call.block: call for call in shown if call.changes and call.call.block is not None}
        update["content"] = [
            _respelled(block, by_block[block.index]) if block.index in by_block else block.raw
            for block in blocks_of(message)
        ]
    return message.model_copy(update=update)


def _shown(message: AIMessage, call: Call, ids: CallIds) -> ShownCall:
    if call.native:
        return ShownCall(call=call, id=call.id or "", name=call.name, args={}, changes=())
    fit_id, name = ids.fit(message, call), call.name
    if not TOOL_NAME.fullmatch(name):
        name = _UNFIT.sub("_", name)[:64] or "unknown_tool"
    args = call.args if call.valid and isinstance(call.args, Mapping) else _readable(call.args)
    changed = {
        "id": fit_id != call.id,
        "name": name != call.name,
        "arguments": not call.valid,
        "lifted": not call.lifted,
    }
    changes = tuple(what for what, differs in changed.items() if differs)
    return ShownCall(call=call, id=fit_id, name=name, args=args, changes=changes)


def _readable(args: Mapping[str, object] | str) -> Mapping[str, object]:
    """Arguments that a provider takes and that show what the model wrote."""
    if isinstance(args, Mapping):
        return args
    try:
        parsed = json.loads(args)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {"unparsed_arguments": args}


def _respelled(block: Block, shown: ShownCall) -> Mapping[str, object]:
    inner = unwrapped(block)
    changed = _spelled(block.type, inner, shown)
    if isinstance(block.raw, str) or inner is block.raw:
        return changed
    return {**block.raw, "value": changed}


def _spelled(kind: str, inner: Mapping[str, object], shown: ShownCall) -> Mapping[str, object]:
    new_args = "arguments" in shown.changes
    match kind:
        case "tool_use":
            kept = {key: value for key, value in inner.items() if key != "partial_json"}
            return {**kept, "id": shown.id, "name": shown.name, "input": dict(shown.args)}
        case "function_call":
            arguments = json.dumps(shown.args, ensure_ascii=False) if new_args else inner.get("arguments", "{}")
            return {**inner, "call_id": shown.id, "name": shown.name, "arguments": arguments}
        case "custom_tool_call":
            return {**inner, "call_id": shown.id, "name": shown.name}
        case "functionCall":
            function = inner.get("functionCall")
            named = {**function} if isinstance(function, Mapping) else {}
            return {**inner, "functionCall": {**named, "id": shown.id, "name": shown.name, "args": dict(shown.args)}}
        case _:
            kept = {key: value for key, value in inner.items() if key != "error"}
            if new_args and isinstance(extras := kept.get("extras"), Mapping):
                kept["extras"] = {key: value for key, value in extras.items() if key != "arguments"}
            return {**kept, "type": "tool_call", "id": shown.id, "name": shown.name, "args": dict(shown.args)}
