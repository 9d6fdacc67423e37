"""refold's `add_messages`: LangGraph's results, and the cost of what is new."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.message import add_messages as add_messages_of_langgraph
from langgraph.types import Overwrite, Send

from refold.checkpoint import SqliteSaver, add_messages, lists
from refold.checkpoint.message_log import MessageLog
from refold.checkpoint.reducer import reduce_messages

IDS = st.sampled_from(["a", "b", "c", "d", "e", "f", ""])
MESSAGE = st.one_of(
    st.builds(lambda text, name: HumanMessage(text, id=name), st.text(max_size=3), IDS),
    st.builds(lambda text, name: AIMessage(text, id=name), st.text(max_size=3), IDS),
    st.builds(lambda text, name: AIMessageChunk(content=text, id=name), st.text(max_size=3), IDS),
    st.builds(lambda text, name: {"role": "user", "content": text, "id": name}, st.text(max_size=3), IDS),
    IDS.map(lambda name: RemoveMessage(id=name)),
    st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES)),
)
WRITE = st.one_of(st.lists(MESSAGE, max_size=3), MESSAGE)


def channel(reducer: Any) -> Any:
    """A channel of a graph, as LangGraph makes it."""
    made = BinaryOperatorAggregate(list, reducer)
    made.key = "messages"
    return made


def outcome(held: Any, write: Any) -> Any:
    """What a channel holds after a write, or why it refuses it."""
    before = held.value
    try:
        held.update([write])
    except ValueError as error:
        held.value = before
        return str(error)
    return held.get()


class TestTheRules:
    @given(st.lists(WRITE, max_size=8))
    def test_are_those_of_langgraph(self, writes: list[Any]) -> None:
        """Any writes, one after the other, give the messages or the error that LangGraph's reducer gives."""
        ours, theirs = channel(add_messages), channel(add_messages_of_langgraph)
        for write in writes:
            assert outcome(ours, write) == outcome(theirs, write)

    def test_a_message_whose_id_is_edited_and_that_is_returned(self) -> None:
        """The same object again, under another id, stands there once."""
        ours, theirs = channel(add_messages), channel(add_messages_of_langgraph)
        for held in (ours, theirs):
            held.update([[HumanMessage("a", id="a"), AIMessage("b", id="draft")]])
            held.update([[HumanMessage("c", id="c")]])
            held.get()[1].id = "final"
            held.update([[held.get()[1]]])
        assert ours.get() == theirs.get()
        assert [message.id for message in ours.get()] == ["a", "final", "c"]

    def test_called_by_anybody_else_it_is_langgraphs_function(self) -> None:
        """With all its forms; what it gives is a plain list, which a saver looks through."""
        held = channel(add_messages)
        held.update([[HumanMessage("a", id="a")]])
        assert type(add_messages(held.get(), [HumanMessage("b", id="b")])) is list
        made = [reducer(format="langchain-openai") for reducer in (add_messages, add_messages_of_langgraph)]
        said = [{"role": "user", "content": [{"type": "text", "text": "a"}], "id": "a"}]
        ours, theirs = (reducer([], said) for reducer in made)
        assert ours == theirs

    def test_an_id_is_given_where_there_is_none(self) -> None:
        """On the messages themselves, as LangGraph does, in the log and in what is added."""
        message, held = HumanMessage("new"), channel(add_messages)
        held.value = [HumanMessage("old")]
        held.update([[message]])
        log = held.get()
        assert all(one.id for one in log)
        assert message.id == log[1].id

    @pytest.mark.parametrize(("left", "right"), [(None, []), ([], None)])
    def test_nothing_is_refused(self, left: Any, right: Any) -> None:
        """A side that is missing is LangGraph's error."""
        with pytest.raises(ValueError, match="Must specify non-null arguments"):
            add_messages(left, right)

    def test_the_result_serializes_as_a_list(self) -> None:
        """Other savers store a log as the list that it is."""
        held = channel(add_messages)
        held.update([[HumanMessage("a", id="1")]])
        log = held.get()
        assert isinstance(log, MessageLog)
        serde = JsonPlusSerializer()
        assert serde.dumps_typed({"messages": log}) == serde.dumps_typed({"messages": list(log)})


class LongState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


CONFIG: RunnableConfig = {"configurable": {"thread_id": "1"}}


def run(saver: SqliteSaver, node: Any) -> list[BaseMessage]:
    """One turn of a graph of one node on a thread of eight messages and more; what is stored afterwards, as a process
    reads it that has seen nothing."""
    graph = StateGraph(LongState).add_node("node", node).add_edge(START, "node").compile(checkpointer=saver)
    if saver.get_tuple(CONFIG) is None:
        history = [HumanMessage(f"text {n}", id=f"m{n}") for n in range(8)]
        graph.update_state(CONFIG, {"messages": history}, as_node="node")
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG, durability="sync")
    found = SqliteSaver(saver.conn).get_tuple(CONFIG)
    assert found is not None
    stored: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
    return stored


