"""What became of every message: seen verbatim in the window, read back from a stored file, or read back by its id.

Nothing is taken for granted here: files are read through the `Files` of the run and parsed, ids are read with the very
program of the `read_history` tool, page by page, and what comes back is compared with the original.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from langchain_core.messages import BaseMessage

from refold.agent.recall import Answer, read_history_gen
from refold.core.artifacts import media_path
from refold.core.blocks import blocks_of
from refold.core.canonical import digest, digest_of
from refold.core.facts import FactClass, Presence, extract_facts
from refold.core.history import HistoryEntry, parse_contents, parse_history
from refold.core.log import Log
from refold.core.messages import calls_of, text_of
from refold.core.program import run
from refold.core.window import Window
from refold.errors import FilesError, IntegrityError
from refold.files import Files, answer

_PATH: Final = re.compile(r"/(?:history|results|inputs|media)/[^\s\"'()<>\[\]⟦⟧,;]+")
_PAGE: Final = re.compile(r"\[[^\n]*?(?:; go on with start=(\d+))?\]\n")
_MOST_PAGES: Final = 100_000

Piece: TypeAlias = tuple[str, str]
"""A part of a message that must not be lost: its kind and its text, or the digest of what is no text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """How many facts of a class a log holds, how many the window shows, and how many can be seen or read back."""

    total: int
    in_view: int
    recallable: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """Where the messages of a log are: how many in the window, by path and by id, and the keys of those nowhere."""

    in_window: int
    by_path: int
    by_id: int
    unreachable: tuple[str, ...]
    facts: Mapping[FactClass, Kept]


@dataclass(kw_only=True)
class _Stored:
    """The files that the window names, read once: single texts by path, archived messages by id."""

    texts: dict[str, str]
    entries: dict[str, HistoryEntry]
    named: str


def recall(window: Window, files: Files, *, page: int) -> Recalled:
    """Look for every message of the window's log. `page` is the most tokens of one answer of `read_history`."""
    log = window.log
    shown = {entry.start: entry.message for entry in window.entries if entry.kind in ("log", "item")}
    stored = _read_stored("\n".join(_words(entry.message) for entry in window.entries), files)
    found = {"window": 0, "path": 0, "id": 0}
    lost: list[str] = []
    whole: set[str] = set()
    for index, message in enumerate(log.messages):
        needed = pieces_of(message)
        seen = pieces_of(shown[index]) if index in shown else ()
        if seen == needed:
            found["window"] += 1
            whole.add(log.keys[index])
        elif not (left := _missing(needed, [*seen, *_by_path(message, log.keys[index], stored, files)])):
            found["path"] += 1
        elif not _missing(left, _by_id(index, log, left, page, files)):
            found["id"] += 1
        else:
            lost.append(log.keys[index])
    return Recalled(
        in_window=found["window"],
        by_path=found["path"],
        by_id=found["id"],
        unreachable=tuple(lost),
        facts=_facts(window, whole, lost),
    )


def pieces_of(message: BaseMessage) -> tuple[Piece, ...]:
    """What a message says: texts, visible reasoning, calls with their arguments, media."""
    pieces: list[Piece] = []
    for block in blocks_of(message):
        if block.kind in ("text", "reasoning") and block.text:
            pieces.append((block.kind, block.text))
        elif block.kind == "media" and block.media is not None and block.media.data is not None:
            pieces.append(("media", media_path(_decoded(block.media.data), block.media.mime)))
    pieces += [("call", _call_text(call.name, call.args)) for call in calls_of(message)]
    return tuple(pieces)


def _call_text(name: str, args: Mapping[str, object] | str) -> str:
    return f"{name} {args if isinstance(args, str) else digest_of(args)}"


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return data.encode()


def _missing(needed: Sequence[Piece], found: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in needed if piece not in found]


