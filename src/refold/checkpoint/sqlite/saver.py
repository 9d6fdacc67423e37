"""The saver on SQLite."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.caches import DEFAULT_CACHE_BYTES
from refold.checkpoint.drafts import Context
from refold.checkpoint.meta import new_key, read_meta_gen, sealer_gen
from refold.checkpoint.saver import Procedure, SyncSaver
from refold.checkpoint.seal import Sealer
from refold.checkpoint.serde import Serde
from refold.checkpoint.sqlite.connect import Database, connect
from refold.checkpoint.sqlite.driver import SqliteDriver, typed_errors
from refold.checkpoint.sqlite.same_file import AwaitedConnection
from refold.checkpoint.sqlite.setup import prepare
from refold.core.program import run
from refold.errors import ConfigurationError, DatabaseUnavailableError

T = TypeVar("T")


class SqliteSaver(SyncSaver):
    """LangGraph checkpoints in a SQLite file, each value once.

    Takes the place of LangGraph's `SqliteSaver` and, with its async methods, of `AsyncSqliteSaver`. Any number of
    threads and processes may use one file. With `exclusive=True` a second writer that extends the same head is refused
    with `HeadMovedError`; otherwise it makes a fork, as in LangGraph.

        with SqliteSaver.from_conn_string("checkpoints.db") as saver:
            graph = builder.compile(checkpointer=saver)

    `conn` must allow use from several threads (`check_same_thread=False`) and belong to the saver alone.
    `cache_bytes` bounds the messages kept decoded in memory.
    """

    def __init__(
        self,
        conn: sqlite3.Connection,
        *,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        super().__init__(serde=serde, exclusive=exclusive, cache_bytes=cache_bytes)
        self.conn = conn
        self._open = self._opener(conn)

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: Database,
        *,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        timeout: float = 30.0,
    ) -> Iterator["SqliteSaver"]:
        """A saver on a path or `file:` URI, closed at the end. `timeout`: seconds to wait for another writer."""
        saver = cls(connect(conn_string, timeout=timeout), serde=serde, exclusive=exclusive)
        with closing(saver):
            yield saver

    @property
    def is_setup(self) -> bool:
        """Whether the tables are known to be there, in the format of this library."""
        return self._shared.sealer is not None

    def close(self) -> None:
        """Close the connection, after the call that is using it. Unlike leaving a saver whose connection is yours."""
        with self._driver.exclusively() as connection:
            connection.close()
        self._shared.end_threads()

    def setup(self) -> None:
        """Make or migrate the tables, and check format and key. Done by the first call of any method.

        Raises `SchemaVersionError` for a database of a newer refold, `ConfigurationError` for a wrong key.
        """
        self._sealer()

    def backup(self, target: str | Path) -> None:
        """Write a consistent copy of the database, compacted to the page, while others go on reading and writing.

        Raises `DatabaseUnavailableError` when the target exists or cannot be written; nothing is left there then.
        """
        self._sealer()
        place = Path(target)
        if place.exists():
            raise DatabaseUnavailableError(f"{place} exists: choose a new file for the backup")
        partial = place.with_name(f"{place.name}.partial-{os.getpid()}")
        try:
            beside = self._driver.beside()
            with self._driver.exclusively() if beside is None else closing(beside) as connection, typed_errors():
                connection.execute("VACUUM INTO ?", (str(partial),))
            os.replace(partial, place)
        finally:
            partial.unlink(missing_ok=True)

    def _opener(self, conn: sqlite3.Connection) -> Callable[[], SqliteDriver]:
        """What gives the driver. Raises `ConfigurationError` for what is no connection."""
        if isinstance(conn, str | bytes | os.PathLike):
            raise ConfigurationError(
                f"conn is a path, not a connection: use {type(self).__name__}.from_conn_string({os.fspath(conn)!r})"
            )
        if isinstance(conn, AwaitedConnection):
            raise ConfigurationError(
                "conn is an aiosqlite connection: use AsyncSqliteSaver(conn), or SqliteSaver.from_conn_string(path)"
            )
        driver = SqliteDriver(conn)
        return lambda: driver

    @property
    def _driver(self) -> SqliteDriver:
        return self._open()

    def _run(self, procedure: "Procedure[T]") -> T:
        return run(procedure(self._ctx()), self._driver.handle)

    def _ctx(self) -> Context:
        return self._context_with(self._sealer())

    def _sealer(self) -> Sealer:
        sealer = self._shared.sealer
        if sealer is None:
            with self._driver.exclusively() as connection:
                sealer = self._shared.sealer
                if sealer is None:
                    prepare(connection, self._driver)
                    sealer = self._open_sealer()
                    self._shared.sealer = sealer
        return sealer

    def _open_sealer(self) -> Sealer:
        cipher = Serde(self.serde).cipher
        with self._driver.transaction(write=False):
            keyed = run(read_meta_gen("hash_key"), self._driver.statement) is not None
        with self._driver.transaction(write=cipher is not None and not keyed):
            return run(sealer_gen(cipher, new_key()), self._driver.statement)
