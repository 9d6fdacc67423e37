"""refold's own session format: one JSON value per line, described in docs/session-format.md.

A header line, then one message per line; a subagent adds its own header line and its messages name its number. Writing
is lossless or refused: what JSON cannot hold raises instead of coming back as something else.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)
from pydantic import ValidationError

from refold.errors import SessionFormatError
from refold.replay.fields import MAX_DEPTH, too_deep
from refold.replay.transcript import Transcript

VERSION: Final = 1
HEADER: Final = "refold_session"
"""The key that marks the header line; its value is the format version."""
SUBAGENT: Final = "subagent"
"""The key that marks a subagent's header line; its value is the subagent's number in the file, from 1."""

_CLASSES: Final[Mapping[str, type[BaseMessage]]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
    "remove": RemoveMessage,
}


def write_jsonl(path: str | Path, transcripts: Transcript | Iterable[Transcript]) -> int:
    """Write transcripts to a file, one after another, and return the number of messages written.

    The file appears whole or not at all. Raises `SessionFormatError` when a message cannot be written without loss
    (bytes, NaN, a tuple, a key that is no text, half a character, nesting deeper than 100) or the file cannot be made.
    """
    target = Path(path)
    items = [transcripts] if isinstance(transcripts, Transcript) else transcripts
    count = 0
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                for transcript in items:
                    for line in session_lines(transcript):
                        stream.write(line + "\n")
                        count += not line.startswith((f'{{"{HEADER}"', f'{{"{SUBAGENT}"'))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise SessionFormatError(f"cannot write {target}: {error.strerror or error}") from error
    return count


def session_lines(transcript: Transcript) -> Iterator[str]:
    """The lines of one transcript, without line ends."""
    numbers = iter(range(1, 1 << 31))
    yield from _agent_lines(transcript, {HEADER: VERSION}, number=0, numbers=numbers)


def message_fields(message: BaseMessage) -> Mapping[str, object]:
    """A message as a JSON object: its type, and every field that is not at its default.

    A streaming chunk is written as the message that it amounts to. Raises `SessionFormatError` for a message of a class
    that is not LangChain's.
    """
    whole = message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message
    if type(whole) is not _CLASSES.get(whole.type):
        raise SessionFormatError(f"message {whole.id}: its class {type(whole).__qualname__} is none of LangChain's own")
    kept = {
        name: value
        for name, value in whole.model_dump(exclude={"type"}).items()
        if name == "content" or not _is_default(whole, name, value)
    }
    return {"type": whole.type, **kept}


def message_from(fields: Mapping[str, object]) -> BaseMessage:
    """The message that `message_fields` described. Raises `SessionFormatError` when it describes none."""
    kind: Callable[..., BaseMessage] | None = _CLASSES.get(str(fields.get("type")))
    if kind is None:
        raise SessionFormatError(f"no message type {fields.get('type')!r}; known: {', '.join(_CLASSES)}")
    try:
        return kind(**{name: value for name, value in fields.items() if name != "type"})
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        raise SessionFormatError(f"fields that are no {fields['type']} message: {error}") from error


def _is_default(message: BaseMessage, name: str, value: object) -> bool:
    declared = type(message).model_fields.get(name)
    if declared is None:
        return False
    default: object = declared.get_default(call_default_factory=True)
    return type(value) is type(default) and value == default


def _agent_lines(
    transcript: Transcript, head: Mapping[str, object], *, number: int, numbers: Iterator[int]
) -> Iterator[str]:
    yield _line({**head, **_head(transcript)}, f"header of {transcript.name}")
    times = transcript.times or (None,) * len(transcript.messages)
    for message, time in zip(transcript.messages, times, strict=True):
        extra: dict[str, object] = {"agent": number} if number else {}
        if time is not None:
            extra["time"] = time.isoformat()
        yield _line({**message_fields(message), **extra}, f"message {message.id}")
    for child in transcript.subagents:
        child_number = next(numbers)
        yield from _agent_lines(child, {SUBAGENT: child_number, "parent": number}, number=child_number, numbers=numbers)


def _head(transcript: Transcript) -> Mapping[str, object]:
    head: dict[str, object] = {
        "name": transcript.name,
        "format": transcript.format,
        "model": transcript.model,
        "call_id": transcript.call_id,
        "system": transcript.system,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in transcript.tools
        ],
        "compactions": [
            {"position": c.position, "summary": c.summary, "tokens_before": c.tokens_before}
            for c in transcript.compactions
        ],
        "skipped": [{"reason": s.reason, "count": s.count, "first_line": s.first_line} for s in transcript.skipped],
    }
    return {name: value for name, value in head.items() if value is not None and value != []}


def _line(value: Mapping[str, object], what: str) -> str:
    try:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line.encode("utf-8")
        same = json.loads(line) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionFormatError(f"{what} cannot be written as JSON: {error}") from error
    if not same:
        raise SessionFormatError(f"{what} holds a tuple, a key that is no text, or another value that JSON changes")
    if too_deep(cast("object", value)):
        raise SessionFormatError(f"{what} is nested deeper than {MAX_DEPTH}")
    return line
