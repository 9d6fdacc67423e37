"""Migration of real LangGraph databases: nothing is lost, it works while others write, and it says when it failed."""

import dataclasses
import enum
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, Send, interrupt

from refold.checkpoint import SqliteSaver
from refold.checkpoint.migrate import LangGraphSqliteSource, Ledger, Report, lossless, migrate
from refold.checkpoint.migrate.puts import calls_of
from refold.checkpoint.migrate.saved import Place, SavedWrite
from refold.checkpoint.reducer import reduce_messages
from refold.errors import ConfigurationError

Saver = BaseCheckpointSaver[Any]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: dict[str, object]
    count: Annotated[int, add]


class Log(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=3)]


class Answers(TypedDict):
    answers: Annotated[list[str], add]


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def _talker(schema: type, saver: Saver) -> Any:
    def answer(state: Any) -> dict[str, list[AIMessage]]:
        asked = state["messages"][-1].id
        return {"messages": [AIMessage(f"answer to {asked}", id=f"answer-{asked}")]}

    builder: StateGraph[Any] = StateGraph(schema)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def _say(graph: Any, thread: str, name: str) -> None:
    graph.invoke({"messages": [HumanMessage(name, id=name)]}, _config(thread))


def _plain_thread(saver: Saver) -> None:
    """Three turns, an update, a fork from the middle that goes on, values of many types."""
    graph = _talker(Plain, saver)
    notes = {
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "id": uuid.UUID(int=7),
        "raw": b"\x00\xff",
        "set": {"a"},
        3: (1, 2),
    }
    graph.invoke({"messages": [HumanMessage("one", id="one")], "notes": notes, "count": 1}, _config("plain"))
    for name in ("two", "three"):
        _say(graph, "plain", name)
    middle = list(graph.get_state_history(_config("plain")))[4].config
    fork = graph.update_state(middle, {"messages": [RemoveMessage(id="one")]}, as_node="answer")
    graph.invoke({"messages": [HumanMessage("fork", id="fork")]}, fork)


def _delta_thread(saver: Saver) -> None:
    """Five turns with snapshots, an overwrite, a fork."""
    graph = _talker(Log, saver)
    for turn in range(5):
        _say(graph, "delta", f"q{turn}")
    early = list(graph.get_state_history(_config("delta")))[9].config
    graph.update_state(_config("delta"), {"messages": Overwrite([HumanMessage("new", id="new")])}, as_node="answer")
    _say(graph, "delta", "after")
    graph.invoke({"messages": [HumanMessage("fork", id="fork")]}, early)


def _asker(saver: Saver) -> Any:
    def call(name: str) -> dict[str, list[str]]:
        return {"answers": [f"{name}={interrupt(name)}"]}

    builder: StateGraph[Any] = StateGraph(Answers)
    builder.add_node("call", call)
    builder.add_conditional_edges(START, lambda state: [Send("call", name) for name in ("a", "b", "c")], ["call"])
    builder.add_edge("call", END)
    return builder.compile(checkpointer=saver)


def _waiting_thread(saver: Saver) -> None:
    """Three parallel calls wait for a human; one was answered. Writes of special channels, pending sends."""
    graph = _asker(saver)
    graph.invoke({"answers": []}, _config("waiting"))
    waiting = {pause.value: pause.id for pause in graph.get_state(_config("waiting")).interrupts}
    graph.invoke(Command(resume={waiting["a"]: "1"}), _config("waiting"))


def _nested_thread(saver: Saver) -> None:
    """A subgraph that waits inside, and one that keeps its own state: namespaces of both kinds."""
    inner: StateGraph[Any] = StateGraph(Answers)
    inner.add_node("ask", lambda state: {"answers": [interrupt("inner")]})
    inner.add_edge(START, "ask")
    keeps: StateGraph[Any] = StateGraph(Answers)
    keeps.add_node("note", lambda state: {"answers": ["noted"]})
    keeps.add_edge(START, "note")
    outer: StateGraph[Any] = StateGraph(Answers)
    outer.add_node("keeps", keeps.compile(checkpointer=True))
    outer.add_node("asks", inner.compile())
    outer.add_edge(START, "keeps")
    outer.add_edge("keeps", "asks")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({"answers": []}, _config("nested"))
    graph.invoke(Command(resume="yes"), _config("nested"))
    graph.invoke({"answers": []}, _config("nested"))


