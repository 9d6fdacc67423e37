"""Dumps of LangChain messages and of LangGraph states, in every form that the two libraries write.

`dumpd` constructors (Python's and JavaScript's), `messages_to_dict` pairs of type and data, and plain message dicts;
alone, in a list, in a thread state (`values`), a checkpoint (`channel_values`), or a file of many of them. States of
one thread that follow each other repeat the dialogue so far: the longest is read, the others are counted.

Old dumps hold the calls a second time in `additional_kwargs`; that copy is left out.

Objects are built from the fields by hand. LangChain's own loader is not used: it would import what a file names.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata

from refold.replay.fields import Skips, mapping, moment, sequence, string
from refold.replay.importers.assemble import CallIds, Draft, transcript_of
from refold.replay.importers.blocks import BlockDict, Content, RecordedCall, as_text, reply, result, tools_of, usage_of
from refold.replay.importers.chat import recorded_calls
from refold.replay.importers.nesting import dialogues
from refold.replay.importers.source import Source
from refold.replay.transcript import Transcript

NAME: Final = "langchain"
_TYPES: Final = frozenset({"human", "ai", "system", "tool", "function", "chat", "remove"})


def detect(sample: Sequence[object]) -> bool:
    """Whether LangChain messages are among the first values."""
    return any(_is_message(value) or next(dialogues(value, _is_message), None) is not None for value in sample)


def read(source: Source, skips: Skips) -> Iterator[Transcript]:
    """Every dialogue of the file; messages on lines of their own make one."""
    loose: list[object] = []
    held: tuple[Sequence[object], Mapping[str, object]] | None = None
    for record in source.records(skips):
        if _is_message(record.value):
            loose.append(record.value)
            continue
        found = list(dialogues(record.value, _is_message))
        if not found:
            skips.add("record without messages", record.line)
        for messages, holder in found:
            if held is not None and _extends(messages, held[0]):
                skips.add("earlier state of the same thread", record.line)
            elif held is not None and _extends(held[0], messages):
                skips.add("earlier state of the same thread", record.line)
                continue
            elif held is not None:
                yield _dialogue(*held, name=source.name, skips=skips)
            held = (messages, holder)
    if held is not None:
        yield _dialogue(*held, name=source.name, skips=skips)
    if loose:
        yield _dialogue(loose, {}, name=source.name, skips=skips)


def _dialogue(messages: Sequence[object], holder: Mapping[str, object], *, name: str, skips: Skips) -> Transcript:
    draft, calls = Draft(), CallIds()
    draft.tools = tools_of(holder.get("tools"))
    for value in messages:
        _add(draft, value, calls, skips)
    metadata = mapping(holder.get("metadata"))
    draft.model = draft.model or string(metadata.get("model_name"))
    return transcript_of(draft, name=name, format=NAME)


def _extends(longer: Sequence[object], shorter: Sequence[object]) -> bool:
    """Whether a list goes on where another ends, told by the other's first and last message."""
    return len(longer) >= len(shorter) > 0 and all(
        _identity(longer[at]) == _identity(shorter[at]) for at in (0, len(shorter) - 1)
    )


def _identity(value: object) -> object:
    fields = _fields(value)
    return fields.get("id") or fields


def _is_message(value: object) -> bool:
    fields = _fields(value)
    if string(fields.get("type")) not in _TYPES or "role" in mapping(value):
        return False
    return "content" in fields or (fields["type"] == "remove" and "id" in fields)


def _fields(value: object) -> Mapping[str, object]:
    """The fields of a message in any of its forms, with `type` in its short spelling."""
    outer = mapping(value)
    if outer.get("type") == "constructor":
        path = sequence(outer.get("id"))
        return {**mapping(outer.get("kwargs")), "type": _class_type(path[-1] if path else None)}
    if isinstance(outer.get("data"), dict) and "content" not in outer:
        return {**mapping(outer["data"]), "type": _short(outer.get("type"))}
    return {**outer, "type": _short(outer.get("type"))}


