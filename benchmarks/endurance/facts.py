"""Whether every fact that folds took out of view is found again: by the tools that the agent has, and nothing else."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import BaseMessage

from refold.agent.reach import recall
from refold.agent.recall import Paging, read_history_tool
from refold.agent.search import search_history_tool
from refold.agent.window import WindowMiddleware
from refold.checkpoint.sqlite.connect import connect
from refold.checkpoint.sqlite.saver import SqliteSaver
from refold.core.canonical import digest
from refold.core.facts import FactClass, Presence, extract_facts
from refold.core.facts.model import Fact
from refold.core.history import parse_contents, parse_history
from refold.core.messages import calls_of, text_of
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.window import Window
from refold.errors import RefoldError
from refold.files import Files, LocalFiles
from refold.replay.measure import Scale
from refold.replay.run import play
from refold.replay.tape import Tape, playable
from refold.replay.transcript import Transcript

CLASSES = (FactClass.PATH, FactClass.COMMAND, FactClass.URL, FactClass.NUMBER, FactClass.IDENTIFIER)
LEAST = 8_000
_PATH = re.compile(r"/(?:history|results|inputs|media)/[^\s\"'()<>\[\]⟦⟧,;|`]+")
_OURS = re.compile(r"-[0-9a-f]{12}(?:\.md)?$|/media/[0-9a-f]{32}\.\w+$")
"""Recorded texts name other folders of these names; ours end with a hash."""
_SEVERAL = re.compile(r"(/(?:history|results|inputs|media)/[^\s{}]*)\{([^{}]*)\}")
_MORE = re.compile(r"go on with start=(\d+)\]")
_HIT = re.compile(r"^- (\S+) \(", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The facts of a class that left the window: how many were looked for, found by a search, found by reading what a
    search or the window names, and not found."""

    removed: int
    searched: int
    read: int
    missed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """A session: facts by class, the stubs whose path could be read back, those of which it could not, and the messages
    that are nowhere."""

    facts: Mapping[FactClass, Removed]
    stubs: int
    broken: tuple[str, ...]
    unreachable: tuple[str, ...]


class Reader:
    """The agent's own recall tools over a log and its files."""

    def __init__(self, messages: Sequence[BaseMessage], files: Files) -> None:
        paging = Paging(page=Policy().read_page)
        self._search = search_history_tool(files, paging=paging)
        self._read = read_history_tool(files, paging=paging)
        self._runtime: ToolRuntime[Any, Any] = ToolRuntime(
            state={"messages": list(messages)}, config={"configurable": {"thread_id": "replay"}}, context=None,
            stream_writer=lambda value: None, tool_call_id="0", store=None,
        )  # fmt: skip
        self._pages: dict[str, str] = {}

    def search(self, query: str) -> str:
        """The answer of `search_history`."""
        return str(self._search.func(query=query, runtime=self._runtime))  # type: ignore[attr-defined]

    def read(self, ref: str) -> str:
        """All pages of `read_history`."""
        if ref not in self._pages:
            self._pages[ref] = "".join(self._paged(ref))
        return self._pages[ref]

    def _paged(self, ref: str) -> Iterator[str]:
        start = 0
        while True:
            given = self._read.func(ref=ref, start=start, runtime=self._runtime)  # type: ignore[attr-defined]
            text = given if isinstance(given, str) else str(given[0].get("text", ""))
            head, _, body = text.partition("\n")
            yield body
            more = _MORE.search(head)
            if more is None:
                return
            start = int(more[1])


