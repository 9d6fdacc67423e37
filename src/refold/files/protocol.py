"""The contract of storage: `Files` for sync callers, `AsyncFiles` for coroutines, and the values that they speak in.

`refold.testing.files_conformance` checks every promise below on an implementation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from refold.core.effects import WriteMode

Syntax: TypeAlias = Literal["literal", "regex"]
Ended: TypeAlias = Literal["all", "hits", "time"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInfo:
    """What is known of a file without reading it.

    `size` in bytes. `modified` in seconds since 1970 UTC; None where the storage does not know.
    """

    path: str
    size: int
    modified: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """What lies directly in a folder: its files, and the paths of the folders in it; both sorted by path."""

    path: str
    files: tuple[FileInfo, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A text search, line by line.

    `pattern` is taken as it is (`literal`) or as a regular expression of the `regex` module. `under` is a folder or one
    file; `glob` selects files below it (`*.py` at any depth). The search ends at `max_hits` hits or after `seconds`,
    whichever comes first, and says so. `context` is the number of lines to give before and after each hit.
    """

    pattern: str
    syntax: Syntax = "literal"
    under: str = "/"
    glob: str | None = None
    ignore_case: bool = False
    context: int = 0
    max_hits: int = 200
    seconds: float = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A line that matches. `line` counts from 1; long lines are clipped around the match and say so with `…`."""

    path: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """Hits in order of path and line. `ended` says why there are no more: `all` means that everything was searched.

    `skipped` are files that were not searched: binary ones, and lines of over 64 MiB.
    """

    hits: tuple[Hit, ...]
    ended: Ended
    searched: int
    skipped: tuple[str, ...] = ()


@runtime_checkable
class Files(Protocol):
    """Bytes under virtual paths. Safe to use from many threads and processes at once.

    Paths are those of `refold.core.paths.clean_path`; every method raises `PathError` for others. Storage that fails
    (full, read-only, unreachable, denied) raises `FilesUnavailableError` with the driver's error as `__cause__`; what
    was there before is then still there. A write that returned is seen by every later read, and survives a crash of
    the machine where the storage can promise that.

    Whether a file may have files below it (`/a` and `/a/b`) is the storage's affair: it works, or the second write
    raises `FileConflictError`.
    """

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes from offset `start` on, at most `length` of them (None: to the end); empty past the end.

        Raises `FileMissingError` when nothing is stored there, `ConfigurationError` for a negative offset or length.
        """

    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        """Store bytes; missing folders are made.

        `create`: all or nothing, and never over something else. When the same bytes are there already it succeeds, so
        that it can be repeated, and only the time of the file is renewed; other bytes raise `FileConflictError`. Of
        several at once with different bytes, exactly one succeeds.

        `replace`: all or nothing, whatever was there; readers see the old bytes or the new ones. Repeatable.

        `append`: after what is there; makes the file when it is missing. Appends at once neither mix nor get lost. Not
        repeatable: a second call appends again. A crash may leave a start of the last piece; what was there before it
        stays.
        """

    def swap(self, path: str, old: bytes, new: bytes) -> None:
        """Replace the content if it is still `old`: for an edit that must not undo somebody else's.

        Raises `FileConflictError` when it is something else by now, `FileMissingError` when it is gone. Of several at
        once from the same `old`, exactly one succeeds.
        """

    def stat(self, path: str) -> FileInfo | None:
        """Size and time of a file, or None when nothing is stored there (a folder is not a file)."""

    def list(self, folder: str) -> Sequence[FileInfo]:
        """Every file in a folder and below, sorted by path (code points); a file's own path gives that file.

        A folder that does not exist is empty. Links, devices and names that `clean_path` refuses are not listed.
        """

    def folder(self, path: str) -> Folder:
        """What lies directly in a folder; empty when it does not exist."""

    def glob(self, pattern: str) -> Sequence[FileInfo]:
        """The files that match a glob (`refold.files.patterns`), sorted by path. Raises `PathError` for a bad one."""

    def search(self, query: Query) -> SearchResult:
        """Lines that match. Raises `ConfigurationError` for a pattern that is no regular expression."""

    def delete(self, path: str) -> None:
        """Remove a file, never a folder. Nothing stored there is no error, so that it can be repeated."""

    def asynchronous(self) -> "AsyncFiles":
        """The same storage for coroutines: native where the storage has it, in threads elsewhere."""


class AsyncFiles(Protocol):
    """`Files` for coroutines: the same promises, never blocking the event loop."""

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes: ...
    async def write(self, path: str, data: bytes, *, mode: WriteMode) -> None: ...
    async def swap(self, path: str, old: bytes, new: bytes) -> None: ...
    async def stat(self, path: str) -> FileInfo | None: ...
    async def list(self, folder: str) -> Sequence[FileInfo]: ...
    async def folder(self, path: str) -> Folder: ...
    async def glob(self, pattern: str) -> Sequence[FileInfo]: ...
    async def search(self, query: Query) -> SearchResult: ...
    async def delete(self, path: str) -> None: ...
