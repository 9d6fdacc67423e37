"""The way back: refold's databases into LangGraph's own savers, which then go on."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from refold.checkpoint import SqliteSaver
from refold.checkpoint.migrate import LangGraphSqliteSource, Ledger, Report, lossless, migrate
from refold.checkpoint.migrate.databases import look_into, open_source, open_target, public_name
from refold.checkpoint.reducer import reduce_messages
from refold.errors import ConfigurationError, DatabaseUnavailableError

Saver = BaseCheckpointSaver[Any]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=3)]


class Answers(TypedDict):
    answers: Annotated[list[str], lambda left, right: [*left, *right]]


SCHEMAS = (Plain, Log)


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


def _asker(saver: Saver) -> Any:
    builder: StateGraph[Any] = StateGraph(Answers)
    builder.add_node("call", lambda name: {"answers": [f"{name}={interrupt(name)}"]})
    builder.add_conditional_edges(START, lambda state: [Send("call", name) for name in ("a", "b")], ["call"])
    builder.add_edge("call", END)
    return builder.compile(checkpointer=saver)


def _say(graph: Any, config: Any, name: str) -> list[str]:
    return [message.id for message in graph.invoke({"messages": [HumanMessage(name, id=name)]}, config)["messages"]]


def _fill(saver: Saver) -> None:
    """Both channels, three turns, two forks of one checkpoint that both make "the next" version; a waiting human."""
    for schema in SCHEMAS:
        config = _config(schema.__name__)
        graph = _talker(schema, saver)
        for name in ("one", "two", "three"):
            _say(graph, config, name)
        point = [state for state in graph.get_state_history(config) if not state.next][1].config
        for name in ("left", "right"):
            _say(graph, point, name)
    _asker(saver).invoke({"answers": []}, _config("waiting"))
    waiting = {pause.value: pause.id for pause in _asker(saver).get_state(_config("waiting")).interrupts}
    _asker(saver).invoke(Command(resume={waiting["a"]: "1"}), _config("waiting"))


def _states(saver: Saver) -> dict[str, list[tuple[str, object]]]:
    """Every state of every thread, as a graph reads it."""
    return {
        schema.__name__: [
            (state.config["configurable"]["checkpoint_id"], state.values)
            for state in _talker(schema, saver).get_state_history(_config(schema.__name__))
        ]
        for schema in SCHEMAS
    }


@pytest.fixture
def ours(tmp_path: Path) -> str:
    """A database of ours with everything in it."""
    path = str(tmp_path / "refold.db")
    with SqliteSaver.from_conn_string(path) as saver:
        _fill(saver)
    return path


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """A new database, named by a URL as the command line takes it."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(postgres_url)
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where LangGraph's saver shall have it."""
    return str(tmp_path / "langgraph.db") if request.param == "sqlite" else request.getfixturevalue("database_url")


@contextmanager
def _langgraph(url: str) -> Iterator[Saver]:
    if url.startswith("postgres"):
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(url) as postgres:
            yield postgres
    else:
        with LangGraphSqliteSaver.from_conn_string(url) as sqlite:
            yield sqlite


def _back(source_url: str, target_url: str, ledger: Path) -> Report:
    with ExitStack() as stack:
        source = stack.enter_context(open_source(look_into(source_url), "refold"))
        target = stack.enter_context(open_target(look_into(target_url), "langgraph"))
        entries = stack.enter_context(Ledger.open(ledger, source="refold", target="langgraph"))
        return migrate(source, target, ledger=entries, to_langgraph=True)


