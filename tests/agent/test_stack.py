"""`refold.middleware(...)` end to end: in the released Deep Agents, and in LangChain's `create_agent`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend, StateBackend
from deepagents.backends.protocol import BackendProtocol
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import refold
from refold.agent.offload import Thresholds
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.core.validate import all_violations
from refold.files import DeepAgentsFiles, MemoryFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}
LARGE = "\n".join(f"row {n}: /srv/data/part_{n}.csv holds {n * 37} records" for n in range(3_000))


@tool
def dump() -> str:
    """Dump the data."""
    return LARGE


def calls(name: str, number: int = 1, /, **args: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"{name}-{number}"}])


@pytest.fixture(params=["directory", "state"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> BackendProtocol:
    return StateBackend() if request.param == "state" else FilesystemBackend(root_dir=tmp_path, virtual_mode=True)


def deep_agent(script: Any, backend: BackendProtocol, **options: Any) -> tuple[Any, StrictModel]:
    model = StrictModel(script=script, limit=120_000)
    graph = create_deep_agent(
        model, [dump], backend=backend, checkpointer=InMemorySaver(),
        middleware=refold.middleware(backend, policy=Policy(context_limit=120_000), **options),
    )  # fmt: skip
    return graph, model


def drive(graph: Any, messages: Sequence[BaseMessage], *, is_async: bool = False) -> list[BaseMessage]:
    given = {"messages": list(messages)}
    state = asyncio.run(graph.ainvoke(given, CONFIG)) if is_async else graph.invoke(given, CONFIG)
    found: list[BaseMessage] = state["messages"]
    return found


def stub_of(messages: Sequence[BaseMessage], tool_name: str) -> ToolMessage:
    return next(m for m in messages if isinstance(m, ToolMessage) and m.name == tool_name)


class TestInDeepAgents:
    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_large_results_are_stored_by_refold(self, backend: BackendProtocol, is_async: bool) -> None:
        """The log holds our stub, the whole text reads back by the tool that it names, theirs stored nothing."""
        script = [calls("dump"), calls("ls", path="/"), "done"]
        steps = iter(script)
        read: list[str] = []

        def answering(messages: Sequence[BaseMessage]) -> AIMessage | str:
            step = next(steps)
            if isinstance(step, AIMessage) and step.tool_calls[0]["name"] == "ls":
                read.append(stub_of(messages, "dump").additional_kwargs["refold"]["path"])
                return calls("read_history", ref=read[0], start=len(LARGE) - 50)
            return step

        graph, model = deep_agent(answering, backend)
        log = drive(graph, [HumanMessage("dump it", id="h")], is_async=is_async)
        stub = stub_of(log, "dump")
        assert stub.additional_kwargs["refold"]["kind"] == "ingested"
        assert len(text_of(stub)) < 4_000
        assert text_of(stub_of(log, "read_history")).endswith(LARGE[-50:])
        paths = "".join(str(graph.get_state(CONFIG).values.get("files", {}).keys()))
        if isinstance(backend, FilesystemBackend):
            paths = "".join(info.path for info in DeepAgentsFiles(backend).list("/"))
        assert "/results/" in paths
        assert "large_tool_results" not in paths
        assert [r.refusal for r in model.requests if r.refusal is not None] == []

    def test_a_dangling_call_is_mended_in_the_view_alone(self, backend: BackendProtocol) -> None:
        """The log stays what it was; the request is valid. With `repair="state"` the log is mended as well."""
        damage = [HumanMessage("go", id="h"), calls("dump"), HumanMessage("still there?", id="h2")]
        graph, model = deep_agent(["yes"], backend)
        log = drive(graph, damage)
        assert [m.type for m in log] == ["human", "ai", "human", "ai"]
        assert [m.type for m in model.requests[-1].window] == ["human", "ai", "tool", "human"]
        graph, _ = deep_agent(["yes"], backend, repair="state")
        log = drive(graph, damage)
        assert [m.type for m in log] == ["human", "ai", "tool", "human", "ai"]
        assert all_violations(log) == {}

    def test_its_subagent_is_managed_too(self, backend: BackendProtocol) -> None:
        """The general-purpose subagent's large result is stored by refold; no state of the child is the parent's."""

        def script(messages: Sequence[BaseMessage]) -> AIMessage | str:
            last = messages[-1]
            if isinstance(last, HumanMessage):
                return (
                    calls("dump")
                    if text_of(last) == "CHILD"
                    else calls("task", description="CHILD", subagent_type="general-purpose")
                )
            return "child done" if isinstance(last, ToolMessage) and last.name == "dump" else "parent done"

        graph, model = deep_agent(script, backend)
        log = drive(graph, [HumanMessage("delegate", id="h")])
        assert text_of(log[-1]) == "parent done"
        assert text_of(next(m for m in log if isinstance(m, ToolMessage))) == "child done"
        in_child = next(m for r in model.requests for m in r.window if isinstance(m, ToolMessage) and m.name == "dump")
        assert in_child.additional_kwargs["refold"]["kind"] == "ingested"
        assert graph.get_state(CONFIG).values.get("folds", []) == []

    def test_a_subagent_of_the_users_own(self, backend: BackendProtocol) -> None:
        """A declared subagent with a list of its own folds its own log at its own limit."""
        model, _ = worker_model(1)
        child, worker = worker_model(40, limit=10_500)
        spec: Any = {
            "name": "worker", "description": "Works.", "system_prompt": "Work.", "model": child, "tools": TOOLS,
            "middleware": refold.middleware(backend, policy=QUICK),
        }  # fmt: skip
        model.script = [calls("task", description="Do all the steps.", subagent_type="worker"), "done"]
        graph = create_deep_agent(
            model, [dump], backend=backend, subagents=[spec], checkpointer=InMemorySaver(),
            middleware=refold.middleware(backend, policy=Policy(context_limit=200_000)),
        )  # fmt: skip
        model.limit = 200_000
        log = drive(graph, [HumanMessage("go", id="h")])
        assert text_of(log[-1]) == "done"
        assert text_of(next(m for m in log if isinstance(m, ToolMessage))) == "All steps are done."
        assert worker.summaries > 0
        assert [r.refusal for r in child.requests if r.refusal is not None] == []
        assert graph.get_state(CONFIG).values.get("folds", []) == []

    def test_with_a_human_in_the_loop(self, backend: BackendProtocol) -> None:
        """A call that waits is left alone; approved, its large result is stored; spoken over, its call is mended in the
        view, and the run goes on."""
        model = StrictModel(script=[calls("dump"), "done", calls("dump", 2), "as you wish"], limit=120_000)
        graph: Any = create_deep_agent(
            model, [dump], backend=backend, checkpointer=InMemorySaver(), interrupt_on={"dump": True},
            middleware=refold.middleware(backend, policy=Policy(context_limit=120_000)),
        )  # fmt: skip
        drive(graph, [HumanMessage("dump it", id="h")])
        log = graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)["messages"]
        assert stub_of(log, "dump").additional_kwargs["refold"]["kind"] == "ingested"
        drive(graph, [HumanMessage("again", id="h2")])
        log = drive(graph, [HumanMessage("never mind", id="h3")])
        assert text_of(log[-1]) == "as you wish"
        assert [m.type for m in log] == ["human", "ai", "tool", "ai", "human", "ai", "human", "ai"]
        assert [m.type for m in model.requests[-1].window][-3:] == ["ai", "tool", "human"]
        assert [r.refusal for r in model.requests if r.refusal is not None] == []

    def test_offload_can_stay_theirs(self, backend: BackendProtocol) -> None:
        """Without our offload Deep Agents evicts as it does; their patching of calls stays off."""
        graph, _ = deep_agent([calls("dump"), "done"], backend, offload=None, control=False)
        log = drive(graph, [HumanMessage("dump it", id="h")])
        assert "large_tool_results" in text_of(stub_of(log, "dump"))

    def test_a_long_run_inside_a_small_window(self, backend: BackendProtocol) -> None:
        """Forty rounds: every request fits and is valid, summaries are refold's, the control tools are bound."""
        model, _ = worker_model(40)
        probe = StrictModel(script=["ok"])
        create_deep_agent(probe, TOOLS, backend=backend, middleware=refold.middleware(backend)).invoke(
            {"messages": [HumanMessage("hi")]}, CONFIG
        )
        names = {tool["function"]["name"] for tool in probe.requests[0].tools}
        assert names >= {"compact_conversation", "pin", "read_history", "search_history", "read_file", "task"}
        model.limit = probe.requests[0].tokens + 4_500
        model.profile = {"max_input_tokens": model.limit}
        graph = create_deep_agent(
            model, TOOLS, backend=backend, checkpointer=InMemorySaver(),
            middleware=refold.middleware(backend, policy=QUICK),
        )  # fmt: skip
        log = drive(graph, [HumanMessage("Do all the steps.", id="h")])
        assert text_of(log[-1]) == "All steps are done."
        assert "_summarization_event" not in graph.channels
        kinds = {fold["kind"] for fold in graph.get_state(CONFIG).values["folds"]}
        assert kinds >= {"summary", "state"}
        assert [r.refusal for r in model.requests if r.refusal is not None] == []


class TestInLangChain:
    @pytest.mark.parametrize("control", [False, True])
    @pytest.mark.parametrize("offload", [None, Thresholds(least=100)])
    def test_any_subset(self, control: bool, offload: Thresholds | None) -> None:
        """Each part with or without the others; the window is always there."""
        model = StrictModel(script=[calls("dump"), "done"], limit=200_000)
        parts = refold.middleware(MemoryFiles(), policy=Policy(context_limit=200_000), offload=offload, control=control)
        agent: Any = create_agent(model, [dump], middleware=parts, checkpointer=InMemorySaver())
        log = drive(agent, [HumanMessage("dump it", id="h")])
        assert ("refold" in stub_of(log, "dump").additional_kwargs) == (offload is not None)
        names = {tool["function"]["name"] for tool in model.requests[0].tools}
        assert ("pin" in names) == control
        assert "read_history" in names

    def test_the_default_is_a_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With no argument at all it works in any directory."""
        monkeypatch.chdir(tmp_path)
        agent: Any = create_agent(StrictModel(script=["hello"], limit=8_000), [], middleware=refold.middleware())
        assert text_of(agent.invoke({"messages": [HumanMessage("hi")]})["messages"][-1]) == "hello"