@pytest.fixture(params=["warm", "read again"])
def saver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A saver that compares two of the newest messages, on a thread that it wrote, or that another one did."""
    monkeypatch.setattr(lists, "NEWEST", 2)
    with SqliteSaver.from_conn_string(":memory:") as first:
        run(first, lambda state: {"messages": [AIMessage("first", id="a0")]})
        yield first if request.param == "warm" else SqliteSaver(first.conn)


class TestListsThatAreEdited:
    @pytest.mark.parametrize("reducer", [add_messages, add_messages_of_langgraph])
    def test_a_list_in_a_send_is_its_nodes_own(self, reducer: Any, saver: SqliteSaver) -> None:
        """A node that is sent the messages and notes something in that list notes it nowhere else."""

        class State(TypedDict):
            messages: Annotated[list[AnyMessage], reducer]

        def worker(state: State) -> Any:
            state["messages"].append(HumanMessage("scratch", id="scratch"))
            return {"messages": [AIMessage("done", id="done")]}

        builder = StateGraph(State).add_node("worker", worker)
        builder.add_node("model", lambda state: {"messages": [AIMessage("ask", id="ask")]})
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", lambda state: [Send("worker", state)], ["worker"])
        graph = builder.compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": "sent"}}
        graph.invoke({"messages": [HumanMessage("hi", id="hi")]}, config)
        kept = [[message.id for message in found.values["messages"]] for found in graph.get_state_history(config)]
        assert kept == [["hi", "ask", "done"], ["hi", "ask"], ["hi"], []]


class TestWhatIsStored:
    def test_an_old_message_that_is_edited_and_returned(self, saver: SqliteSaver) -> None:
        """The same object, changed, however old."""

        def node(state: Any) -> Any:
            state["messages"][1].content = "edited"
            return {"messages": [state["messages"][1], AIMessage("done", id="a1")]}

        assert run(saver, node)[1].content == "edited"

    def test_a_log_that_is_edited_and_overwrites_itself(self, saver: SqliteSaver) -> None:
        """`Overwrite` with the state's own list."""

        def node(state: Any) -> Any:
            for message in state["messages"]:
                message.content = "redacted"
            return {"messages": Overwrite(state["messages"])}

        assert {message.content for message in run(saver, node)} == {"redacted"}

    def test_a_log_that_is_removed_and_written_again(self, saver: SqliteSaver) -> None:
        """As middlewares do that rewrite a log."""

        def node(state: Any) -> Any:
            state["messages"][2].content = "edited"
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *state["messages"]]}

        assert run(saver, node)[2].content == "edited"

    def test_a_log_whose_list_is_edited(self, saver: SqliteSaver) -> None:
        """A node that takes a message out of the state's own list."""

        def node(state: Any) -> Any:
            del state["messages"][3]
            return {"messages": [AIMessage("done", id="a1")]}

        assert "m3" not in [message.id for message in run(saver, node)]

    def test_a_log_that_is_edited_and_overwrites_itself_with_more(self, saver: SqliteSaver) -> None:
        """`Overwrite` with what the reducer, called by the node, makes of the state's list."""

        def node(state: Any) -> Any:
            state["messages"][1].content = "edited"
            return {"messages": Overwrite(add_messages(state["messages"], [AIMessage("done", id="a1")]))}

        assert run(saver, node)[1].content == "edited"

    def test_a_delta_channel_whose_log_is_edited_and_overwrites_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some steps after its last full copy: the copy that the overwrite makes has the edit."""
        monkeypatch.setattr(lists, "NEWEST", 2)

        class State(TypedDict):
            messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=3)]

        left = iter(range(10))

        def add(state: Any) -> Any:
            return {"messages": [AIMessage("more", id=f"a{next(left)}")]}

        def edit(state: Any) -> Any:
            state["messages"][1].content = "edited"
            return {"messages": Overwrite(state["messages"])}

        with SqliteSaver.from_conn_string(":memory:") as saver:
            builder = StateGraph(State).add_node("a", add).add_node("b", add).add_node("c", add).add_node("edit", edit)
            builder.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", "edit")
            graph = builder.compile(checkpointer=saver)
            history = [HumanMessage(f"text {n}", id=f"m{n}") for n in range(8)]
            graph.invoke({"messages": history}, CONFIG, durability="sync")
            again = builder.compile(checkpointer=SqliteSaver(saver.conn))
            assert again.get_state(CONFIG).values["messages"][1].content == "edited"

    def test_where_several_steps_are_one_checkpoint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Durability "exit": a log that was edited and overwrote itself, and then grew."""
        monkeypatch.setattr(lists, "NEWEST", 2)

        def edit(state: Any) -> Any:
            state["messages"][1].content = "edited"
            return {"messages": Overwrite(state["messages"])}

        def add(state: Any) -> Any:
            return {"messages": [AIMessage("done", id="a1")]}

        with SqliteSaver.from_conn_string(":memory:") as saver:
            run(saver, lambda state: {"messages": []})
            builder = StateGraph(LongState).add_node("edit", edit).add_node("add", add)
            graph = builder.add_edge(START, "edit").add_edge("edit", "add").compile(checkpointer=saver)
            graph.invoke({"messages": [HumanMessage("go")]}, CONFIG, durability="exit")
            found = SqliteSaver(saver.conn).get_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"][1].content == "edited"

    def test_a_log_in_a_channel_without_the_reducer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There every edit in place is stored, as in any channel."""
        monkeypatch.setattr(lists, "NEWEST", 2)

        class State(LongState, total=False):
            archive: Any

        def node(state: Any) -> Any:
            state["messages"][1].content += "!"
            return {"archive": state["messages"], "messages": [AIMessage("more")]}

        with SqliteSaver.from_conn_string(":memory:") as saver:
            builder = StateGraph(State)
            for name in ("a", "b", "c"):
                builder.add_node(name, node)
            graph = builder.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").compile(checkpointer=saver)
            history = [HumanMessage(f"text {n}", id=f"m{n}") for n in range(8)]
            graph.invoke({"messages": history}, CONFIG, durability="sync")
            found = SqliteSaver(saver.conn).get_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"]["archive"][1].content == "text 1!!!"

    def test_what_an_entrypoint_saves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """LangGraph's functional API, with the reducer as a function."""
        monkeypatch.setattr(lists, "NEWEST", 2)
        with SqliteSaver.from_conn_string(":memory:") as saver:

            @entrypoint(checkpointer=saver)
            def turn(words: str, *, previous: Any = None) -> Any:
                messages: Any = add_messages(previous or [], [HumanMessage(words)])
                messages[0].content += "!"
                return entrypoint.final(value=None, save=messages)

            for _ in range(5):
                turn.invoke("hi", CONFIG)
            assert _saved(saver)[0].content == "hi!!!!!"

    def test_one_of_the_newest_that_is_edited_in_place(self, saver: SqliteSaver) -> None:
        """A node that forgets to return what it edited."""

        def node(state: Any) -> Any:
            state["messages"][-1].content = "edited"
            return {"messages": [AIMessage("done", id="a1")]}

        assert run(saver, node)[-2].content == "edited"

    def test_an_old_one_that_is_edited_in_place_and_not_returned_is_a_value(self, saver: SqliteSaver) -> None:
        """It is stored as it was: the log is never rewritten behind its back."""

        def node(state: Any) -> Any:
            state["messages"][1].content = "edited"
            return {"messages": [AIMessage("done", id="a1")]}

        assert run(saver, node)[1].content == "text 1"


