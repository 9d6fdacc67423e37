"""Answers effects on Postgres from coroutines: `driver`, awaited."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

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
from refold.checkpoint.postgres.driver import (
    ATTEMPTS,
    BEGIN_READ,
    BEGIN_WRITE,
    VACUUMED,
    WAIT,
    check_connection,
    load_statements,
    texts_for,
)
from refold.checkpoint.postgres.errors import REPEAT, typed_errors
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
            connection = None
            begun = False
            try:
                async with self.connection() as connection:
                    check_connection(connection)
                    progress = await self._begin(connection, transaction)
                    begun = True
                    return await self._run(connection, transaction, progress)
            except REPEAT:
                if attempt >= ATTEMPTS - 1:
                    raise
            except psycopg.OperationalError:  # a pooled connection that the server closed long ago: nothing was begun
                if begun or connection is None or not connection.closed or attempt >= stale:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _begin(self, connection: "psycopg.AsyncConnection[Any]", transaction: Transaction[object]) -> Progress:
        """Begin, with what the program will ask for first in the same round trip."""
        begin, progress = BEGIN_WRITE if transaction.write else BEGIN_READ, Progress()
        try:
            if transaction.ahead is not None:
                await self._fetch_ahead(connection, progress, transaction.ahead(), first=begin)
            else:
                for text in texts_for(connection, begin):
                    await connection.execute(cast("Any", text), prepare=False)
        except BaseException:
            await _roll_back(connection)
            raise
        return progress

    async def _run(
        self, connection: "psycopg.AsyncConnection[Any]", transaction: Transaction[object], progress: Progress
    ) -> object:
        try:
            answer = await arun(transaction.program(), lambda effect: self._statement(connection, progress, effect))
            if progress.waiting:
                await self._send(connection, progress, [], commit=True)
            elif not progress.committed:
                await connection.execute("COMMIT")
                if connection.info.pipeline_status != PipelineStatus.OFF:
                    async with connection.pipeline():
                        pass  # leaving an inner pipeline waits for the server: only then it is stored
        except BaseException:
            await _roll_back(connection)
            raise
        return answer

    async def _statement(
        self, connection: "psycopg.AsyncConnection[Any]", progress: Progress, effect: Effect[object]
    ) -> object:
        match effect:
            case Select() | SelectIn():
                return await self._select(connection, progress, effect)
            case SelectEach(statement=name, rows=rows, later=True):
                progress.waiting += [(name, args) for args in rows]
                return []
            case SelectEach(statement=name, rows=rows):
                return await self._send(connection, progress, [(name, args) for args in rows])
            case Ahead(selects=selects):
                await self._fetch_ahead(connection, progress, selects)
                return None
            case Statement(text=text):
                await self._send(connection, progress, [])
                await connection.execute(cast("Any", text), prepare=False)
                return None
            case _:
                raise TypeError(f"{type(effect).__name__} is no statement")

    async def _select(
        self, connection: "psycopg.AsyncConnection[Any]", progress: Progress, select: Select | SelectIn
    ) -> list[Row]:
        if isinstance(select, SelectIn) and not select.keys:
            return []
        known = progress.take(select)
        if known is not None:
            return known
        last = isinstance(select, Select) and select.last
        if last or progress.waiting:
            [rows] = await self._send(connection, progress, [query_of(select)], commit=last)
            return rows
        return await self._fetch(connection, *query_of(select))

    async def _fetch_ahead(
        self,
        connection: "psycopg.AsyncConnection[Any]",
        progress: Progress,
        selects: Sequence[Select | SelectIn],
        *,
        first: Sequence[str] = (),
    ) -> None:
        wanted = [select for select in selects if isinstance(select, Select) or select.keys]
        rows = await self._send(connection, progress, [*map(query_of, wanted)], first=first)
        progress.add(wanted, rows)

    async def _send(
        self,
        connection: "psycopg.AsyncConnection[Any]",
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
        rows = await self._fetch_all(connection, [*waited, *queries], first=first, commit=commit)
        progress.committed = commit
        return rows[len(waited) :]

    async def _fetch(
        self, connection: "psycopg.AsyncConnection[Any]", name: str, args: Mapping[str, object]
    ) -> list[Row]:
        if connection.info.pipeline_status != PipelineStatus.OFF:  # the caller's: results come with an inner one
            return (await self._fetch_all(connection, [(name, args)]))[0]
        async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            await cursor.execute(cast("Any", self._statements[name]), args)
            return await cursor.fetchall() if cursor.description is not None else []

    async def _fetch_all(
        self,
        connection: "psycopg.AsyncConnection[Any]",
        queries: Sequence[Query],
        *,
        first: Sequence[str] = (),
        commit: bool = False,
    ) -> list[list[Row]]:
        """Statements sent together, texts `first`. What they gave is known only when the pipeline has ended."""
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in queries]
        async with connection.pipeline():
            for text in first:
                await connection.execute(cast("Any", text), prepare=False)
            for cursor, (name, args) in zip(cursors, queries, strict=True):
                await cursor.execute(cast("Any", self._statements[name]), args)
            if commit:
                await connection.execute("COMMIT")
        return [await cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]


async def _roll_back(connection: "psycopg.AsyncConnection[Any]") -> None:
    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
        await connection.rollback()
