"""Runs that go on while their thread, or the checkpoint that they build on, is removed."""

import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from refold.checkpoint import SqliteSaver
from refold.checkpoint.reducer import reduce_messages
from refold.errors import CheckpointError


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=1_000)]


def at(thread: str, checkpoint_id: str | None = None, ns: str = "") -> Any:
    found = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": found if checkpoint_id is None else {**found, "checkpoint_id": checkpoint_id}}


def checkpoint_of(checkpoint_id: str | None = None, value: object = 1) -> Any:
    made = empty_checkpoint()
    made["id"] = checkpoint_id or str(uuid6())
    made["channel_values"] = {"a": value}
    made["channel_versions"] = {"a": 1}
    return made


def id_at(when: datetime) -> str:
    """A checkpoint id as LangGraph makes them, of another time."""
    ticks = int((when - datetime(1582, 10, 15, tzinfo=UTC)).total_seconds() * 10**7)
    high, middle, low = ticks >> 28 & 0xFFFFFFFF, ticks >> 12 & 0xFFFF, 0x6000 | ticks & 0xFFF
    return str(uuid.UUID(fields=(high, middle, low, 0x80, 0, 1)))


def put(saver: SqliteSaver, config: Any, made: Any, **metadata: Any) -> Any:
    return saver.put(config, made, metadata, {"a": 1})  # type: ignore[arg-type]


def fill(saver: SqliteSaver, count: int = 20) -> None:
    """Other threads, so that one that is deleted is a small part of the database."""
    for number in range(count):
        put(saver, at(f"other{number}"), checkpoint_of(value=f"other {number}"))


def say(text: str) -> Any:
    return lambda state: {"messages": [("ai", text)]}


class Gate:
    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.go_on.wait(20)


