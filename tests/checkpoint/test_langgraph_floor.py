"""Why the floor is langgraph 1.2.13, and that what is installed behaves.

Before it, a fork of an older checkpoint of a delta channel took the abandoned branch's writes with it when the thread
was loaded again: the writes of the fork point, which produced its first child, were replayed for the second child too.
The live run was right; the damage showed on reload. Nothing in a saver or a reducer can repair that.
"""

import re
from importlib.metadata import requires, version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from packaging.requirements import Requirement
from packaging.version import Version

from refold.checkpoint.reducer import reduce_messages

FLOOR = Version("1.2.13")


class Log(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=1000)]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _graph(schema: type, saver: BaseCheckpointSaver[Any]) -> Any:
    def answer(state: Any) -> dict[str, list[AIMessage]]:
        asked = state["messages"][-1]
        return {"messages": [AIMessage(f"answer to {asked.content}", id=f"{asked.id}-answer")]}

    builder: StateGraph[Any] = StateGraph(schema)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def _ask(graph: Any, config: Any, name: str) -> list[str]:
    result = graph.invoke({"messages": [HumanMessage(name, id=name)]}, config)
    return [message.id for message in result["messages"]]


def _run_and_fork(schema: type, saver: BaseCheckpointSaver[Any]) -> list[list[str]]:
    """Two turns, then a fork from each checkpoint of them (by an update, then a turn), each in a thread of its own."""
    live = []
    for at in range(6):
        graph = _graph(schema, saver)
        config: Any = {"configurable": {"thread_id": f"t{at}"}}
        _ask(graph, config, "first")
        _ask(graph, config, "abandoned")
        points = [state.config for state in graph.get_state_history(config)]
        fork = graph.update_state(points[at], {"messages": [HumanMessage("fork", id="fork")]}, as_node="answer")
        live.append(_ask(graph, fork, "next"))
    return live


def _history(schema: type, saver: BaseCheckpointSaver[Any]) -> list[list[str]]:
    return [
        [message.id for message in state.values.get("messages", [])]
        for at in range(6)
        for state in _graph(schema, saver).get_state_history({"configurable": {"thread_id": f"t{at}"}})
    ]


class TestTheFloor:
    def test_the_package_asks_for_it(self) -> None:
        """The package's own metadata carries the floor, and the installed version meets it."""
        [langgraph] = [Requirement(line) for line in requires("refold") or () if re.match(r"langgraph(?![-\w])", line)]
        assert not langgraph.specifier.contains("1.2.12")
        assert langgraph.specifier.contains(str(FLOOR))
        assert Version(version("langgraph")) >= FLOOR

    @pytest.mark.parametrize("store", ["memory", "sqlite"])
    def test_a_fork_does_not_take_the_abandoned_branch(self, store: str, tmp_path: Path) -> None:
        """Run, run, fork from each checkpoint, reload: at every checkpoint the plain channel's messages (fault 162)."""
        runs = []
        for schema in (Plain, Log):
            if store == "memory":
                memory = InMemorySaver()
                live = _run_and_fork(schema, memory)
                runs.append((live, _history(schema, memory)))
            else:
                path = str(tmp_path / f"{schema.__name__}.db")
                with SqliteSaver.from_conn_string(path) as saver:
                    live = _run_and_fork(schema, saver)
                with SqliteSaver.from_conn_string(path) as saver:
                    runs.append((live, _history(schema, saver)))
        (plain_live, plain_history), (log_live, log_history) = runs
        assert log_live == plain_live
        assert log_history == plain_history
        assert plain_live[2] == ["first", "first-answer", "fork", "next", "next-answer"]