def _failed_thread(saver: Saver) -> None:
    """A node that raised: a write of the error channel."""

    def fail(state: Any) -> object:
        raise ValueError("it broke")

    builder: StateGraph[Any] = StateGraph(Answers)
    builder.add_node("fails", fail)
    builder.add_node("works", lambda state: {"answers": ["done"]})
    for name in ("fails", "works"):
        builder.add_edge(START, name)
    with pytest.raises(ValueError, match="broke"):
        builder.compile(checkpointer=saver).invoke({"answers": []}, _config("failed"))


THREADS = (_plain_thread, _delta_thread, _waiting_thread, _nested_thread, _failed_thread)


@pytest.fixture
def source_path(tmp_path: Path) -> Path:
    """A database of LangGraph's SqliteSaver with every kind of thread."""
    path = tmp_path / "langgraph.db"
    with LangGraphSqliteSaver.from_conn_string(str(path)) as saver:
        for make in THREADS:
            make(saver)
    return path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Somewhere to migrate to, opened as often as a test likes."""

    open: Callable[..., AbstractContextManager[Saver]]
    """Takes a `serde`, none for the stock one."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "sqlite":
        return Target(open=lambda serde=None: SqliteSaver.from_conn_string(str(tmp_path / "refold.db"), serde=serde))
    from refold.checkpoint import PostgresSaver

    url = request.getfixturevalue("postgres_url")
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    return Target(open=lambda serde=None: PostgresSaver.from_conn_string(url, serde=serde))


def _migrate(source_path: Path, saver: Saver, ledger: Path, **options: Any) -> Report:
    with (
        LangGraphSqliteSource.open(source_path) as source,
        Ledger.open(ledger, source="source", target="target") as entries,
    ):
        return migrate(source, saver, ledger=entries, **options)


def _read_all(saver: Saver) -> dict[tuple[str, str, str], CheckpointTuple]:
    """Every checkpoint, each read on its own."""
    places = [found.config for found in saver.list(None)]
    return {tuple(place["configurable"].values()): saver.get_tuple(place) for place in places}  # type: ignore[misc]


@contextmanager
def _langgraph(path: Path) -> Iterator[LangGraphSqliteSaver]:
    with LangGraphSqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


