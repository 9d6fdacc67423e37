"""Files in a dictionary: for tests and for runs that may forget."""

import threading
import time
from collections.abc import Callable, Sequence

from refold.core.effects import WriteMode
from refold.core.paths import clean_folder, clean_path, is_under
from refold.files.base import BaseFiles, changed, missing, occupied, slice_range
from refold.files.protocol import FileInfo


class MemoryFiles(BaseFiles):
    """`Files` that live as long as the object. `clock` gives the time of a write, in seconds since 1970."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._files: dict[str, tuple[bytes, float]] = {}
        self._lock = threading.Lock()
        self._clock = clock

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        return slice_range(self._stored(clean_path(path)), start, length)

    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        """See `Files.write`."""
        path = clean_path(path)
        with self._lock:
            there = self._files.get(path)
            if mode == "create" and there is not None and there[0] != data:
                raise occupied(path)
            before = there[0] if mode == "append" and there is not None else b""
            self._files[path] = (before + data, self._clock())

    def swap(self, path: str, old: bytes, new: bytes) -> None:
        """See `Files.swap`."""
        path = clean_path(path)
        with self._lock:
            if self._stored(path) != old:
                raise changed(path)
            self._files[path] = (bytes(new), self._clock())

    def stat(self, path: str) -> FileInfo | None:
        """See `Files.stat`."""
        there = self._files.get(clean_path(path))
        return None if there is None else FileInfo(path=path, size=len(there[0]), modified=there[1])

    def list(self, folder: str) -> Sequence[FileInfo]:
        """See `Files.list`."""
        folder = clean_folder(folder)
        with self._lock:
            stored = sorted((path, *value) for path, value in self._files.items() if is_under(path, folder))
        return tuple(FileInfo(path=path, size=len(data), modified=modified) for path, data, modified in stored)

    def delete(self, path: str) -> None:
        """See `Files.delete`."""
        with self._lock:
            self._files.pop(clean_path(path), None)

    def _stored(self, path: str) -> bytes:
        there = self._files.get(path)
        if there is None:
            raise missing(path)
        return there[0]
