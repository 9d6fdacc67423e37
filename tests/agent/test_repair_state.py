"""`repair="state"` in agents: the log itself is mended before the model is called, and only when there is a fault."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.checkpoint.state import GrowingState, LogState
from refold.core.validate import all_violations
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 60}


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return str(interrupt(question))


def calls(*named: tuple[str, str, dict[str, object]]) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call} for name, call, args in named])


def agent_of(script: list[AIMessage | str], saver: BaseCheckpointSaver[Any], *, schema: Any, **options: Any) -> Any:
    window = WindowMiddleware(files=MemoryFiles(), repair="state")
    middleware = [window, *options.pop("middleware", [])]
    model = StrictModel(script=script, limit=8_000)
    return create_agent(model, [look, ask], middleware=middleware, checkpointer=saver, state_schema=schema, **options)


DAMAGE: list[BaseMessage] = [
    HumanMessage("go", id="h0"),
    AIMessage("", id="a0", tool_calls=[{"name": "look", "args": {"n": 1}, "id": "x"}]),
    ToolMessage("stray", tool_call_id="nobody", id="stray"),
    HumanMessage("go on", id="h1"),
]


@pytest.mark.parametrize("schema", [None, GrowingState, LogState], ids=["add_messages", "GrowingState", "LogState"])
class TestTheLogIsMended:
    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_in_place_and_for_good(self, schema: Any, is_async: bool, tmp_path: Path) -> None:
        """A dangling call and a stray result: after the run the stored log is valid for every provider."""
        agent = agent_of(["done", "again"], InMemorySaver(), schema=schema)
        given = {"messages": DAMAGE}
        asyncio.run(agent.ainvoke(given, CONFIG)) if is_async else agent.invoke(given, CONFIG)
        stored = agent.get_state(CONFIG).values["messages"]
        assert [m.type for m in stored] == ["human", "ai", "tool", "human", "ai"]
        assert (stored[2].tool_call_id, stored[2].status) == ("x", "error")
        assert all_violations(stored) == {}
        updates = list(agent.stream({"messages": [HumanMessage("more", id="h2")]}, CONFIG))
        assert [u["RefoldWindow.before_model"] for u in updates if "RefoldWindow.before_model" in u] == [None]

    def test_fault_82_one_of_two_parallel_calls_rejected(self, schema: Any) -> None:
        """The rejected call has the human's answer, the free one its result; no repair is needed, none is written."""
        gate = HumanInTheLoopMiddleware(interrupt_on={"ask": True})
        script: list[AIMessage | str] = [
            calls(("look", "free", {"n": 1}), ("ask", "gated", {"question": "May I?"})), "done",
        ]  # fmt: skip
        agent = agent_of(script, InMemorySaver(), schema=schema, middleware=[gate])
        agent.invoke({"messages": [HumanMessage("go", id="h")]}, CONFIG)
        agent.invoke(Command(resume={"decisions": [{"type": "reject", "message": "no"}]}), CONFIG)
        stored = agent.get_state(CONFIG).values["messages"]
        assert all_violations(stored) == {}
        assert not [m for m in stored if "refold" in m.additional_kwargs]

    def test_fault_84_a_call_that_a_human_edited(self, schema: Any) -> None:
        """An edited call keeps one id for call and result."""
        gate = HumanInTheLoopMiddleware(interrupt_on={"look": True})
        agent = agent_of([calls(("look", "x", {"n": 1})), "done"], InMemorySaver(), schema=schema, middleware=[gate])
        agent.invoke({"messages": [HumanMessage("go", id="h")]}, CONFIG)
        edited = {"type": "edit", "edited_action": {"name": "look", "args": {"n": 7}}}
        agent.invoke(Command(resume={"decisions": [edited]}), CONFIG)
        stored = agent.get_state(CONFIG).values["messages"]
        assert [m.text[-6:] for m in stored if isinstance(m, ToolMessage)] == ["seen 7"]
        assert all_violations(stored) == {}

    def test_a_call_that_waits_for_a_human_is_left_alone(self, schema: Any) -> None:
        """While a tool waits nothing is written; answered, the run goes on with the human's answer."""
        script: list[AIMessage | str] = [
            calls(("ask", "q", {"question": "Which?"}), ("look", "l", {"n": 2})), "done",
        ]  # fmt: skip
        agent = agent_of(script, InMemorySaver(), schema=schema)
        agent.invoke({"messages": [HumanMessage("go", id="h")]}, CONFIG)
        waiting = agent.get_state(CONFIG).values["messages"]
        assert not [m for m in waiting if "refold" in m.additional_kwargs]
        agent.invoke(Command(resume="the left one"), CONFIG)
        stored = agent.get_state(CONFIG).values["messages"]
        assert sorted(str(m.content) for m in stored if isinstance(m, ToolMessage)) == ["seen 2", "the left one"]

    def test_a_human_who_goes_on_instead(self, schema: Any) -> None:
        """New words in place of an answer: the call is told to have none, in place, once."""
        script: list[AIMessage | str] = [calls(("ask", "q", {"question": "Which?"})), "fine, without", "bye"]
        agent = agent_of(script, InMemorySaver(), schema=schema)
        agent.invoke({"messages": [HumanMessage("go", id="h")]}, CONFIG)
        agent.invoke({"messages": [HumanMessage("forget it", id="h2")]}, CONFIG)
        stored = agent.get_state(CONFIG).values["messages"]
        assert [m.type for m in stored] == ["human", "ai", "tool", "human", "ai"]
        assert stored[2].additional_kwargs["refold"] == {"kind": "repair", "reason": "unknown"}
        assert all_violations(stored) == {}


