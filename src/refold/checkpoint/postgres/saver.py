"""The savers on Postgres: `PostgresSaver` blocks, `AsyncPostgresSaver` is awaited. They read each other's data."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from refold.checkpoint.asaver import AsyncSaver
from refold.checkpoint.caches import DEFAULT_CACHE_BYTES
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Transaction
from refold.checkpoint.meta import new_key, read_meta_gen, sealer_gen
from refold.checkpoint.postgres.adriver import AsyncPostgresDriver, AsyncSource
from refold.checkpoint.postgres.driver import PostgresDriver, Source
from refold.checkpoint.postgres.errors import typed_errors
from refold.checkpoint.postgres.setup import is_current_gen, setup_gen
from refold.checkpoint.saver import Procedure, SyncSaver
from refold.checkpoint.seal import Sealer
from refold.checkpoint.serde import Serde
from refold.core.program import Program, arun, run
from refold.errors import ConfigurationError

T = TypeVar("T")

_CONNECTION: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0}


def _first_try(seconds: float) -> dict[str, Any]:
    """How to connect once before a pool does: a pool would try again until its time is over, and then not say what was
    wrong."""
    return {**_CONNECTION, "connect_timeout": max(2, math.ceil(seconds))}


def _no_connection(given: object, saver: str, wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"{saver} takes a psycopg.{wanted} or a psycopg_pool.{wanted}Pool, not a {type(given).__name__}; with a "
        f"connection string, use {saver}.from_conn_string"
    )


def open_gen(serde: SerializerProtocol) -> Program[Sealer]:
    """Set the tables up where they are not current, check the key, and give the sealer."""
    if not (yield from Transaction(program=is_current_gen, write=False)):
        yield from Transaction(program=setup_gen, write=True)
    cipher = Serde(serde).cipher
    keyed = (yield from Transaction(program=partial(read_meta_gen, "hash_key"), write=False)) is not None
    making = cipher is not None and not keyed
    return (yield from Transaction(program=partial(sealer_gen, cipher, new_key()), write=making))


class PostgresSaver(SyncSaver):
    """LangGraph checkpoints in Postgres, each value once.

    Takes the place of LangGraph's `PostgresSaver`. `conn` is a connection in autocommit mode, used by one thread at a
    time, or a `ConnectionPool` of such, which as many threads use as it has connections. `pipe` is accepted for those
    who pass one; the saver opens pipelines by itself.

        with PostgresSaver.from_conn_string("postgresql://...") as saver:
            saver.setup()
            graph = builder.compile(checkpointer=saver)
    """

    def __init__(
        self,
        conn: Source,
        pipe: "psycopg.Pipeline | None" = None,
        serde: SerializerProtocol | None = None,
        *,
        exclusive: bool = False,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        super().__init__(serde=serde, exclusive=exclusive, cache_bytes=cache_bytes)
        if not isinstance(conn, psycopg.Connection | ConnectionPool):
            raise _no_connection(conn, "PostgresSaver", "Connection")
        self.conn = conn
        self.pipe = pipe
        self._driver = PostgresDriver(conn)
        self._opening = threading.Lock()

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        pipeline: bool = False,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        max_size: int = 10,
        connect_timeout: float = 30.0,
    ) -> Iterator["PostgresSaver"]:
        """A saver on a pool of its own of up to `max_size` connections, closed at the end. `pipeline` is accepted for
        LangGraph's sake; statements are pipelined in any case. `connect_timeout`: seconds to wait for the server.

        Raises `DatabaseUnavailableError` when the server cannot be reached.
        """
        with typed_errors():
            psycopg.connect(conn_string, **_first_try(connect_timeout)).close()
            pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
                conn_string, min_size=1, max_size=max_size, kwargs=_CONNECTION, open=False
            )
            pool.open(wait=True, timeout=connect_timeout)
        try:
            yield cls(pool, serde=serde, exclusive=exclusive)
        finally:
            pool.close()

    def setup(self) -> None:
        """Make or migrate the tables, and check format and key. Done by the first call of any method, too."""
        self._sealer()

    def _run(self, procedure: "Procedure[T]") -> T:
        return run(procedure(self._ctx()), self._driver.handle)

    def _ctx(self) -> Context:
        return self._context_with(self._sealer())

    def _sealer(self) -> Sealer:
        with self._opening:
            if self._shared.sealer is None:
                self._shared.sealer = run(open_gen(self.serde), self._driver.handle)
            return self._shared.sealer


class AsyncPostgresSaver(AsyncSaver):
    """`PostgresSaver`, awaited: takes the place of LangGraph's `AsyncPostgresSaver`."""

    def __init__(
        self,
        conn: AsyncSource,
        pipe: "psycopg.AsyncPipeline | None" = None,
        serde: SerializerProtocol | None = None,
        *,
        exclusive: bool = False,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        super().__init__(serde=serde, exclusive=exclusive, cache_bytes=cache_bytes)
        if not isinstance(conn, psycopg.AsyncConnection | AsyncConnectionPool):
            raise _no_connection(conn, "AsyncPostgresSaver", "AsyncConnection")
        self.conn = conn
        self.pipe = pipe
        self._driver = AsyncPostgresDriver(conn)
        self._opening = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls,
        conn_string: str,
        *,
        pipeline: bool = False,
        serde: SerializerProtocol | None = None,
        exclusive: bool = False,
        max_size: int = 10,
        connect_timeout: float = 30.0,
    ) -> AsyncIterator["AsyncPostgresSaver"]:
        """A saver on a pool of its own; see `PostgresSaver.from_conn_string`."""
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
            conn_string, min_size=1, max_size=max_size, kwargs=_CONNECTION, open=False
        )
        with typed_errors():
            await (await psycopg.AsyncConnection.connect(conn_string, **_first_try(connect_timeout))).close()
            await pool.open(wait=True, timeout=connect_timeout)
        try:
            yield cls(pool, serde=serde, exclusive=exclusive)
        finally:
            await pool.close()

    async def setup(self) -> None:
        """Make or migrate the tables, and check format and key. Done by the first call of any method, too."""
        await self._sealer()

    async def _arun(self, procedure: "Procedure[T]") -> T:
        return await arun(procedure(self._context_with(await self._sealer())), self._driver.handle)

    async def _sealer(self) -> Sealer:
        async with self._opening:
            if self._shared.sealer is None:
                self._shared.sealer = await arun(open_gen(self.serde), self._driver.handle)
            return self._shared.sealer
