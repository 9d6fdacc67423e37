"""Undo of the newest summary: exact, only where it fits, once; it survives a restart and belongs to its fork."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import refold
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.checkpoint.state import GrowingState, LogState
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.validate import all_violations
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 500}
ROUNDS = 14


def agent_of(model: StrictModel, saver: BaseCheckpointSaver[Any], *, schema: Any = None, policy: Policy = QUICK) -> Any:
    window = WindowMiddleware(files=MemoryFiles(), policy=policy)
    return create_agent(model, TOOLS, middleware=[window], checkpointer=saver, state_schema=schema)


def summarised(saver: BaseCheckpointSaver[Any], *, schema: Any = None) -> Any:
    """An agent whose thread holds at least one summary."""
    model, worker = worker_model(ROUNDS)
    agent = agent_of(model, saver, schema=schema)
    agent.invoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, CONFIG)
    assert worker.summaries > 0
    return agent


def larger(limit: int = 40_000) -> StrictModel:
    return StrictModel(script=["Going on."] * 20, limit=limit)


def window_of(values: dict[str, Any]) -> list[str]:
    return [m.model_dump_json() for m in project(values["messages"], values["folds"]).messages]


@pytest.mark.parametrize("schema", [None, GrowingState, LogState], ids=["add_messages", "GrowingState", "LogState"])
class TestItIsExact:
    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_the_window_is_the_one_without_those_folds(self, schema: Any, is_async: bool) -> None:
        """After the undo the window is, byte for byte, what it would be had the pass never been made."""
        agent = summarised(InMemorySaver(), schema=schema)
        before = agent.get_state(CONFIG).values
        if is_async:
            undone = asyncio.run(refold.aundo_summary(agent, CONFIG, model=larger(), policy=QUICK))
        else:
            undone = refold.undo_summary(agent, CONFIG, model=larger(), policy=QUICK)
        assert undone is not None
        after = agent.get_state(CONFIG).values
        assert len(after["messages"]) == len(before["messages"])
        never = [fold for fold in before["folds"] if fold["id"] not in undone.folds]
        assert window_of(after) == window_of({**before, "folds": never})
        assert undone.before < undone.after <= undone.budget
        assert all_violations(project(after["messages"], after["folds"]).messages) == {}

    def test_every_summary_one_by_one(self, schema: Any) -> None:
        """Undone again and again, the whole log is the window; then there is nothing left to undo."""
        agent = summarised(InMemorySaver(), schema=schema)
        for _ in range(20):
            if refold.undo_summary(agent, CONFIG, model=larger(), policy=QUICK) is None:
                break
        values = agent.get_state(CONFIG).values
        assert project(values["messages"], values["folds"]).segments == ()
        assert refold.undo_summary(agent, CONFIG, model=larger(), policy=QUICK) is None


class TestWhatIsUndone:
    def test_the_summary_alone(self) -> None:
        """With scope `summary` what the pass cleared stays cleared: fewer tokens come back."""
        whole = refold.undo_summary(summarised(InMemorySaver()), CONFIG, model=larger(), policy=QUICK)
        alone = refold.undo_summary(summarised(InMemorySaver()), CONFIG, model=larger(), policy=QUICK, scope="summary")
        assert whole is not None
        assert alone is not None
        assert len(alone.folds) < len(whole.folds)
        assert alone.before < alone.after < whole.after

    def test_nothing_to_undo(self) -> None:
        """A thread without a summary, and one without anything, give None."""
        model, _ = worker_model(1)
        agent = agent_of(model, InMemorySaver())
        assert refold.undo_summary(agent, CONFIG, model=larger()) is None
        agent.invoke({"messages": [HumanMessage("hi")]}, CONFIG)
        assert refold.undo_summary(agent, CONFIG, model=larger()) is None


class TestItMustFit:
    def test_a_model_that_is_too_small_is_a_typed_error_with_the_numbers(self) -> None:
        """Nothing is written; the error says limit and tokens."""
        agent = summarised(InMemorySaver())
        before = agent.get_state(CONFIG)
        with pytest.raises(refold.ContextOverflowError, match="newest summary undone does not fit") as refused:
            refold.undo_summary(agent, CONFIG, model=larger(2_500), policy=QUICK)
        assert (refused.value.limit, refused.value.reserved) == (2_500, 200)
        assert refused.value.messages > 2_300
        assert agent.get_state(CONFIG).config == before.config

    def test_system_prompt_and_tools_count(self) -> None:
        """What a request holds besides messages is taken off."""
        agent = summarised(InMemorySaver())
        bare = refold.undo_summary(agent, CONFIG, model=larger(), policy=QUICK)
        full = refold.undo_summary(
            summarised(InMemorySaver()),
            CONFIG,
            model=larger(),
            policy=QUICK,
            tools=TOOLS,
            system_prompt="Be kind. " * 90,
        )
        assert bare is not None
        assert full is not None
        assert full.budget < bare.budget - 150


class TestItLasts:
    def test_the_next_call_sends_it_and_does_not_summarise_again(self) -> None:
        """A window at the trigger after the undo is not summarised again at once; after new tokens it is."""
        saver = InMemorySaver()
        agent = summarised(saver)
        undone = refold.undo_summary(agent, CONFIG, model=larger(), policy=QUICK)
        assert undone is not None
        model, worker = worker_model(30, limit=undone.after + 900)  # over the trigger at once
        model.profile = {"max_input_tokens": model.limit}
        policy = replace(QUICK, kinds=frozenset({"summary", "merge"}))
        agent = agent_of(model, saver, policy=policy)
        worker.calls = worker.rounds
        agent.invoke({"messages": [HumanMessage("And?", id="next")]}, CONFIG)
        assert worker.summaries == 0
        assert agent.get_state(CONFIG).values["folds"][-1]["kind"] == "undo"
        worker.calls = 0
        agent.invoke({"messages": [HumanMessage("Again.", id="again")]}, CONFIG)
        assert worker.summaries > 0
        assert [r.refusal for r in model.requests if r.refusal is not None] == []

    def test_it_survives_a_restart(self, tmp_path: Path) -> None:
        """A new process sees the window as the undo left it."""
        path = str(tmp_path / "threads.db")
        with SqliteSaver.from_conn_string(path) as saver:
            agent = summarised(saver)
            refold.undo_summary(agent, CONFIG, model=larger(), policy=QUICK)
            shown = window_of(agent.get_state(CONFIG).values)
        with SqliteSaver.from_conn_string(path) as saver:
            agent = agent_of(larger(), saver, policy=QUICK)
            assert window_of(agent.get_state(CONFIG).values) == shown
            agent.invoke({"messages": [HumanMessage("On.", id="on")]}, CONFIG)
            model_saw = agent.get_state(CONFIG).values
            assert window_of(model_saw)[: len(shown)] == shown

    def test_it_belongs_to_its_fork(self) -> None:
        """Undone on an older checkpoint, the fork shows the originals; the head of the other branch does not change."""
        agent = summarised(InMemorySaver())
        head = agent.get_state(CONFIG)
        older = next(
            s for s in agent.get_state_history(CONFIG) if len(s.values["messages"]) == len(head.values["messages"]) - 2
        )
        undone = refold.undo_summary(agent, older.config, model=larger(), policy=QUICK)
        assert undone is not None
        fork = agent.get_state(undone.config).values
        assert fork["folds"][-1]["kind"] == "undo"
        assert len(fork["messages"]) == len(older.values["messages"])
        assert window_of(agent.get_state(head.config).values) == window_of(head.values)


class TestWhileARunWaits:
    @pytest.mark.parametrize("human", [True, False], ids=["for a human", "before the tools"])
    def test_the_run_goes_on_after_it(self, human: bool) -> None:
        """Undone between an interrupt and its answer, the run still waits there, and goes on with the originals."""
        saver = InMemorySaver()
        summarised(saver)
        call = AIMessage("", tool_calls=[{"name": "work", "args": {"step": 99}, "id": "late"}])
        model = StrictModel(script=[call, "finished"], limit=60_000)
        window = WindowMiddleware(files=MemoryFiles(), policy=QUICK)
        gate = [HumanInTheLoopMiddleware(interrupt_on={"work": True})] if human else []
        agent: Any = create_agent(
            model, TOOLS, middleware=[window, *gate], checkpointer=saver,
            interrupt_before=None if human else ["tools"],
        )  # fmt: skip
        agent.invoke({"messages": [HumanMessage("More.", id="more")]}, CONFIG)
        waiting = agent.get_state(CONFIG).next
        undone = refold.undo_summary(agent, CONFIG, model=model, policy=QUICK)
        assert undone is not None
        assert agent.get_state(CONFIG).next == waiting
        answer = Command(resume={"decisions": [{"type": "approve"}]}) if human else None
        log = agent.invoke(answer, CONFIG)["messages"]
        assert [m.type for m in log[-3:]] == ["ai", "tool", "ai"]
        assert log[-1].text == "finished"
        assert model.requests[-1].tokens > undone.after * 0.7


class TestByItself:
    def test_a_larger_model_gets_the_originals_back(self) -> None:
        """`Policy(undo=True)`: once the window without them stays under `soft`, the passes are undone, in one pass."""
        saver = InMemorySaver()
        summarised(saver)
        model = larger()
        agent = agent_of(model, saver, policy=Policy(undo=True, output_reserve=200))
        agent.invoke({"messages": [HumanMessage("And?", id="next")]}, CONFIG)
        values = agent.get_state(CONFIG).values
        window = project(values["messages"], values["folds"])
        assert window.segments == ()
        undo = [fold for fold in values["folds"] if fold["kind"] == "undo"]
        assert [fold["reason"] for fold in undo] == ["room again"]
        folds = len(values["folds"])
        agent.invoke({"messages": [HumanMessage("Thanks.", id="last")]}, CONFIG)
        assert len(agent.get_state(CONFIG).values["folds"]) == folds

    @pytest.mark.parametrize("undo", [False, True])
    def test_not_without_room_or_leave(self, undo: bool) -> None:
        """At the same limit nothing is undone; nor is it with the switch off."""
        saver = InMemorySaver()
        summarised(saver)
        model = larger(4_000) if undo else larger()
        policy = replace(QUICK, undo=undo)
        agent_of(model, saver, policy=policy).invoke({"messages": [HumanMessage("And?", id="n")]}, CONFIG)
        kinds = {fold["kind"] for fold in agent_of(model, saver).get_state(CONFIG).values["folds"]}
        assert "undo" not in kinds
