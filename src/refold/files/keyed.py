"""Storages that hold whole values by key, without conditional writes of their own.

`KeyedFiles` gives them the contract by a lock: changes through one object are ordered. What another process does to the
same storage meanwhile is not; each implementation says what that means for it.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from refold.core.effects import WriteMode
from refold.core.paths import clean_folder, clean_path, is_under
from refold.files.base import BaseFiles, changed, checked_range, missing, occupied, slice_range
from refold.files.protocol import FileInfo


class KeyedFiles(BaseFiles, ABC):
    """`Files` from `load`, `save`, `drop`, `found` and `info` of whole values. Paths arrive checked."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @abstractmethod
    def load(self, path: str) -> bytes | None:
        """The whole content, or None."""

    @abstractmethod
    def save(self, path: str, data: bytes) -> None:
        """Store the whole content, in place of what is there, all or nothing."""

    @abstractmethod
    def drop(self, path: str) -> None:
        """Remove what is there, if anything is."""

    @abstractmethod
    def found(self, folder: str) -> Iterable[FileInfo]:
        """At least the files in a folder and below, in any order; others are filtered out."""

    @abstractmethod
    def info(self, path: str) -> FileInfo | None:
        """Size and time, or None."""

    def make(self, path: str, data: bytes) -> None:
        """Store where nothing was found a moment ago. Overridden where the storage itself can keep the first."""
        self.save(path, data)

    def renew(self, path: str, data: bytes) -> None:
        """Give a file that holds just this a new time. Overridden where it need not be stored again."""
        self.save(path, data)

    def extend(self, path: str, data: bytes) -> None:
        """Append. Overridden where it need not rewrite the content."""
        self.save(path, (self.load(path) or b"") + data)

    def part(self, path: str, start: int, length: int | None) -> bytes | None:
        """Some of the content, or None. Overridden where it need not load all of it."""
        data = self.load(path)
        return None if data is None else slice_range(data, start, length)

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        start, length = checked_range(start, length)
        data = self.part(clean_path(path), start, length)
        if data is None:
            raise missing(path)
        return data

    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        """See `Files.write`."""
        path = clean_path(path)
        with self._lock:
            match mode:
                case "replace":
                    self.save(path, data)
                case "append":
                    self.extend(path, data)
                case "create":
                    there = self.load(path)
                    if there is None:
                        self.make(path, data)
                    elif there != data:
                        raise occupied(path)
                    else:
                        self.renew(path, data)

    def swap(self, path: str, old: bytes, new: bytes) -> None:
        """See `Files.swap`."""
        path = clean_path(path)
        with self._lock:
            there = self.load(path)
            if there is None:
                raise missing(path)
            if there != old:
                raise changed(path)
            self.save(path, new)

    def stat(self, path: str) -> FileInfo | None:
        """See `Files.stat`."""
        return self.info(clean_path(path))

    def list(self, folder: str) -> Sequence[FileInfo]:
        """See `Files.list`."""
        folder = clean_folder(folder)
        below = {info.path: info for info in self.found(folder) if is_under(info.path, folder)}
        return tuple(below[path] for path in sorted(below))

    def delete(self, path: str) -> None:
        """See `Files.delete`."""
        path = clean_path(path)
        with self._lock:
            self.drop(path)