class TestNothingIsLost:
    def test_every_checkpoint_reads_as_in_langgraph(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """All checkpoints of all threads and namespaces: value, versions, parent, metadata and writes are equal."""
        with target.open() as saver:
            report = _migrate(source_path, saver, tmp_path / "ledger")
        with target.open() as saver, _langgraph(source_path) as original:
            expected, found = _read_all(original), _read_all(saver)
            assert found == expected
        assert report.proved
        assert report.caught_up
        assert (report.found, report.copied) == (len(expected), len(expected))
        assert report.threads == len(THREADS)
        assert len({namespace for _, namespace, _ in expected}) >= 4

    def test_delta_histories(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """At every checkpoint the history of the delta channel is LangGraph's."""
        with target.open() as saver:
            report = _migrate(source_path, saver, tmp_path / "ledger")
        assert report.histories >= 1
        with target.open() as saver, _langgraph(source_path) as original:
            places = [found.config for found in original.list(_config("delta"))]
            for place in places:
                expected = original.get_delta_channel_history(config=place, channels=["messages"])
                assert saver.get_delta_channel_history(config=place, channels=["messages"]) == expected

    def test_threads_go_on(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """After the move each kind of thread continues as it would have: turns, a waiting human, a fork."""
        with target.open() as saver:
            _migrate(source_path, saver, tmp_path / "ledger")
        results = []
        for opened in (_langgraph(source_path), target.open()):
            with opened as saver:
                answers = _asker(saver)
                pauses = {pause.value: pause.id for pause in answers.get_state(_config("waiting")).interrupts}
                done = answers.invoke(Command(resume={pauses["b"]: "2", pauses["c"]: "3"}), _config("waiting"))
                states = [done["answers"]]
                for schema, thread in ((Plain, "plain"), (Log, "delta")):
                    graph = _talker(schema, saver)
                    _say(graph, thread, "more")
                    states.append([message.id for message in graph.get_state(_config(thread)).values["messages"]])
                results.append(states)
        assert results[0] == results[1]
        assert results[0][0] == ["a=1", "b=2", "c=3"]

    def test_places_of_writes(self) -> None:
        """Ordinary and special writes of a task get the positions that they had, gaps included."""

        def write(index: int, channel: str) -> SavedWrite:
            return SavedWrite(task_id="t", task_path="", index=index, channel=channel, value=channel)

        mixed = [write(0, "a"), write(2, "b"), write(-1, "__error__")]
        assert list(calls_of(mixed)) == [[("a", "a"), ("__error__", "__error__"), ("b", "b")]]
        apart = [write(1, "b"), write(0, "a"), write(-3, "__interrupt__"), write(-4, "__resume__")]
        assert list(calls_of(apart)) == [
            [("a", "a"), ("b", "b")],
            [("__interrupt__", "__interrupt__"), ("__resume__", "__resume__")],
        ]
        assert list(calls_of([write(3, "d"), write(1, "b")])) == [[("b", "b"), ("d", "d")]]

    def test_classes_that_are_not_here(self, target: Target, tmp_path: Path) -> None:
        """Values of an application's own classes survive a migration that cannot import them."""
        module = types.ModuleType("vanishing_application")
        source = """
            import dataclasses, enum
            class Color(enum.Enum):
                RED = 1
            @dataclasses.dataclass
            class Plan:
                steps: list
                color: Color
        """
        exec(textwrap.dedent(source), module.__dict__)
        path = tmp_path / "langgraph.db"
        sys.modules[module.__name__] = module
        try:

            class State(TypedDict):
                plan: Any
                nested: dict[str, Any]

            plan = module.Plan(["a"], module.Color.RED)
            builder: StateGraph[Any] = StateGraph(State)
            builder.add_node("work", lambda state: {"nested": {"plans": [plan], "message": AIMessage("m", id="m")}})
            builder.add_edge(START, "work")
            with _langgraph(path) as saver:
                graph = builder.compile(checkpointer=saver)
                graph.invoke({"plan": plan, "nested": {}}, _config("t"))
            del sys.modules[module.__name__]
            with target.open(lossless()) as saver:
                assert _migrate(path, saver, tmp_path / "ledger").proved
            sys.modules[module.__name__] = module
            with target.open() as saver:
                values = builder.compile(checkpointer=saver).get_state(_config("t")).values
            assert values == {"plan": plan, "nested": {"plans": [plan], "message": AIMessage("m", id="m")}}
        finally:
            sys.modules.pop(module.__name__, None)

    def test_databases_from_before_task_paths(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """A file of an older langgraph: no column for task paths, writes in the metadata."""
        with closing(sqlite3.connect(source_path)) as db, db:
            db.execute("ALTER TABLE writes DROP COLUMN task_path")
            db.execute("UPDATE checkpoints SET metadata = json_set(metadata, '$.writes', json('{\"a\": [1]}'))")
        before = source_path.read_bytes()
        with target.open() as saver:
            assert _migrate(source_path, saver, tmp_path / "ledger").proved
        assert source_path.read_bytes() == before, "the source was written to"
        with target.open() as saver, _langgraph(source_path) as original:
            assert _read_all(saver) == _read_all(original)


class TestItCanBeRepeated:
    def test_a_second_run_copies_nothing(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """With the ledger nothing is read twice; without it everything is copied again, to the same result."""
        with target.open() as saver:
            first = _migrate(source_path, saver, tmp_path / "ledger")
            second = _migrate(source_path, saver, tmp_path / "ledger")
            third = _migrate(source_path, saver, tmp_path / "another")
        assert (second.copied, second.unchanged) == (0, first.copied)
        assert third.copied == first.copied
        assert third.proved
        with target.open() as saver, _langgraph(source_path) as original:
            assert _read_all(saver) == _read_all(original)

    def test_only_what_changed(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """New checkpoints, new writes and replaced writes of old ones are copied by a later run; the rest is not."""
        with target.open() as saver:
            first = _migrate(source_path, saver, tmp_path / "ledger")
        with _langgraph(source_path) as original:
            graph = _asker(original)
            pauses = {pause.value: pause.id for pause in graph.get_state(_config("waiting")).interrupts}
            graph.invoke(Command(resume={pauses["b"]: "2"}), _config("waiting"))
            _say(_talker(Plain, original), "plain", "more")
        with target.open() as saver:
            second = _migrate(source_path, saver, tmp_path / "ledger")
        assert second.proved
        assert 0 < second.copied <= 6
        assert second.unchanged >= first.copied - 3
        with target.open() as saver, _langgraph(source_path) as original:
            assert _read_all(saver) == _read_all(original)

    def test_a_killed_run_is_resumed(self, source_path: Path, tmp_path: Path) -> None:
        """SIGKILL in the middle: the next run goes on where the ledger stands, and all is there."""
        script = f"""
            import os, signal
            from pathlib import Path
            from refold.checkpoint import SqliteSaver
            from refold.checkpoint.migrate import LangGraphSqliteSource, Ledger, migrate
            copied = 0
            def progress(place):
                global copied
                copied += 1
                if copied == 40:
                    os.kill(os.getpid(), signal.SIGKILL)
            with (
                SqliteSaver.from_conn_string({str(tmp_path / "refold.db")!r}) as saver,
                LangGraphSqliteSource.open(Path({str(source_path)!r})) as source,
                Ledger.open(Path({str(tmp_path / "ledger")!r}), source="source", target="target") as ledger,
            ):
                migrate(source, saver, ledger=ledger, progress=progress)
        """
        killed = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], env=os.environ, timeout=100, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        with SqliteSaver.from_conn_string(str(tmp_path / "refold.db")) as saver:
            report = _migrate(source_path, saver, tmp_path / "ledger")
            assert report.proved
            assert report.unchanged > 0
            with _langgraph(source_path) as original:
                assert _read_all(saver) == _read_all(original)

    def test_while_others_write(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """Turns that the application takes while the migration runs are copied too, by a further pass."""
        written: list[str] = []
        with target.open() as saver, _langgraph(source_path) as original:

            def progress(place: Place) -> None:
                if len(written) < 3:
                    written.append(f"live-{len(written)}")
                    _say(_talker(Plain, original), "plain", written[-1])

            report = _migrate(source_path, saver, tmp_path / "ledger", progress=progress)
            assert report.caught_up
            assert report.proved
            assert _read_all(saver) == _read_all(original)
        with target.open() as saver:
            state = _talker(Plain, saver).get_state(_config("plain")).values
        assert {"live-0", "live-1", "live-2"} <= {message.id for message in state["messages"]}

    def test_writers_that_never_stop(self, source_path: Path, target: Target, tmp_path: Path) -> None:
        """A bounded number of passes: the report says that a rest remains."""
        with target.open() as saver, _langgraph(source_path) as original:
            turns = iter(range(10_000))

            def progress(place: Place) -> None:
                if place.thread_id == "waiting":
                    _say(_talker(Plain, original), "writer", f"live-{next(turns)}")

            report = _migrate(source_path, saver, tmp_path / "ledger", progress=progress, passes=1)
        assert not report.caught_up
        assert report.proved


class TestItSaysWhenItFailed:
    def test_a_value_that_comes_back_different(self, source_path: Path, tmp_path: Path) -> None:
        """A saver that loses a message is found out, by checkpoint, and those are tried again."""

        class Forgetful(InMemorySaver):
            forgets = True

            def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
                values = dict(checkpoint["channel_values"])
                if self.forgets and len(values.get("messages", ())) > 2:
                    values["messages"] = values["messages"][:-1]
                return super().put(config, {**checkpoint, "channel_values": values}, metadata, new_versions)

        saver = Forgetful()
        report = _migrate(source_path, saver, tmp_path / "ledger")
        assert not report.proved
        assert {mismatch.place.thread_id for mismatch in report.mismatches} >= {"plain"}
        assert all("messages" in mismatch.difference for mismatch in report.mismatches)
        saver.forgets = False
        again = _migrate(source_path, saver, tmp_path / "ledger")
        assert again.copied == len(report.mismatches)

    def test_writes_that_come_back_different(self, source_path: Path, tmp_path: Path) -> None:
        """So is one that loses writes."""

        class Forgetful(InMemorySaver):
            def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
                super().put_writes(config, writes[:-1], task_id, task_path)

        report = _migrate(source_path, Forgetful(), tmp_path / "ledger")
        assert {mismatch.place.thread_id for mismatch in report.mismatches} >= {"plain", "delta", "waiting"}

    def test_what_is_no_source(self, tmp_path: Path) -> None:
        """No file, no database, a database of something else, and one not in WAL mode are refused with the reason."""
        with pytest.raises(ConfigurationError, match="no file"), LangGraphSqliteSource.open(tmp_path / "none.db"):
            pass
        (tmp_path / "text.db").write_text("hello " * 1000)
        with (
            pytest.raises(ConfigurationError, match="no SQLite database"),
            LangGraphSqliteSource.open(tmp_path / "text.db"),
        ):
            pass
        with closing(sqlite3.connect(tmp_path / "other.db")) as db:
            db.execute("CREATE TABLE checkpoints (name TEXT)")
            db.commit()
        with pytest.raises(ConfigurationError, match="holds no"), LangGraphSqliteSource.open(tmp_path / "other.db"):
            pass

    def test_a_source_that_is_not_in_wal_mode(self, source_path: Path) -> None:
        """A copy in another journal mode is refused with the command that mends it."""
        with closing(sqlite3.connect(source_path)) as db:
            db.execute("PRAGMA journal_mode=DELETE").fetchall()
        with pytest.raises(ConfigurationError, match="journal_mode=WAL"), LangGraphSqliteSource.open(source_path):
            pass

    def test_a_ledger_of_another_migration(self, tmp_path: Path) -> None:
        """A ledger belongs to one source and one target."""
        with Ledger.open(tmp_path / "ledger", source="a", target="b"):
            pass
        another = Ledger.open(tmp_path / "ledger", source="a", target="c")
        with pytest.raises(ConfigurationError, match="from a to b"), another:
            pass


class Shade(enum.Enum):
    """Of this module, which no application can import by that name elsewhere."""

    DARK = "dark"


class TestTheSerializer:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"raw",
            [HumanMessage("x", id="1"), {"deep": (AIMessage("y"), Shade.DARK)}],
            Send("node", {"messages": [HumanMessage("z")], "shade": Shade.DARK}),
            {"at": datetime(2026, 1, 1, tzinfo=UTC), "ids": {uuid.UUID(int=1)}, 5: Shade.DARK},
            Overwrite([HumanMessage("k", id="k")]),
        ],
        ids=repr,
    )
    def test_what_is_read_is_written_again(self, value: object) -> None:
        """Read and written again, every value has the bytes that LangGraph's own serializer gave it."""
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        stored = JsonPlusSerializer().dumps_typed(value)
        serde = lossless()
        assert serde.dumps_typed(serde.loads_typed(stored)) == stored


class TestTheDocument:
    def test_its_example_runs(self, source_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The Python of docs/migrate.md, as written, on a file of LangGraph's."""
        page = Path(__file__).resolve().parents[2] / "docs" / "migrate.md"
        [code] = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        source_path.rename(tmp_path / "checkpoints.sqlite")
        monkeypatch.chdir(tmp_path)
        variables: dict[str, Any] = {}
        exec(code, variables)
        assert variables["report"].proved
        assert variables["report"].copied > 50
