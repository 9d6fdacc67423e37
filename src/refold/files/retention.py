"""Retention: how much of what nobody points at is kept, and for how long (fault 104).

Only artifacts are collected (`/history`, `/results`, `/inputs`, `/media`, `/summaries`), never the agent's own files,
and of those only the ones that no live state mentions. Live are the states of *every* checkpoint that may still be
resumed or forked from, not only the newest: an undo or a fork shows folds again that a later state no longer has.

    live = referenced_paths(*(old.values for thread in threads for old in graph.get_state_history(thread)))
    collect(files, live, Retention(most_bytes=2_000_000_000, older_than=30 * 86_400))

What is live makes live what it mentions: a history file names the results that it was cut from. A file that was
written less than `grace` seconds ago is left alone, since the state that will point at it may not be stored yet; so is
one whose time is not known, and one that is written again while the collection runs.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Final

import ormsgpack
from langgraph.types import Send
from pydantic import BaseModel

from refold.core.effects import ReadFile
from refold.core.paths import is_under
from refold.core.program import Program, arun, run
from refold.errors import ConfigurationError, FileMissingError
from refold.files.effects import DeleteFile, ListFiles, StatFile, aanswer, answer
from refold.files.protocol import FileInfo, Files

ARTIFACT_FOLDERS: Final = ("/history", "/results", "/inputs", "/media", "/summaries")
"""Where refold stores what left the window."""

_MENTIONING = ("/history", "/inputs", "/summaries")
_MENTION = re.compile(r"/(?:history|results|inputs|media|summaries)/[A-Za-z0-9._~/-]*[A-Za-z0-9_~-]")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Bounds on what is kept of unreferenced artifacts; at least one of the first three.

    `older_than`: seconds since the last write, after which they go. `most_bytes`, `most_files`: of all artifacts
    together, live ones counted; over it the oldest unreferenced go. `grace`: seconds in which nothing goes.
    """

    most_bytes: int | None = None
    most_files: int | None = None
    older_than: float | None = None
    grace: float = 3_600.0
    folders: Sequence[str] = ARTIFACT_FOLDERS

    def __post_init__(self) -> None:
        bounds = (self.most_bytes, self.most_files, self.older_than)
        if all(bound is None for bound in bounds):
            raise ConfigurationError(
                "retention without a bound keeps everything: set older_than, most_bytes or most_files"
            )
        if any(bound is not None and bound < 0 for bound in (*bounds, self.grace)):
            raise ConfigurationError("the bounds of a retention must be 0 or more")


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a collection did. `kept_bytes` and `kept_files` are the artifacts that are left.

    They may still be over the bounds, when what is live or too young is alone over them.
    """

    removed: tuple[FileInfo, ...]
    kept_bytes: int
    kept_files: int


def referenced_paths(*values: object) -> frozenset[str]:
    """Every artifact path that stands in some values: states, folds, messages, texts, nested in any way.

    It looks for paths in all text, so it finds too many rather than too few.
    """
    return frozenset(path for text in _texts(values) for path in _MENTION.findall(text))


def collect(files: Files, live: Set[str], retention: Retention, *, now: float | None = None) -> Collected:
    """Remove unreferenced artifacts down to the bounds, oldest first. `now`: seconds since 1970, the clock by default.

    Never removes a path in `live`, nor what a live artifact mentions. May be repeated and stopped at any time.
    """
    return run(collect_gen(live, retention, now=time.time() if now is None else now), partial(answer, files))


async def acollect(files: Files, live: Set[str], retention: Retention, *, now: float | None = None) -> Collected:
    """The same as `collect`, awaited."""
    program = collect_gen(live, retention, now=time.time() if now is None else now)
    return await arun(program, partial(aanswer, files.asynchronous()))


def collect_gen(live: Set[str], retention: Retention, *, now: float) -> Program[Collected]:
    """The program behind `collect`."""
    found: list[FileInfo] = []
    for folder in retention.folders:
        found += yield from ListFiles(folder=folder)
    kept = yield from _marked_gen(live, {info.path for info in found})
    loose = [info for info in found if info.path not in kept and _is_old(info, retention.grace, now)]
    loose.sort(key=lambda info: (info.modified or 0.0, info.path))
    size, count = sum(info.size for info in found), len(found)
    removed: list[FileInfo] = []
    for info in loose:
        expired = retention.older_than is not None and _is_old(info, retention.older_than, now)
        over_bytes = retention.most_bytes is not None and size > retention.most_bytes
        over_files = retention.most_files is not None and count > retention.most_files
        if not (expired or over_bytes or over_files):
            break  # the others are younger
        if (yield from StatFile(path=info.path)) != info:
            continue  # stored again meanwhile: something may be about to point at it
        yield from DeleteFile(path=info.path)
        removed.append(info)
        size, count = size - info.size, count - 1
    return Collected(removed=tuple(removed), kept_bytes=size, kept_files=count)


def _marked_gen(live: Set[str], stored: Set[str]) -> Program[Set[str]]:
    """The live paths, and all that they mention, through any number of steps."""
    marked: set[str] = set()
    waiting = [path for path in live if path in stored]
    while waiting:
        path = waiting.pop()
        if path in marked:
            continue
        marked.add(path)
        if not any(is_under(path, folder) for folder in _MENTIONING):
            continue
        try:
            data = yield from ReadFile(path=path)
        except FileMissingError:
            continue
        waiting += [found for found in referenced_paths(data.decode("utf-8", "replace")) if found in stored]
    return marked


def _is_old(info: FileInfo, seconds: float, now: float) -> bool:
    return info.modified is not None and now - info.modified >= seconds


def _texts(values: Iterable[object]) -> Iterator[str]:
    """Every text in nested values, keys included."""
    waiting: list[object] = list(values)
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case BaseModel() as model:  # messages
                waiting.append(dict(model))
                waiting.append(model.model_extra or {})
            case Mapping() as mapping:
                waiting += mapping.keys()
                waiting += mapping.values()
            case bytes(data):
                yield data.decode("utf-8", "replace")
            case Sequence() | Set() as items:
                waiting += items
            case Send() as packet:
                waiting.append(packet.arg)
            case ormsgpack.Ext() as kept:  # of a class that is not here: what it holds
                waiting.append(_held(-1, ormsgpack.packb(kept)))
            case other if is_dataclass(other) and not isinstance(other, type):
                waiting += [getattr(other, item.name) for item in fields(other)]
            case _:
                continue


def _held(code: int, data: bytes) -> object:
    """What msgpack says, the payload of an extension in its place; the bytes where they say nothing."""
    try:
        return ormsgpack.unpackb(data, ext_hook=_held, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError:
        return data
