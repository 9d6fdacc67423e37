"""Files in LangGraph stores: what is stored, and what a failing store leaves."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from refold.errors import FilesUnavailableError, IntegrityError
from refold.files import StoreFiles
from refold.files.pieces import PIECE_BYTES, cut, pack, unpack
from refold.testing.files_conformance import BINARY


class Breaking(BaseStore):
    """A store that fails at the nth change, and then works again."""

    def __init__(self) -> None:
        self.inner = InMemoryStore()
        self.left: int | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        given = list(ops)
        if self.left is not None and any(isinstance(op, PutOp) for op in given):
            if self.left == 0:
                self.left = None
                raise ConnectionError("the database went away")
            self.left -= 1
        return self.inner.batch(given)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return self.batch(ops)


def pieces_in(store: BaseStore) -> int:
    """How many pieces are stored."""
    return len(store.search(("refold", "files", "pieces"), limit=10_000))


class TestPieces:
    """Content as JSON."""

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"text",
            BINARY,
            b"nul\0",
            "中文😀".encode() * 60_000,
            b"a" + "中".encode() * 200_000,
            b"\x80" * 300_000,
            bytes(PIECE_BYTES * 2),
        ],
    )
    def test_round_trip_through_json(self, data: bytes) -> None:
        """Any bytes come back from JSON; pieces are small; text stays text, also where a piece ends in a character."""
        pieces = [json.loads(json.dumps(pack(piece))) for piece in cut(data)]
        assert b"".join(unpack(piece, path="/a") for piece in pieces) == data
        assert all(len(piece["data"].encode()) <= 180_000 for piece in pieces)
        try:
            is_text = "\0" not in data.decode()
        except UnicodeDecodeError:
            is_text = False
        if is_text:
            assert {piece["encoding"] for piece in pieces} <= {"utf-8"}

    @pytest.mark.parametrize("value", [{}, {"encoding": "base64", "data": "%%"}, {"encoding": "zip", "data": ""}])
    def test_what_is_no_piece(self, value: dict[str, str]) -> None:
        """A value that was written by something else is an error, not content."""
        with pytest.raises(IntegrityError, match="/a"):
            unpack(value, path="/a")


class TestWhatIsStored:
    """Small items, no leftovers."""

    def test_items_stay_small(self) -> None:
        """Fault 122's cousin: no item is over 180 KB, whatever the size of a file."""
        store = InMemoryStore()
        StoreFiles(store).write("/a", b"\xff" * 1_000_000, mode="create")
        items = store.search((), limit=1_000)
        assert len(items) > 5
        assert max(len(json.dumps(item.value)) for item in items) < 180_000

    def test_an_append_writes_only_the_last_piece(self) -> None:
        """Appending to a large file does not store it again."""
        store = InMemoryStore()
        files = StoreFiles(store)
        files.write("/log", b"x" * 1_000_000, mode="create")
        before = {item.key for item in store.search(("refold", "files", "pieces"), limit=100)}
        files.write("/log", b"y", mode="append")
        after = {item.key for item in store.search(("refold", "files", "pieces"), limit=100)}
        assert len(before - after) <= 1
        assert files.read("/log", start=999_999) == b"xy"

    def test_nothing_is_left_over(self) -> None:
        """Replaced and deleted content is gone from the store."""
        store = InMemoryStore()
        files = StoreFiles(store)
        for size in (500_000, 10, 300_000):
            files.write("/a", b"x" * size, mode="replace")
        files.write("/a", b"y", mode="append")
        assert pieces_in(store) == 3
        files.delete("/a")
        assert store.search((), limit=10) == []

    def test_namespaces_are_apart(self) -> None:
        """Two namespaces of one store do not see each other, also where names hold dots and tildes."""
        store = InMemoryStore()
        left, right = StoreFiles(store, namespace=("a",)), StoreFiles(store, namespace=("a", "b"))
        left.write("/b/x", b"left", mode="create")
        left.write("/v1.2/~0/x.y", b"dots", mode="create")
        right.write("/x", b"right", mode="create")
        assert [info.path for info in left.list("/")] == ["/b/x", "/v1.2/~0/x.y"]
        assert [info.path for info in left.list("/v1.2")] == ["/v1.2/~0/x.y"]
        assert [info.path for info in right.list("/")] == ["/x"]


class TestAsyncStores:
    """Stores that belong to an event loop."""

    async def check(self, store: BaseStore) -> None:
        """Write, append, read and list from the loop that the store runs in."""
        files = StoreFiles(store, namespace=("async",)).asynchronous()
        await files.write("/a/b", BINARY, mode="create")
        await files.write("/a/b", b"\0more", mode="append")
        assert await files.read("/a/b") == BINARY + b"\0more"
        assert [(info.path, info.size) for info in await files.list("/")] == [("/a/b", len(BINARY) + 5)]

    async def test_sqlite(self, tmp_path: Path) -> None:
        """LangGraph's async SQLite store."""
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
            await store.setup()
            await self.check(store)

    @pytest.mark.postgres
    async def test_postgres(self, postgres_uri: str) -> None:
        """LangGraph's async Postgres store on a real server."""
        async with AsyncPostgresStore.from_conn_string(postgres_uri) as store:
            await store.setup()
            await self.check(store)


class TestAFailingStore:
    """All or nothing at every point."""

    @pytest.mark.parametrize("mode", ["replace", "append"])
    def test_a_write_that_fails_anywhere(self, mode: str) -> None:
        """However far a write came, a reader sees the old content or the new, and the next write works."""
        old, piece = b"o" * 300_000, b"\xfe" * 300_000
        new = piece if mode == "replace" else old + piece
        for failing in range(12):
            store = Breaking()
            files = StoreFiles(store)
            files.write("/a", old, mode="create")
            store.left = failing
            with suppress(FilesUnavailableError):
                files.write("/a", piece, mode=mode)  # type: ignore[arg-type]
                assert files.read("/a") == new
            assert files.read("/a") in (old, new)
            store.left = None
            files.write("/a", b"next", mode="replace")
            assert files.read("/a") == b"next"
        store.left = 0
        with pytest.raises(FilesUnavailableError) as caught:
            files.write("/a", b"", mode="append")
        assert isinstance(caught.value.__cause__, ConnectionError)

    def test_a_missing_piece(self) -> None:
        """Content that was damaged from outside is an error, never shorter content."""
        store = InMemoryStore()
        files = StoreFiles(store)
        files.write("/a", b"x" * 300_000, mode="create")
        (first, *_) = store.search(("refold", "files", "pieces"), limit=10)
        store.delete(first.namespace, first.key)
        with pytest.raises(IntegrityError):
            files.read("/a")

    def test_a_newer_format(self) -> None:
        """An item of a later release is refused with a word to upgrade."""
        store = InMemoryStore()
        files = StoreFiles(store)
        files.write("/a", b"x", mode="create")
        (item,) = store.search(("refold", "files", "tree"), limit=10)
        store.put(item.namespace, item.key, {**item.value, "format": 99})
        with pytest.raises(IntegrityError, match="upgrade"):
            files.read("/a")
