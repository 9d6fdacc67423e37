"""`LogState` in real agents: the same states as the plain channel, stored as a log."""

import json
import operator
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import AgentState, create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Overwrite

from refold.checkpoint.reducer import reduce_messages
from refold.checkpoint.state import SNAPSHOT_FREQUENCY, LogState

Config = dict[str, Any]


class EchoModel(BaseChatModel):
    """Calls the tool for the first `calls` turns of a run, then answers. Ids are counted, so runs can be compared."""

    calls: int = 3

    @property
    def _llm_type(self) -> str:
        return "echo"

    def bind_tools(self, tools: Sequence[object], **kwargs: object) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: object, **kwargs: object) -> ChatResult:
        asked = sum(isinstance(message, HumanMessage) for message in messages)
        last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        done = sum(isinstance(message, AIMessage) for message in messages[last:])
        identity = f"ai-{asked}-{done}"
        call = {"name": "look", "args": {"at": identity}, "id": f"call-{identity}"}
        answer = AIMessage(f"step {identity}", id=identity, tool_calls=[call] if done < self.calls else [])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def look(at: str) -> str:
    """Looks at a place."""
    return f"seen {at}"


def _agent(schema: type[AgentState[Any]], saver: BaseCheckpointSaver[Any]) -> Any:
    return create_agent(EchoModel(), [look], state_schema=schema, checkpointer=saver)


def _texts(messages: Sequence[BaseMessage]) -> list[tuple[str, object]]:
    return [(message.type, message.content) for message in messages]


class TestAnAgentRunsOnIt:
    def test_the_same_states_as_the_plain_channel(self) -> None:
        """Two turns, every checkpoint of the history: the messages are those of `AgentState`."""
        histories = []
        for schema in (AgentState, LogState):
            agent = _agent(schema, InMemorySaver())
            config: Config = {"configurable": {"thread_id": "t"}}
            for turn in range(2):
                agent.invoke({"messages": [HumanMessage(f"question {turn}", id=f"h{turn}")]}, config)
            history = list(agent.get_state_history(config))
            histories.append([(_texts(state.values.get("messages", [])), state.next) for state in history])
        assert histories[0] == histories[1]

    @pytest.mark.parametrize("question", ["hello", ("user", "hello"), {"role": "user", "content": "hello"}])
    def test_raw_input(self, question: object, tmp_path: Path) -> None:
        """Dicts, tuples and strings are messages, now and after a reload from disk."""
        config: Config = {"configurable": {"thread_id": "t"}}
        with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            live = _agent(LogState, saver).invoke({"messages": [question]}, config)["messages"]
        with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            reloaded = _agent(LogState, saver).get_state(config).values["messages"]
        assert reloaded == live
        assert _texts(live)[0] == ("human", "hello")

    def test_stored_as_a_log(self, tmp_path: Path) -> None:
        """No checkpoint before the snapshot holds the list: bytes grow with the writes, not with their square."""
        config: Config = {"configurable": {"thread_id": "t"}, "recursion_limit": 500}
        sizes = []
        for calls in (40, 80):
            path = tmp_path / f"{calls}.db"
            with SqliteSaver.from_conn_string(str(path)) as saver:
                agent = create_agent(EchoModel(calls=calls), [look], state_schema=LogState, checkpointer=saver)
                agent.invoke({"messages": [HumanMessage("go", id="h")]}, config)
            with sqlite3.connect(path) as db:
                [(size,)] = db.execute("SELECT sum(length(checkpoint)) FROM checkpoints").fetchall()
            db.close()
            sizes.append(size)
        assert sizes[1] < 2.5 * sizes[0]

    def test_snapshots_are_rare(self) -> None:
        """The channel of the state copies the list every `SNAPSHOT_FREQUENCY` updates."""
        channel = _agent(LogState, InMemorySaver()).channels["messages"]
        assert isinstance(channel, DeltaChannel)
        assert channel.snapshot_frequency == SNAPSHOT_FREQUENCY
        assert channel.reducer is reduce_messages


class Log(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=4)]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _graph(
    schema: type, saver: BaseCheckpointSaver[Any], *nodes: tuple[str, Callable[[Any], object]], chain: bool = True
) -> Any:
    builder: StateGraph[Any] = StateGraph(schema)
    for name, node in nodes:
        builder.add_node(name, node)
    names = [name for name, _ in nodes]
    if chain:
        for left, right in zip([START, *names], [*names, END], strict=True):
            builder.add_edge(left, right)
    else:
        for name in names:
            builder.add_edge(START, name)
            builder.add_edge(name, END)
    return builder.compile(checkpointer=saver)


