"""`refold report`: on refold's databases and LangGraph's, as a table, as JSON, as a page."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from refold.agent.report import SessionReport
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.checkpoint.state import LogState
from refold.cli.main import run
from refold.files import LocalFiles

sys.path.insert(0, str(Path(__file__).parent.parent / "agent"))
from agents import QUICK, TOOLS, worker_model

CONFIG: Any = {"configurable": {"thread_id": "work <1>"}, "recursion_limit": 500}


def fill(saver: BaseCheckpointSaver[Any], files: Path, *, log: bool) -> dict[str, Any]:
    model, _ = worker_model(14)
    window = WindowMiddleware(files=LocalFiles(files), policy=QUICK)
    agent = create_agent(model, TOOLS, middleware=[window], checkpointer=saver, state_schema=LogState if log else None)
    agent.invoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, CONFIG)
    values: dict[str, Any] = agent.get_state(CONFIG).values
    return values


@pytest.mark.parametrize("log", [False, True], ids=["add_messages", "LogState"])
@pytest.mark.parametrize("saver", [SqliteSaver, LangGraphSqliteSaver], ids=["refold", "langgraph"])
class TestAnyDatabase:
    def test_the_json_is_the_report_of_the_state(
        self, saver: Any, log: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What the command prints is `SessionReport` of the thread's newest state."""
        path, files = tmp_path / "threads.db", tmp_path / "files"
        with saver.from_conn_string(str(path)) as opened:
            values = fill(opened, files, log=log)
        arguments = ["report", str(path), "work <1>", "--files", str(files), "--window", "4k", "--json"]
        assert run(arguments) == 0
        printed = json.loads(capsys.readouterr().out)
        expected = SessionReport.of(values["messages"], values["folds"], files=LocalFiles(files), limit=4_000)
        assert printed == {"thread": "work <1>", **json.loads(json.dumps(expected.to_json()))}
        assert printed["reached"]["path"] > 0


class TestForms:
    def test_table_and_page(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A table for people; a page that loads nothing and escapes what it shows."""
        path, page = tmp_path / "threads.db", tmp_path / "out" / "page.html"
        with SqliteSaver.from_conn_string(str(path)) as opened:
            fill(opened, tmp_path / "files", log=False)
        assert run(["report", str(path), "work <1>", "--out", str(page)]) == 0
        assert "fold passes" in capsys.readouterr().out
        html = page.read_text("utf-8")
        assert "<h1>work &lt;1&gt;</h1>" in html
        assert "every message can be reached; stored originals were not looked into" in html
        assert "http://" not in html.replace("http://www.w3.org", "")

    def test_mistakes_are_one_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An unknown thread, a channel that is not there, a database that is not there."""
        path = tmp_path / "threads.db"
        with SqliteSaver.from_conn_string(str(path)) as opened:
            fill(opened, tmp_path / "files", log=False)
        for arguments in (["nobody"], ["work <1>", "--channel", "talk"], ["work <1>", "--window", "many"]):
            assert run(["report", str(path), *arguments]) == 2
            assert capsys.readouterr().err.startswith("error: ")
        assert run(["report", str(tmp_path / "none.db"), "t"]) == 2
