"""Making and migrating the tables of a SQLite file, and its journal mode."""

import sqlite3
import time
from typing import Any, Final

from refold.checkpoint.meta import FORMAT, check_format, number_of
from refold.checkpoint.sql import migrations, read_sql, script
from refold.checkpoint.sqlite.driver import SqliteDriver
from refold.errors import ConfigurationError

_WAL_ATTEMPTS: Final = 50
_NOT_NOW: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
    }
)
"""Why a file that works may not get another mode: in use, not writable, no place for files beside it."""


def prepare(connection: sqlite3.Connection, driver: SqliteDriver) -> None:
    """Bring the tables to the current format, and the file to WAL mode. Changes nothing in a database that has both.

    Raises `ConfigurationError` for a connection that gives text as something else.
    """
    if _first(connection, "SELECT 'text'") != ("text",):
        raise ConfigurationError("the connection has a text_factory that gives no str: give the saver one of its own")
    stored = stored_format(connection)
    if stored is not None:
        check_format(stored)
        if stored == FORMAT:
            _use_wal_again(connection)
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
    """The format of a database, or None where it has no tables of ours. Raises `CorruptionError` for one that does not
    say it."""
    if not _first(connection, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'refold_meta'"):
        return None
    row = _first(connection, "SELECT value FROM refold_meta WHERE key = 'format'")
    return number_of("format", None if row is None else row[0])


def _first(connection: sqlite3.Connection, statement: str) -> tuple[Any, ...] | None:
    """The first row, as a tuple whatever rows the connection makes for its owner."""
    cursor = connection.cursor()
    cursor.row_factory = None
    found: tuple[Any, ...] | None = cursor.execute(statement).fetchone()
    cursor.close()
    return found


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


def _use_wal_again(connection: sqlite3.Connection) -> None:
    """The mode is not in a backup, nor in what other tools copied. Where the file cannot change now, it serves as it
    is: it is not waited for, and whoever opens it next tries again."""
    mode = _first(connection, "PRAGMA journal_mode")
    if mode in (("wal",), ("memory",)) or connection.in_transaction:
        return
    patience = _first(connection, "PRAGMA busy_timeout") or (0,)
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        _first(connection, "PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _NOT_NOW:
            raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(patience[0])}")