class TestTheWayBack:
    def test_every_state_is_there(self, ours: str, theirs: str, tmp_path: Path) -> None:
        """All states of plain and delta threads, forks included, read in LangGraph's saver as in ours."""
        report = _back(ours, theirs, tmp_path / "ledger")
        assert report.mismatches == []
        assert report.caught_up
        with SqliteSaver.from_conn_string(ours) as saver, _langgraph(theirs) as original:
            assert _states(original) == _states(saver)

    def test_threads_go_on(self, ours: str, theirs: str, tmp_path: Path) -> None:
        """A head, a fork from the past and a waiting human go on under LangGraph's saver."""
        _back(ours, theirs, tmp_path / "ledger")
        with _langgraph(theirs) as saver:
            for schema in SCHEMAS:
                graph = _talker(schema, saver)
                config = _config(schema.__name__)
                first = [state for state in graph.get_state_history(config) if not state.next][-1]
                assert _say(graph, config, "more")[-3:] == ["answer-right", "more", "answer-more"]
                assert _say(graph, first.config, "other") == ["one", "answer-one", "other", "answer-other"]
            graph = _asker(saver)
            [pause] = graph.get_state(_config("waiting")).interrupts
            assert graph.invoke(Command(resume={pause.id: "2"}), _config("waiting"))["answers"] == ["a=1", "b=2"]

    def test_only_what_changed(self, ours: str, theirs: str, tmp_path: Path) -> None:
        """A later run copies new checkpoints and new writes, and nothing else."""
        first = _back(ours, theirs, tmp_path / "ledger")
        with SqliteSaver.from_conn_string(ours) as saver:
            _say(_talker(Plain, saver), _config("Plain"), "more")
        second = _back(ours, theirs, tmp_path / "ledger")
        assert second.mismatches == []
        assert second.unchanged >= first.copied - 1
        assert 3 <= second.copied <= 4
        with SqliteSaver.from_conn_string(ours) as saver, _langgraph(theirs) as original:
            assert _states(original) == _states(saver)

    def test_there_and_back(self, ours: str, theirs: str, tmp_path: Path) -> None:
        """Back and forth once more: the states are the same, and versions stay texts."""
        _back(ours, theirs, tmp_path / "ledger")
        again = str(tmp_path / "again.db")
        with ExitStack() as stack:
            source = stack.enter_context(open_source(look_into(theirs), "langgraph"))
            target = stack.enter_context(open_target(look_into(again), "refold"))
            entries = stack.enter_context(Ledger.open(tmp_path / "second", source="langgraph", target="refold"))
            assert migrate(source, target, ledger=entries).mismatches == []
        with SqliteSaver.from_conn_string(ours) as saver, SqliteSaver.from_conn_string(again) as other:
            assert _states(other) == _states(saver)
            head = other.get_tuple(_config("Plain"))
            assert head is not None
            assert {type(version) for version in head.checkpoint["channel_versions"].values()} == {str}

    @pytest.mark.parametrize("schema", SCHEMAS)
    def test_pruned_threads(self, schema: type, ours: str, theirs: str, tmp_path: Path) -> None:
        """A pruned thread, whose delta channel needs unlisted ancestors, has its state on the other side too."""
        with SqliteSaver.from_conn_string(ours) as saver:
            live = _talker(schema, saver).get_state(_config(schema.__name__)).values
            saver.prune([schema.__name__], strategy="keep_latest")
        assert _back(ours, theirs, tmp_path / "ledger").mismatches == []
        with _langgraph(theirs) as original:
            assert _talker(schema, original).get_state(_config(schema.__name__)).values == live


