"""Answers effects on Postgres, blocking.

A write transaction runs at READ COMMITTED and takes the rows that it depends on (`FOR UPDATE` in the statements that
say so); it holds a shared advisory lock, which is what a collection's barrier waits for. A read transaction is one
snapshot. After a deadlock or a serialization failure the transaction is run again. Writers of different threads share
no lock but that shared one.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from refold.checkpoint.effects import Barrier, Row, Transaction, Vacuum
from refold.checkpoint.postgres.errors import REPEAT, typed_errors
from refold.checkpoint.postgres.progress import (
    ADVISORY_KEY,
    Fetch,
    Progress,
    Query,
    Send,
    answer_gen,
    begin_gen,
    finish_gen,
)
from refold.checkpoint.sql import named_blocks, percent_style, read_sql
from refold.core.program import Effect, run
from refold.errors import ConfigurationError

Source: TypeAlias = "psycopg.Connection[Any] | ConnectionPool[psycopg.Connection[Any]]"

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
            connection, progress = None, Progress()
            try:
                with self.connection() as connection:
                    check_connection(connection)
                    return self._run(connection, transaction, progress)
            except REPEAT:
                if attempt >= ATTEMPTS - 1:
                    raise
            except psycopg.OperationalError:  # a pooled connection that the server closed long ago: nothing was begun
                if progress.begun or connection is None or not connection.closed or attempt >= stale:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _run(
        self, connection: "psycopg.Connection[Any]", transaction: Transaction[object], progress: Progress
    ) -> object:
        perform = partial(self._perform, connection)
        try:
            run(begin_gen(transaction, progress), perform)
            answer = run(transaction.program(), partial(self._statement, connection, progress))
            run(finish_gen(progress), perform)
        except BaseException:
            _roll_back(connection)
            raise
        return answer

    def _statement(self, connection: "psycopg.Connection[Any]", progress: Progress, effect: Effect[object]) -> object:
        return run(answer_gen(progress, effect), partial(self._perform, connection))

    def _perform(self, connection: "psycopg.Connection[Any]", effect: Effect[object]) -> object:
        match effect:
            case Fetch(query=query) if connection.info.pipeline_status == PipelineStatus.OFF:
                return self._fetch(connection, query)
            case Fetch(query=query):  # in a pipeline of the caller's results come with an inner one
                return (self._send(connection, Send(queries=[query])))[0]
            case Send():
                return self._send(connection, effect)
            case _:
                raise TypeError(f"{type(effect).__name__} is nothing that a connection does")

    def _fetch(self, connection: "psycopg.Connection[Any]", query: Query) -> list[Row]:
        with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            cursor.execute(cast("Any", self._statements[query[0]]), query[1])
            return cursor.fetchall() if cursor.description is not None else []

    def _send(self, connection: "psycopg.Connection[Any]", send: Send) -> list[list[Row]]:
        """What statements that are sent together gave is known only when the pipeline has ended."""
        if not (send.texts or send.queries) and connection.info.pipeline_status == PipelineStatus.OFF:
            connection.execute("COMMIT")
            return []
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in send.queries]
        with connection.pipeline():
            for text in send.texts:
                connection.execute(cast("Any", text), prepare=False)
            for cursor, (name, args) in zip(cursors, send.queries, strict=True):
                cursor.execute(cast("Any", self._statements[name]), args)
            if send.commit:
                connection.execute("COMMIT")
        return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]


def _roll_back(connection: "psycopg.Connection[Any]") -> None:
    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
        try:
            connection.rollback()
        except psycopg.Error:  # it was lost in mid-pipeline: the first error says why
            connection.close()