def recalled(transcript: Transcript, folder: Path, *, most: int | None = None) -> Recalled:
    """Run a session in a window of a tenth of its peak, then look for what left it. At most `most` facts of each class
    are looked for, taken evenly."""
    transcript = playable(transcript)
    limit = max(LEAST, _peak(transcript) // 10)
    files = LocalFiles(folder / "files")
    tape = Tape(transcript=transcript)
    middleware = WindowMiddleware(files=files, policy=Policy(context_limit=limit), clock=tape.now)
    connection = connect(str(folder / "c.db"), timeout=30.0)
    try:
        played = play(
            tape, [middleware], limit=limit, model_name=transcript.model or "recorded", scale=Scale.strict(),
            saver=SqliteSaver(connection),
        )  # fmt: skip
    finally:
        connection.close()
    window = project(played.messages, played.folds)
    reader = Reader(played.messages, files)
    words = "\n".join(_words(message) for message in window.messages)
    paths = _leading_on(sorted(set(_PATH.findall(_spread(words)))), files)
    return Recalled(
        facts=dict(_facts(window, words, paths, reader, most)),
        stubs=len(paths),
        broken=tuple(path for path in paths if not is_whole(path, window, files)),
        unreachable=recall(window, files, page=Policy().read_page).unreachable,
    )


def _leading_on(paths: Sequence[str], files: Files) -> list[str]:
    """Paths, and those of older archives that these begin with, as an agent that reads one goes on to the next."""
    found = [path for path in paths if _OURS.search(path)]
    for path in found:  # grows
        if path.startswith("/history/"):
            earlier = parse_contents(files.read(path).decode("utf-8", "surrogatepass")).earlier
            found += [one.path for one in earlier if one.path not in found]
    return found


def _spread(words: str) -> str:
    """A text with `folder/{a, b}`, as an index writes several paths, written out."""
    return _SEVERAL.sub(lambda found: " ".join(found[1] + name.strip() for name in found[2].split(",")), words)


def is_whole(path: str, window: Window, files: Files) -> bool:
    """Whether a path that stands in the window gives back what its name says, by the hash in it."""
    try:
        data = files.read(path)
    except RefoldError:
        return False
    name = path.rsplit("/", 1)[1]
    match path.split("/")[1]:
        case "media":
            return digest(data) == name.split(".")[0]
        case "history":
            return _is_archive(data.decode("utf-8", "surrogatepass"), window)
        case _:
            return digest(data).startswith(name.removesuffix(".md").rsplit("-", 1)[1])


def _is_archive(text: str, window: Window) -> bool:
    """Whether an archive parses whole and each of its messages says what the log's says."""
    try:
        entries = parse_history(text)
    except RefoldError:
        return False
    log = window.log
    return bool(entries or parse_contents(text).earlier) and all(
        entry.id in log.positions and entry.body == _body(log.messages[log.positions[entry.id]]) for entry in entries
    )


def _body(message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = (part if isinstance(part, str) else part.get("text") for part in message.content)
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _facts(
    window: Window, words: str, paths: Sequence[str], reader: Reader, most: int | None
) -> Iterator[tuple[FactClass, Removed]]:
    seen = Presence(words)
    gone: dict[FactClass, list[Fact]] = {cls: [] for cls in CLASSES}
    for fact in extract_facts(window.log.messages):
        if fact.cls in gone and not seen.has(fact):
            gone[fact.cls].append(fact)
    named = partial(_named, paths, reader)
    for cls, facts in gone.items():
        step = 1 if most is None else max(1, -(-len(facts) // most))
        asked = facts[::step]
        ways = [_way(fact, reader, named) for fact in asked]
        yield cls, Removed(
            removed=len(asked), searched=ways.count("search"), read=ways.count("read"),
            missed=tuple(fact.text for fact, way in zip(asked, ways, strict=True) if way is None),
        )  # fmt: skip


def _way(fact: Fact, reader: Reader, named: Any) -> str | None:
    """How a fact is found: in what a search shows, by reading a message that it names, by a path in the window."""
    for query in (fact.text, f"{fact.context} {fact.text}"):
        shown = reader.search(query)
        if _says(shown, fact) and not shown.startswith("Nothing in this conversation"):
            return "search"
        for key in _HIT.findall(shown):
            if key in fact.message_ids and (_says(text := reader.read(key), fact) or Presence(text).has(fact)):
                return "read"
    return "read" if named(fact) else None


def _named(paths: Sequence[str], reader: Reader, fact: Fact) -> bool:
    return any(_says(reader.read(path), fact) for path in paths if not path.startswith("/media/"))


def _says(text: str, fact: Fact) -> bool:
    """Whether a text holds a fact, as it is or as JSON writes it."""
    spelled = (fact.text, json.dumps(fact.text, ensure_ascii=False)[1:-1])
    return any(one in text for one in spelled) or _plain(fact.text) in _plain(text)


def _plain(text: str) -> str:
    """A text with its white space, its line ends as JSON and shells write them, and its quotes in one form."""
    return " ".join(text.replace("\\n", " ").replace('\\"', '"').split())


def _words(message: BaseMessage) -> str:
    return "\n".join([text_of(message), *(f"{call.name} {call.args}" for call in calls_of(message))])


def _peak(transcript: Transcript) -> int:
    """Tokens of the largest request without refold."""
    scale = Scale.strict()
    parts = scale.parts(None, [schema.as_openai() for schema in transcript.tools], transcript.messages)
    return scale.meter.count_text(transcript.system or "") + sum(tokens for _, tokens in parts)
