"""The savers are made and opened as LangGraph's are: same names, same kinds of arguments."""

import gc
import inspect
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint import postgres as their_postgres
from langgraph.checkpoint import sqlite as their_sqlite
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import aio as their_async_postgres
from langgraph.checkpoint.sqlite import aio as their_async_sqlite

from refold.checkpoint import AsyncPostgresSaver, AsyncSqliteSaver, PostgresSaver, SqliteSaver
from refold.errors import ConfigurationError

aiosqlite = pytest.importorskip("aiosqlite")

AT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
PAIRS = [
    (their_sqlite.SqliteSaver, SqliteSaver),
    (their_async_sqlite.AsyncSqliteSaver, AsyncSqliteSaver),
    (their_postgres.PostgresSaver, PostgresSaver),
    (their_async_postgres.AsyncPostgresSaver, AsyncPostgresSaver),
]


class TestSameSignatures:
    @pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda found: found.__module__)
    @pytest.mark.parametrize("name", ["__init__", "from_conn_string", "setup"])
    def test_every_parameter_of_theirs_is_one_of_ours(self, theirs: type, ours: type, name: str) -> None:
        """By the same name, of the same kind, in the same place where it may be given by place, optional where theirs
        is; ours have no more that must be given."""
        wanted = inspect.signature(getattr(theirs, name)).parameters
        found = inspect.signature(getattr(ours, name)).parameters
        for parameter in wanted.values():
            assert found[parameter.name].kind == parameter.kind
            assert (found[parameter.name].default is parameter.empty) == (parameter.default is parameter.empty)
        places = [p.name for p in wanted.values() if p.kind is not p.KEYWORD_ONLY]
        assert places == [p.name for p in found.values() if p.kind is not p.KEYWORD_ONLY]
        assert [p.name for p in found.values() if p.default is p.empty and p.name not in wanted] == []
        kinds = (inspect.iscoroutinefunction(getattr(saver, name)) for saver in (theirs, ours))
        assert len(set(kinds)) == 1


class TestSqlite:
    def test_a_connection_by_name(self) -> None:
        """`conn=`, and `is_setup` as LangGraph's has it."""
        saver = SqliteSaver(conn=sqlite3.connect(":memory:", check_same_thread=False))
        assert not saver.is_setup
        saver.setup()
        assert saver.is_setup
        saver.close()

    @pytest.mark.parametrize("kind", [str, Path, os.fsencode], ids=["str", "Path", "bytes"])
    async def test_what_sqlite_opens(self, tmp_path: Path, kind: Callable[[str], Any]) -> None:
        """A path in any form that `sqlite3.connect` takes, blocking or awaited."""
        place = kind(str(tmp_path / "checkpoints.db"))
        with SqliteSaver.from_conn_string(place) as saver:
            saver.put(AT, empty_checkpoint(), {}, {})
        async with AsyncSqliteSaver.from_conn_string(place) as awaited:
            assert await awaited.aget_tuple(AT) is not None

    @pytest.mark.parametrize("wrong", ["checkpoints.db", Path("checkpoints.db")])
    def test_a_path_for_a_connection_is_refused(self, wrong: Any) -> None:
        """The message names the call that takes a path."""
        for kind in (SqliteSaver, AsyncSqliteSaver):
            with pytest.raises(ConfigurationError, match="from_conn_string"):
                kind(wrong)


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


class TestTheCallersConnection:
    """What a connection was set to for its owner's own use."""

    @pytest.mark.parametrize("factory", [sqlite3.Row, as_dict, lambda cursor, row: [*row]], ids=["Row", "dict", "list"])
    def test_rows_of_any_kind(self, factory: Any) -> None:
        """Every method works, whatever rows the connection makes for others; they stay as they were."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.row_factory = factory
        saver = SqliteSaver(connection)
        config = AT
        for version in range(1, 4):
            made = empty_checkpoint()
            made["channel_values"] = {"a": [HumanMessage("text " * 50, id=str(n)) for n in range(20 * version)]}
            made["channel_versions"] = {"a": version}
            config = saver.put(config, made, {"run_id": f"run-{version}"}, {"a": version})
            for task in ("t1", "t2", "t3"):
                saver.put_writes(config, [("a", version)], task)
        expected = [*saver.list(AT)]
        saver.copy_thread("t", "copy")
        assert [item.checkpoint for item in saver.list({"configurable": {"thread_id": "copy"}})] == [
            item.checkpoint for item in expected
        ]
        saver.compact()
        assert [*SqliteSaver(connection).list(AT)] == expected
        saver.delete_for_runs(["run-2"])
        saver.prune(None)
        saver.delete_thread("copy")
        saver.gc()
        assert saver.verify().ok
        assert saver.stats().checkpoints == 1
        assert [item.pending_writes for item in saver.list(None)] == [expected[0].pending_writes]
        assert type(connection.execute("SELECT 1 AS one").fetchone()) is not tuple
        connection.close()

    def test_text_of_another_kind_is_refused(self) -> None:
        """A connection that gives text as bytes would name threads by bytes."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.text_factory = bytes
        with pytest.raises(ConfigurationError, match="text_factory"):
            SqliteSaver(connection).setup()
        connection.close()


