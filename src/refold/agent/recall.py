"""`read_history`: the tool that reads back what left the window.

It takes what a stub names: a path of an artifact, or the id of a message of the log. It pages by characters, so that it
makes progress on any content, and a page is bounded in tokens, so that reading back never floods the window again.
Media come back as media.
"""

import base64
import json
import mimetypes
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from langchain.tools import ToolRuntime
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from refold.core.effects import ReadFile
from refold.core.estimate import estimate_text
from refold.core.log import read_log
from refold.core.messages import blocks_of, calls_of, role_of
from refold.core.program import Program, arun, run
from refold.errors import FileMissingError, PathError
from refold.files import Files, aanswer, answer

Answer: TypeAlias = str | list[str | dict[str, object]]

READ_HISTORY = "read_history"
_DESCRIPTION = (
    "Read back, word for word, what this conversation shows shortened. `ref` is a path or a message id as a note names "
    "it. Long content comes in pages: ask again with the `start` that the answer gives."
)
_MOST_MEDIA = 8 * 1024 * 1024
"""Bytes of a medium that is handed back inline: the smallest documented limit of the large providers is 5 to 20 MB."""


def read_history_tool(files: Files, *, page: int) -> BaseTool:
    """The tool over some files; `page` is the most tokens of one answer."""

    def read(ref: str, runtime: ToolRuntime, start: int = 0) -> Answer:
        return run(read_history_gen(ref, start, runtime.state["messages"], page), partial(answer, files))

    async def aread(ref: str, runtime: ToolRuntime, start: int = 0) -> Answer:
        program = read_history_gen(ref, start, runtime.state["messages"], page)
        return await arun(program, partial(aanswer, files.asynchronous()))

    return StructuredTool.from_function(read, aread, name=READ_HISTORY, description=_DESCRIPTION)


def read_history_gen(ref: str, start: int, messages: Sequence[BaseMessage], page: int) -> Program[Answer]:
    """One page of what a reference names. Mistakes are answered in words that the model can act on."""
    ref = ref.strip()
    if not ref.startswith("/"):
        log = read_log(messages)
        index = log.positions.get(ref)
        if index is None:
            return f"No message {ref!r} in this conversation. Use an id or a path exactly as a note names it."
        shown = paged(_message_text(log.messages[index]), start, page, of=ref)
        media = _media_of(log.messages[index]) if start <= 0 else []
        return [{"type": "text", "text": shown}, *media] if media else shown
    try:
        data = yield from ReadFile(path=ref)
    except (FileMissingError, PathError) as error:
        return f"Cannot read {ref}: {error}"
    mime = mimetypes.guess_type(ref)[0] or ""
    if mime.split("/")[0] in ("image", "audio", "video") or mime == "application/pdf":
        return _medium(ref, mime, data)
    return paged(data.decode("utf-8", "replace"), start, page, of=ref)


def paged(text: str, start: int, page: int, *, of: str) -> str:
    """The text from `start` on, at most `page` tokens of it, and where to go on."""
    start = max(0, start)
    if start >= len(text) > 0:
        return f"[{of} has {len(text)} characters; start={start} is past its end]"
    length = min(len(text) - start, page * 6)
    while length > 64 and estimate_text(text[start : start + length]) > page:
        length = length * 3 // 4
    stop = start + length
    head = f"[{of}: characters {start} to {stop} of {len(text)}" if (start or stop < len(text)) else f"[{of}, whole"
    more = f"; go on with start={stop}" if stop < len(text) else ""
    return f"{head}{more}]\n{text[start:stop]}"


def _message_text(message: BaseMessage) -> str:
    """Everything of a message but its inline media: texts and reasoning verbatim, calls and other blocks as JSON."""
    lines = [f"({role_of(message)})"]
    for block in blocks_of(message):
        if block.kind in ("text", "reasoning"):
            lines += [block.text] if block.text else []
        elif block.media is None or block.media.data is None:
            lines += [] if block.kind == "call" else [_json(block.raw)]
    lines += [
        f"(calls {call.name} {call.id}) " + (call.args if isinstance(call.args, str) else _json(call.args))
        for call in calls_of(message)
    ]
    return "\n".join(lines)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _media_of(message: BaseMessage) -> list[str | dict[str, object]]:
    """The inline media of a message, as LangChain's standard blocks; too large ones as a note."""
    found: list[str | dict[str, object]] = []
    for media in (block.media for block in blocks_of(message)):
        if media is None or media.data is None:
            continue
        if media.size > _MOST_MEDIA:
            found.append({"type": "text", "text": f"({media.mime}, {media.size} bytes, too large to show)"})
        else:
            found.append({"type": media.kind, "base64": media.data, "mime_type": media.mime or "image/png"})
    return found


def _medium(ref: str, mime: str, data: bytes) -> Answer:
    if len(data) > _MOST_MEDIA:
        return f"{ref} is {mime} of {len(data)} bytes, too large to show"
    kind = "file" if mime == "application/pdf" else mime.split("/")[0]
    return [
        {"type": "text", "text": f"[{ref}, {mime}, {len(data)} bytes]"},
        {"type": kind, "base64": base64.b64encode(data).decode("ascii"), "mime_type": mime},
    ]
