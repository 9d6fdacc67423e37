"""Files in a LangGraph `BaseStore` (in memory, SQLite, Postgres, a platform's own).

Two kinds of items, so that a listing does not load content and a write is all or nothing:

- `(*namespace, "tree", *folders)`, key: the path → `{"format", "path", "size", "modified", "pieces": [[key, size], …]}`
- `(*namespace, "pieces")`, key: made for one write → `{"encoding", "data"}` of at most 128 KiB content

A write puts its pieces first, then the tree item, which is the moment when it counts, then removes the pieces that are
left over. An interrupted write leaves at most pieces that nothing points at. Items are not indexed for semantic search
and do not expire.

Changes through one `StoreFiles` object are ordered. Stores have no conditional put, so of two processes that change the
same path at the same time one may be lost; artifacts of refold are named by content, and do not meet.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from langgraph.store.base import BaseStore

from refold.errors import FilesUnavailableError, IntegrityError, RefoldError
from refold.files.keyed import KeyedFiles
from refold.files.pieces import PIECE_BYTES, cut, pack, unpack
from refold.files.protocol import FileInfo

FORMAT: Final = 1
_PAGE = 500
_READ_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    size: int
    modified: float
    pieces: tuple[tuple[str, int], ...]


class StoreFiles(KeyedFiles):
    """`Files` in a LangGraph store, below a namespace of their own. `clock`: seconds since 1970, for `modified`."""

    def __init__(
        self,
        store: BaseStore,
        *,
        namespace: Sequence[str] = ("refold", "files"),
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._store = store
        self._namespace = tuple(namespace)
        self._clock = clock

    def load(self, path: str) -> bytes | None:
        """Every piece."""
        return self.part(path, 0, None)

    def part(self, path: str, start: int, length: int | None) -> bytes | None:
        """The pieces that a range touches; read again when a writer replaced them meanwhile."""
        for _ in range(_READ_ATTEMPTS):
            entry = self._entry(path)
            if entry is None:
                return None
            data = self._joined(path, entry, start, entry.size if length is None else start + length)
            if data is not None:
                return data
        raise IntegrityError(f"{path}: a piece of it is gone from the store; restore it, or delete the file")

    def save(self, path: str, data: bytes) -> None:
        """New pieces, then the tree item, then the old pieces go."""
        before = self._entry(path)
        self._put_entry(path, self._put_pieces(data), len(data))
        self._drop_pieces(() if before is None else before.pieces)

    def renew(self, path: str, data: bytes) -> None:
        """The tree item again, with the same pieces."""
        entry = self._entry(path)
        if entry is not None:
            self._put_entry(path, entry.pieces, entry.size)

    def extend(self, path: str, data: bytes) -> None:
        """Only the last piece is written again, when the new bytes fit in it."""
        before = self._entry(path)
        if before is None:
            self.save(path, data)
            return
        kept, last = before.pieces, b""
        if kept and kept[-1][1] + len(data) <= PIECE_BYTES:
            kept = kept[:-1]
            last = self._piece(path, before.pieces[-1][0]) or b""
        self._put_entry(path, (*kept, *self._put_pieces(last + data)), before.size + len(data))
        self._drop_pieces(before.pieces[len(kept) :])

    def drop(self, path: str) -> None:
        """The tree item, then its pieces."""
        before = self._entry(path)
        if before is not None:
            with _store_errors():
                self._store.delete(self._folder(path), path)
            self._drop_pieces(before.pieces)

    def info(self, path: str) -> FileInfo | None:
        """From the tree item."""
        entry = self._entry(path)
        return None if entry is None else FileInfo(path=path, size=entry.size, modified=entry.modified)

    def found(self, folder: str) -> Iterable[FileInfo]:
        """The tree items below a folder, and the item of the path itself."""
        if folder != "/" and (alone := self.info(folder)) is not None:
            yield alone
        namespace = self._folder("/x" if folder == "/" else f"{folder}/x")
        offset = 0
        while True:
            with _store_errors():
                items = self._store.search(namespace, limit=_PAGE, offset=offset)
            for item in items:
                entry = _parsed(item.value)
                yield FileInfo(path=str(item.value["path"]), size=entry.size, modified=entry.modified)
            if len(items) < _PAGE:
                return
            offset += len(items)

    def _entry(self, path: str) -> _Entry | None:
        with _store_errors():
            item = self._store.get(self._folder(path), path)
        return None if item is None else _parsed(item.value)

    def _joined(self, path: str, entry: _Entry, start: int, end: int) -> bytes | None:
        """The bytes from start to end; None when a piece is missing."""
        parts: list[bytes] = []
        at = 0
        for key, size in entry.pieces:
            if at < end and at + size > start:
                piece = self._piece(path, key)
                if piece is None:
                    return None
                if len(piece) != size:
                    raise IntegrityError(f"{path}: a stored piece has {len(piece)} bytes instead of {size}")
                parts.append(piece[max(0, start - at) : end - at])
            at += size
        return b"".join(parts)

    def _piece(self, path: str, key: str) -> bytes | None:
        with _store_errors():
            item = self._store.get((*self._namespace, "pieces"), key)
        return None if item is None else unpack(item.value, path=path)

    def _put_pieces(self, data: bytes) -> tuple[tuple[str, int], ...]:
        put = []
        for piece in cut(data):
            key = secrets.token_hex(16)  # of this write alone: no other writer can remove it
            with _store_errors():
                self._store.put((*self._namespace, "pieces"), key, pack(piece), index=False, ttl=None)
            put.append((key, len(piece)))
        return tuple(put)

    def _put_entry(self, path: str, pieces: Sequence[tuple[str, int]], size: int) -> None:
        value = {
            "format": FORMAT,
            "path": path,
            "size": size,
            "modified": self._clock(),
            "pieces": [list(piece) for piece in pieces],
        }
        with _store_errors():
            self._store.put(self._folder(path), path, value, index=False, ttl=None)

    def _drop_pieces(self, pieces: Sequence[tuple[str, int]]) -> None:
        for key, _ in pieces:
            with _store_errors():
                self._store.delete((*self._namespace, "pieces"), key)

    def _folder(self, path: str) -> tuple[str, ...]:
        """The namespace of a path's folder. Labels may hold no dot, so `.` is written `~1`, and `~` as `~0`."""
        labels = (label.replace("~", "~0").replace(".", "~1") for label in path.split("/")[1:-1])
        return (*self._namespace, "tree", *labels)


def _parsed(value: Mapping[str, object]) -> _Entry:
    if value.get("format") != FORMAT:
        raise IntegrityError(
            f"{value.get('path')} is stored in format {value.get('format')}, and this refold reads {FORMAT}: upgrade it"
        )
    pieces = cast("Sequence[Sequence[object]]", value["pieces"])
    return _Entry(
        size=int(cast("int", value["size"])),
        modified=float(cast("float", value["modified"])),
        pieces=tuple((str(key), int(cast("int", size))) for key, size in pieces),
    )


@contextmanager
def _store_errors() -> Iterator[None]:
    """Any driver may be below, with errors of its own."""
    try:
        yield
    except RefoldError:
        raise
    except Exception as error:
        raise FilesUnavailableError(
            f"the LangGraph store failed ({type(error).__name__}: {error}): check that it is open and set up"
        ) from error
