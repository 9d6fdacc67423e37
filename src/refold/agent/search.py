"""`search_history`: full text over the whole log, folded or not, and over the results that were stored when they came.

The index is incremental: a search reads only what is new since the last one of the thread. Ranking is BM25 by SQLite's
FTS5 over our own terms (`refold.core.terms`), which make Chinese, Japanese and Korean searchable, and parts of
identifiers. The index is a cache in memory, without the texts, which are read again where something is found; a new
process builds it again from the log.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from langchain.tools import ToolRuntime
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from refold.agent.recall import READ_HISTORY, Paging
from refold.agent.threads import thread_name
from refold.core.blocks import blocks_of
from refold.core.effects import ReadFile
from refold.core.estimate import estimate_text
from refold.core.ingest import INGESTED
from refold.core.log import EMPTY_LOG, Log, extend_log, read_log
from refold.core.messages import REFOLD_KEY, calls_of, role_of
from refold.core.program import Program, arun, run
from refold.core.terms import query_terms, terms_of
from refold.core.words import spoken, words_of
from refold.errors import FilesError
from refold.files import Files, aanswer, answer, files_session

SEARCH_HISTORY: Final = "search_history"
_DESCRIPTION = (
    "Search this whole conversation, also what is no longer shown: words, identifiers, paths, in any language. Answers "
    "with the best messages: their ids and what stands around the words. Read one whole with read_history."
)
_RECALL: Final = frozenset({SEARCH_HISTORY, READ_HISTORY})
_MOST_THREADS: Final = 16
_AROUND: Final = 100
"""Characters shown on each side of what was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Searchable:
    """The text of a message that can be searched. From `offset` on it is that of the file at `path`, where one is."""

    text: str
    path: str = ""
    offset: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A message that a query found: which, what it says there, and where in a stored file that is."""

    key: str
    role: str
    excerpt: str
    place: str

    def line(self) -> str:
        """The hit as the model reads it."""
        return f"- {self.key} ({self.role}{self.place}): {self.excerpt}"


@dataclass(kw_only=True)
class HistoryIndex:
    """The index of one thread's log; safe from several threads."""

    _log: Log = EMPTY_LOG
    _terms: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(":memory:", check_same_thread=False))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        tokenizer = "unicode61 tokenchars '-_.'"
        self._terms.execute(f"CREATE VIRTUAL TABLE term USING fts5(words, content='', tokenize = \"{tokenizer}\")")

    def pending(self, messages: Sequence[BaseMessage]) -> tuple[Log, int]:
        """The log as a snapshot, and how many of its messages are indexed already; none where it did not only grow."""
        with self._lock:
            grown = extend_log(self._log, messages)
            return (grown, len(self._log)) if grown is not None else (read_log(messages), 0)

    def add(self, log: Log, known: int, texts: Sequence[Searchable]) -> None:
        """Index the messages of a log from `known` on, by their texts; another thread may have done so meanwhile."""
        with self._lock:
            if known == 0:
                self._terms.execute("INSERT INTO term(term) VALUES ('delete-all')")
            elif known != len(self._log):
                return
            rows = [(known + 1 + n, " ".join(terms_of(text.text))) for n, text in enumerate(texts)]
            self._terms.executemany("INSERT INTO term(rowid, words) VALUES (?, ?)", rows)
            self._log = log

    def search(self, terms: Sequence[str], limit: int) -> tuple[Log, Sequence[int]]:
        """The log that is indexed, and in it the best messages for some terms: those with all of them first, then those
        with some, by BM25; where there are none, those with words that begin as the terms do."""
        quoted = ['"' + term.replace('"', '""') + '"' for term in terms]
        with self._lock:
            ranked: dict[int, None] = {}
            for wanted, most in (
                (" AND ".join(quoted), limit), (" OR ".join(quoted), limit), (" OR ".join(f"{q} *" for q in quoted), 1)
            ):  # fmt: skip
                if len(ranked) < most:
                    rows = self._terms.execute(
                        "SELECT rowid FROM term WHERE term MATCH ? ORDER BY rank, rowid DESC LIMIT ?", (wanted, limit)
                    )
                    ranked |= dict.fromkeys(row[0] - 1 for row in rows)
            return self._log, list(ranked)[:limit]


