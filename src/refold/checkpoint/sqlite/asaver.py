"""`AsyncSqliteSaver`: the same saver, opened and closed from a coroutine."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.caches import DEFAULT_CACHE_BYTES
from refold.checkpoint.sqlite.connect import Database, connect
from refold.checkpoint.sqlite.driver import SqliteDriver
from refold.checkpoint.sqlite.same_file import AwaitedConnection, SameFile
from refold.checkpoint.sqlite.saver import SqliteSaver


class AsyncSqliteSaver(SqliteSaver):
    """LangGraph checkpoints in a SQLite file, awaited: takes the place of LangGraph's `AsyncSqliteSaver`.

    SQLite has no calls to await, so each method runs in a thread; several may wait for the disk at once. A task that is
    cancelled leaves its step either stored or not, never in part.

    `conn` is a `sqlite3.Connection` as for `SqliteSaver`, or an `aiosqlite.Connection` as for LangGraph's. Of that
    the file is used, by a connection of the saver's own: commit what you wrote there yourself. A database in memory is
    refused with `ConfigurationError` by the first call.
    """

    def __init__(
        self,
        conn: sqlite3.Connection | AwaitedConnection,
        *,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        # `_opener` below takes what the base class does not.
        super().__init__(conn, serde=serde, exclusive=exclusive, cache_bytes=cache_bytes)  # type: ignore[arg-type]

    @classmethod
    @asynccontextmanager
    async def from_conn_string(  # type: ignore[override]
        cls,
        conn_string: Database,
        *,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        timeout: float = 30.0,
    ) -> AsyncIterator["AsyncSqliteSaver"]:
        """A saver on a path or `file:` URI, closed at the end. `timeout`: seconds to wait for another writer."""
        with ThreadPoolExecutor(1) as thread:  # those of the loop may be busy with nodes
            opening = partial(connect, conn_string, timeout=timeout)
            connection = await asyncio.get_running_loop().run_in_executor(thread, opening)
        saver = cls(connection, serde=serde, exclusive=exclusive)
        try:
            yield saver
        finally:
            await saver._in_thread(saver.close)

    async def setup(self) -> None:  # type: ignore[override]
        """Make or migrate the tables, and check format and key. Done by the first call of any method, too."""
        await self._in_thread(self._sealer)

    def _opener(self, conn: sqlite3.Connection | AwaitedConnection) -> Callable[[], SqliteDriver]:
        if isinstance(conn, AwaitedConnection):
            return SameFile(conn).driver
        return super()._opener(conn)
