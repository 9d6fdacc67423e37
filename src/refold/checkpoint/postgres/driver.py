"""Answers effects on Postgres, blocking.

A write transaction runs at READ COMMITTED and takes the rows that it depends on (`FOR UPDATE` in the statements that
say so); it holds a shared advisory lock, which is what a collection's barrier waits for. A read transaction is one
snapshot. After a deadlock or a serialization failure the transaction is run again. Writers of different threads share
no lock but that shared one.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from refold.checkpoint.effects import (
    Ahead,
    Barrier,
    Row,
    Select,
    SelectEach,
    SelectIn,
    Statement,
    Transaction,
    Vacuum,
)
from refold.checkpoint.postgres.ahead import Progress, Query, query_of
from refold.checkpoint.postgres.errors import REPEAT, typed_errors
from refold.checkpoint.sql import named_blocks, percent_style, read_sql
from refold.core.program import Effect, run
from refold.errors import ConfigurationError

Source: TypeAlias = "psycopg.Connection[Any] | ConnectionPool[psycopg.Connection[Any]]"

ADVISORY_KEY: Final = 0x7265666F6C640001  # "refold", 1
BEGIN_READ: Final = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
BEGIN_WRITE: Final = ("BEGIN ISOLATION LEVEL READ COMMITTED", f"SELECT pg_advisory_xact_lock_shared({ADVISORY_KEY})")
WAIT: Final = f"SELECT pg_advisory_xact_lock({ADVISORY_KEY})"
"""A transaction of its own: the lock ends with it, however it ends."""
VACUUMED: Final = "VACUUM refold_blob, refold_checkpoint, refold_task_write, refold_segment, refold_pack, refold_log"
ATTEMPTS: Final = 6


def load_statements() -> Mapping[str, str]:
    """The statements in psycopg's spelling."""
    blocks = named_blocks(read_sql("postgres", "queries.sql"))
    return {name: percent_style(text) for name, text in blocks.items()}


def check_connection(connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    """Raises `ConfigurationError` for a connection that would keep what the saver writes from being committed."""
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        raise ConfigurationError(
            "the database has the encoding SQL_ASCII, in which text cannot be told from bytes: make one with ENCODING "
            "'UTF8'"
        )
    if not connection.autocommit:
        raise ConfigurationError("the connection must be in autocommit mode: connect(..., autocommit=True)")
    if connection.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
        raise ConfigurationError("the connection has an open transaction of its own: commit it first")


def texts_for(
    connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]", texts: Sequence[str]
) -> Sequence[str]:
    """Several statements in one round trip; in a pipeline of the caller's, which takes no joined ones, one by one."""
    return texts if connection.info.pipeline_status != PipelineStatus.OFF else ["; ".join(texts)]


