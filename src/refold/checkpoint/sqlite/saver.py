"""The saver on SQLite."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.caches import DEFAULT_CACHE_BYTES
from refold.checkpoint.drafts import Context
from refold.checkpoint.meta import FORMAT, check_format, new_key, read_meta_gen, sealer_gen
from refold.checkpoint.saver import Procedure, SyncSaver
from refold.checkpoint.seal import Sealer
from refold.checkpoint.serde import Serde
from refold.checkpoint.sql import migrations, read_sql, script
from refold.checkpoint.sqlite.connect import Database, connect
from refold.checkpoint.sqlite.driver import SqliteDriver
from refold.checkpoint.sqlite.same_file import AwaitedConnection
from refold.core.program import run
from refold.errors import ConfigurationError, DatabaseUnavailableError

T = TypeVar("T")

_WAL_ATTEMPTS = 50


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
            with self._driver.exclusively() as connection:
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


def prepare(connection: sqlite3.Connection, driver: SqliteDriver) -> None:
    """Bring the tables to the current format. Changes nothing in a database that has it."""
    stored = stored_format(connection)
    if stored is not None:
        check_format(stored)
        if stored == FORMAT:
            return
    _use_wal(connection)
    with driver.transaction(write=True):
        stored = stored_format(connection)  # another process may have been faster
        if stored is None:
            _execute(connection, read_sql("sqlite", "schema.sql"))
            connection.execute("INSERT INTO refold_meta (key, value) VALUES ('format', ?)", (str(FORMAT),))
    for version, text in migrations("sqlite").items():
        with driver.transaction(write=True):
            stored = stored_format(connection)
            if stored is not None and stored < version:
                _execute(connection, text)
                connection.execute("UPDATE refold_meta SET value = ? WHERE key = 'format'", (str(version),))


def stored_format(connection: sqlite3.Connection) -> int | None:
    """The format of a database, or None where it has no tables of ours."""
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'refold_meta'").fetchone()
    if tables is None:
        return None
    row = connection.execute("SELECT value FROM refold_meta WHERE key = 'format'").fetchone()
    return None if row is None else int(row[0])


def _execute(connection: sqlite3.Connection, text: str) -> None:
    for statement in script(text):
        connection.execute(statement)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers and one writer side by side. The mode stays with the file; while another process changes it, wait."""
    for attempt in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == _WAL_ATTEMPTS - 1:
                raise
            time.sleep(0.02)
        else:
            return
