"""Report, retention, undo and repair on Postgres: the same as on SQLite, called and awaited."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

import refold
from refold.agent.report import SessionReport
from refold.agent.window import WindowMiddleware
from refold.checkpoint import AsyncPostgresSaver, PostgresSaver
from refold.checkpoint.state import GrowingState, LogState
from refold.cli.main import run
from refold.core.project import project
from refold.core.validate import all_violations
from refold.files import Files, LocalFiles, Retention
from refold.testing import StrictModel

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(postgres_server: str) -> str:
    """A database of its own, as a URL."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    parts = conninfo_to_dict(postgres_server)
    return f"postgresql://{parts['user']}@/{name}?host={parts['host']}"


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": 300}


def agent_of(saver: BaseCheckpointSaver[Any], files: Files, *, rounds: int = 14, schema: Any = None) -> Any:
    model, _ = worker_model(rounds)
    window = WindowMiddleware(files=files, policy=QUICK, repair="state")
    return create_agent(model, TOOLS, middleware=[window], checkpointer=saver, state_schema=schema)


@pytest.mark.parametrize("schema", [None, GrowingState, LogState], ids=["add_messages", "GrowingState", "LogState"])
def test_report_and_collect_by_url(url: str, schema: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`refold report` prints the report of the state; `refold collect` removes what no thread names, and that alone."""
    place = tmp_path / "files"
    files = LocalFiles(place)
    with PostgresSaver.from_conn_string(url) as saver:
        agent = agent_of(saver, files, schema=schema)
        for thread in ("kept", "gone"):
            agent.invoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, config(thread))
            agent = agent_of(saver, files, schema=schema)
        values = agent.get_state(config("kept")).values
        saver.delete_thread("gone")
    assert run(["report", url, "kept", "--files", str(place), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = SessionReport.of(values["messages"], values["folds"], files=files)
    assert printed == {"thread": "kept", **json.loads(json.dumps(expected.to_json()))}
    assert run(["collect", url, "--files", str(place), "--most-files", "0", "--grace", "0s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed_files"] > 0
    after = SessionReport.of(values["messages"], values["folds"], files=files)
    assert (after.by_path, after.unreachable) == (expected.by_path, ())
    assert not [info.path for info in files.list("/history") if "/gone" in info.path]


async def test_undo_repair_and_retention_awaited(url: str, tmp_path: Path) -> None:
    """The awaited forms over the async saver."""
    files = LocalFiles(tmp_path / "files")
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        agent = agent_of(saver, files)
        await agent.ainvoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, config("t"))
        before = (await agent.aget_state(config("t"))).values
        undone = await refold.aundo_summary(
            agent, config("t"), model=StrictModel(script=[], limit=60_000), policy=QUICK
        )
        assert undone is not None
        after = (await agent.aget_state(config("t"))).values
        never = [fold for fold in before["folds"] if fold["id"] not in undone.folds]
        shown = project(after["messages"], after["folds"]).messages
        assert [m.content for m in shown] == [m.content for m in project(before["messages"], never).messages]
        lost = AIMessage("", id="lost", tool_calls=[{"name": "work", "args": {"step": 1}, "id": "x"}])
        await agent.aupdate_state(config("t"), {"messages": [HumanMessage("And?", id="and"), lost]}, as_node="model")
        await agent_of(saver, files, rounds=0).ainvoke({"messages": [HumanMessage("On.", id="on")]}, config("t"))
        assert all_violations((await agent.aget_state(config("t"))).values["messages"]) == {}
        files.write("/results/loose", b"x", mode="create")
        done = await refold.acollect_artifacts(saver, files, Retention(most_files=0, grace=0))
        removed = {info.path for info in done.removed}
        assert "/results/loose" in removed
        # A stored summary serves until its fold is in the state; after that nothing points at it.
        assert all(path.startswith("/summaries/") for path in removed - {"/results/loose"})
