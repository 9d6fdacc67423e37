"""Files on a Deep Agents backend, so that refold's artifacts lie where that agent's own tools read (tests: 0.7).

Only the backend's public protocol is used: `upload_files`, `download_files`, `ls`, `delete`. It has no conditional
write, so changes through one object are ordered by a lock and those of others are not. Its backends in state and store
list the size of base64 text for binary files; there, and where a size is missing, the content is counted.

A backend that lives in graph state or in the store of a run works only inside that run, as it does for Deep Agents.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from refold.core.paths import clean_path
from refold.errors import ConfigurationError, FilesUnavailableError, PathError, RefoldError
from refold.files.keyed import KeyedFiles
from refold.files.protocol import FileInfo

if TYPE_CHECKING:
    from deepagents.backends.protocol import BackendProtocol
    from deepagents.backends.protocol import FileInfo as BackendInfo


class DeepAgentsFiles(KeyedFiles):
    """`Files` on a backend of deepagents: `DeepAgentsFiles(FilesystemBackend(root_dir=..., virtual_mode=True))`."""

    def __init__(self, backend: "BackendProtocol") -> None:
        try:
            from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
        except ImportError as error:
            raise ConfigurationError("DeepAgentsFiles needs deepagents: install refold[deepagents]") from error

        super().__init__()
        self._backend = backend
        self._counts = isinstance(backend, CompositeBackend | StateBackend | StoreBackend)

    def load(self, path: str) -> bytes | None:
        """One download."""
        with _backend_errors(path):
            (response,) = self._backend.download_files([path])
        if response.error in {"file_not_found", "is_directory"}:
            return None
        _check_path(path, response.error)
        if response.error is not None or response.content is None:
            raise FilesUnavailableError(f"the backend refused to read {path} ({response.error}): check its rights")
        return response.content

    def save(self, path: str, data: bytes) -> None:
        """One upload."""
        with _backend_errors(path):
            (response,) = self._backend.upload_files([(path, data)])
        _check_path(path, response.error)
        if response.error is not None:
            raise FilesUnavailableError(
                f"the backend refused to write {path} ({response.error}): check its rights and its root"
            )

    def drop(self, path: str) -> None:
        """A delete of a file; the protocol's delete takes folders too, so it is asked only for files."""
        if self.load(path) is None:
            return
        with _backend_errors(path):
            result = self._backend.delete(path)
        if result.error is not None:
            raise FilesUnavailableError(f"the backend refused to delete {path} ({result.error}): check its rights")

    def found(self, folder: str) -> Iterable[FileInfo]:
        """`ls`, folder by folder."""
        if folder != "/" and (alone := self.info(folder)) is not None:
            yield alone
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            with _backend_errors(current):
                entries = self._backend.ls(current).entries or []  # no such folder: an error, and no entries
            for entry in entries:
                path = entry["path"].rstrip("/")
                if not _allowed(path):
                    continue
                if entry.get("is_dir"):
                    waiting.append(path)
                elif (info := self._read_info(path, entry)) is not None:
                    yield info

    def info(self, path: str) -> FileInfo | None:
        """The entry in its folder's `ls`; the content where that has none."""
        parent = path.rpartition("/")[0] or "/"
        with _backend_errors(path):
            entries = self._backend.ls(parent).entries or []
        entry = next((e for e in entries if e["path"] == path and not e.get("is_dir")), None)
        return None if entry is None else self._read_info(path, entry)

    def _read_info(self, path: str, entry: "BackendInfo") -> FileInfo | None:
        size = entry.get("size")
        if size is None or self._counts:
            data = self.load(path)
            if data is None:
                return None
            size = len(data)
        return FileInfo(path=path, size=size, modified=_time(entry.get("modified_at")))


def _check_path(path: str, error: str | None) -> None:
    if error == "invalid_path":
        raise PathError(f"the backend does not take the path {path}: use a plainer name")


def _allowed(path: str) -> bool:
    try:
        clean_path(path)
    except PathError:
        return False
    return True


def _time(text: str | None) -> float | None:
    try:
        return None if not text else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


@contextmanager
def _backend_errors(path: str) -> Iterator[None]:
    """Backends report errors as values; what they raise is of any type."""
    try:
        yield
    except RefoldError:
        raise
    except Exception as error:
        raise FilesUnavailableError(
            f"the Deep Agents backend failed at {path} ({type(error).__name__}: {error}): check its settings"
        ) from error