class PostgresDriver:
    """A connection, used by one thread at a time, or a pool, used by as many as it has connections."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._statements = load_statements()
        self._lock = threading.RLock()

    def handle(self, effect: Effect[object]) -> object:
        """Answer an effect of a procedure: transactions and maintenance."""
        match effect:
            case Transaction():
                with typed_errors():
                    return self._transact(cast("Transaction[object]", effect))
            case Barrier():
                self._alone(WAIT)
            case Vacuum():
                self._alone(VACUUMED)
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect of a saver")
        return None

    @contextmanager
    def connection(self) -> Iterator["psycopg.Connection[Any]"]:
        """A connection for one use."""
        if isinstance(self.source, ConnectionPool):
            with self.source.connection() as connection:
                yield connection
        else:
            with self._lock:
                yield self.source

    def _alone(self, statement: str) -> None:
        """A statement that must not be in a transaction block."""
        with typed_errors(), self.connection() as connection:
            check_connection(connection)
            connection.execute(cast("Any", statement), prepare=False)

    def _transact(self, transaction: Transaction[object]) -> object:
        stale = self.source.max_size if isinstance(self.source, ConnectionPool) else 0
        for attempt in range(ATTEMPTS + stale):
            connection = None
            begun = False
            try:
                with self.connection() as connection:
                    check_connection(connection)
                    progress = self._begin(connection, transaction)
                    begun = True
                    return self._run(connection, transaction, progress)
            except REPEAT:
                if attempt >= ATTEMPTS - 1:
                    raise
            except psycopg.OperationalError:  # a pooled connection that the server closed long ago: nothing was begun
                if begun or connection is None or not connection.closed or attempt >= stale:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _begin(self, connection: "psycopg.Connection[Any]", transaction: Transaction[object]) -> Progress:
        """Begin, with what the program will ask for first in the same round trip."""
        begin, progress = BEGIN_WRITE if transaction.write else BEGIN_READ, Progress()
        try:
            if transaction.ahead is not None:
                self._fetch_ahead(connection, progress, transaction.ahead(), first=begin)
            else:
                for text in texts_for(connection, begin):
                    connection.execute(cast("Any", text), prepare=False)
        except BaseException:
            _roll_back(connection)
            raise
        return progress

    def _run(
        self, connection: "psycopg.Connection[Any]", transaction: Transaction[object], progress: Progress
    ) -> object:
        try:
            answer = run(transaction.program(), lambda effect: self._statement(connection, progress, effect))
            if progress.waiting:
                self._send(connection, progress, [], commit=True)
            elif not progress.committed:
                connection.execute("COMMIT")
                if connection.info.pipeline_status != PipelineStatus.OFF:
                    with connection.pipeline():
                        pass  # leaving an inner pipeline waits for the server: only then it is stored
        except BaseException:
            _roll_back(connection)
            raise
        return answer

    def _statement(self, connection: "psycopg.Connection[Any]", progress: Progress, effect: Effect[object]) -> object:
        match effect:
            case Select() | SelectIn():
                return self._select(connection, progress, effect)
            case SelectEach(statement=name, rows=rows, later=True):
                progress.waiting += [(name, args) for args in rows]
                return []
            case SelectEach(statement=name, rows=rows):
                return self._send(connection, progress, [(name, args) for args in rows])
            case Ahead(selects=selects):
                self._fetch_ahead(connection, progress, selects)
                return None
            case Statement(text=text):
                self._send(connection, progress, [])
                connection.execute(cast("Any", text), prepare=False)
                return None
            case _:
                raise TypeError(f"{type(effect).__name__} is no statement")

    def _select(
        self, connection: "psycopg.Connection[Any]", progress: Progress, select: Select | SelectIn
    ) -> list[Row]:
        if isinstance(select, SelectIn) and not select.keys:
            return []
        known = progress.take(select)
        if known is not None:
            return known
        last = isinstance(select, Select) and select.last
        if last or progress.waiting:
            [rows] = self._send(connection, progress, [query_of(select)], commit=last)
            return rows
        return self._fetch(connection, *query_of(select))

    def _fetch_ahead(
        self,
        connection: "psycopg.Connection[Any]",
        progress: Progress,
        selects: Sequence[Select | SelectIn],
        *,
        first: Sequence[str] = (),
    ) -> None:
        wanted = [select for select in selects if isinstance(select, Select) or select.keys]
        rows = self._send(connection, progress, [*map(query_of, wanted)], first=first)
        progress.add(wanted, rows)

    def _send(
        self,
        connection: "psycopg.Connection[Any]",
        progress: Progress,
        queries: Sequence[Query],
        *,
        first: Sequence[str] = (),
        commit: bool = False,
    ) -> list[list[Row]]:
        """Statements, behind those that waited for them."""
        waited, progress.waiting = progress.waiting, []
        if not (waited or queries or commit):
            return []
        rows = self._fetch_all(connection, [*waited, *queries], first=first, commit=commit)
        progress.committed = commit
        return rows[len(waited) :]

    def _fetch(self, connection: "psycopg.Connection[Any]", name: str, args: Mapping[str, object]) -> list[Row]:
        if connection.info.pipeline_status != PipelineStatus.OFF:  # the caller's: results come with an inner one
            return (self._fetch_all(connection, [(name, args)]))[0]
        with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            cursor.execute(cast("Any", self._statements[name]), args)
            return cursor.fetchall() if cursor.description is not None else []

    def _fetch_all(
        self,
        connection: "psycopg.Connection[Any]",
        queries: Sequence[Query],
        *,
        first: Sequence[str] = (),
        commit: bool = False,
    ) -> list[list[Row]]:
        """Statements sent together, texts `first`. What they gave is known only when the pipeline has ended."""
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in queries]
        with connection.pipeline():
            for text in first:
                connection.execute(cast("Any", text), prepare=False)
            for cursor, (name, args) in zip(cursors, queries, strict=True):
                cursor.execute(cast("Any", self._statements[name]), args)
            if commit:
                connection.execute("COMMIT")
        return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]


def _roll_back(connection: "psycopg.Connection[Any]") -> None:
    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
        connection.rollback()