class TestAiosqlite:
    """LangGraph's own way to make an `AsyncSqliteSaver`."""

    @pytest.mark.parametrize("awaited", [True, False])
    async def test_its_connection(self, tmp_path: Path, awaited: bool) -> None:
        """The saver stores in the file that the connection has open; `conn` is what was given, and stays the caller's.
        One that was not awaited yet is, as LangGraph does it."""
        connection = aiosqlite.connect(tmp_path / "checkpoints.db")
        if awaited:
            await connection
        saver = AsyncSqliteSaver(connection)
        await saver.aput(AT, empty_checkpoint(), {}, {})
        assert saver.get_tuple(AT) is not None
        assert saver.conn is connection
        assert await saver.with_allowlist([("a", "b")]).aget_tuple(AT) is not None
        await connection.close()
        with SqliteSaver.from_conn_string(tmp_path / "checkpoints.db") as other:
            assert other.get_tuple(AT) is not None
        del saver
        gc.collect()  # closes the saver's own connection: a warning would be an error here

    async def test_rows_of_any_kind(self, tmp_path: Path) -> None:
        """A row factory of the caller's changes nothing."""
        async with aiosqlite.connect(tmp_path / "checkpoints.db") as connection:
            connection.row_factory = as_dict
            assert await AsyncSqliteSaver(connection).aget_tuple(AT) is None

    async def test_in_memory_is_refused(self) -> None:
        """A database in memory belongs to its one connection; the message says what to pass."""
        async with aiosqlite.connect(":memory:") as connection:
            with pytest.raises(ConfigurationError, match=r"from_conn_string\(':memory:'\)"):
                await AsyncSqliteSaver(connection).aget_tuple(AT)

    async def test_a_closed_one_is_refused(self, tmp_path: Path) -> None:
        """It no longer says which file it had open."""
        async with aiosqlite.connect(tmp_path / "checkpoints.db") as connection:
            pass
        with pytest.raises(ConfigurationError, match="closed"):
            await AsyncSqliteSaver(connection).aget_tuple(AT)

    async def test_a_first_call_that_blocks_the_loop_is_refused(self, tmp_path: Path) -> None:
        """It would wait for ever, since the connection can only be asked on this loop."""
        async with aiosqlite.connect(tmp_path / "checkpoints.db") as connection:
            saver = AsyncSqliteSaver(connection)
            with pytest.raises(ConfigurationError, match="await"):
                saver.get_tuple(AT)
            await saver.setup()
            assert saver.get_tuple(AT) is None

    async def test_the_blocking_saver_refuses_it(self, tmp_path: Path) -> None:
        """The message names the saver that takes it."""
        async with aiosqlite.connect(tmp_path / "checkpoints.db") as connection:
            with pytest.raises(ConfigurationError, match="AsyncSqliteSaver"):
                SqliteSaver(connection)


class TestPostgres:
    @pytest.mark.parametrize("wrong", ["postgresql://localhost/x", None, 1])
    async def test_what_is_no_connection_is_refused(self, wrong: Any) -> None:
        """At once, and not with the first statement."""
        for kind in (PostgresSaver, AsyncPostgresSaver):
            with pytest.raises(ConfigurationError, match="from_conn_string"):
                kind(wrong)

    async def test_a_connection_of_the_other_kind_is_refused(self) -> None:
        """A pool that is awaited for the blocking saver, and the other way round."""
        from psycopg_pool import AsyncConnectionPool, ConnectionPool

        with pytest.raises(ConfigurationError, match="ConnectionPool"):
            PostgresSaver(AsyncConnectionPool("", open=False))  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="AsyncConnectionPool"):
            AsyncPostgresSaver(ConnectionPool("", open=False))  # type: ignore[arg-type]
