"""What implementations share: the derived methods, and the two bridges to coroutines.

An implementation writes the primitives once. `BaseFiles` takes them as sync methods, and serves coroutines from
threads. `ProgramFiles` takes them as programs over effects of its own (a request to an object store, say) with a sync
and an async handler, and serves both natively.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from refold.core.effects import WriteMode
from refold.core.paths import clean_folder
from refold.core.program import Effect, Program, arun, run
from refold.errors import ConfigurationError, FileConflictError, FileMissingError
from refold.files.effects import aanswer, answer
from refold.files.patterns import compile_glob
from refold.files.protocol import AsyncFiles, FileInfo, Files, Folder, Query, SearchResult
from refold.files.search import Scan, search_gen


class BaseFiles(ABC):
    """`Files` from the primitives `read`, `write`, `swap`, `stat`, `list`, `delete`."""

    @abstractmethod
    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""

    @abstractmethod
    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        """See `Files.write`."""

    @abstractmethod
    def swap(self, path: str, old: bytes, new: bytes) -> None:
        """See `Files.swap`."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo | None:
        """See `Files.stat`."""

    @abstractmethod
    def list(self, folder: str) -> Sequence[FileInfo]:
        """See `Files.list`."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """See `Files.delete`."""

    def folder(self, path: str) -> Folder:
        """See `Files.folder`; derived from `list`."""
        return folder_of(clean_folder(path), self.list(path))

    def glob(self, pattern: str) -> Sequence[FileInfo]:
        """See `Files.glob`; derived from `list`."""
        compiled = compile_glob(pattern)
        return tuple(info for info in self.list(compiled.folder()) if compiled.matches(info.path))

    def search(self, query: Query) -> SearchResult:
        """See `Files.search`; derived from `list` and `read`."""
        return run(search_gen(query), self._answer)

    def asynchronous(self) -> AsyncFiles:
        """See `Files.asynchronous`; every call runs in a thread."""
        return in_thread(self)

    def _answer(self, effect: Effect[object]) -> object:
        if isinstance(effect, Scan):
            effect.work()
            return None
        return answer(self, effect)


class ProgramFiles(BaseFiles, ABC):
    """`Files` from programs and two handlers; sync and async run the same programs."""

    @abstractmethod
    def read_gen(self, path: str, start: int, length: int | None) -> Program[bytes]:
        """The program behind `read`; arguments are not checked yet."""

    @abstractmethod
    def write_gen(self, path: str, data: bytes, mode: WriteMode) -> Program[None]:
        """The program behind `write`."""

    @abstractmethod
    def swap_gen(self, path: str, old: bytes, new: bytes) -> Program[None]:
        """The program behind `swap`."""

    @abstractmethod
    def stat_gen(self, path: str) -> Program[FileInfo | None]:
        """The program behind `stat`."""

    @abstractmethod
    def list_gen(self, folder: str) -> Program[Sequence[FileInfo]]:
        """The program behind `list`."""

    @abstractmethod
    def delete_gen(self, path: str) -> Program[None]:
        """The program behind `delete`."""

    @abstractmethod
    def handle(self, effect: Effect[object]) -> object:
        """Perform an effect of the programs."""

    @abstractmethod
    async def ahandle(self, effect: Effect[object]) -> object:
        """Perform an effect of the programs, awaited."""

    def folder_gen(self, path: str) -> Program[Folder]:
        """The program behind `folder`; derived from `list_gen`."""
        return folder_of(clean_folder(path), (yield from self.list_gen(path)))

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        return run(self.read_gen(path, start, length), self.handle)

    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        """See `Files.write`."""
        run(self.write_gen(path, data, mode), self.handle)

    def swap(self, path: str, old: bytes, new: bytes) -> None:
        """See `Files.swap`."""
        run(self.swap_gen(path, old, new), self.handle)

    def stat(self, path: str) -> FileInfo | None:
        """See `Files.stat`."""
        return run(self.stat_gen(path), self.handle)

    def list(self, folder: str) -> Sequence[FileInfo]:
        """See `Files.list`."""
        return run(self.list_gen(folder), self.handle)

    def folder(self, path: str) -> Folder:
        """See `Files.folder`."""
        return run(self.folder_gen(path), self.handle)

    def delete(self, path: str) -> None:
        """See `Files.delete`."""
        run(self.delete_gen(path), self.handle)

    def asynchronous(self) -> AsyncFiles:
        """See `Files.asynchronous`; the same programs with the awaited handler."""
        return AsyncProgramFiles(self)


class AsyncProgramFiles:
    """`AsyncFiles` that runs the programs of a `ProgramFiles` with its awaited handler."""

    def __init__(self, programs: ProgramFiles) -> None:
        self._programs = programs

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await arun(self._programs.read_gen(path, start, length), self._programs.ahandle)

    async def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        await arun(self._programs.write_gen(path, data, mode), self._programs.ahandle)

    async def swap(self, path: str, old: bytes, new: bytes) -> None:
        await arun(self._programs.swap_gen(path, old, new), self._programs.ahandle)

    async def stat(self, path: str) -> FileInfo | None:
        return await arun(self._programs.stat_gen(path), self._programs.ahandle)

    async def list(self, folder: str) -> Sequence[FileInfo]:
        return await arun(self._programs.list_gen(folder), self._programs.ahandle)

    async def folder(self, path: str) -> Folder:
        return await arun(self._programs.folder_gen(path), self._programs.ahandle)

    async def glob(self, pattern: str) -> Sequence[FileInfo]:
        compiled = compile_glob(pattern)
        return tuple(info for info in await self.list(compiled.folder()) if compiled.matches(info.path))

    async def search(self, query: Query) -> SearchResult:
        return await arun(search_gen(query), self._answer)

    async def delete(self, path: str) -> None:
        await arun(self._programs.delete_gen(path), self._programs.ahandle)

    async def _answer(self, effect: Effect[object]) -> object:
        return await asyncio.to_thread(effect.work) if isinstance(effect, Scan) else await aanswer(self, effect)


def in_thread(files: Files) -> AsyncFiles:
    """Any `Files` for coroutines, each call in a thread of asyncio's default pool, with the caller's context.

    A cancelled call stops being waited for; its thread still ends what it began, whole.
    """
    return _ThreadFiles(files)


class _ThreadFiles:
    def __init__(self, files: Files) -> None:
        self._files = files

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await asyncio.to_thread(self._files.read, path, start=start, length=length)

    async def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        await asyncio.to_thread(self._files.write, path, data, mode=mode)

    async def swap(self, path: str, old: bytes, new: bytes) -> None:
        await asyncio.to_thread(self._files.swap, path, old, new)

    async def stat(self, path: str) -> FileInfo | None:
        return await asyncio.to_thread(self._files.stat, path)

    async def list(self, folder: str) -> Sequence[FileInfo]:
        return await asyncio.to_thread(self._files.list, folder)

    async def folder(self, path: str) -> Folder:
        return await asyncio.to_thread(self._files.folder, path)

    async def glob(self, pattern: str) -> Sequence[FileInfo]:
        return await asyncio.to_thread(self._files.glob, pattern)

    async def search(self, query: Query) -> SearchResult:
        return await asyncio.to_thread(self._files.search, query)

    async def delete(self, path: str) -> None:
        await asyncio.to_thread(self._files.delete, path)


def folder_of(path: str, below: Sequence[FileInfo]) -> Folder:
    """What lies directly in a folder, of every file below it."""
    start = "/" if path == "/" else f"{path}/"
    files, folders = [], set()
    for info in below:
        if not info.path.startswith(start):
            continue  # the folder's own path, where it is a file
        name, slash, _ = info.path[len(start) :].partition("/")
        if slash:
            folders.add(start + name)
        else:
            files.append(info)
    return Folder(path=path, files=tuple(files), folders=tuple(sorted(folders)))


def checked_range(start: int, length: int | None) -> tuple[int, int | None]:
    """The range itself. Raises `ConfigurationError` when it is negative."""
    if start < 0 or (length is not None and length < 0):
        raise ConfigurationError(f"cannot read from {start} for {length} bytes: both must be 0 or more")
    return start, length


def slice_range(data: bytes, start: int, length: int | None) -> bytes:
    """The part of data that a read of a range gives."""
    start, length = checked_range(start, length)
    return data[start:] if length is None else data[start : start + length]


def missing(path: str) -> FileMissingError:
    """The error of a path where nothing is stored."""
    return FileMissingError(f"nothing is stored at {path}; list its folder to see what is")


def occupied(path: str) -> FileConflictError:
    """The error of a create that meets other content."""
    return FileConflictError(f"{path} holds other content already: write to another path, or replace it")


def changed(path: str) -> FileConflictError:
    """The error of a swap that meets other content than it was made from."""
    return FileConflictError(f"{path} was changed by somebody else: read it again and repeat the edit")