class TestOfADeletedThread:
    @pytest.mark.parametrize("durability", ["sync", "async", "exit"])
    def test_a_subgraph_that_begins_late_does_not_bring_it_back(self, saver: SqliteSaver, durability: Any) -> None:
        """A thread that is deleted while a run goes on stays deleted, whatever subgraphs the run calls then."""
        fill(saver)

        def slow(state: Any) -> Any:
            saver.delete_thread("t")
            return {"messages": [("ai", "slow")]}

        inner = StateGraph(MessagesState).add_node("say", say("private")).add_edge(START, "say").compile()
        middle = StateGraph(MessagesState).add_node("in", inner).add_edge(START, "in").compile()
        graph = (
            StateGraph(MessagesState)
            .add_node("slow", slow)
            .add_node("sub", middle)
            .add_edge(START, "slow")
            .add_edge("slow", "sub")
            .compile(checkpointer=saver)
        )
        quick = StateGraph(MessagesState).add_node("say", say("x")).add_edge(START, "say").compile(checkpointer=saver)
        quick.invoke({"messages": [("user", "first")]}, at("t"))
        graph.invoke({"messages": [("user", "hello")]}, at("t"), durability=durability)
        assert list(saver.list({"configurable": {"thread_id": "t"}})) == []
        saver.gc()
        assert saver.stats().threads == 20
        assert saver.verify().problems == ()

    def test_a_new_run_goes_on_with_its_subgraphs(self, saver: SqliteSaver) -> None:
        """A new run of the same thread is stored whole, while steps of the old one still come and are dropped."""
        fill(saver)
        old = checkpoint_of()
        put(saver, at("t"), old)
        saver.delete_thread("t")
        new, child, late = checkpoint_of(), checkpoint_of(), checkpoint_of()
        put(saver, at("t"), new)
        put(saver, at("t", old["id"]), late)
        put(saver, at("t", ns="sub:1"), child, parents={"": new["id"]})
        put(saver, at("t", ns="sub:2"), checkpoint_of(), parents={"": late["id"]})
        put(saver, at("t", late["id"]), checkpoint_of())
        saver.put_writes(at("t", late["id"]), [("a", 2)], "task")
        stored = {found.checkpoint["id"] for found in saver.list({"configurable": {"thread_id": "t"}})}
        assert stored == {new["id"], child["id"]}
        saver.gc()
        assert (saver.stats().checkpoints, saver.stats().writes) == (22, 0)

    @pytest.mark.parametrize("kind", ["old", "of another kind"])
    def test_the_time_counts_from_the_deletion(self, saver: SqliteSaver, kind: str) -> None:
        """The steps of a run that goes on from an old checkpoint are late too, and so are those whose ids tell no
        time."""
        old = id_at(datetime.now(UTC) - timedelta(days=40)) if kind == "old" else "checkpoint-1"
        put(saver, at("t"), checkpoint_of(old))
        saver.delete_thread("t")  # the only thread: what is left is collected at once
        saver.put_writes(at("t", old), [("a", "late")], "task")
        put(saver, at("t", old), checkpoint_of())
        assert saver.get_tuple(at("t")) is None

    def test_it_is_forgotten_after_thirty_days(self, saver: SqliteSaver) -> None:
        """Nothing is kept for ever."""
        put(saver, at("t"), checkpoint_of())
        saver.delete_thread("t")
        kept = "SELECT count(*) FROM refold_meta WHERE key LIKE 'deleted/%' OR key LIKE 'pruned/%'"
        assert saver.conn.execute(kept).fetchone()[0] == 1
        saver.conn.execute("UPDATE refold_meta SET value = CAST('1000000 x' AS BLOB) WHERE key LIKE 'deleted/%'")
        saver.gc()
        assert saver.conn.execute(kept).fetchone()[0] == 0

    def test_a_history_may_be_put_back(self, saver: SqliteSaver) -> None:
        """A saved thread that is stored again from its beginning is no late run."""
        fill(saver)
        config = at("t")
        for _ in range(3):
            config = put(saver, config, checkpoint_of())
        saved = list(saver.list(at("t")))
        saver.delete_thread("t")
        for found in reversed(saved):
            saver.put(found.parent_config or at("t"), found.checkpoint, found.metadata, {"a": 1})
        assert [found.checkpoint for found in saver.list(at("t"))] == [found.checkpoint for found in saved]

    def test_a_subgraph_that_was_stored_before_its_late_caller(self, saver: SqliteSaver) -> None:
        """With durability "async" a subgraph's first step may be stored before the step that called it is dropped: it
        goes then, and so do its writes and all that goes on from it."""
        fill(saver)
        old, caller, child, after = (checkpoint_of() for _ in range(4))
        put(saver, at("t"), old)
        saver.delete_thread("t")
        put(saver, at("t", ns="sub:1"), child, parents={"": caller["id"]})
        put(saver, at("t", old["id"]), caller)
        saver.put_writes(at("t", child["id"], "sub:1"), [("a", 2)], "task")
        put(saver, at("t", child["id"], "sub:1"), after, parents={"": caller["id"]})
        assert list(saver.list({"configurable": {"thread_id": "t"}})) == []
        assert saver.stats().threads == 20

    def test_a_history_with_subgraphs_may_be_put_back(self, saver: SqliteSaver) -> None:
        """What a stored caller called is no late subgraph, however old it is."""
        fill(saver)
        inner = StateGraph(MessagesState).add_node("say", say("inner")).add_edge(START, "say").compile()
        graph = StateGraph(MessagesState).add_node("in", inner).add_edge(START, "in").compile(checkpointer=saver)
        graph.invoke({"messages": [("user", "hi")]}, at("t"))
        of_thread: Any = {"configurable": {"thread_id": "t"}}
        saved = list(saver.list(of_thread))
        saver.delete_thread("t")
        for found in reversed(saved):
            before = found.parent_config or at("t", ns=found.config["configurable"]["checkpoint_ns"])
            saver.put(before, found.checkpoint, found.metadata, found.checkpoint["channel_versions"])
        assert [found.config for found in saver.list(of_thread)] == [found.config for found in saved]

    def test_a_late_parent_leaves_its_child(self, saver: SqliteSaver) -> None:
        """Steps that come out of order: the one before is dropped, the link to it goes with it."""
        fill(saver)
        old, late, child = checkpoint_of(), checkpoint_of(), checkpoint_of()
        put(saver, at("t"), old)
        saver.delete_thread("t")
        put(saver, at("t", late["id"]), child)
        put(saver, at("t", old["id"]), late)
        assert saver.verify().problems == ()

    def test_a_run_that_has_just_begun_is_not_idle(self, saver: SqliteSaver) -> None:
        """A clean-up of idle threads leaves one alone whose first step has only stored its writes."""
        made = checkpoint_of()
        saver.put_writes(at("t", made["id"]), [("a", 1)], "task")
        saver.prune(None, strategy="delete", before=datetime.now(UTC) - timedelta(days=365))
        put(saver, at("t"), made)
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.pending_writes == [("task", "a", 1)]


