"""Faults M (growth, prune, restore) and N (delta channels, forks, concurrency), by number, on graphs and databases.

Every test drives LangGraph itself; the savers are opened as an application opens them, and opened again to read, since
most of these faults show only on reload.
"""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from operator import add
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.channels.base import BaseChannel
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Send, interrupt
from packaging.version import Version

from refold.checkpoint import SqliteSaver
from refold.checkpoint.reducer import reduce_messages
from refold.errors import CheckpointError

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=1000)]


class _Forgetful(BaseChannel[list[AnyMessage], list[AnyMessage], list[AnyMessage]]):
    """What a plain list channel was before langgraph 1.2.16: nothing stored is an empty list."""

    def __init__(self, value: list[AnyMessage] | None = None) -> None:
        super().__init__(list)
        self.value: list[AnyMessage] = value or []

    ValueType = UpdateType = property(lambda self: list)

    def from_checkpoint(self, checkpoint: object) -> Any:
        channel = _Forgetful(cast("list[AnyMessage]", checkpoint) if isinstance(checkpoint, list) else None)
        channel.key = self.key
        return channel

    def update(self, values: Sequence[list[AnyMessage]]) -> bool:
        for value in values:
            self.value = cast("list[AnyMessage]", add_messages(self.value, value))  # type: ignore[arg-type]
        return bool(values)

    def get(self) -> list[AnyMessage]:
        return self.value


class Old(TypedDict):
    messages: Annotated[list[AnyMessage], _Forgetful()]


