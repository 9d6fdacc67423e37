"""`AsyncSqliteSaver`: the same saver, opened and closed from a coroutine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.sqlite.saver import SqliteSaver, connect


class AsyncSqliteSaver(SqliteSaver):
    """LangGraph checkpoints in a SQLite file, awaited: takes the place of LangGraph's `AsyncSqliteSaver`.

    SQLite has no calls to await, so each method runs in a thread; several may wait for the disk at once. A task that is
    cancelled leaves its step either stored or not, never in part.
    """

    @classmethod
    @asynccontextmanager
    async def from_conn_string(  # type: ignore[override]
        cls,
        conn_string: str,
        *,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        timeout: float = 30.0,
    ) -> AsyncIterator["AsyncSqliteSaver"]:
        """A saver on a path or `file:` URI, closed at the end. `timeout`: seconds to wait for another writer."""
        connection = await asyncio.to_thread(connect, conn_string, timeout=timeout)
        saver = cls(connection, serde=serde, exclusive=exclusive)
        try:
            yield saver
        finally:
            await saver._in_thread(saver.close)

    async def setup(self) -> None:  # type: ignore[override]
        """Make or migrate the tables, and check format and key. Done by the first call of any method, too."""
        await self._in_thread(self._sealer)
