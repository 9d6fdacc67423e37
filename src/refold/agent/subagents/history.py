"""The grant: a caller may search and read what a child did, once the child ended. Off unless a spec gives it.

The child's messages are stored as one archive (the format of `refold.core.history`) among the shared files, so that
they are there in any process, with any checkpointer or none. The result of the call names the archive, and the two
tools of this module open only archives that a result in the caller's own log names. Nothing of a history enters the
caller's window but what it asks for, in pages.

The grant is about what the caller is told and given, no lock: files are shared, and rules of `Permissions` are what
keeps an agent from a path.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from refold.agent.recall import Answer, Paging, read_history_gen
from refold.agent.search import HistorySearch, search_history_gen
from refold.core.archive import store_gen
from refold.core.artifacts import media_artifact, text_artifact
from refold.core.blocks import blocks_of
from refold.core.canonical import digest
from refold.core.effects import ReadFile, Report
from refold.core.history import HistoryEntry, parse_history, render_history
from refold.core.log import read_log
from refold.core.messages import text_of, with_content
from refold.core.paths import safe_name
from refold.core.program import Program, arun, run
from refold.errors import FilesError
from refold.files import Files, aanswer, answer, files_session

SEARCH_SUBAGENT: Final = "search_subagent_history"
READ_SUBAGENT: Final = "read_subagent_history"
HISTORY_KEY: Final = "refold_subagent_history"
"""In `additional_kwargs` of a result of `task`: the path and digest of the run's archive."""

_SEARCH_TEXT: Final = (
    "Search what a subagent did, message by message: words, identifiers, paths. `history` is the path that the result "
    f"of its task names. Answers with message ids and what stands around the words; read one with {READ_SUBAGENT}."
)
_READ_TEXT: Final = (
    "Read, word for word, what a subagent did. `history` is the path that the result of its task names; `ref` is a "
    "message id, several with commas between, or a range (first..last, ..last, first..)."
)
_SHORT: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A run whose messages the caller may read."""

    subagent: str
    thread: str
    messages: Sequence[BaseMessage]


def granted_gen(grant: Grant, result: BaseMessage) -> Program[BaseMessage]:
    """The result of a task with the path of the run's history, once that is stored and verified; as it was where it
    cannot be stored."""
    text = render_history(grant.messages, thread=grant.thread, seq=0)
    path = f"/history/{safe_name(grant.thread)}/run-{digest(text)[:_SHORT]}.md"
    media = [media_artifact(b.media) for message in grant.messages for b in blocks_of(message) if b.media is not None]
    archive = text_artifact(path, text)
    failed = yield from store_gen((*(medium for medium in media if medium is not None), archive))
    if failed is not None:
        yield from Report(event="artifact_failed", data={"path": path, "error": repr(failed)[:300]})
        return result
    note = f"[history of this run of {grant.subagent}: {path}; {SEARCH_SUBAGENT} and {READ_SUBAGENT} open it]"
    named = with_content(result, f"{note}\n{text_of(result)}")
    kept = {**named.additional_kwargs, HISTORY_KEY: {"path": path, "digest": archive.digest}}
    return named.model_copy(update={"additional_kwargs": kept})


def granted(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """The histories that a log's results name, with their digests."""
    marks = (m.additional_kwargs.get(HISTORY_KEY) for m in messages if isinstance(m, ToolMessage))
    return {str(mark["path"]): str(mark["digest"]) for mark in marks if isinstance(mark, dict)}


def open_gen(history: str, messages: Sequence[BaseMessage]) -> Program[list[BaseMessage] | str]:
    """The messages of a granted run, or in words why there are none."""
    known = granted(messages)
    wanted = history.strip()
    if wanted not in known:
        there = ", ".join(known) or "none yet"
        return f"{wanted!r} is no history that was granted to you. The results of your tasks name: {there}."
    try:
        data = yield from ReadFile(path=wanted)
        if digest(data) != known[wanted]:
            return f"{wanted} was changed since it was written; it cannot be relied on."
        return [_message(entry) for entry in parse_history(data.decode("utf-8", "surrogatepass"))]
    except FilesError as error:
        return f"Cannot read {wanted}: {error}"


def history_tools(files: Files, paging: Paging) -> Sequence[BaseTool]:
    """The two tools, over the files that the archives are in."""
    search = HistorySearch()

    def find_gen(history: str, query: str, limit: int, runtime: ToolRuntime) -> Program[Answer]:
        opened = yield from open_gen(history, runtime.state["messages"])
        if isinstance(opened, str):
            return opened
        index, page = search.index(history.strip()), paging.tokens(runtime)
        return (yield from search_history_gen(index, query, opened, limit=limit, page=page))

    def read_gen(history: str, ref: str, start: int, runtime: ToolRuntime) -> Program[Answer]:
        opened = yield from open_gen(history, runtime.state["messages"])
        if isinstance(opened, str):
            return opened
        return (yield from read_history_gen(ref, start, read_log(opened), paging.tokens(runtime)))

    def find(history: str, query: str, runtime: ToolRuntime, limit: int = 8) -> Answer:
        with files_session(files, runtime.state):
            return run(find_gen(history, query, limit, runtime), partial(answer, files))

    async def afind(history: str, query: str, runtime: ToolRuntime, limit: int = 8) -> Answer:
        program = find_gen(history, query, limit, runtime)
        with files_session(files, runtime.state):
            return await arun(program, partial(aanswer, files.asynchronous()))

    def read(history: str, runtime: ToolRuntime, ref: str = "..", start: int = 0) -> Answer:
        with files_session(files, runtime.state):
            return run(read_gen(history, ref, start, runtime), partial(answer, files))

    async def aread(history: str, runtime: ToolRuntime, ref: str = "..", start: int = 0) -> Answer:
        program = read_gen(history, ref, start, runtime)
        with files_session(files, runtime.state):
            return await arun(program, partial(aanswer, files.asynchronous()))

    return (
        StructuredTool.from_function(find, afind, name=SEARCH_SUBAGENT, description=_SEARCH_TEXT),
        StructuredTool.from_function(read, aread, name=READ_SUBAGENT, description=_READ_TEXT),
    )


def _message(entry: HistoryEntry) -> BaseMessage:
    """An archived message as the recall tools take it: everything that the archive holds of it, as text."""
    lines: list[str] = []
    extra: dict[str, object] = {}
    for part in entry.parts:
        if part.kind == "extra":
            extra |= json.loads(part.text)
        elif part.kind in ("text", "reasoning"):
            lines.append(part.text)
        else:
            named = " ".join(str(part.attributes[key]) for key in ("name", "id") if part.attributes.get(key))
            lines.append(f"({part.kind} {named}) {part.text}")
    text = "\n".join(lines)
    match entry.role:
        case "ai":
            return AIMessage(text, id=entry.id)
        case "tool":
            answers = str(entry.attributes.get("answers") or "")
            return ToolMessage(text, id=entry.id, tool_call_id=answers, additional_kwargs=extra)
        case "system":
            return SystemMessage(text, id=entry.id)
        case _:
            return HumanMessage(text, id=entry.id)