@dataclass(kw_only=True)
class HistorySearch:
    """The indexes of the threads that were searched lately."""

    _indexes: "OrderedDict[str, HistoryIndex]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def index(self, thread: str) -> HistoryIndex:
        """The index of a thread; an empty one for a thread that was not searched lately."""
        with self._lock:
            index = self._indexes.pop(thread, None) or HistoryIndex()
            self._indexes[thread] = index
            while len(self._indexes) > _MOST_THREADS:
                self._indexes.popitem(last=False)
            return index


def search_history_tool(files: Files, *, paging: Paging) -> BaseTool:
    """The tool over the log and the files of its artifacts."""
    search = HistorySearch()

    def program(query: str, runtime: ToolRuntime, limit: int) -> Program[str]:
        return search_history_gen(
            search.index(thread_name(runtime.config, runtime.state["messages"])),
            query,
            runtime.state["messages"],
            limit=limit,
            page=paging.tokens(runtime),
        )

    def find(query: str, runtime: ToolRuntime, limit: int = 8) -> str:
        with files_session(files, runtime.state):
            return run(program(query, runtime, limit), partial(answer, files))

    async def afind(query: str, runtime: ToolRuntime, limit: int = 8) -> str:
        with files_session(files, runtime.state):
            return await arun(program(query, runtime, limit), partial(aanswer, files.asynchronous()))

    return StructuredTool.from_function(find, afind, name=SEARCH_HISTORY, description=_DESCRIPTION)


def search_history_gen(
    index: HistoryIndex, query: str, messages: Sequence[BaseMessage], *, limit: int, page: int
) -> Program[str]:
    """Index what is new, search, and say what was found in at most `page` tokens."""
    log, known = index.pending(messages)
    texts: list[Searchable] = []
    for message in log.messages[known:]:
        texts.append((yield from _text_gen(message)))
    if texts:
        index.add(log, known, texts)
    terms = query_terms(query)
    indexed, found = index.search(terms, max(1, min(limit, 50))) if terms else (log, ())
    if not found:
        return f"Nothing in this conversation matches {query!r}. Try fewer or other words."
    lines: list[str] = []
    left = page
    for place in found:
        new = texts[place - known] if log is indexed and place >= known else None
        text = new or (yield from _text_gen(indexed.messages[place]))
        line = _found(indexed, place, text, query, terms).line()
        left -= estimate_text(line) + 1
        if left < 0:
            lines.append(f"- … {len(found) - len(lines)} more; ask for fewer or search more narrowly")
            break
        lines.append(line)
    return "\n".join(lines)


def _found(log: Log, index: int, searched: Searchable, query: str, terms: Sequence[str]) -> Found:
    part, at = excerpt(searched.text, query, terms)
    stored = searched.path and at >= searched.offset
    return Found(
        key=log.keys[index],
        role=role_of(log.messages[index]),
        excerpt=part,
        place=f", in {searched.path} from start={max(0, at - searched.offset - _AROUND)}" if stored else "",
    )


def excerpt(text: str, query: str, terms: Sequence[str]) -> tuple[str, int]:
    """What stands around the query, or around the rarest of its terms that is found, on one line, and where that is."""
    folded = text.casefold()
    whole = query.strip().casefold()
    if whole not in folded:  # of equally rare terms the longest
        counted = [(count, -len(term), term) for term in terms if term and (count := folded.count(term))]
        whole = min(counted)[2] if counted else ""
    at, length = folded.find(whole), len(whole)
    start, stop = max(0, at - _AROUND), min(len(text), at + length + _AROUND)
    part = " ".join(text[start:stop].split())
    return f"{'…' if start else ''}{part}{'…' if stop < len(text) else ''}", at


def _text_gen(message: BaseMessage) -> Program[Searchable]:
    """Everything of a message that can be searched; of a result that was stored when it came, the stored text.

    What the recall tools were asked and answered is left out: it repeats what they found.
    """
    if isinstance(message, ToolMessage) and message.name in _RECALL:
        return Searchable(text="")
    parts = [words for block in blocks_of(message) if (words := words_of(block))]
    parts += [f"{call.name} {spoken(call.args)}" for call in calls_of(message) if call.name not in _RECALL]
    own = "\n".join(parts)
    marked = message.additional_kwargs.get(REFOLD_KEY)
    if isinstance(marked, dict) and marked.get("kind") == INGESTED:
        path = str(marked["path"])
        try:
            stored = yield from ReadFile(path=path)
        except FilesError:
            return Searchable(text=own)  # its stub is still found
        return Searchable(text=f"{own}\n{stored.decode('utf-8', 'replace')}", path=path, offset=len(own) + 1)
    return Searchable(text=own)
