"""Anything that fsspec reaches: SFTP, WebHDFS, SMB, Dropbox, archives, and a hundred more (extra `fsspec`).

fsspec promises less than the other storages. What holds everywhere: content is written under another name and then
moved into place, so that readers see whole files where the file system's own move is atomic. Changes through one object
are ordered by a lock; those of other processes are not, and a create may then lose a race that it should have refused.
Links on the far side are followed as the far side does. Prefer `LocalFiles` and `ObjectFiles` where they reach.
"""

import posixpath
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from refold.core.paths import TEMPORARY_PREFIX, clean_path
from refold.errors import ConfigurationError, FileConflictError, FilesUnavailableError, PathError, RefoldError
from refold.files.keyed import KeyedFiles
from refold.files.protocol import FileInfo

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]


class FsspecFiles(KeyedFiles):
    """`Files` in a folder of an fsspec file system: `FsspecFiles(fsspec.filesystem("sftp", host=...), root="/srv")`."""

    def __init__(self, filesystem: "AbstractFileSystem", *, root: str = "/") -> None:
        super().__init__()
        self._filesystem = filesystem
        self._root = str(filesystem._strip_protocol(root)).rstrip("/")

    def load(self, path: str) -> bytes | None:
        """The whole file."""
        return self.part(path, 0, None)

    def part(self, path: str, start: int, length: int | None) -> bytes | None:
        """A range of the file."""
        found = self.info(path)
        if found is None:
            return None
        end = found.size if length is None else min(found.size, start + length)
        if start >= end:
            return b""
        with _storage(path):
            return bytes(self._filesystem.cat_file(self._root + path, start=start, end=end))

    def save(self, path: str, data: bytes) -> None:
        """Written beside its place, then moved there."""
        place = self._root + path
        folder = posixpath.dirname(place)
        temporary = f"{folder}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        with _storage(path):
            if self._filesystem.isdir(place):
                raise FileConflictError(f"{path} is a folder: write to a path in it")
            self._filesystem.makedirs(folder, exist_ok=True)
            try:
                self._filesystem.pipe_file(temporary, data)
                self._filesystem.mv(temporary, place)
            except BaseException:
                with suppress(FileNotFoundError):
                    self._filesystem.rm_file(temporary)
                raise

    def drop(self, path: str) -> None:
        """Remove the file."""
        if self.info(path) is not None:
            with _storage(path), suppress(FileNotFoundError):
                self._filesystem.rm_file(self._root + path)

    def found(self, folder: str) -> Iterable[FileInfo]:
        """A recursive listing."""
        if folder != "/" and (alone := self.info(folder)) is not None:
            return [alone]
        with _storage(folder):
            self._filesystem.invalidate_cache()
            place = self._root if folder == "/" else self._root + folder
            listed: Mapping[str, Mapping[str, object]] = self._filesystem.find(place or "/", detail=True)
        found = (self._read_info(name, details) for name, details in listed.items())
        return [info for info in found if info is not None]

    def info(self, path: str) -> FileInfo | None:
        """The file system's own record; links and devices count as nothing."""
        with _storage(path):
            self._filesystem.invalidate_cache()
            try:
                details: Mapping[str, object] = self._filesystem.info(self._root + path)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return self._read_info(self._root + path, details)

    def _read_info(self, name: str, details: Mapping[str, object]) -> FileInfo | None:
        path = "/" + name.removeprefix(self._root).lstrip("/")
        size = details.get("size")
        if details.get("type") != "file" or details.get("islink") or not isinstance(size, int):
            return None
        try:
            return FileInfo(path=clean_path(path), size=size, modified=_time(details))
        except PathError:
            return None  # a name that others gave and that no path can spell


def fsspec_files(url: str, options: Mapping[str, str]) -> FsspecFiles:
    """Files by an fsspec URL. Raises `ConfigurationError` when fsspec or the protocol's package is not installed."""
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigurationError(f"{url} needs fsspec: install refold[fsspec]") from error
    try:
        filesystem, root = url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigurationError(f"cannot open {url} through fsspec: {error}") from error
    return FsspecFiles(filesystem, root=root)


def _time(details: Mapping[str, object]) -> float | None:
    """The time of the last change, under the names that file systems give it."""
    for key in ("mtime", "LastModified", "last_modified", "modified", "updated", "created"):
        value = details.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None


@contextmanager
def _storage(path: str) -> Iterator[None]:
    """Any driver may be below, with errors of its own."""
    try:
        yield
    except RefoldError:
        raise
    except (NotADirectoryError, FileExistsError) as error:
        raise FileConflictError(f"a part of {path} is a file, so nothing can be stored below it") from error
    except Exception as error:
        raise FilesUnavailableError(
            f"the file system behind {path} failed ({type(error).__name__}: {error}): check its address and rights"
        ) from error
