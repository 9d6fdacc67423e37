"""Gemini CLI sessions (one JSON object, or JSON lines that update it) and lists of Gemini API contents.

A session's `gemini` message holds its calls together with their results; they become one `AIMessage` and the results
after it. In the line form a message that comes again under its id replaces the earlier one, `$rewindTo` removes the
message that it names and everything after it, and `$set` changes the head. Contents (`{role, parts}`) are what a saved
chat holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_core.messages import HumanMessage

from refold.replay.fields import Skips, mapping, moment, sequence, string
from refold.replay.importers.assemble import CallIds, Draft, transcript_of
from refold.replay.importers.blocks import (
    BlockDict,
    Content,
    RecordedCall,
    as_text,
    compact_content,
    reply,
    result,
    text_block,
    tools_of,
    usage_of,
)
from refold.replay.importers.nesting import dialogues, is_list_of
from refold.replay.importers.source import Record, Source
from refold.replay.transcript import Transcript

NAME: Final = "gemini-cli"
SIGNATURES: Final = "__gemini_function_call_thought_signatures__"
"""Where langchain-google-genai keeps the signature of a call, by call id; without it Gemini refuses the history."""
_KINDS: Final = frozenset({"user", "gemini", "info", "error", "warning"})


def detect(sample: Sequence[object]) -> bool:
    """Whether a session head with its messages, a `gemini` message, or Gemini contents are among the values."""
    return any(
        _is_reply(value)
        or _is_content(value)
        or is_list_of(mapping(value).get("messages"), _is_reply)
        or _is_head(value)
        or next(dialogues(value, _is_content), None) is not None
        for value in sample
    )


@dataclass(kw_only=True)
class _Session:
    """The messages of a session in order, by id, while its records are applied."""

    messages: dict[str, Record] = field(default_factory=dict)
    contents: list[Record] = field(default_factory=list)

    def put(self, message: object, line: int | None) -> None:
        identity = string(mapping(message).get("id")) or f"message {len(self.messages)}"
        self.messages[identity] = Record(value=message, line=line)

    def rewind(self, identity: object) -> int:
        """Remove a message and all after it; the number of messages removed."""
        ids = list(self.messages)
        gone = ids[ids.index(identity) :] if isinstance(identity, str) and identity in self.messages else []
        for key in gone:
            del self.messages[key]
        return len(gone)


def read(source: Source, skips: Skips) -> Iterator[Transcript]:
    """The one dialogue of the file."""
    session, draft, calls = _Session(), Draft(), CallIds()
    for record in source.records(skips):
        _apply(session, record, skips)
        draft.tools = draft.tools or tools_of(mapping(record.value).get("tools"))
    for record in session.messages.values():
        _add_message(draft, mapping(record.value), calls, skips, record.line)
    for record in session.contents:
        _add_content(draft, mapping(record.value), calls)
    yield transcript_of(draft, name=source.name, format=NAME)


def _apply(session: _Session, record: Record, skips: Skips) -> None:
    value, line = record.value, record.line
    fields = mapping(value)
    if "$rewindTo" in fields:
        if removed := session.rewind(fields["$rewindTo"]):
            skips.add("message taken back by a rewind", line, count=removed)
    elif isinstance(update := fields.get("$set"), dict):
        _put_all(session, mapping(update), line)
    elif _is_content(value):
        session.contents.append(record)
    elif string(fields.get("type")) in _KINDS:
        session.put(value, line)
    elif "messages" in fields:
        _put_all(session, fields, line)
    elif found := next(dialogues(value, _is_content), None):
        session.contents += [Record(value=content, line=line) for content in found[0]]
    elif not _is_head(value):
        skips.add("record of another kind", line)


def _put_all(session: _Session, head: Mapping[str, object], line: int | None) -> None:
    if isinstance(head.get("messages"), list):
        session.messages.clear()
        for message in sequence(head["messages"]):
            session.put(message, line)


def _is_head(value: object) -> bool:
    fields = mapping(value)
    return isinstance(fields.get("sessionId"), str) and isinstance(fields.get("projectHash"), str)


def _is_reply(value: object) -> bool:
    fields = mapping(value)
    return fields.get("type") == "gemini" and not fields.keys().isdisjoint({"content", "toolCalls", "thoughts"})


def _is_content(value: object) -> bool:
    fields = mapping(value)
    parts = fields.get("parts")
    return (
        fields.get("role") in ("user", "model", "function")
        and isinstance(parts, list)
        and all(isinstance(part, dict | str) for part in parts)
    )


def _add_message(draft: Draft, message: Mapping[str, object], calls: CallIds, skips: Skips, line: int | None) -> None:
    time, identity = moment(message.get("timestamp")), string(message.get("id"))
    match message.get("type"):
        case "user":
            draft.add(HumanMessage(content=_content(message.get("content")), id=identity), time=time)
        case "gemini":
            _add_reply(draft, message, calls)
        case kind:
            skips.add(f"{kind if isinstance(kind, str) else 'unknown'} message", line)


def _add_reply(draft: Draft, message: Mapping[str, object], ids: CallIds) -> None:
    time = moment(message.get("timestamp"))
    tokens = mapping(message.get("tokens"))
    blocks: list[BlockDict] = [_thought(mapping(thought)) for thought in sequence(message.get("thoughts"))]
    content = _content(message.get("content"))
    blocks += [text_block(content)] if isinstance(content, str) and content else []
    blocks += [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    recorded = [mapping(call) for call in sequence(message.get("toolCalls"))]
    calls: list[RecordedCall] = []
    for call in recorded:
        name = string(call.get("name")) or "unknown"
        calls.append(RecordedCall(id=ids.made(name, call.get("id")), name=name, args=call.get("args")))
    made, thought = tokens.get("output"), tokens.get("thoughts")
    both = made + thought if isinstance(made, int) and isinstance(thought, int) else made
    usage = usage_of(
        input_tokens=tokens.get("input"), output_tokens=both, cache_read=tokens.get("cached"), reasoning=thought
    )
    model = string(message.get("model"))
    draft.model = draft.model or model
    identity = string(message.get("id"))
    content = compact_content(blocks)
    draft.add(reply(content=content, calls=calls, id=identity, usage=usage, model=model), time=time, reply=identity)
    for call, made_call in zip(recorded, calls, strict=True):
        if call.get("result") is not None:
            ids.answered(made_call.name, made_call.id)
            answer, failed = _result(call["result"])
            failed = failed or call.get("status") in ("error", "cancelled")
            at = moment(call.get("timestamp")) or time
            draft.add(result(content=answer, call_id=made_call.id, name=made_call.name, failed=failed), time=at)


def _add_content(draft: Draft, content: Mapping[str, object], ids: CallIds) -> None:
    """Gemini contents: a model's parts make one reply, a user's function responses are results of their own."""
    parts = [
        mapping(part) if isinstance(part, dict) else {"text": as_text(part)} for part in sequence(content.get("parts"))
    ]
    said = compact_content([_part(p) for p in parts if "functionCall" not in p and "functionResponse" not in p])
    if content.get("role") == "model":
        _add_model_content(draft, said, [part for part in parts if "functionCall" in part], ids)
        return
    for part in (part for part in parts if "functionResponse" in part):
        response = mapping(part["functionResponse"])
        answer, failed = _result([part])
        tool = string(response.get("name"))
        draft.add(result(content=answer, call_id=ids.answered(tool, response.get("id")), name=tool, failed=failed))
    if said:
        draft.add(HumanMessage(content=said))


def _add_model_content(draft: Draft, said: Content, parts: Sequence[Mapping[str, object]], ids: CallIds) -> None:
    calls: list[RecordedCall] = []
    signatures: dict[str, object] = {}
    for part in parts:
        call = mapping(part["functionCall"])
        name = string(call.get("name")) or "unknown"
        calls.append(RecordedCall(id=ids.made(name, call.get("id")), name=name, args=call.get("args")))
        if signature := string(part.get("thoughtSignature")):
            signatures[calls[-1].id] = signature
    draft.add(reply(content=said, calls=calls, extra={SIGNATURES: signatures} if signatures else {}))


def _result(value: object) -> tuple[Content, bool]:
    """What a call gave back, and whether it says that it failed."""
    parts = sequence(value) if isinstance(value, list) else (value,)
    blocks: list[BlockDict] = []
    failed = False
    for part in parts:
        fields = mapping(part)
        response = mapping(fields.get("functionResponse"))
        if not response:
            blocks.append(_part(fields) if fields else text_block(as_text(part)))
            continue
        answer = mapping(response.get("response"))
        failed = failed or (set(answer) == {"error"})
        whole = next(iter(answer.values())) if set(answer) in ({"output"}, {"error"}, {"result"}) else answer
        blocks.append(text_block(as_text(whole)))
        blocks += [_part(mapping(inner)) for inner in sequence(response.get("parts"))]
    return compact_content(blocks), failed


def _content(value: object) -> Content:
    if isinstance(value, str) or value is None:
        return value or ""
    parts = sequence(value) if isinstance(value, list) else (value,)
    return compact_content(
        [_part(mapping(part)) if isinstance(part, dict) else text_block(as_text(part)) for part in parts]
    )


def _part(part: Mapping[str, object]) -> BlockDict:
    """One part in LangChain's spelling; what is not known stays as it is."""
    if isinstance(text := part.get("text"), str):
        return {"type": "reasoning", "reasoning": text} if part.get("thought") is True else text_block(text)
    media = mapping(part.get("inlineData")) or mapping(part.get("fileData"))
    mime = string(media.get("mimeType"))
    extra: BlockDict = {"mime_type": mime} if mime else {}
    if data := string(media.get("data")):
        return {"type": _media_kind(mime), "base64": data, **extra}
    if url := string(media.get("fileUri")):
        return {"type": _media_kind(mime), "url": url, **extra}
    kind = part.get("type")
    return {**part, "type": kind if isinstance(kind, str) else next(iter(part), "unknown")}


def _media_kind(mime: str | None) -> str:
    family = (mime or "").partition("/")[0]
    return family if family in ("image", "audio", "video") else "file"


def _thought(thought: Mapping[str, object]) -> BlockDict:
    parts = (string(thought.get("subject")), string(thought.get("description")))
    return {"type": "reasoning", "reasoning": "\n".join(part for part in parts if part is not None)}
