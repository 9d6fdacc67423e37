"""Codex rollout files: JSON lines of `{timestamp, type, payload}`; a `response_item` holds a Responses API item.

Items are read. Events (`event_msg`) are what the terminal showed of them and are counted, except that token counts
give a reply its usage. Reasoning, text and calls that follow each other without a result are one reply. A `compacted`
record replaces the recorded agent's context; the items before it stay in the log. Older rollouts hold the bare items,
and so do dumps of the Responses API; both are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from refold.core.blocks import blocks_of
from refold.replay.fields import Skips, mapping, moment, sequence, string
from refold.replay.importers.assemble import CallIds, Draft, transcript_of
from refold.replay.importers.blocks import (
    BlockDict,
    RecordedCall,
    as_text,
    block_of,
    content_of,
    reply,
    result,
    usage_of,
)
from refold.replay.importers.source import Record, Source
from refold.replay.transcript import Transcript

NAME: Final = "codex"
_RECORDS: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_SERVER: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})
_CONTEXT: Final = ("# AGENTS.md instructions", "<environment_context>", "<user_instructions>", "<INSTRUCTIONS>")
"""How the user messages begin that Codex itself puts before the first one that a person wrote."""


def detect(sample: Sequence[object]) -> bool:
    """Whether a rollout record, or an item of a tool call or of reasoning, is among the values."""
    return any(_is_rollout(record) or _is_tool_item(record) for value in sample for record in _spread(value))


def read(source: Source, skips: Skips) -> Iterator[Transcript]:
    """The one dialogue of the file."""
    draft, calls = Draft(), CallIds()
    for record in source.records(skips):
        for value in _spread(record.value):
            _add_record(draft, Record(value=value, line=record.line), calls, skips)
    yield transcript_of(draft, name=source.name, format=NAME)


def _spread(value: object) -> Sequence[object]:
    return sequence(value) if isinstance(value, list) else (value,)


def _is_rollout(value: object) -> bool:
    record = mapping(value)
    return string(record.get("type")) in _RECORDS and isinstance(record.get("payload"), dict)


def _is_tool_item(value: object) -> bool:
    item = mapping(value)
    kind = string(item.get("type"))
    return "role" not in item and (
        (kind in _CALLS | _RESULTS and "call_id" in item) or (kind == "reasoning" and "summary" in item)
    )


def _add_record(draft: Draft, record: Record, calls: CallIds, skips: Skips) -> None:
    fields = mapping(record.value)
    payload = mapping(fields.get("payload"))
    time = moment(fields.get("timestamp"))
    match fields.get("type"):
        case "response_item":
            _add_item(draft, payload, calls, skips, line=record.line, time=time)
        case "session_meta":
            skips.add("session_meta record", record.line)
            _set_system(draft, payload)
        case "turn_context":
            skips.add("turn_context record", record.line)
            draft.model = string(payload.get("model")) or draft.model
        case "compacted":
            skips.add("compacted record", record.line)
            draft.compacted(summary=string(payload.get("message")) or "")
        case "event_msg":
            skips.add(f"event ({string(payload.get('type')) or 'unknown'})", record.line)
            if payload.get("type") == "token_count":
                _set_usage(draft, mapping(mapping(payload.get("info")).get("last_token_usage")))
        case str():
            _add_item(draft, fields, calls, skips, line=record.line, time=time)
        case _:
            if "instructions" in fields:
                _set_system(draft, fields)
            skips.add("record without a type", record.line)


def _add_item(
    draft: Draft,
    item: Mapping[str, object],
    calls: CallIds,
    skips: Skips,
    *,
    line: int | None,
    time: datetime | None,
) -> None:
    match string(item.get("type")):
        case "message":
            _add_message(draft, item, skips, line=line, time=time)
        case "reasoning":
            kept = ("type", "id", "summary", "content", "encrypted_content")
            block: BlockDict = {key: item[key] for key in kept if item.get(key) is not None}
            draft.add(reply(content=[block]), time=time)
        case kind if kind in _CALLS:
            draft.add(reply(content="", calls=[_call(item, calls)]), time=time)
        case kind if kind in _RESULTS:
            output = item.get("output")
            inner = mapping(output)
            content = content_of(inner.get("content", output))
            call_id = calls.answered(None, item.get("call_id"))
            draft.add(result(content=content, call_id=call_id, failed=inner.get("success") is False), time=time)
        case kind if kind in _SERVER:
            draft.add(reply(content=[block_of(dict(item))]), time=time)
        case kind if kind in _COMPACTIONS:
            skips.add("compaction item", line)
            draft.compacted()
        case kind:
            skips.add(f"item of another kind ({kind or 'unknown'})", line)


def _add_message(
    draft: Draft, item: Mapping[str, object], skips: Skips, *, line: int | None, time: datetime | None
) -> None:
    content = content_of(item.get("content"))
    identity = string(item.get("id"))
    match item.get("role"):
        case "assistant":
            parts: list[str | BlockDict] = [content] if isinstance(content, str) else content
            blocks = [block_of(part) for part in parts if part]
            named = [{**block, "id": identity} if identity and block["type"] == "text" else block for block in blocks]
            draft.add(reply(content=cast("list[str | BlockDict]", named)), time=time)
        case "developer" | "system" as role:
            extra = {"__openai_role__": "developer"} if role == "developer" else {}
            draft.add(SystemMessage(content=content, id=identity, additional_kwargs=extra), time=time)
        case "user":
            message = HumanMessage(content=content, id=identity)
            leading = all(isinstance(entry.message, SystemMessage) for entry in draft.entries)
            if leading and _is_context(message):
                draft.add(SystemMessage(content=content, id=identity), time=time)
            else:
                draft.add(message, time=time)
        case _:
            skips.add("message of an unknown role", line)


def _is_context(message: HumanMessage) -> bool:
    texts = [block.text for block in blocks_of(message)]
    return bool(texts) and all(text.lstrip().startswith(_CONTEXT) for text in texts)


def _call(item: Mapping[str, object], calls: CallIds) -> RecordedCall:
    kind = item.get("type")
    name = string(item.get("name")) or ("local_shell" if kind == "local_shell_call" else "unknown")
    match kind:
        case "custom_tool_call":
            args: object = {"input": as_text(item.get("input") or "")}
        case "local_shell_call":
            args = mapping(item.get("action"))
        case _:
            args = item.get("arguments")
    return RecordedCall(id=calls.made(name, item.get("call_id") or item.get("id")), name=name, args=args)


def _set_system(draft: Draft, fields: Mapping[str, object]) -> None:
    base = fields.get("base_instructions")
    text = string(mapping(base).get("text")) or string(base) or string(fields.get("instructions"))
    if text and text not in draft.system:
        draft.system.append(text)


def _set_usage(draft: Draft, reported: Mapping[str, object]) -> None:
    """Give the latest reply its usage; a count that is repeated for it changes nothing."""
    usage = usage_of(
        input_tokens=reported.get("input_tokens"),
        output_tokens=reported.get("output_tokens"),
        cache_read=reported.get("cached_input_tokens"),
        reasoning=reported.get("reasoning_output_tokens"),
    )
    for at in reversed(range(len(draft.entries))):
        entry = draft.entries[at]
        if isinstance(entry.message, AIMessage):
            if usage is not None and entry.message.usage_metadata is None:
                message = entry.message.model_copy(update={"usage_metadata": usage})
                draft.entries[at] = replace(entry, message=message)
            return
