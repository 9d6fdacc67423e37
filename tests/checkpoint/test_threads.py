"""The SQLite savers beside nodes that block threads, and beside themselves."""

import asyncio
import contextvars
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

from refold.checkpoint import AsyncSqliteSaver, SqliteSaver

AT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class TestThreadsOfItsOwn:
    async def test_nodes_that_wait_for_the_saver(self, tmp_path: Path) -> None:
        """As many sync nodes as the event loop has threads may wait for the saver's async methods: they are
        answered."""
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
            await saver.aput(AT, empty_checkpoint(), {}, {})
            loop = asyncio.get_running_loop()
            together = threading.Barrier(4)

            def node() -> object:
                together.wait(20)
                return asyncio.run_coroutine_threadsafe(saver.aget_tuple(AT), loop).result(20)

            with ThreadPoolExecutor(4) as threads:
                loop.set_default_executor(threads)
                found = await asyncio.gather(*(asyncio.to_thread(node) for _ in range(4)))
            assert all(item is not None for item in found)

    async def test_a_run_beside_slow_nodes(self, tmp_path: Path) -> None:
        """An async graph is stored and read while all threads of the event loop are busy with nodes of another."""
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
            busy, go_on = threading.Semaphore(0), threading.Event()

            def slow() -> None:
                busy.release()
                assert go_on.wait(20)

            with ThreadPoolExecutor(2) as threads:
                asyncio.get_running_loop().set_default_executor(threads)
                waiting = [asyncio.create_task(asyncio.to_thread(slow)) for _ in range(2)]
                while not all(busy.acquire(blocking=False) for _ in range(2)):
                    await asyncio.sleep(0.01)

                async def say(state: Any) -> Any:
                    return {"messages": [("ai", "x")]}

                graph = (
                    StateGraph(MessagesState).add_node("say", say).add_edge(START, "say").compile(checkpointer=saver)
                )
                state = await asyncio.wait_for(graph.ainvoke({"messages": [("user", "hi")]}, AT), 15)
                go_on.set()
                await asyncio.gather(*waiting)
            assert len(state["messages"]) == 2

    async def test_opening_and_closing_beside_slow_nodes(self, tmp_path: Path) -> None:
        """A saver opens, is set up and closes while all threads of the event loop are busy."""
        go_on = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(threads)
            waiting = loop.run_in_executor(None, go_on.wait, 20)

            async def use() -> None:
                async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
                    await saver.setup()

            try:
                await asyncio.wait_for(use(), 10)
            finally:
                go_on.set()
            assert await waiting

    async def test_they_end_with_the_saver(self, tmp_path: Path) -> None:
        """No thread is left when a saver is closed, and the caller's context reaches the call."""
        seen: list[str] = []
        name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="")
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
            name.set("caller")
            await saver._in_thread(lambda: seen.append(name.get()))
            assert any(thread.name.startswith("refold-saver") for thread in threading.enumerate())
        assert seen == ["caller"]
        until = time.monotonic() + 10
        while any(thread.name.startswith("refold-saver") for thread in threading.enumerate()):
            assert time.monotonic() < until
            await asyncio.sleep(0.01)


class TestLongReads:
    """What reads the whole database uses a connection of its own."""

    def test_writers_do_not_wait(self, tmp_path: Path) -> None:
        """While a database is verified, collected, counted or backed up, the same saver stores steps."""
        with SqliteSaver.from_conn_string(str(tmp_path / "a b#?.db")) as saver:
            for number in range(5):
                saver.put(AT, empty_checkpoint(), {"step": number}, {})
            stored: list[object] = []

            def store(statement: str, *_: object) -> None:
                if not stored:
                    writer = threading.Thread(
                        target=lambda: stored.append(saver.put(AT, empty_checkpoint(), {"step": 9}, {}))
                    )
                    writer.start()
                    writer.join(10)
                    assert stored, statement

            works: list[Callable[[], object]] = [
                saver.verify,
                saver.stats,
                saver.gc,
                lambda: saver.backup(tmp_path / "copy.db"),
            ]
            for work in works:
                stored.clear()
                beside = saver._driver.beside

                def watched(beside: Callable[[], Any] = beside) -> Any:
                    found = beside()
                    found.set_trace_callback(store)
                    return found

                saver._driver.beside = watched  # type: ignore[method-assign]
                work()
                saver._driver.beside = beside  # type: ignore[method-assign]
                assert len(stored) == 1
            assert saver.verify().problems == ()

    def test_a_database_in_memory_has_one_connection(self) -> None:
        """There it is the connection that everything uses."""
        with SqliteSaver.from_conn_string(":memory:") as saver:
            saver.put(AT, empty_checkpoint(), {}, {})
            assert saver._driver.beside() is None
            assert saver.verify().ok
            assert saver.stats().checkpoints == 1

    def test_settings_of_the_callers_connection_do_not_matter(self, tmp_path: Path) -> None:
        """A connection that gives rows as something else is asked in the same way."""
        connection = sqlite3.connect(tmp_path / "db", check_same_thread=False, isolation_level=None)
        with closing(connection):
            saver = SqliteSaver(connection)
            saver.put(AT, empty_checkpoint(), {}, {})
            connection.row_factory = lambda cursor, row: {"row": row}
            beside = saver._driver.beside()
            assert beside is not None
            beside.close()