def _saved(saver: SqliteSaver) -> list[BaseMessage]:
    found = SqliteSaver(saver.conn).get_tuple(CONFIG)
    assert found is not None
    saved: list[BaseMessage] = found.checkpoint["channel_values"]["__previous__"]
    return saved


class Watched(HumanMessage):
    """A message that counts how often somebody looks at it."""

    looks: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        Watched.looks += 1
        return super().__getattribute__(name)


def looks_of_four_steps(state: type[Any], message: Callable[[int], BaseMessage]) -> int:
    """How often a thread of 4,000 messages is looked at while four steps add one message each."""
    left = iter(range(4))

    def node(state: Any) -> Any:
        return {"messages": [message(next(left))]}

    with SqliteSaver.from_conn_string(":memory:") as saver:
        builder = StateGraph(state)
        for name in ("one", "two", "three", "four"):
            builder.add_node(name, node)
        builder.add_edge(START, "one").add_edge("one", "two").add_edge("two", "three").add_edge("three", "four")
        graph = builder.compile(checkpointer=saver)
        old = [Watched(f"text {n}", id=f"m{n}") for n in range(4_000)]
        looks = [Watched.looks for _ in graph.stream({"messages": old}, CONFIG, durability="sync")]
    return looks[-1] - looks[0]


class TestTheCost:
    @pytest.mark.parametrize(("reducer", "least", "most"), [(add_messages, 0, 5_000), (None, 16_000, 1_000_000)])
    def test_of_a_step_on_a_long_log_is_that_of_what_is_new(self, reducer: Any, least: int, most: int) -> None:
        """Four steps of a thread of 4,000 messages look at the newest alone; with LangGraph's reducer, at all of them
        at each."""
        state = LongState if reducer is not None else _State
        assert least <= looks_of_four_steps(state, lambda n: AIMessage("step", id=f"a{n}")) < most

    def test_where_a_new_message_holds_what_cannot_be_compared(self) -> None:
        """A tool's artifact that is an object has a step look at the newest again, not at the log."""
        found = looks_of_four_steps(
            LongState, lambda n: ToolMessage("found", tool_call_id="c", artifact=(1, 2), id=f"t{n}")
        )
        assert found < 12_000


class _State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages_of_langgraph]