class TestOfAPrunedCheckpoint:
    @pytest.mark.parametrize("schema", [Delta, MessagesState])
    def test_nothing_is_lost(self, saver: SqliteSaver, schema: Any) -> None:
        """Two runs of one thread, and a prune that removes what the first one builds on: its next step is refused where
        it could not be read back, and stored where it is complete."""
        gates = {name: Gate() for name in ("slow 1", "slow 2", "second 1")}

        def node(name: str) -> Any:
            def step(state: Any) -> Any:
                question = [message.content for message in state["messages"] if message.type == "human"][-1]
                if gate := gates.get(f"{question} {name}"):
                    gate()
                return {"messages": [AIMessage(name)]}

            return step

        graph = (
            StateGraph(schema)
            .add_node("one", node("1"))
            .add_node("two", node("2"))
            .add_edge(START, "one")
            .add_edge("one", "two")
            .compile(checkpointer=saver)
        )
        failures: list[BaseException] = []

        def ask(text: str) -> None:
            try:
                graph.invoke({"messages": [HumanMessage(text)]}, at("t"), durability="sync")
            except CheckpointError as error:
                failures.append(error)

        for number in range(5):
            ask(f"question {number}")
        slow, second = threading.Thread(target=ask, args=("slow",)), threading.Thread(target=ask, args=("second",))
        slow.start()
        assert gates["slow 1"].reached.wait(20)
        second.start()
        assert gates["second 1"].reached.wait(20)
        gates["slow 1"].go_on.set()
        assert gates["slow 2"].reached.wait(20)
        gates["second 1"].go_on.set()
        second.join()
        saver.prune(["t"])
        gates["slow 2"].go_on.set()
        slow.join()
        texts = [message.content for message in graph.get_state(at("t")).values["messages"]]
        assert [f"question {number}" in texts for number in range(5)] == [True] * 5
        assert [("removed" in str(error), "again" in str(error)) for error in failures] == (
            [(True, True)] if schema is Delta else []
        )
        ask("after")
        assert len(graph.get_state(at("t")).values["messages"]) == len(texts) + 3


class TestWhatIsNotLate:
    def test_a_copy_by_its_own_config(self, saver: SqliteSaver) -> None:
        """A checkpoint that is stored with the config that names it: it stays where it was, or begins a thread."""
        first = put(saver, at("t"), checkpoint_of())
        second = put(saver, first, checkpoint_of())
        [newest, oldest] = saver.list(at("t"))
        saver.put(newest.config, newest.checkpoint, newest.metadata, {})
        saver.put(at("copy", newest.checkpoint["id"]), newest.checkpoint, newest.metadata, {})
        assert [found.config for found in saver.list(at("t"))] == [second, first]
        assert next(iter(saver.list(at("t")))).parent_config == oldest.config
        [copied] = saver.list(at("copy"))
        assert (copied.checkpoint, copied.parent_config) == (newest.checkpoint, None)
        assert saver.verify().problems == ()

    @pytest.mark.parametrize("durability", ["sync", "async", "exit"])
    def test_a_list_that_is_replaced_in_one_run(self, saver: SqliteSaver, durability: Any) -> None:
        """A graph with a plain channel that goes on with a thread of a delta channel may remove all that was there."""
        talk = StateGraph(Delta).add_node("say", say("x")).add_edge(START, "say").compile(checkpointer=saver)
        for _ in range(3):
            talk.invoke({"messages": [("user", "question")]}, at("t"))

        def fold(state: Any) -> Any:
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), AIMessage("summary")]}

        plain = StateGraph(MessagesState).add_node("fold", fold).add_edge(START, "fold").compile(checkpointer=saver)
        plain.invoke({"messages": [("user", "compact")]}, at("t"), durability=durability)
        assert [message.content for message in plain.get_state(at("t")).values["messages"]] == ["summary"]