SCHEMAS = pytest.mark.parametrize("schema", [Plain, Log])


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database of ours, opened as often as a test likes."""

    open: Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, sqlite_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(open=lambda: SqliteSaver.from_conn_string(str(sqlite_path)))
    from refold.checkpoint import PostgresSaver

    url = request.getfixturevalue("postgres_url")
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    return Database(open=lambda: PostgresSaver.from_conn_string(url))


Node = Callable[[Any], object]


def _graph(schema: type, saver: BaseCheckpointSaver[Any], nodes: dict[str, Node], *, parallel: bool = False) -> Any:
    """The nodes one after the other, or all at once."""
    builder: StateGraph[Any] = StateGraph(schema)
    for name, node in nodes.items():
        builder.add_node(name, node)
    names = list(nodes)
    if parallel:
        for name in names:
            builder.add_edge(START, name)
            builder.add_edge(name, END)
    else:
        for left, right in zip([START, *names], [*names, END], strict=True):
            builder.add_edge(left, right)
    return builder.compile(checkpointer=saver)


def _text(seed: int, size: int = 600) -> str:
    """Text that does not compress away."""
    rng = Random(seed)
    return " ".join(format(rng.getrandbits(40), "x") for _ in range(size // 11))


def _talker(schema: type, saver: BaseCheckpointSaver[Any]) -> Any:
    def answer(state: Any) -> dict[str, list[AIMessage]]:
        asked = state["messages"][-1].id
        return {"messages": [AIMessage(_text(len(state["messages"]), 3000), id=f"answer-{asked}")]}

    return _graph(schema, saver, {"answer": answer})


def _say(graph: Any, name: str, config: Any = THREAD) -> list[str]:
    return _ids(graph.invoke({"messages": [HumanMessage(f"{name}: {_text(len(name), 100)}", id=name)]}, config))


def _ids(values: Any) -> list[str]:
    return [message.id for message in values.get("messages", [])]


def _human(name: str) -> dict[str, list[HumanMessage]]:
    return {"messages": [HumanMessage(name, id=name)]}


def _head(saver: BaseCheckpointSaver[Any]) -> str:
    found = saver.get_tuple(THREAD)
    assert found is not None
    return found.checkpoint["id"]


def _history(graph: Any, config: Any = THREAD) -> list[list[str]]:
    return [_ids(state.values) for state in graph.get_state_history(config)]


def _raw(messages: Sequence[BaseMessage]) -> int:
    return sum(len(JsonPlusSerializer().dumps_typed(message)[1]) for message in messages)


def _size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.stat().st_size


class TestGrowth:
    @SCHEMAS
    def test_bytes_grow_with_the_turns(self, schema: type, tmp_path: Path) -> None:
        """Fault 146: N turns of constant size are stored in O(N) bytes, with every checkpoint still there."""
        ratios = []
        for turns in (30, 90):
            path = tmp_path / f"{turns}.db"
            with SqliteSaver.from_conn_string(str(path)) as saver:
                graph = _talker(schema, saver)
                for turn in range(turns):
                    _say(graph, f"q{turn}")
                assert len(list(saver.list(THREAD))) == 3 * turns
                raw = _raw(graph.get_state(THREAD).values["messages"])
            ratios.append(_size(path) / raw)
        assert ratios[1] <= ratios[0] < 2

    @SCHEMAS
    def test_twenty_compactions(self, schema: type, sqlite_path: Path) -> None:
        """Fault 147: a list that is rewritten twenty times stores each message once, not once per rewrite."""
        numbers = count()

        def work(state: Any) -> dict[str, list[AnyMessage]]:
            number = next(numbers)
            new = AIMessage(_text(number, 1500), id=f"m{number}")
            if number % 10 == 9:
                kept = state["messages"][-8:]
                summary = HumanMessage(_text(10**6 + number, 300), id=f"summary-{number}")
                return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), summary, *kept, new]}
            return {"messages": [new]}

        written: dict[str, BaseMessage] = {}
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            graph = _graph(schema, saver, {"work": work})
            for _ in range(200):
                result = graph.invoke({"messages": []}, THREAD)
                written |= {message.id: message for message in result["messages"]}
            assert sum(name.startswith("summary") for name in written) == 20
            assert len(result["messages"]) <= 20
        assert _size(sqlite_path) < 1.6 * _raw(list(written.values()))

    def test_a_constant_channel_is_stored_once(self, sqlite_path: Path) -> None:
        """Fault 149: a large value that never changes, beside a counter, costs its bytes once in 100 steps."""

        class State(TypedDict):
            document: str
            counter: Annotated[int, add]

        document = _text(1, 200_000)
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            graph = _graph(State, saver, {"tick": lambda state: {"counter": 1}})
            graph.invoke({"document": document, "counter": 0}, THREAD)
            for _ in range(99):
                graph.invoke({"counter": 0}, THREAD)
            values = graph.get_state(THREAD).values
        assert values == {"document": document, "counter": 100}
        assert _size(sqlite_path) < 2 * len(document)

    @pytest.mark.parametrize("frequency", [10, 1000])
    def test_a_long_delta_thread_restores(self, frequency: int, sqlite_path: Path) -> None:
        """Fault 159: 500 steps restore at any snapshot frequency, in a number of statements that does not grow."""

        class State(TypedDict):
            messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=frequency)]

        def step(state: Any) -> dict[str, list[AIMessage]]:
            return {"messages": [AIMessage("x", id=str(len(state["messages"])))]}

        builder: StateGraph[Any] = StateGraph(State)
        builder.add_node("step", step)
        builder.add_edge(START, "step")
        builder.add_conditional_edges("step", lambda state: END if len(state["messages"]) % 250 == 0 else "step")
        statements = []
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            graph = builder.compile(checkpointer=saver)
            for _ in range(2):
                live = graph.invoke({"messages": []}, {**THREAD, "recursion_limit": 600}, durability="sync")
                statements.append(_statements(sqlite_path, lambda other: builder.compile(other).get_state(THREAD)))
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            assert builder.compile(saver).get_state(THREAD).values == live
        assert len(live["messages"]) == 500
        assert statements[1] <= statements[0] + 8


def _statements(path: Path, work: Callable[[Any], object]) -> int:
    """How many statements a saver, newly opened, sends to SQLite for some work."""
    seen: list[str] = []
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.set_trace_callback(seen.append)
    with closing(connection):
        work(SqliteSaver(connection))
    return len(seen)


class TestReading:
    @SCHEMAS
    def test_listing_takes_no_statement_per_checkpoint(self, schema: type, sqlite_path: Path) -> None:
        """Fault 156: listing 120 checkpoints takes hardly more statements than listing 30."""
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            graph = _talker(schema, saver)
            for turn in range(40):
                _say(graph, f"q{turn}")
        few = _statements(sqlite_path, lambda other: list(other.list(THREAD, limit=30)))
        many = _statements(sqlite_path, lambda other: list(other.list(THREAD)))
        assert many < few + 45, (few, many)


def _asker(saver: BaseCheckpointSaver[Any], finished: list[str]) -> Any:
    """Three parallel calls that each wait for a human, then do their work."""

    class State(TypedDict):
        answers: Annotated[list[str], add]

    def call(name: str) -> dict[str, list[str]]:
        answer = interrupt(name)
        finished.append(name)
        return {"answers": [f"{name}={answer}"]}

    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("call", call)
    builder.add_conditional_edges(START, lambda state: [Send("call", name) for name in ("a", "b", "c")], ["call"])
    builder.add_edge("call", END)
    return builder.compile(checkpointer=saver)


class TestPruning:
    def test_finished_calls_do_not_run_again(self, database: Database) -> None:
        """Fault 151: three calls wait, one is answered, the thread is pruned, the rest is answered: each ran once."""
        finished: list[str] = []
        with database.open() as saver:
            graph = _asker(saver, finished)
            graph.invoke({"answers": []}, THREAD)
            waiting = {pause.value: pause.id for pause in graph.get_state(THREAD).interrupts}
            graph.invoke(Command(resume={waiting["a"]: 1}), THREAD)
            assert finished == ["a"]
            saver.prune(["t"], strategy="keep_latest")
        with database.open() as saver:
            graph = _asker(saver, finished)
            assert {pause.value for pause in graph.get_state(THREAD).interrupts} == {"b", "c"}
            result = graph.invoke(Command(resume={waiting["b"]: 2, waiting["c"]: 3}), THREAD)
        assert sorted(finished) == ["a", "b", "c"]
        assert sorted(result["answers"]) == ["a=1", "b=2", "c=3"]

    @SCHEMAS
    def test_a_pruned_thread_reads_as_before(self, schema: type, database: Database) -> None:
        """Faults 151, 161: pruning a thread, of a delta channel too, keeps its state, and it goes on."""
        with database.open() as saver:
            graph = _talker(schema, saver)
            for turn in range(5):
                live = _say(graph, f"q{turn}")
            saver.prune(["t"], strategy="keep_latest")
            saver.gc()
        with database.open() as saver:
            graph = _talker(schema, saver)
            assert _history(graph) == [live]
            assert _say(graph, "more") == [*live, "more", "answer-more"]

    def test_a_retention_job(self, database: Database) -> None:
        """Fault 161: ten idle threads and two in use; the job removes the idle ones, in batches, and their bytes."""
        with database.open() as saver:
            graph = _talker(Plain, saver)
            for number in range(10):
                _say(graph, "q", {"configurable": {"thread_id": f"old-{number}"}})
            full = saver.stats()
            limit = datetime.now(UTC)
            for number in range(2):
                _say(graph, "q", {"configurable": {"thread_id": f"new-{number}"}})
            saver.prune(None, strategy="delete", before=limit, batch_size=3)
            saver.gc()
            left = saver.stats()
            assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == {"new-0", "new-1"}
        assert (full.threads, left.threads) == (10, 2)
        assert left.checkpoints == full.checkpoints // 5
        with database.open() as saver:
            for number in range(2):
                assert _history(_talker(Plain, saver), {"configurable": {"thread_id": f"new-{number}"}})


class TestDeletion:
    @SCHEMAS
    def test_a_late_write_revives_nothing(self, schema: type, database: Database) -> None:
        """Fault 152: writes and checkpoints under the old config, after the deletion, leave the thread deleted."""
        with database.open() as saver:
            graph = _talker(schema, saver)
            _say(graph, "q")
            late = saver.get_tuple(THREAD)
            saver.delete_thread("t")
            saver.put_writes(late.config, [("messages", [AIMessage("late", id="late")])], "late-task")
            saver.put(late.parent_config, late.checkpoint, late.metadata, late.checkpoint["channel_versions"])
        with database.open() as saver:
            assert saver.get_tuple(THREAD) is None
            assert list(saver.list(None)) == []
            assert _say(_talker(schema, saver), "again") == ["again", "answer-again"]

    def test_nothing_of_the_thread_is_left(self, sqlite_path: Path) -> None:
        """Fault 154: after three turns, a deletion and a collection, no table holds a row of it."""
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            graph = _talker(Plain, saver)
            for turn in range(3):
                _say(graph, f"q{turn}")
            saver.delete_thread("t")
            saver.gc()
            stats = saver.stats()
        assert (stats.threads, stats.checkpoints, stats.hidden, stats.writes) == (0, 0, 0, 0)
        assert (stats.blobs, stats.packs, stats.logs) == (0, 0, 0)
        assert _text(1, 3000)[:40].encode() not in sqlite_path.read_bytes()


class TestForks:
    def test_a_fork_does_not_take_the_abandoned_branch(self, database: Database) -> None:
        """Fault 162: forks from every checkpoint of two turns, reloaded, are those of the plain channel."""
        runs = []
        for schema in (Plain, Log):
            histories = []
            for at in range(6):
                config: Any = {"configurable": {"thread_id": f"{schema.__name__}-{at}"}}
                with database.open() as saver:
                    graph = _talker(schema, saver)
                    _say(graph, "first", config)
                    _say(graph, "abandoned", config)
                    point = list(graph.get_state_history(config))[at].config
                    fork = graph.update_state(point, {"messages": [HumanMessage("f", id="fork")]}, as_node="answer")
                    _say(graph, "next", fork)
                with database.open() as saver:
                    histories.append(_history(_talker(schema, saver), config))
            runs.append(histories)
        assert runs[0] == runs[1]
        assert "abandoned" not in runs[0][2][0]

    @SCHEMAS
    @pytest.mark.parametrize("at", [2, 5, 9])
    def test_a_fork_from_before_a_compaction(self, schema: type, at: int, database: Database) -> None:
        """Fault 174: a thread whose list was replaced at message 20 gives back, forked earlier, what it had there."""
        with database.open() as saver:
            graph = _talker(schema, saver)
            for turn in range(10):
                _say(graph, f"q{turn}")
            before = [state for state in graph.get_state_history(THREAD) if not state.next][::-1][at]
            summary = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("a summary", id="summary")]
            graph.update_state(THREAD, {"messages": summary})
            assert _ids(graph.get_state(THREAD).values) == ["summary"]
        with database.open() as saver:
            graph = _talker(schema, saver)
            assert len(_ids(before.values)) == 2 * at + 2
            assert graph.get_state(before.config).values == before.values
            assert _say(graph, "fork", before.config) == [*_ids(before.values), "fork", "answer-fork"]
            assert _ids(graph.get_state(THREAD).values)[-2:] == ["fork", "answer-fork"]

    @SCHEMAS
    def test_undo_then_compact(self, schema: type, database: Database) -> None:
        """Fault 176: the last turn is removed, then the list is compacted: no message of that turn comes back."""
        with database.open() as saver:
            graph = _talker(schema, saver)
            kept = _say(graph, "kept")
            undone = _say(graph, "undone")[len(kept) :]
            graph.update_state(THREAD, {"messages": [RemoveMessage(id=name) for name in undone]})
            state = graph.get_state(THREAD).values["messages"]
            assert _ids({"messages": state}) == kept
            summary = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("a summary", id="s"), state[-1]]
            graph.update_state(THREAD, {"messages": summary})
        with database.open() as saver:
            graph = _talker(schema, saver)
            assert _ids(graph.get_state(THREAD).values) == ["s", kept[-1]]
            assert not set(_say(graph, "next")) & set(undone)

    @SCHEMAS
    def test_an_aborted_compaction_changes_nothing(self, schema: type, database: Database) -> None:
        """Fault 176: a compaction that fails in the middle of its step leaves the list as it was."""

        def compact(state: Any) -> object:
            raise RuntimeError("the summariser is gone")

        with database.open() as saver:
            live = _say(_talker(schema, saver), "q")
            graph = _graph(schema, saver, {"compact": compact})
            with pytest.raises(RuntimeError, match="summariser"):
                graph.invoke({"messages": [HumanMessage("please", id="p")]}, THREAD)
        with database.open() as saver:
            assert _ids(_talker(schema, saver).get_state(THREAD).values) == [*live, "p"]


class TestDeltaChannels:
    def test_replay_has_the_live_order(self, database: Database) -> None:
        """Fault 164: eight parallel nodes write to a channel whose order counts; reloaded, it is that of the run."""
        nodes: dict[str, Node] = {
            f"n{n}": lambda state, n=n: {"messages": [AIMessage("x", id=f"{len(state['messages'])}-{n}")]}
            for n in range(8)
        }
        with database.open() as saver:
            graph = _graph(Log, saver, nodes, parallel=True)
            for turn in range(3):
                live = _say(graph, f"q{turn}")
        with database.open() as saver:
            assert _ids(_graph(Log, saver, nodes, parallel=True).get_state(THREAD).values) == live

    def test_the_first_write_after_moving_to_delta(self, database: Database) -> None:
        """Fault 166: a plain thread goes on with a delta channel; its first write there is kept."""
        with database.open() as saver:
            before = _say(_talker(Plain, saver), "plain")
            live = _say(_talker(Log, saver), "delta")
        assert live == [*before, "delta", "answer-delta"]
        with database.open() as saver:
            assert _ids(_talker(Log, saver).get_state(THREAD).values) == live

    @SCHEMAS
    def test_the_first_update_of_a_fresh_thread(self, schema: type, database: Database) -> None:
        """Fault 167: `update_state` before any run is kept, and a second one adds to it."""
        with database.open() as saver:
            graph = _talker(schema, saver)
            graph.update_state(THREAD, {"messages": [HumanMessage("1", id="one")]})
        with database.open() as saver:
            graph = _talker(schema, saver)
            assert _ids(graph.get_state(THREAD).values) == ["one"]
            graph.update_state(THREAD, {"messages": [HumanMessage("2", id="two")]})
        with database.open() as saver:
            assert _ids(_talker(schema, saver).get_state(THREAD).values) == ["one", "two"]

    @pytest.mark.parametrize(
        "write",
        [
            pytest.param(lambda graph: _say(graph, "plain"), id="invoke"),
            pytest.param(lambda graph: graph.update_state(THREAD, _human("plain"), as_node="answer"), id="update"),
            pytest.param(lambda graph: graph.update_state(THREAD, _human("plain"), as_node="__input__"), id="input"),
            pytest.param(lambda graph: graph.update_state(THREAD, None, as_node=END), id="clear"),
            pytest.param(
                lambda graph: graph.invoke(_human("plain"), THREAD, durability="exit"), id="invoke, stored at its exit"
            ),
        ],
    )
    def test_a_plain_schema_that_reads_a_delta_thread_as_empty(
        self, write: Callable[[Any], object], database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Fault 169: a runtime without the delta channel goes on with an empty list; whatever it puts first is
        refused, and the thread stays as it was."""
        monkeypatch.setattr("refold.checkpoint.lost.rebuilds_lists", lambda: False)
        with database.open() as saver:
            live = _say(_talker(Log, saver), "delta")
            head = _head(saver)
            assert _ids(_talker(Old, saver).get_state(THREAD).values) == []
            with pytest.raises(CheckpointError, match="delta"):
                write(_talker(Old, saver))
        with database.open() as saver:
            assert _head(saver) == head
            assert _ids(_talker(Log, saver).get_state(THREAD).values) == live

    @pytest.mark.skipif(
        Version(version("langgraph")) < Version("1.2.16"), reason="before it, a plain channel reads the thread as empty"
    )
    def test_a_plain_schema_that_rebuilds_a_delta_thread(self, database: Database) -> None:
        """Fault 169: a runtime whose plain channel has all that the delta channel held goes on, by a run or by an
        update; and one more change of the schema loses nothing either."""
        with database.open() as saver:
            live = _say(_talker(Log, saver), "delta")
            assert _say(_talker(Plain, saver), "plain") == (live := [*live, "plain", "answer-plain"])
            assert _say(_talker(Log, saver), "again") == (live := [*live, "again", "answer-again"])
            _talker(Plain, saver).update_state(THREAD, _human("update"), as_node="answer")
        with database.open() as saver:
            assert _ids(_talker(Log, saver).get_state(THREAD).values) == [*live, "update"]

    @pytest.mark.parametrize("removed", [REMOVE_ALL_MESSAGES, "each"])
    def test_a_plain_schema_on_a_delta_thread_without_messages(self, removed: str, database: Database) -> None:
        """Fault 169: where every message was removed, an empty list is right, and is stored."""
        with database.open() as saver:
            log = _talker(Log, saver)
            live = _say(log, "delta")
            removals = [RemoveMessage(id=name) for name in (live if removed == "each" else [removed])]
            log.update_state(THREAD, {"messages": removals}, as_node="answer")
            _talker(Old, saver).update_state(THREAD, _human("plain"), as_node="answer")
            assert _ids(_talker(Plain, saver).get_state(THREAD).values) == ["plain"]