def _read_stored(words: str, files: Files) -> _Stored:
    """Read every file that a window names. A name that nothing answers to is no way back, and left out."""
    stored = _Stored(texts={}, entries={}, named=words)
    paths = list(dict.fromkeys(_PATH.findall(words)))
    for path in paths:  # grows: an archive may name older ones
        if path.startswith("/media/"):
            continue
        try:
            text = files.read(path).decode("utf-8", "surrogatepass")
            if path.startswith("/history/"):
                stored.entries.update({entry.id: entry for entry in parse_history(text) if entry.id is not None})
                stored.named += text
                paths += [one.path for one in parse_contents(text).earlier if one.path not in paths]
            else:
                stored.texts[path] = text
        except (FilesError, IntegrityError, UnicodeDecodeError):
            continue
    return stored


def _by_path(message: BaseMessage, key: str, stored: _Stored, files: Files) -> list[Piece]:
    """The pieces of a message that stored files give back."""
    found: list[Piece] = []
    entry = stored.entries.get(key)
    if entry is not None:
        for part in entry.parts:
            if part.kind in ("text", "reasoning"):
                found.append((part.kind, part.text))
            elif part.kind == "call":
                args = part.text if part.attributes.get("valid") is False else json.loads(part.text)
                found.append(("call", _call_text(str(part.attributes.get("name") or ""), args)))
    texts = set(stored.texts.values())
    whole = "\n".join(block.text for block in blocks_of(message) if block.kind == "text" and block.text)
    if whole in texts:
        found += [("text", block.text) for block in blocks_of(message) if block.kind == "text"]
    return found + [
        piece for piece in pieces_of(message) if piece[0] == "media" and _is_stored(piece[1], stored, files)
    ]


def _is_stored(path: str, stored: _Stored, files: Files) -> bool:
    """Whether a medium is in its file, and something that can be read names it."""
    name = path.rsplit("/", 1)[1].split(".")[0]
    if name not in stored.named:
        return False
    try:
        return digest(files.read(path)) == name
    except FilesError:
        return False


def _by_id(index: int, log: Log, needed: Sequence[Piece], page: int, files: Files) -> list[Piece]:
    """The pieces that `read_history` gives back for a message id, all pages of it put together."""
    text, start = "", 0
    for _ in range(_MOST_PAGES):
        given = _shown(run(read_history_gen(log.keys[index], start, log, page), partial(answer, files)))
        head = _PAGE.match(given)
        if head is None:
            return []
        text += given[head.end() :]
        if head[1] is None:
            break
        start = int(head[1])
    calls = [_Call(call.name, call.args) for call in calls_of(log.messages[index])]
    spoken = {("call", _call_text(call.name, call.args)): _as_read(call.args) for call in calls}
    return [piece for piece in needed if spoken.get(piece, piece[1]) in text and piece[0] != "media"]


def _shown(given: Answer) -> str:
    """The text of an answer; media come behind it."""
    first = given if isinstance(given, str) else given[0]
    return first if isinstance(first, str) else str(first.get("text", ""))


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    args: Mapping[str, object] | str


def _as_read(args: Mapping[str, object] | str) -> str:
    """Arguments as `read_history` writes them."""
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, indent=1)


def _facts(window: Window, whole: AbstractSet[str], lost: Sequence[str]) -> Mapping[FactClass, Kept]:
    """Facts of the log: said somewhere in the window, or held by a message that can be reached."""
    gone = frozenset(lost)
    presence = Presence("\n".join(_words(entry.message) for entry in window.entries))
    counts: dict[FactClass, list[int]] = {cls: [0, 0, 0] for cls in FactClass}
    for fact in extract_facts(window.log.messages):
        seen = presence.has(fact) or any(key in whole for key in fact.message_ids)
        counts[fact.cls][0] += 1
        counts[fact.cls][1] += seen
        counts[fact.cls][2] += seen or any(key not in gone for key in fact.message_ids)
    return {cls: Kept(total=n[0], in_view=n[1], recallable=n[2]) for cls, n in counts.items()}


def _words(message: BaseMessage) -> str:
    """Everything that a reader of a message sees as text: its text, and the values of its calls' arguments."""
    words = [text_of(message)]
    for call in calls_of(message):
        words.append(call.name)
        words += [call.args] if isinstance(call.args, str) else _leaves(call.args)
    return "\n".join(words)


def _leaves(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [leaf for item in value.values() for leaf in _leaves(item)]
        case list():
            return [leaf for item in value for leaf in _leaves(item)]
        case None:
            return []
        case _:
            return [str(value)]
