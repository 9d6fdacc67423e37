"""Answers effects on Postgres from coroutines: `driver`, awaited."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from refold.checkpoint.effects import Barrier, Row, Transaction, Vacuum
from refold.checkpoint.postgres.driver import ATTEMPTS, VACUUMED, WAIT, check_connection, load_statements
from refold.checkpoint.postgres.errors import REPEAT, typed_errors
from refold.checkpoint.postgres.progress import (
    Fetch,
    Progress,
    Query,
    Send,
    answer_gen,
    begin_gen,
    finish_gen,
)
from refold.core.program import Effect, arun

AsyncSource: TypeAlias = "psycopg.AsyncConnection[Any] | AsyncConnectionPool[psycopg.AsyncConnection[Any]]"


class AsyncPostgresDriver:
    """A connection, used by one task at a time, or a pool."""

    def __init__(self, source: AsyncSource) -> None:
        self.source = source
        self._statements = load_statements()
        self._lock = asyncio.Lock()

    async def handle(self, effect: Effect[object]) -> object:
        """Answer an effect of a procedure: transactions and maintenance."""
        match effect:
            case Transaction():
                with typed_errors():
                    return await self._transact(cast("Transaction[object]", effect))
            case Barrier():
                await self._alone(WAIT)
            case Vacuum():
                await self._alone(VACUUMED)
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect of a saver")
        return None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["psycopg.AsyncConnection[Any]"]:
        """A connection for one use."""
        if isinstance(self.source, AsyncConnectionPool):
            async with self.source.connection() as connection:
                yield connection
        else:
            async with self._lock:
                yield self.source

    async def _alone(self, statement: str) -> None:
        """A statement that must not be in a transaction block."""
        with typed_errors():
            async with self.connection() as connection:
                check_connection(connection)
                await connection.execute(cast("Any", statement), prepare=False)

    async def _transact(self, transaction: Transaction[object]) -> object:
        stale = self.source.max_size if isinstance(self.source, AsyncConnectionPool) else 0
        for attempt in range(ATTEMPTS + stale):
            connection, progress = None, Progress()
            try:
                async with self.connection() as connection:
                    check_connection(connection)
                    return await self._run(connection, transaction, progress)
            except REPEAT:
                if attempt >= ATTEMPTS - 1:
                    raise
            except psycopg.OperationalError:  # a pooled connection that the server closed long ago: nothing was begun
                if progress.begun or connection is None or not connection.closed or attempt >= stale:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _run(
        self, connection: "psycopg.AsyncConnection[Any]", transaction: Transaction[object], progress: Progress
    ) -> object:
        perform = partial(self._perform, connection)
        try:
            await arun(begin_gen(transaction, progress), perform)
            answer = await arun(transaction.program(), partial(self._statement, connection, progress))
            await arun(finish_gen(progress), perform)
        except BaseException:
            await _roll_back(connection)
            raise
        return answer

    async def _statement(
        self, connection: "psycopg.AsyncConnection[Any]", progress: Progress, effect: Effect[object]
    ) -> object:
        return await arun(answer_gen(progress, effect), partial(self._perform, connection))

    async def _perform(self, connection: "psycopg.AsyncConnection[Any]", effect: Effect[object]) -> object:
        match effect:
            case Fetch(query=query) if connection.info.pipeline_status == PipelineStatus.OFF:
                return await self._fetch(connection, query)
            case Fetch(query=query):  # in a pipeline of the caller's results come with an inner one
                return (await self._send(connection, Send(queries=[query])))[0]
            case Send():
                return await self._send(connection, effect)
            case _:
                raise TypeError(f"{type(effect).__name__} is nothing that a connection does")

    async def _fetch(self, connection: "psycopg.AsyncConnection[Any]", query: Query) -> list[Row]:
        async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            await cursor.execute(cast("Any", self._statements[query[0]]), query[1])
            return await cursor.fetchall() if cursor.description is not None else []

    async def _send(self, connection: "psycopg.AsyncConnection[Any]", send: Send) -> list[list[Row]]:
        """What statements that are sent together gave is known only when the pipeline has ended."""
        if not (send.texts or send.queries) and connection.info.pipeline_status == PipelineStatus.OFF:
            await connection.execute("COMMIT")
            return []
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in send.queries]
        async with connection.pipeline():
            for text in send.texts:
                await connection.execute(cast("Any", text), prepare=False)
            for cursor, (name, args) in zip(cursors, send.queries, strict=True):
                await cursor.execute(cast("Any", self._statements[name]), args)
            if send.commit:
                await connection.execute("COMMIT")
        return [await cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]


async def _roll_back(connection: "psycopg.AsyncConnection[Any]") -> None:
    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
        try:
            await connection.rollback()
        except psycopg.Error:  # it was lost in mid-pipeline: the first error says why
            await connection.close()
