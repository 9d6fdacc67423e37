"""Parts of recorded messages in LangChain's spelling: content, calls, usage, tool schemas.

OpenAI's and Anthropic's spellings are read wherever a message is read, because recordings mix them. Nothing here
raises: a field of the wrong type is read as if it were absent, or kept as text where it is content.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

from refold.core.canonical import Json
from refold.replay.fields import mapping, number, parse, sequence, string
from refold.replay.transcript import ToolSchema

BlockDict: TypeAlias = dict[str, object]
Content: TypeAlias = str | list[str | BlockDict]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCall:
    """A call as recorded; `args` is an object, or text that should hold one."""

    id: str
    name: str
    args: object


def content_of(value: object) -> Content:
    """Content of a message: text stays text, a list of parts keeps its order and shape."""
    match value:
        case None:
            return ""
        case str():
            return value
        case list():
            return [part if isinstance(part, str) else block_of(part) for part in value if part is not None]
        case dict():
            return [block_of(value)]
        case _:
            return as_text(value)


def block_of(value: object) -> BlockDict:
    """One part as a content block that every LangChain provider package reads."""
    if not isinstance(value, dict):
        return text_block(as_text(value))
    part = cast("BlockDict", value)
    match part.get("type"):
        case "text" | "input_text" | "output_text" | "summary_text":
            return _text(part)
        case "image" | "document" if isinstance(part.get("source"), dict):
            return _anthropic_media(part)
        case "input_image" | "image_url" if isinstance(part.get("image_url"), str):
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        case None if isinstance(part.get("text"), str):
            return {**part, "type": "text"}
        case None:
            return {**part, "type": "unknown"}
        case kind if isinstance(kind, str):
            return dict(part)
        case kind:
            return {**part, "type": as_text(kind)}


def text_block(text: str) -> BlockDict:
    return {"type": "text", "text": text}


def as_text(value: object) -> str:
    """Any JSON value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def compact_content(blocks: Sequence[BlockDict]) -> Content:
    """Blocks of an assistant message: a single plain text is written as text, as LangChain's models return it."""
    match blocks:
        case []:
            return ""
        case [{"type": "text", "text": str(text)} as only] if len(only) == 2:
            return text
        case _:
            return list(blocks)


def reply(
    *,
    content: Content,
    calls: Iterable[RecordedCall] = (),
    id: str | None = None,
    name: str | None = None,
    usage: UsageMetadata | None = None,
    model: str | None = None,
    extra: Mapping[str, object] | None = None,
) -> AIMessage:
    """An assistant message; a call whose arguments are no JSON object is kept as an invalid one."""
    valid: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for call in calls:
        args = _arguments(call.args)
        if isinstance(args, str):
            invalid.append(InvalidToolCall(name=call.name, args=args, id=call.id, error=None, type="invalid_tool_call"))
        else:
            valid.append(ToolCall(name=call.name, args=args, id=call.id, type="tool_call"))
    return AIMessage(
        content=cast("list[str | dict[str, object]]", content),
        tool_calls=valid,
        invalid_tool_calls=invalid,
        id=id,
        name=name,
        usage_metadata=usage,
        response_metadata={"model_name": model} if model else {},
        additional_kwargs=dict(extra or {}),
    )


def result(
    *, content: Content, call_id: str, name: str | None = None, id: str | None = None, failed: bool = False
) -> ToolMessage:
    """A tool result."""
    return ToolMessage(
        content=cast("list[str | dict[str, object]]", content),
        tool_call_id=call_id,
        name=name,
        id=id,
        status="error" if failed else "success",
    )


def usage_of(
    *,
    input_tokens: object,
    output_tokens: object,
    cache_read: object = None,
    cache_creation: object = None,
    reasoning: object = None,
) -> UsageMetadata | None:
    """Reported usage in LangChain's terms (input includes cached tokens, output includes reasoning), or None."""
    used, made = number(input_tokens), number(output_tokens)
    if used is None or made is None:
        return None
    usage = UsageMetadata(input_tokens=used, output_tokens=made, total_tokens=used + made)
    inputs = InputTokenDetails()
    if (read := number(cache_read)) is not None:
        inputs["cache_read"] = read
    if (written := number(cache_creation)) is not None:
        inputs["cache_creation"] = written
    if inputs:
        usage["input_token_details"] = inputs
    if (thought := number(reasoning)) is not None:
        usage["output_token_details"] = OutputTokenDetails(reasoning=thought)
    return usage


def tools_of(value: object) -> tuple[ToolSchema, ...]:
    """Tool schemas in OpenAI's, OpenAI Responses', Anthropic's or Gemini's spelling; what has no name is left out."""
    found: dict[str, ToolSchema] = {}
    for item in sequence(value):
        outer = mapping(item)
        declared = sequence(outer.get("functionDeclarations") or outer.get("function_declarations")) or (item,)
        for tool in declared:
            inner = mapping(mapping(tool).get("function")) or mapping(tool)
            name = string(inner.get("name"))
            schema = inner.get("parameters") or inner.get("input_schema") or inner.get("parametersJsonSchema")
            if name is not None:
                found[name] = ToolSchema(
                    name=name,
                    description=string(inner.get("description")) or "",
                    parameters=cast("Mapping[str, Json]", mapping(schema)),
                )
    return tuple(found.values())


def _arguments(value: object) -> dict[str, object] | str:
    match value:
        case dict():
            return cast("dict[str, object]", value)
        case None:
            return {}
        case str():
            try:
                parsed = parse(value) if value.strip() else {}
            except ValueError:
                return value
            return cast("dict[str, object]", parsed) if isinstance(parsed, dict) else value
        case _:
            return as_text(value)


def _text(part: BlockDict) -> BlockDict:
    text = part.get("text")
    kept = {key: value for key, value in part.items() if key not in ("annotations", "logprobs") or value}
    return {**kept, "type": "text", "text": text if isinstance(text, str) else as_text(text or "")}


def _anthropic_media(part: BlockDict) -> BlockDict:
    source = mapping(part.get("source"))
    kind = "image" if part.get("type") == "image" else "file"
    mime = string(source.get("media_type"))
    data, url, text = (string(source.get(key)) for key in ("data", "url", "text"))
    if source.get("type") == "text" and (text or data):
        return text_block(text or data or "")
    if data is not None:
        return {"type": kind, "base64": data, **({"mime_type": mime} if mime else {})}
    if url is not None:
        return {"type": kind, "url": url, **({"mime_type": mime} if mime else {})}
    return dict(part)
