"""Answers effects on one SQLite connection.

The connection is in WAL mode where the file allows it: one writer, any number of readers, in any number of processes.
A write transaction begins with `BEGIN IMMEDIATE`, so that it waits for the writer before it, never fails half-way.
Within a process one lock guards the connection; it is held for the statements of a transaction, not while values are
serialized.
"""

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import cast
from urllib.parse import quote

from refold.checkpoint.effects import (
    Ahead,
    Args,
    Barrier,
    Row,
    Select,
    SelectEach,
    SelectIn,
    SqlValue,
    Transaction,
    Vacuum,
)
from refold.checkpoint.sql import named_blocks, read_sql
from refold.core.program import Effect, run
from refold.errors import CheckpointError, ConfigurationError, CorruptionError, DatabaseUnavailableError

_KEYS = 500  # values in one `IN`: SQLite's limit of parameters was 999 for long


class SqliteDriver:
    """One connection, shared by all threads of a process and by a saver's clones."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._statements: Mapping[str, str] = named_blocks(read_sql("sqlite", "queries.sql"))
        self._lock = threading.RLock()

    def handle(self, effect: Effect[object]) -> object:
        """Answer an effect of a procedure: transactions and maintenance."""
        match effect:
            case Transaction(program=program, write=write, long=long):
                beside = self.beside() if long else None
                if beside is None:
                    with self.transaction(write=write):
                        return run(program(), self.statement)
                with closing(beside):
                    other = SqliteDriver(beside)
                    with other.transaction(write=write):
                        return run(program(), other.statement)
            case Barrier():
                return None  # there is one writer: whoever begins after a commit sees it
            case Vacuum():
                with self._lock, typed_errors():
                    self.connection.execute("VACUUM")
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                return None
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect of a saver")

    def statement(self, effect: Effect[object]) -> object:
        """Answer an effect inside a transaction."""
        match effect:
            case Select(statement=name, args=args):
                return self._fetch(self._statements[name], args)
            case SelectEach(statement=name, rows=rows):
                return [self._fetch(self._statements[name], args) for args in rows]
            case SelectIn(statement=name, keys=keys, args=args):
                return self._fetch_in(self._statements[name], keys, args)
            case Ahead():
                return None  # a statement is a call
            case _:
                raise TypeError(f"{type(effect).__name__} is no statement")

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """Hold the connection for one transaction; roll back when the block fails."""
        with self._lock, typed_errors():
            if self.connection.in_transaction:
                raise ConfigurationError(
                    "the connection has an open transaction of its own: commit it, or give the saver a connection that "
                    "nothing else uses"
                )
            self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        """Where SQLite did not roll back itself, as it does when the disk is full."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def beside(self) -> sqlite3.Connection | None:
        """Another connection to the same file, for what takes long; None where there can be none: for a database in
        memory, or one that a plain connection cannot read."""
        with self.exclusively() as connection:
            cursor = connection.cursor()
            cursor.row_factory = None
            files = {str(name): str(path) for _, name, path in cursor.execute("PRAGMA database_list")}
            [milliseconds] = cursor.execute("PRAGMA busy_timeout").fetchone()
        if not files.get("main"):
            return None
        uri = f"file:{quote(files['main'])}?mode=rw"
        try:
            found = sqlite3.connect(
                uri, uri=True, timeout=milliseconds / 1000, isolation_level=None, check_same_thread=False
            )
            try:
                found.execute("SELECT 1 FROM refold_meta").fetchone()
            except sqlite3.Error:
                found.close()
                raise
        except sqlite3.Error:
            return None
        return found

    @contextmanager
    def exclusively(self) -> Iterator[sqlite3.Connection]:
        """The connection itself, for set-up and backup."""
        with self._lock, typed_errors():
            yield self.connection

    def _fetch(self, statement: str, args: Args) -> list[Row]:
        cursor = self.connection.cursor()
        cursor.row_factory = None  # plain tuples, whatever rows the connection makes for its owner
        return cast("list[Row]", cursor.execute(statement, args).fetchall())

    def _fetch_in(self, statement: str, keys: Sequence[SqlValue], args: Args) -> list[Row]:
        found: list[Row] = []
        for at in range(0, len(keys), _KEYS):
            part = keys[at : at + _KEYS]
            names = {f"k{place}": key for place, key in enumerate(part)}
            text = statement.replace(":keys", ", ".join(f":{name}" for name in names))
            found += self._fetch(text, {**args, **names})
        return found


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn SQLite's errors into ours, with what to do about them."""
    try:
        yield
    except sqlite3.Error as error:
        raise _typed(error) from error


def _typed(error: sqlite3.Error) -> CheckpointError:
    # Errors that the module raises itself (a closed connection) carry no code of SQLite's.
    code = vars(error).get("sqlite_errorcode", 0) & 0xFF
    text = str(error)
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return DatabaseUnavailableError(
                "the database is locked by another writer for longer than the time-out: repeat the step, or open the "
                "saver with a longer one (timeout=...)"
            )
        case sqlite3.SQLITE_FULL:
            return DatabaseUnavailableError("the disk or the database is full: free space and repeat the step")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return DatabaseUnavailableError(
                f"the database cannot be written or opened ({text}): check the permissions of the file and its folder"
            )
        case sqlite3.SQLITE_IOERR:
            return DatabaseUnavailableError(f"reading or writing the database failed ({text}): check the disk")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CorruptionError(f"the database file is damaged or is none ({text}): restore it from a backup")
        case _ if text.startswith("Could not decode to UTF-8"):
            return CorruptionError("a column of bytes holds text: restore the database from a backup")
        case _ if isinstance(error, sqlite3.ProgrammingError) and "closed" in text:
            return DatabaseUnavailableError("the connection is closed: open the saver again")
        case _:
            return CheckpointError(f"SQLite refused a statement ({text}); this is a defect of refold or of the schema")
