"""Effects on files beyond those of the core, and the two handlers that answer all of them.

A program yields them; `run(program, partial(answer, files))` or `arun(program, partial(aanswer, files.asynchronous()))`
drives it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.core.effects import ReadFile, WriteFile
from refold.core.program import Effect
from refold.files.protocol import AsyncFiles, FileInfo, Files, Folder, Query, SearchResult


@dataclass(frozen=True, kw_only=True)
class ReadRange(Effect[bytes]):
    """Some bytes of a file, from offset `start`."""

    path: str
    start: int = 0
    length: int | None = None


@dataclass(frozen=True, kw_only=True)
class SwapFile(Effect[None]):
    """Replace `old` content by `new`, unless somebody else changed it."""

    path: str
    old: bytes
    new: bytes


@dataclass(frozen=True, kw_only=True)
class StatFile(Effect[FileInfo | None]):
    """Size and time of a file, None when it is missing."""

    path: str


@dataclass(frozen=True, kw_only=True)
class ListFiles(Effect[Sequence[FileInfo]]):
    """Every file in a folder and below."""

    folder: str


@dataclass(frozen=True, kw_only=True)
class ListFolder(Effect[Folder]):
    """What lies directly in a folder."""

    path: str


@dataclass(frozen=True, kw_only=True)
class GlobFiles(Effect[Sequence[FileInfo]]):
    """The files that match a glob."""

    pattern: str


@dataclass(frozen=True, kw_only=True)
class SearchFiles(Effect[SearchResult]):
    """Lines that match a query."""

    query: Query


@dataclass(frozen=True, kw_only=True)
class DeleteFile(Effect[None]):
    """Remove a file."""

    path: str


def answer(files: Files, effect: Effect[object]) -> object:
    """Perform an effect on files. Raises `TypeError` for an effect that is not about files."""
    match effect:
        case ReadFile(path=path):
            return files.read(path)
        case ReadRange(path=path, start=start, length=length):
            return files.read(path, start=start, length=length)
        case WriteFile(path=path, data=data, mode=mode):
            files.write(path, data, mode=mode)
            return None
        case SwapFile(path=path, old=old, new=new):
            files.swap(path, old, new)
            return None
        case StatFile(path=path):
            return files.stat(path)
        case ListFiles(folder=folder):
            return files.list(folder)
        case ListFolder(path=path):
            return files.folder(path)
        case GlobFiles(pattern=pattern):
            return files.glob(pattern)
        case SearchFiles(query=query):
            return files.search(query)
        case DeleteFile(path=path):
            files.delete(path)
            return None
        case _:
            raise TypeError(f"{type(effect).__name__} is no effect on files")


async def aanswer(files: AsyncFiles, effect: Effect[object]) -> object:
    """The same as `answer`, awaited."""
    match effect:
        case ReadFile(path=path):
            return await files.read(path)
        case ReadRange(path=path, start=start, length=length):
            return await files.read(path, start=start, length=length)
        case WriteFile(path=path, data=data, mode=mode):
            await files.write(path, data, mode=mode)
            return None
        case SwapFile(path=path, old=old, new=new):
            await files.swap(path, old, new)
            return None
        case StatFile(path=path):
            return await files.stat(path)
        case ListFiles(folder=folder):
            return await files.list(folder)
        case ListFolder(path=path):
            return await files.folder(path)
        case GlobFiles(pattern=pattern):
            return await files.glob(pattern)
        case SearchFiles(query=query):
            return await files.search(query)
        case DeleteFile(path=path):
            await files.delete(path)
            return None
        case _:
            raise TypeError(f"{type(effect).__name__} is no effect on files")
