"""Faults of groups E, G and R that need an agent: repairs that cross a JSON boundary, notes that name tools, hooks."""

import json
import re
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.recall import Paging, read_history_tool
from refold.agent.repair import LogRepair
from refold.agent.search import search_history_tool
from refold.agent.setup import Binding
from refold.agent.tools import file_tools
from refold.agent.window import WindowMiddleware
from refold.checkpoint.state import LogState
from refold.core.messages import REFOLD_KEY, text_of
from refold.core.policy import Policy
from refold.core.validate import all_violations
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}
READERS = ("read_file", "read_history", "search_history")


@tool
def work(step: int) -> str:
    """Do one step of the work."""
    return "\n".join(f"line {n} of step {step}: built /srv/app/module_{step}_{n}.py in {n}.5 s" for n in range(20))


def worker(rounds: int, *, limit: int) -> StrictModel:
    steps = iter(range(rounds))

    def script(messages: list[BaseMessage]) -> AIMessage | str:
        if "Write a record" in text_of(messages[-1]) or "records of agent transcripts" in text_of(messages[0]):
            return "A record: steps ran one after the other."
        step = next(steps, None)
        if step is None:
            return "done"
        call = {"name": "work", "args": {"step": step, "why": "because " * 150}, "id": f"c{step}"}
        return AIMessage("", tool_calls=[call])  # type: ignore[list-item]

    return StrictModel(script=script, limit=limit)  # type: ignore[arg-type]


class TestGroupE:
    @pytest.mark.parametrize("log", [False, True], ids=["add_messages", "LogState"])
    @pytest.mark.parametrize("form", ["model_dump", "messages_to_dict"])
    def test_fault_79_a_repair_survives_a_json_boundary(self, log: bool, form: str) -> None:
        """The update of the repair, written as JSON and read back, mends the thread through `update_state`, which goes
        on after it; a second repair has nothing to do."""
        agent: Any = create_agent(
            StrictModel(script=["fine"], limit=8_000), [work], middleware=[WindowMiddleware(files=MemoryFiles())],
            checkpointer=InMemorySaver(), state_schema=LogState if log else None,
        )  # fmt: skip
        lost = AIMessage("", id="a", tool_calls=[{"name": "work", "args": {"step": 1}, "id": "x"}])
        damage = [HumanMessage("go", id="h"), lost, HumanMessage("still there?", id="h2"), AIMessage("yes", id="a2")]
        agent.update_state(CONFIG, {"messages": damage}, as_node="model")
        update = LogRepair().update("t", agent.get_state(CONFIG).values["messages"], [])
        if form == "model_dump":
            carried: Any = json.loads(json.dumps([message.model_dump(mode="json") for message in update]))
        else:
            carried = messages_from_dict(json.loads(json.dumps(messages_to_dict(update))))
        agent.update_state(CONFIG, {"messages": carried}, as_node="model")
        stored = agent.get_state(CONFIG).values["messages"]
        assert [m.type for m in stored] == ["human", "ai", "tool", "human", "ai"]
        assert all_violations(stored) == {}
        assert LogRepair().update("t", stored, []) == []
        assert agent.invoke({"messages": [HumanMessage("on", id="h3")]}, CONFIG)["messages"][-1].text == "fine"


class TestGroupG:
    @pytest.mark.parametrize(
        "bound", [(), ("read_file",), ("read_history",), ("read_history", "search_history"), READERS]
    )
    def test_fault_101_notes_name_only_bound_tools(self, bound: tuple[str, ...]) -> None:
        """Whatever of the readers an agent has: stubs, segments and STATE name no other; with none, nothing leaves."""
        files = MemoryFiles()
        tools: dict[str, BaseTool] = {each.name: each for each in file_tools(files)}
        tools["read_history"] = read_history_tool(files, paging=Paging(page=500))
        tools["search_history"] = search_history_tool(files, paging=Paging(page=500))
        policy = Policy(
            args_min=100, result_min=120, clear_min=40, preview=60, clear_keep=1, output_reserve=200,
            context_limit=6_000 if bound else 60_000,
        )  # fmt: skip
        window = WindowMiddleware(
            files=files, policy=policy,
            binding=Binding(file_reader="read_file", log_reader="read_history", search="search_history"),
        )  # fmt: skip
        model = worker(24, limit=60_000)
        agent = create_agent(
            model, [work, *(tools[name] for name in bound)], checkpointer=InMemorySaver(),
            middleware=[window, OffloadMiddleware(window, thresholds=Thresholds(least=100, share=0.02))],
        )  # fmt: skip
        agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        written = [
            f"{text_of(m)} {getattr(m, 'tool_calls', '')}"
            for request in model.requests
            for m in request.messages
            if REFOLD_KEY in m.additional_kwargs or "⟦refold" in f"{m.content}{getattr(m, 'tool_calls', '')}"
        ]
        named = {name for text in written for name in READERS if re.search(rf"\b{name}\b", text)}
        assert named <= set(bound)
        assert bool(written) == bool(bound)
        if not bound:
            log = agent.get_state(CONFIG).values["messages"]
            assert [m.content for m in model.requests[-1].window] == [m.content for m in log[:-1]]

    def test_fault_101_without_a_reader_a_result_enters_whole(self) -> None:
        """Without a reader a large result enters the log as it is: no stub may promise what no tool can do."""
        window = WindowMiddleware(files=MemoryFiles(), policy=Policy(context_limit=60_000), binding=Binding())
        agent = create_agent(
            worker(1, limit=60_000),
            [work],
            middleware=[window, OffloadMiddleware(window, thresholds=Thresholds(least=10))],
        )
        log = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)["messages"]
        assert [m.text for m in log if isinstance(m, ToolMessage)] == [work.invoke({"step": 0})]


class TestGroupR:
    @pytest.mark.parametrize("trigger", [0.5, 0.8])
    def test_fault_204_hooks_fire_once_per_compaction_at_the_threshold(self, trigger: float) -> None:
        """Thirty rounds: before and after fire exactly once per pass, each at or over the threshold, with true numbers;
        what the hook saw is what is in the state."""
        before: list[tuple[int, int, list[str]]] = []
        after: list[tuple[str, int, int]] = []
        limit = 8_000
        window = WindowMiddleware(
            files=MemoryFiles(),
            policy=Policy(context_limit=limit, output_reserve=200, trigger=trigger, soft=trigger, target=0.25),
            before_fold=lambda p: before.append((p.before, p.after, [str(f["id"]) for f in p.folds])),
            after_fold=lambda c: after.append((c.pass_id, c.before, c.after)),
        )
        agent = create_agent(worker(30, limit=limit), [work], middleware=[window], checkpointer=InMemorySaver())
        agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        folds = agent.get_state(CONFIG).values["folds"]
        passes = list(dict.fromkeys(fold["pass"] for fold in folds))
        assert len(passes) > 1
        assert [identity for identity, _, _ in after] == passes
        assert [(b, a) for b, a, _ in before] == [(b, a) for _, b, a in after]
        assert [name for _, _, names in before for name in names] == [f["id"] for f in folds if f["kind"] != "strike"]
        budget = window.occupancy("t")[1]
        assert all(b >= trigger * budget > a for b, a, _ in before)
