"""Every saver passes LangGraph's conformance suite in all capabilities: 81 tests each."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from refold.checkpoint import AsyncPostgresSaver, AsyncSqliteSaver, PostgresSaver, SqliteSaver

ALL = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5, "delete_for_runs": 7,
    "copy_thread": 8, "prune": 8,
}  # fmt: skip


async def _passes(open_saver: Callable[[], AsyncIterator[Any]]) -> None:
    report = await validate(checkpointer_test(name="refold")(open_saver))
    assert {name: result.tests_passed for name, result in report.results.items()} == ALL
    assert report.passed_all()


class TestEverySaverConforms:
    async def test_sqlite(self, tmp_path: Path) -> None:
        """The sync SQLite saver, through its async methods."""

        async def saver() -> AsyncIterator[SqliteSaver]:
            with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as found:
                yield found

        await _passes(saver)

    async def test_async_sqlite(self, tmp_path: Path) -> None:
        """The async SQLite saver."""

        async def saver() -> AsyncIterator[AsyncSqliteSaver]:
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as found:
                yield found

        await _passes(saver)

    @pytest.mark.postgres
    async def test_postgres(self, postgres_url: str) -> None:
        """The sync Postgres saver, through its async methods."""

        async def saver() -> AsyncIterator[PostgresSaver]:
            with PostgresSaver.from_conn_string(postgres_url) as found:
                yield found

        await _passes(saver)

    @pytest.mark.postgres
    async def test_async_postgres(self, postgres_url: str) -> None:
        """The async Postgres saver."""

        async def saver() -> AsyncIterator[AsyncPostgresSaver]:
            async with AsyncPostgresSaver.from_conn_string(postgres_url) as found:
                yield found

        await _passes(saver)