class TestEverywhere:
    def test_a_child_mends_its_own_log(self) -> None:
        """An agent inside a tool, with a window of its own, mends the log that it is given."""
        child = agent_of(["child done"], None, schema=None)  # type: ignore[arg-type]
        seen: list[list[BaseMessage]] = []

        @tool
        def delegate() -> str:
            """Let the child do it."""
            seen.append(child.invoke({"messages": DAMAGE})["messages"])
            return "ok"

        window = WindowMiddleware(files=MemoryFiles(), repair="state")
        model = StrictModel(script=[calls(("delegate", "d", {})), "done"], limit=8_000)
        parent = create_agent(model, [delegate], middleware=[window], checkpointer=InMemorySaver())
        parent.invoke({"messages": [HumanMessage("go", id="h")]}, CONFIG)
        assert [m.type for m in seen[0]] == ["human", "ai", "tool", "human", "ai"]
        assert all_violations(seen[0]) == {}

    def test_after_a_restart_on_disk(self, tmp_path: Path) -> None:
        """A crash between call and result, a new process: what is stored afterwards is whole, and stays the same."""
        path = str(tmp_path / "threads.db")
        with SqliteSaver.from_conn_string(path) as saver:
            agent = agent_of(["unused"], saver, schema=None)
            agent.update_state(CONFIG, {"messages": DAMAGE[:3]}, as_node="model")
        for words in ("first", "second"):
            with SqliteSaver.from_conn_string(path) as saver:
                agent = agent_of([words], saver, schema=None)
                agent.invoke({"messages": [HumanMessage(words, id=words)]}, CONFIG)
                stored = agent.get_state(CONFIG).values["messages"]
                assert all_violations(stored) == {}
        assert [m.type for m in stored] == ["human", "ai", "tool", "human", "ai", "human", "ai"]

    def test_with_announced_folds(self) -> None:
        """Both nodes at once: the log is mended and passes are announced."""
        committed: list[object] = []
        window = WindowMiddleware(files=MemoryFiles(), repair="state", after_fold=committed.append)
        agent: Any = create_agent(StrictModel(script=["done"], limit=8_000), [look], middleware=[window])
        assert all_violations(agent.invoke({"messages": DAMAGE})["messages"]) == {}
        assert committed == []

    def test_the_default_writes_nothing(self) -> None:
        """The view alone is mended unless asked otherwise; an unknown way is a typed error."""
        window = WindowMiddleware(files=MemoryFiles())
        agent: Any = create_agent(StrictModel(script=["done"], limit=8_000), [look], middleware=[window])
        assert [m.id for m in agent.invoke({"messages": DAMAGE})["messages"]][:4] == ["h0", "a0", "stray", "h1"]
        with pytest.raises(ValueError, match="repair='both' is not known"):
            WindowMiddleware(files=MemoryFiles(), repair="both")  # type: ignore[arg-type]
