"""Savers with caches of their own that write, read, remove, copy, collect and compact one database at the same time."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from refold.checkpoint import PostgresSaver, SqliteSaver

THREADS = 6
ROUNDS = 25


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def write(saver: SqliteSaver | PostgresSaver, luck: random.Random) -> None:
    """A run of some steps, whose values other runs have too, and what it reads back."""
    config, messages = at(f"t{luck.randrange(THREADS)}"), []
    kind = luck.randrange(3)
    for number in range(luck.randrange(2, 7)):
        messages.append(HumanMessage(f"common text {kind} {number} " * 8, id=f"{kind}-{number}"))
        made = empty_checkpoint()
        made["channel_values"] = {"messages": list(messages), "notes": {"a": f"{luck.randrange(5)} " * 100}}
        made["channel_versions"] = {"messages": number + 1, "notes": number + 1}
        metadata: Any = {"source": "loop", "step": number, "run_id": f"r{luck.randrange(4)}"}
        config = saver.put(config, made, metadata, {"messages": number + 1, "notes": number + 1})
        saver.put_writes(config, [("messages", [HumanMessage("written " * 60, id=f"w{luck.randrange(5)}")])], "task")
    found = saver.get_tuple(config)
    if found is not None:  # nobody removed it meanwhile
        assert found.checkpoint["channel_values"]["messages"] == messages
    list(saver.list(at(f"t{luck.randrange(THREADS)}"), limit=5))


def maintain(saver: SqliteSaver | PostgresSaver, luck: random.Random) -> None:
    thread = f"t{luck.randrange(THREADS)}"
    match luck.randrange(7):
        case 0:
            saver.gc()
        case 1:
            saver.compact()
        case 2:
            saver.prune([thread], strategy="keep_last", keep=2)
        case 3:
            saver.delete_thread(thread)
        case 4:
            copy = f"copy {luck.random()}"
            saver.copy_thread(thread, copy)
            saver.delete_thread(copy)
        case 5:
            saver.delete_for_runs([f"r{luck.randrange(4)}"])
        case _:
            assert saver.verify().problems == ()


class TestEverythingAtOnce:
    @pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
    def savers(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> Iterator[list[SqliteSaver] | list[PostgresSaver]]:
        with ExitStack() as stack:
            if request.param == "sqlite":
                path = str(tmp_path / "db")
                yield [stack.enter_context(SqliteSaver.from_conn_string(path)) for _ in range(2)]
            else:
                url = request.getfixturevalue("postgres_url")
                yield [stack.enter_context(PostgresSaver.from_conn_string(url, max_size=4)) for _ in range(2)]

    @pytest.mark.parametrize("seed", range(2))
    def test_nothing_is_lost_and_nothing_stays(
        self, savers: list[SqliteSaver] | list[PostgresSaver], seed: int
    ) -> None:
        """Every call succeeds and reads back what it wrote, the database verifies at any moment, and when all threads
        are deleted no row is left of any."""
        failures: list[BaseException] = []

        def work(step: Callable[[Any, random.Random], None], saver: Any, number: int) -> None:
            luck = random.Random(seed * 100 + number)
            try:
                for _ in range(ROUNDS):
                    step(saver, luck)
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        jobs = [(write, saver, number) for number, saver in enumerate([*savers, *savers])]
        jobs += [(maintain, saver, 10 + number) for number, saver in enumerate(savers)]
        threads = [threading.Thread(target=work, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        first, second = savers
        assert first.verify().problems == ()
        for number in range(THREADS):
            second.delete_thread(f"t{number}")
        first.gc()
        assert first.verify().problems == ()
        left = first.stats()
        assert (left.checkpoints, left.hidden, left.writes, left.blobs, left.packs, left.logs) == (0, 0, 0, 0, 0, 0)