def _class_type(name: object) -> str:
    """The message type of a class name: `AIMessage` and `AIMessageChunk` are `ai`; other classes have none."""
    stem = name.removesuffix("Chunk") if isinstance(name, str) else ""
    return stem.removesuffix("Message").lower() if stem.endswith("Message") else ""


def _short(kind: object) -> object:
    """The type of a plain message; a chunk's type is its class name."""
    return _class_type(kind) or kind


def _add(draft: Draft, value: object, calls: CallIds, skips: Skips) -> None:
    fields = _fields(value)
    name, identity = string(fields.get("name")), string(fields.get("id"))
    content = _content(fields.get("content"))
    extra = {
        k: v for k, v in mapping(fields.get("additional_kwargs")).items() if k not in ("tool_calls", "function_call")
    }
    metadata = dict(mapping(fields.get("response_metadata")))
    time = moment(extra.get("timestamp") or metadata.get("created_at"))
    match _role(fields):
        case "human":
            message = HumanMessage(content=content, name=name, id=identity, additional_kwargs=extra)
            draft.add(message.model_copy(update={"response_metadata": metadata}), time=time)
        case "system":
            draft.add(SystemMessage(content=content, name=name, id=identity, additional_kwargs=extra), time=time)
        case "ai":
            draft.model = draft.model or string(metadata.get("model_name")) or string(metadata.get("model"))
            draft.add(_reply(fields, content, extra, calls), time=time)
        case "tool" | "function":
            call_id = calls.answered(name, fields.get("tool_call_id"))
            failed = fields.get("status") == "error"
            answer = result(content=content, call_id=call_id, name=name, id=identity, failed=failed)
            changes = {"artifact": fields.get("artifact"), "additional_kwargs": extra, "response_metadata": metadata}
            draft.add(answer.model_copy(update=changes), time=time)
        case "remove":
            skips.add("removal of a message")
        case _:
            skips.add("element that is no message")


def _role(fields: Mapping[str, object]) -> object:
    if fields["type"] != "chat":
        return fields["type"] if "content" in fields or fields["type"] == "remove" else None
    return {"assistant": "ai", "system": "system", "tool": "tool"}.get(str(fields.get("role")), "human")


def _reply(fields: Mapping[str, object], content: Content, extra: Mapping[str, object], ids: CallIds) -> AIMessage:
    recorded = list(recorded_calls(fields)) or list(recorded_calls(mapping(fields.get("additional_kwargs"))))
    broken = [mapping(call) for call in sequence(fields.get("invalid_tool_calls"))]
    calls = [RecordedCall(id=ids.made(call.name, call.id), name=call.name, args=call.args) for call in recorded]
    message = reply(
        content=content,
        calls=calls,
        id=string(fields.get("id")),
        name=string(fields.get("name")),
        usage=_usage(mapping(fields.get("usage_metadata"))),
        extra=extra,
    )
    invalid = [
        {
            "type": "invalid_tool_call",
            "id": ids.made(string(call.get("name")) or "unknown", call.get("id")),
            "name": string(call.get("name")),
            "args": string(call.get("args")),
            "error": string(call.get("error")),
        }
        for call in broken
    ]
    changes = {
        "invalid_tool_calls": [*message.invalid_tool_calls, *invalid],
        "response_metadata": dict(mapping(fields.get("response_metadata"))),
    }
    return message.model_copy(update=changes)


def _usage(usage: Mapping[str, object]) -> UsageMetadata | None:
    inputs, outputs = mapping(usage.get("input_token_details")), mapping(usage.get("output_token_details"))
    return usage_of(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read=inputs.get("cache_read"),
        cache_creation=inputs.get("cache_creation"),
        reasoning=outputs.get("reasoning"),
    )


def _content(value: object) -> Content:
    """Content keeps its exact shape; what LangChain does not allow in it becomes text."""
    match value:
        case str():
            return value
        case None:
            return ""
        case list():
            return [cast("str | BlockDict", part) if isinstance(part, str | dict) else as_text(part) for part in value]
        case _:
            return as_text(value)