_WRITER = """
import sys, time
from pathlib import Path
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import StateGraph, add_messages
from refold.checkpoint import SqliteSaver
from refold.errors import HeadMovedError

path, name, exclusive = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "exclusive"

class State(TypedDict):
    messages: Annotated[list, add_messages]

def answer(state):
    path.with_name(f"ready-{name}").touch()
    deadline = time.monotonic() + 60
    while len(list(path.parent.glob("ready-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return {"messages": [AIMessage(name, id=name)]}

builder = StateGraph(State)
builder.add_node("answer", answer)
builder.set_entry_point("answer")
config = {"configurable": {"thread_id": "t"}}
with SqliteSaver.from_conn_string(str(path), exclusive=exclusive) as saver:
    graph = builder.compile(checkpointer=saver)
    fork = saver.get_tuple(config).config
    try:
        graph.invoke({"messages": [HumanMessage(name, id=f"ask-{name}")]}, config if exclusive else fork)
        print("extended")
    except HeadMovedError as error:
        print("refused", error.expected, error.found)
"""


def _race(path: Path, mode: str) -> dict[str, list[str]]:
    """Two processes read one head and extend it; what each of them printed."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        _say(_talker(Plain, saver), "start")
    writers = {
        name: subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), name, mode], stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    }
    return {name: writer.communicate(timeout=100)[0].split() for name, writer in writers.items()}


class TestWriters:
    def test_the_second_of_two_writers_is_refused(self, sqlite_path: Path) -> None:
        """Fault 171: two processes extend one head of an exclusive saver; one gets an error with both ids."""
        outcomes = _race(sqlite_path, "exclusive")
        assert sorted(words[0] for words in outcomes.values()) == ["extended", "refused"]
        [(_, expected, found)] = [words for words in outcomes.values() if words[0] == "refused"]
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            known = {state.config["configurable"]["checkpoint_id"] for state in saver.list(THREAD)}
        assert expected != found
        assert {expected, found} <= known

    def test_without_it_both_branches_stay(self, sqlite_path: Path) -> None:
        """Fault 171: by default both writers succeed, and both branches are found in the history."""
        outcomes = _race(sqlite_path, "shared")
        assert [words[0] for words in outcomes.values()] == ["extended", "extended"]
        with SqliteSaver.from_conn_string(str(sqlite_path)) as saver:
            tips = {ids[-1] for ids in _history(_talker(Plain, saver)) if ids}
        assert {"one", "two"} <= tips

    def test_no_pending_write_is_lost(self, database: Database) -> None:
        """Fault 172: sixteen threads write for sixteen tasks at one moment; every write is there, in order of tasks."""
        tasks = [f"task-{n:02}" for n in range(16)]
        barrier = threading.Barrier(len(tasks))
        with database.open() as saver:
            _say(_talker(Plain, saver), "q")
            head = saver.get_tuple(THREAD).config

            def write(task: str) -> None:
                barrier.wait(30)
                saver.put_writes(head, [("messages", [AIMessage(task, id=task)]), ("other", task)], task)

            with ThreadPoolExecutor(len(tasks)) as pool:
                list(pool.map(write, tasks))
        with database.open() as saver:
            pending = saver.get_tuple(THREAD).pending_writes
        assert [(task, channel) for task, channel, _ in pending] == [
            (task, channel) for task in tasks for channel in ("messages", "other")
        ]

    @pytest.mark.postgres
    async def test_one_thread_does_not_hold_up_the_others(self, postgres_url: str) -> None:
        """Fault 157: of 50 threads on one async saver, one waits for a lock; the others finish meanwhile."""
        import psycopg

        from refold.checkpoint import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(postgres_url) as saver:
            await saver.setup()

            async def talk(name: str) -> list[str]:
                message = HumanMessage("hello", id=f"ask-{name}")
                return _ids(await _talker(Plain, saver).ainvoke({"messages": [message]}, _thread(name)))

            await talk("held")
            async with await psycopg.AsyncConnection.connect(postgres_url) as other:
                await other.execute("SELECT * FROM refold_space WHERE thread = 'held' FOR UPDATE")
                held = asyncio.create_task(saver.adelete_thread("held"))
                talks = await asyncio.gather(*(talk(f"free-{n}") for n in range(49)))
                assert not held.done()
                await other.rollback()
            await held
            assert await saver.aget_tuple(_thread("held")) is None
        assert talks == [[f"ask-free-{n}", f"answer-ask-free-{n}"] for n in range(49)]


def _thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}