@pytest.mark.postgres
class TestFromPostgres:
    def test_langgraph_postgres_into_ours(self, database_url: str, tmp_path: Path) -> None:
        """LangGraph's Postgres tables are read as LangGraph reads them, into a file of ours."""
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(database_url) as saver:
            saver.setup()
            _fill(saver)
        target_url = str(tmp_path / "refold.db")
        with ExitStack() as stack:
            source = stack.enter_context(open_source(look_into(database_url), "langgraph"))
            target = stack.enter_context(open_target(look_into(target_url), "refold"))
            entries = stack.enter_context(Ledger.open(tmp_path / "ledger", source="a", target="b"))
            report = migrate(source, target, ledger=entries)
            again = migrate(source, target, ledger=entries)
            assert source.size() > 0
        assert report.mismatches == []
        assert (again.copied, again.unchanged) == (0, report.copied)
        with _langgraph(database_url) as saver, SqliteSaver.from_conn_string(target_url) as ours:
            places = [found.config for found in saver.list(None)]
            assert [ours.get_tuple(place) for place in places] == [saver.get_tuple(place) for place in places]
            assert _states(ours) == _states(saver)

    def test_databases_that_are_refused(self, database_url: str) -> None:
        """No tables, the shallow saver's tables, an older schema, no server: each with its reason."""
        import psycopg

        with pytest.raises(ConfigurationError, match="holds no"), open_source(look_into(database_url), "langgraph"):
            pass
        with psycopg.connect(database_url, autocommit=True) as db:
            db.execute("CREATE TABLE checkpoints (thread_id TEXT, checkpoint JSONB)")
        with pytest.raises(ConfigurationError, match="Shallow"), open_source(look_into(database_url), "langgraph"):
            pass
        with psycopg.connect(database_url, autocommit=True) as db:
            db.execute("ALTER TABLE checkpoints ADD COLUMN checkpoint_id TEXT")
            db.execute("CREATE TABLE checkpoint_writes (thread_id TEXT)")
        with pytest.raises(ConfigurationError, match="setup"), open_source(look_into(database_url), "langgraph"):
            pass
        with pytest.raises(DatabaseUnavailableError, match="reached"):
            look_into("postgresql://nobody:secret@127.0.0.1:1/none")


class TestNames:
    def test_passwords_are_not_shown(self) -> None:
        """The name of a database in messages and ledgers is its URL without the password."""
        assert public_name("postgresql://user:se@cret@host:5432/db?x=1") == "postgresql://user@host:5432/db?x=1"
        assert public_name("postgresql://u@host/db?password=se%20cret&x=1") == "postgresql://u@host/db?x=1"
        assert public_name("postgresql:///db?x=1&password=secret&sslpassword=other") == "postgresql:///db?x=1"
        assert public_name("postgresql://host/db") == "postgresql://host/db"
        assert public_name("/tmp/a.db") == "/tmp/a.db"

    def test_what_is_in_a_database(self, ours: str, tmp_path: Path) -> None:
        """Kinds are known by their tables; a missing file is a new database; other files are refused."""
        assert look_into(ours).kinds == {"refold"}
        assert look_into(str(tmp_path / "new.db")).kinds == set()
        with LangGraphSqliteSaver.from_conn_string(str(tmp_path / "lg.db")) as saver:
            saver.setup()
        assert look_into(str(tmp_path / "lg.db")).kinds == {"langgraph"}
        (tmp_path / "text.txt").write_text("text " * 100)
        with pytest.raises(ConfigurationError, match="no SQLite database"):
            look_into(str(tmp_path / "text.txt"))
        for url in (str(tmp_path), "mysql://host/db"):
            with pytest.raises(ConfigurationError, match="neither"):
                look_into(url)


class TestEncryption:
    def test_encrypted_on_both_sides(self, tmp_path: Path) -> None:
        """Values encrypted by LangGraph's serializer are read, and written encrypted; no text is in the clear."""
        from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
        source_path, target_path = tmp_path / "langgraph.db", tmp_path / "refold.db"
        with LangGraphSqliteSaver.from_conn_string(str(source_path)) as saver:
            saver.serde = serde
            _say(_talker(Plain, saver), _config("t"), "a-very-secret-word")
        with (
            LangGraphSqliteSource.open(source_path, serde) as source,
            SqliteSaver.from_conn_string(str(target_path), serde=lossless(serde)) as target,
            Ledger.open(tmp_path / "ledger", source="a", target="b") as ledger,
        ):
            assert migrate(source, target, ledger=ledger).mismatches == []
        with SqliteSaver.from_conn_string(str(target_path), serde=serde) as saver:
            state = _talker(Plain, saver).get_state(_config("t")).values
        assert state["messages"][0].id == "a-very-secret-word"
        for path in tmp_path.glob("refold.db*"):
            assert b"a-very-secret-word" not in path.read_bytes()
