"""`read_history`: the tool that reads back what left the window.

It takes what a note names (`refold.core.refs`): paths of artifacts, messages of the log by id or by the end of it,
several of them, ranges. It pages by characters, so that it makes progress on any content, and a page is bounded in
tokens, by a fixed most and by the room that is free, so that reading back never floods the window again. Media come
back as media. Of the files it opens those alone that hold what left a window: others are for tools with permissions.
"""

import base64
import json
import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from refold.agent.threads import thread_name
from refold.core.blocks import blocks_of
from refold.core.effects import ReadFile
from refold.core.estimate import estimate_text
from refold.core.log import Log, read_log
from refold.core.messages import calls_of, role_of
from refold.core.paths import clean_path, is_under
from refold.core.program import Program, arun, run
from refold.core.refs import Target, Unresolved, resolve, spell
from refold.core.words import file_text
from refold.errors import FilesError
from refold.files import Files, aanswer, answer, files_session
from refold.files.retention import ARTIFACT_FOLDERS

Answer: TypeAlias = str | list[str | dict[str, object]]

READ_HISTORY: Final = "read_history"
_DESCRIPTION = (
    "Read back, word for word, what this conversation shows shortened. `ref` is a path or a message id as a note names "
    "it, the end of an id (@3f9c1a), several of them separated by commas, or a range (first..last, ..last, first..). "
    "Long content comes in pages: ask again with what the answer gives to go on."
)
_MOST_MEDIA = 8 * 1024 * 1024
"""Bytes of a medium that is handed back inline: the smallest documented limit of the large providers is 5 to 20 MB."""
_LEAST_PAGE: Final = 100
"""Tokens of the smallest page: less would make no progress worth a call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paging:
    """How large an answer may be: at most `page` tokens, and at most half of what the window has free, shared by the
    calls of one message. `occupancy` gives (used, budget) of a thread and its log, (0, 0) where that is not known."""

    page: int
    occupancy: Callable[[str, Sequence[BaseMessage]], tuple[int, int]] = lambda thread, messages: (0, 0)

    def tokens(self, runtime: ToolRuntime) -> int:
        """The most tokens of the answer to a call."""
        messages: Sequence[BaseMessage] = runtime.state["messages"]
        used, budget = self.occupancy(thread_name(runtime.config, messages), messages)
        if budget == 0:
            return self.page
        newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
        together = max(1, len(newest.tool_calls)) if newest is not None else 1
        return min(self.page, max(_LEAST_PAGE, (budget - used) // (2 * together)))


def read_history_tool(files: Files, *, paging: Paging) -> BaseTool:
    """The tool over some files."""

    def program(ref: str, start: int, runtime: ToolRuntime) -> Program[Answer]:
        return read_history_gen(ref, start, read_log(runtime.state["messages"]), paging.tokens(runtime))

    def read(ref: str, runtime: ToolRuntime, start: int = 0) -> Answer:
        with files_session(files, runtime.state):
            return run(program(ref, start, runtime), partial(answer, files))

    async def aread(ref: str, runtime: ToolRuntime, start: int = 0) -> Answer:
        with files_session(files, runtime.state):
            return await arun(program(ref, start, runtime), partial(aanswer, files.asynchronous()))

    return StructuredTool.from_function(read, aread, name=READ_HISTORY, description=_DESCRIPTION)


def read_history_gen(ref: str, start: int, log: Log, page: int) -> Program[Answer]:
    """One page of what a reference names. Mistakes are answered in words that the model can act on."""
    targets = resolve(ref, log)
    if isinstance(targets, Unresolved):
        return targets.text
    if len(targets) > 1:
        return (yield from _several_gen(targets, start, log, page))
    if isinstance(target := targets[0], int):
        shown = paged(_message_text(log.messages[target]), start, page, of=log.keys[target])
        media = _media_of(log.messages[target]) if start <= 0 else []
        return [{"type": "text", "text": shown}, *media] if media else shown
    return (yield from _file_gen(target, start, page))


def paged(text: str, start: int, page: int, *, of: str) -> str:
    """The text from `start` on, at most `page` tokens of it, and where to go on."""
    start = max(0, start)
    if start >= len(text) > 0:
        return f"[{of} has {len(text)} characters; start={start} is past its end]"
    stop = _page_end(text, start, page)
    more = f"; go on with start={stop}" if stop < len(text) else ""
    return f"{_head(of, text, start, stop)}{more}]\n{text[start:stop]}"


def _page_end(text: str, start: int, page: int) -> int:
    length = min(len(text) - start, page * 6)
    while length > 64 and estimate_text(text[start : start + length]) > page:
        length = length * 3 // 4
    return start + length


def _head(of: str, text: str, start: int, stop: int) -> str:
    part = start or stop < len(text)
    return f"[{of}: characters {start} to {stop} of {len(text)}" if part else f"[{of}, whole"


def _several_gen(targets: Sequence[Target], start: int, log: Log, page: int) -> Program[str]:
    """As much of several as fits a page, in order, and the reference that goes on. `start` is of the first."""
    parts: list[str] = []
    left, at = page, max(0, start)
    for number, target in enumerate(targets):
        if parts and left < _LEAST_PAGE // 2:
            return "\n\n".join([*parts, f'[go on with ref="{spell(targets[number:], log)}"]'])
        of = log.keys[target] if isinstance(target, int) else target
        text = yield from _text_gen(target, log)
        at = min(at, len(text))
        stop = _page_end(text, at, left)
        parts.append(f"{_head(of, text, at, stop)}]\n{text[at:stop]}")
        if stop < len(text):
            on = f'[go on with ref="{spell(targets[number:], log)}", start={stop}]'
            return "\n\n".join([*parts, on])
        left -= estimate_text(parts[-1]) + 2
        at = 0
    return "\n\n".join(parts)


def _text_gen(target: Target, log: Log) -> Program[str]:
    """One of several as text; a medium is named, to be seen alone."""
    if isinstance(target, int):
        media = [part for part in _media_of(log.messages[target]) if not isinstance(part, str)]
        notes = [f"({part['type']}: read this message alone to see it)" for part in media if part["type"] != "text"]
        return "\n".join([_message_text(log.messages[target]), *notes])
    found = yield from _file_gen(target, 0, None)
    return found if isinstance(found, str) else "(a medium: read this path alone to see it)"


def _file_gen(path: str, start: int, page: int | None) -> Program[Answer]:
    """A page of a file, or the whole text of it."""
    try:
        path = clean_path(path)
        if not any(is_under(path, folder) for folder in ARTIFACT_FOLDERS):
            return f"{path} is nothing that this conversation stored; a tool for files reads it, if one may."
        data = yield from ReadFile(path=path)
    except FilesError as error:
        return f"Cannot read {path}: {error}"
    mime = mimetypes.guess_type(path)[0] or ""
    if mime.split("/")[0] in ("image", "audio", "video") or mime == "application/pdf":
        return _medium(path, mime, data)
    text = data.decode("utf-8", "replace")
    return text if page is None else paged(text, start, page, of=path)


def _message_text(message: BaseMessage) -> str:
    """Everything of a message but its inline media: texts, reasoning, text files as they are, others as JSON."""
    lines = [f"({role_of(message)})"]
    for block in blocks_of(message):
        if block.kind in ("text", "reasoning"):
            lines += [block.text] if block.text else []
        elif (filed := file_text(block)) is not None:
            lines += [filed]
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
    for media in (block.media for block in blocks_of(message) if file_text(block) is None):
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
