"""`SessionReport`: a live thread reported from its state alone, with the numbers of a replay."""

import json
from typing import Any

from agents import QUICK, TOOLS, worker_model
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver

import refold
from refold.agent.reach import recall
from refold.agent.report import SessionReport
from refold.agent.window import WindowMiddleware
from refold.core.meter import EstimatingMeter
from refold.core.project import project
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 500}


def thread(rounds: int = 30) -> tuple[Any, MemoryFiles]:
    model, _ = worker_model(rounds)
    files = MemoryFiles()
    window = WindowMiddleware(files=files, policy=QUICK)
    agent = create_agent(model, TOOLS, middleware=[window], checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, CONFIG)
    return agent, files


class TestNumbersAreThoseOfTheThread:
    def test_log_window_and_folds(self) -> None:
        """Messages, calls, tokens and folds are what state and projection say."""
        agent, files = thread()
        values = agent.get_state(CONFIG).values
        report = SessionReport.of(values["messages"], values["folds"], files=files, limit=4_000)
        window, meter = project(values["messages"], values["folds"]), EstimatingMeter()
        assert report.messages == len(values["messages"])
        assert report.calls == sum(isinstance(m, AIMessage) for m in values["messages"])
        assert report.used == sum(meter.count(m).tokens for m in window.messages) < report.log_tokens
        assert report.tokens["summaries"] > 0
        assert report.tokens["state"] > 0
        assert sum(report.folds.values()) == len(values["folds"])
        assert [one.id for one in report.passes] == list(dict.fromkeys(fold["pass"] for fold in values["folds"]))
        assert report.prefix_breaks == len(report.passes) > 0
        assert all(one.saved > 0 and one.covered > 0 and not one.undone for one in report.passes)
        assert [one.call for one in report.passes] == sorted(one.call for one in report.passes)
        assert report.last is not None
        assert report.occupancy == report.last.context / 4_000
        assert len(report.hidden) == len(window.hidden())

    def test_everything_is_reached_as_a_replay_looks_for_it(self) -> None:
        """Reach and facts are those of the very function that a replay uses; nothing is lost."""
        agent, files = thread()
        values = agent.get_state(CONFIG).values
        report = SessionReport.of(values["messages"], values["folds"], files=files)
        found = recall(project(values["messages"], values["folds"]), files, page=2_000)
        assert (report.in_window, report.by_path, report.by_id) == (found.in_window, found.by_path, found.by_id)
        assert report.by_path > 0
        assert report.unreachable == ()
        assert report.facts == found.facts
        assert all(kept.recallable == kept.total for kept in report.facts.values())
        assert report.artifact_bytes is not None
        assert 0 < report.artifact_bytes <= sum(info.size for info in files.list("/"))

    def test_from_state_alone(self) -> None:
        """Without files the log itself gives every message back."""
        agent, _ = thread()
        values = agent.get_state(CONFIG).values
        report = SessionReport.of(values["messages"], values["folds"])
        assert (report.by_path, report.unreachable, report.artifact_bytes) == (0, (), None)
        assert report.in_window + report.by_id == report.messages

    def test_folds_that_do_not_act(self) -> None:
        """Undone passes and void folds are told apart from those in force."""
        agent, _ = thread(14)
        refold.undo_summary(agent, CONFIG, model=StrictModel(script=[], limit=60_000), policy=QUICK)
        values = agent.get_state(CONFIG).values
        report = SessionReport.of(values["messages"], values["folds"])
        assert report.folds["undo"] == 1
        assert [one.undone for one in report.passes].count(True) == 1
        assert report.passes[-1].saved < 0
        agent, _ = thread(14)
        values = agent.get_state(CONFIG).values
        covered = project(values["messages"], values["folds"]).segments[0].start
        agent.update_state(CONFIG, {"messages": [RemoveMessage(id=values["messages"][covered].id)]})
        values = agent.get_state(CONFIG).values
        assert SessionReport.of(values["messages"], values["folds"]).void > 0


class TestForms:
    def test_json_and_text(self) -> None:
        """The JSON object is JSON and whole; the text has a line for each row."""
        agent, files = thread(14)
        values = agent.get_state(CONFIG).values
        report = SessionReport.of(values["messages"], values["folds"], files=files, limit=4_000, checkpoint_bytes=77)
        found = json.loads(json.dumps(report.to_json()))
        assert found["window_tokens"] == report.used == sum(found["categories"].values())
        assert found["checkpoint_bytes"] == 77
        assert found["passes"][0]["saved"] == report.passes[0].before - report.passes[0].after
        assert len(str(report).splitlines()) == len(report.rows())

    def test_an_empty_thread(self) -> None:
        """Nothing was said yet: all is zero, nothing raises."""
        report = SessionReport.of([], [], limit=1_000)
        assert (report.messages, report.used, report.occupancy, report.passes) == (0, 0, 0.0, ())
        assert "messages" in str(report)
