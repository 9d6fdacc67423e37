"""Subagents in other stacks: LangChain's own agent, agents of refold's as compiled children, Deep Agents' subagents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from delegating import (
    CONFIG,
    WIDE,
    call,
    calls,
    delegates,
    drive,
    model_of,
    refusals,
    results,
    says,
    seen_by,
    start,
    task,
    uses,
)
from langchain.agents import create_agent as create_langchain_agent
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.create import create_agent
from refold.agent.deepagents import window_for_deepagents
from refold.agent.offload import OffloadMiddleware
from refold.agent.subagents import CompiledSubagent, Subagent, SubagentDefaults, SubagentMiddleware
from refold.agent.tools import file_tools
from refold.agent.window import WindowMiddleware
from refold.core.messages import REFOLD_KEY, text_of
from refold.core.policy import Policy
from refold.files import MemoryFiles

ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
LONG = "\n".join(f"finding {n}: /srv/p{n}.py" for n in range(8_000))


@tool
def dump() -> str:
    """Dump."""
    return LONG


class TestInLangChainsOwnAgent:
    @ASYNC
    @pytest.mark.parametrize("offload", [False, True])
    def test_window_and_subagents_alone(self, offload: bool, is_async: bool) -> None:
        """The child has a window, offload and recall over the shared files; the long answer is stored once, and the
        parent reads it with the window's own reader."""
        files = MemoryFiles()
        window = WindowMiddleware(files=files, policy=Policy(context_limit=60_000))

        def parent(messages: Sequence[BaseMessage]) -> Any:
            last = messages[-1]
            if not isinstance(last, ToolMessage):
                return calls(task("x"))
            if last.name == "task":
                return calls(call("read_history", ref=last.additional_kwargs[REFOLD_KEY]["path"]))
            return "parent done"

        child = model_of(lambda ms: LONG if isinstance(ms[-1], ToolMessage) else calls(call("dump")))
        agent = create_langchain_agent(
            model_of(parent), [], checkpointer=InMemorySaver(),
            middleware=[
                window,
                *([OffloadMiddleware(window)] if offload else []),
                SubagentMiddleware(
                    window, [Subagent(name="helper", description="Helps.")],
                    defaults=SubagentDefaults(model=child, tools=[dump], own_tools=None),
                ),
            ],
        )  # fmt: skip
        state = drive(agent, start(), is_async=is_async)
        assert text_of(state["messages"][-1]) == "parent done"
        assert "finding 7: /srv/p7.py" in text_of(results(state, "read_history")[0])
        in_child = next(m for m in child.requests[-1].window if isinstance(m, ToolMessage))
        assert in_child.additional_kwargs[REFOLD_KEY]["kind"] == "ingested"
        stored = [info.path for info in files.list("/results")]
        assert len(stored) == 2
        assert {files.read(path).decode() for path in stored} == {LONG}
        bound = {one["function"]["name"] for one in child.requests[0].tools}  # type: ignore[index]
        assert bound >= {"dump", "read_history", "search_history", "pin"}

    def test_file_tools_for_the_children(self) -> None:
        """By `own_tools`, with permissions of the spec."""
        files = MemoryFiles()
        window = WindowMiddleware(files=files)
        child = model_of(uses(call("write_file", path="/a.md", content="x")))
        agent = create_langchain_agent(
            model_of(delegates(task("x"))), [], checkpointer=InMemorySaver(),
            middleware=[
                window,
                SubagentMiddleware(
                    window, [Subagent(name="helper", description="Helps.", model=child)],
                    defaults=SubagentDefaults(
                        own_tools=lambda rules, paging: file_tools(files, permissions=rules, page_tokens=paging.page)
                    ),
                ),
            ],
        )  # fmt: skip
        drive(agent, start())
        assert files.read("/a.md") == b"x"


class TestAgentsOfRefoldAsChildren:
    def test_a_compiled_agent_that_delegates_itself(self, tmp_path: Path) -> None:
        """Grandchildren work, each in its own log; the compiled child's checkpoints go to the caller's store, and only
        answers come up."""
        grandchild = model_of(says("from the grandchild"))
        middle = model_of(uses(task("deeper", "inner"), "from the child"))
        child = create_agent(
            middle, files=MemoryFiles(), checkpointer=InMemorySaver(),
            subagents=[Subagent(name="inner", description="Inner.", model=grandchild)],
        )  # fmt: skip
        parent = model_of(delegates(task("go deep", "outer")))
        agent = create_agent(
            parent, files=MemoryFiles(), checkpointer=str(tmp_path / "t.db"),
            subagents=[CompiledSubagent(name="outer", description="Outer.", graph=child)],
        )  # fmt: skip
        state = drive(agent, start())
        assert text_of(results(state)[0]) == "from the child: from the grandchild"
        assert len(state["messages"]) == 4
        assert "deeper" in seen_by(grandchild)
        assert "go deep" not in seen_by(grandchild)
        assert "deeper" not in seen_by(parent)
        assert list(child.checkpointer.list(None)) == []
        assert refusals(parent, middle, grandchild) == []


class TestInDeepAgents:
    def test_the_window_alone_in_a_subagent_of_theirs(self, tmp_path: Path) -> None:
        """A subagent that is declared to Deep Agents with the window in place of its summarisation folds its own log at
        its own limit; what it archives is in the shared backend, and nothing of it is the parent's."""
        backend = FilesystemBackend(root_dir=tmp_path, virtual_mode=True)
        child, worker = worker_model(40, limit=10_500)
        parent = model_of([calls(call("task", description="Do all.", subagent_type="worker")), "parent done"])
        spec: Any = {
            "name": "worker", "description": "Works.", "system_prompt": "Work.", "model": child, "tools": TOOLS,
            "middleware": [window_for_deepagents(backend, policy=QUICK)],
        }  # fmt: skip
        agent = create_deep_agent(
            parent, [], backend=backend, subagents=[spec], checkpointer=InMemorySaver(),
            middleware=[window_for_deepagents(backend, policy=Policy(context_limit=WIDE))],
        )  # fmt: skip
        state = drive(agent, start())
        assert text_of(state["messages"][-1]) == "parent done"
        assert text_of(next(m for m in state["messages"] if isinstance(m, ToolMessage))) == worker.answer
        assert worker.summaries > 0
        assert refusals(parent, child) == []
        assert agent.get_state(CONFIG).values.get("folds", []) == []
        assert list((tmp_path / "history").glob("t-tools-*/*.md"))
        assert "built /srv/app/module" not in seen_by(parent)