class TestWhatIsWrittenIsReadBack:
    def test_parallel_writers_replay_in_live_order(self, tmp_path: Path) -> None:
        """Eight parallel nodes append; the reload has the order of the run (fault 164)."""
        nodes = [
            (f"n{n}", lambda state, n=n: {"messages": [AIMessage(f"{n}", id=f"{len(state['messages'])}-{n}")]})
            for n in range(8)
        ]
        config: Config = {"configurable": {"thread_id": "t"}}
        with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            graph = _graph(Log, saver, *nodes, chain=False)
            for turn in range(3):
                live = graph.invoke({"messages": [HumanMessage("go", id=f"h{turn}")]}, config)
        with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            assert _graph(Log, saver, *nodes, chain=False).get_state(config).values == live

    def test_first_write_after_moving_to_the_log(self) -> None:
        """A thread of the plain channel goes on as a log, its first write included (fault 166)."""
        saver = InMemorySaver()
        config: Config = {"configurable": {"thread_id": "t"}}
        say = ("say", lambda state: {"messages": [AIMessage("ok", id=f"a{len(state['messages'])}")]})
        _graph(Plain, saver, say).invoke({"messages": [HumanMessage("1", id="h1")]}, config)
        live = _graph(Log, saver, say).invoke({"messages": [HumanMessage("2", id="h2")]}, config)
        assert [message.id for message in live["messages"]] == ["h1", "a1", "h2", "a3"]
        assert _graph(Log, saver, say).get_state(config).values == live

    @pytest.mark.parametrize("as_node", [None, "say"])
    def test_update_state_on_a_fresh_thread(self, as_node: str | None) -> None:
        """The first `update_state` of a thread, before any run, is kept (fault 167)."""
        saver = InMemorySaver()
        config: Config = {"configurable": {"thread_id": "t"}}
        graph = _graph(Log, saver, ("say", lambda state: {"messages": []}))
        graph.update_state(config, {"messages": [HumanMessage("1", id="h1")]}, as_node=as_node)
        assert graph.get_state(config).values == {"messages": [HumanMessage("1", id="h1")]}
        graph.update_state(config, {"messages": [HumanMessage("2", id="h2")]}, as_node="say")
        assert [message.id for message in graph.get_state(config).values["messages"]] == ["h1", "h2"]

    @pytest.mark.parametrize(
        "edit",
        [
            [HumanMessage("new", id="h")],
            [RemoveMessage(id="h")],
            [RemoveMessage(id=REMOVE_ALL_MESSAGES), AIMessage("kept", id="k")],
            Overwrite([AIMessage("kept", id="k")]),
            json.loads('{"type": "__overwrite__", "value": [{"type": "ai", "content": "kept", "id": "k"}]}'),
        ],
        ids=["update", "remove", "remove-all", "overwrite", "json-overwrite"],
    )
    def test_edits_survive_a_reload(self, edit: Any, tmp_path: Path) -> None:
        """An edit in the middle of a run is what the next turn and a reload see."""
        config: Config = {"configurable": {"thread_id": "t"}}

        def nodes() -> list[tuple[str, Callable[[Any], object]]]:
            return [
                ("one", lambda state: {"messages": [AIMessage("1", id="a1")]}),
                ("edit", lambda state: {"messages": edit}),
                ("two", lambda state: {"messages": [AIMessage("2", id="a2")]}),
            ]

        with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            live = _graph(Log, saver, *nodes()).invoke({"messages": [HumanMessage("old", id="h")]}, config)
        with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            graph = _graph(Log, saver, *nodes())
            assert graph.get_state(config).values == live
            graph.update_state(config, {"messages": [AIMessage("3", id="a3")]})
            assert [m.id for m in graph.get_state(config).values["messages"]][-2:] == ["a2", "a3"]

    def test_other_reducers_beside_it(self) -> None:
        """The log shares a state with ordinary reducers."""

        class Both(Log):
            count: Annotated[int, operator.add]

        graph = _graph(Both, InMemorySaver(), ("say", lambda state: {"messages": [AIMessage("x", id="x")], "count": 1}))
        config: Config = {"configurable": {"thread_id": "t"}}
        graph.invoke({"messages": [], "count": 1}, config)
        assert graph.get_state(config).values == {"messages": [AIMessage("x", id="x")], "count": 2}
