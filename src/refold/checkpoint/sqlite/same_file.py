"""A connection of another library, aiosqlite, as the place where a saver stores.

Such a connection can only be awaited, on its own event loop, while a saver's programs run in threads. So the saver asks
it once which file it has open and opens a connection of its own on that file: SQLite is made for several. It does so
with the first call, since a constructor cannot await.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Generator, Iterable, Mapping
from typing import Final, Protocol, cast, runtime_checkable

from refold.checkpoint.sqlite.connect import connect
from refold.checkpoint.sqlite.driver import SqliteDriver
from refold.errors import ConfigurationError

_TIMEOUT: Final = 30.0
_FILE: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"


@runtime_checkable
class AwaitedConnection(Protocol):
    """What a saver uses of an `aiosqlite.Connection`, and knows it by."""

    def __await__(self) -> Generator[object, None, object]:
        """Connect."""

    def execute_fetchall(self, sql: str) -> Awaitable[Iterable[object]]:
        """The rows that a statement gives."""


class SameFile:
    """A driver for the file of an aiosqlite connection. Made on the event loop of that connection.

    The connection that it opens is closed when nothing uses the driver any more.
    """

    def __init__(self, theirs: AwaitedConnection) -> None:
        self._theirs = theirs
        self._loop = asyncio.get_running_loop()
        self._opening = threading.Lock()
        self._driver: SqliteDriver | None = None

    def driver(self) -> SqliteDriver:
        """The driver, opened by the first call. Raises `ConfigurationError` where that call would block the loop, and
        for a connection that has no file."""
        if self._driver is None:
            self._refuse_to_block()
            with self._opening:
                if self._driver is None:
                    connection = connect(self._file(), timeout=_TIMEOUT)
                    driver = SqliteDriver(connection)
                    weakref.finalize(driver, connection.close)
                    self._driver = driver
        return self._driver

    def _refuse_to_block(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop or not self._loop.is_running():
            raise ConfigurationError(
                "an aiosqlite connection can only be asked on its event loop, while that runs: await the first call of "
                "this saver (setup, aget_tuple), or use AsyncSqliteSaver.from_conn_string(path)"
            )

    def _file(self) -> str:
        file = asyncio.run_coroutine_threadsafe(self._ask(), self._loop).result()
        if not file:
            raise ConfigurationError(
                "a database in memory cannot be shared with aiosqlite's connection: use "
                "AsyncSqliteSaver.from_conn_string(':memory:'), or AsyncSqliteSaver(sqlite3.connect(':memory:', "
                "check_same_thread=False))"
            )
        return file

    async def _ask(self) -> str:
        try:
            rows = await self._theirs.execute_fetchall(_FILE)
        except ValueError:  # it is not connected, yet or any more
            rows = await self._connect()
        [row] = rows
        return _text(row)

    async def _connect(self) -> Iterable[object]:
        try:
            await self._theirs
            return await self._theirs.execute_fetchall(_FILE)
        except (RuntimeError, ValueError) as error:
            raise ConfigurationError(
                "the aiosqlite connection is closed: pass one that is open, or use "
                "AsyncSqliteSaver.from_conn_string(path)"
            ) from error


def _text(row: object) -> str:
    """The one value of a row, in whatever form their connection gives rows and texts."""
    match row:
        case bytes():
            return os.fsdecode(row)
        case str() | None:
            return row or ""
        case Mapping():
            return _text(next(iter(row.values())))
        case _:
            return _text(next(iter(cast("Iterable[object]", row))))
