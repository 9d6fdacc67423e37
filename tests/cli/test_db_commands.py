"""The commands on checkpoint databases: what they change, what they print, how they fail."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from refold.checkpoint import SqliteSaver
from refold.checkpoint.reducer import reduce_messages
from refold.cli.database import moment
from refold.cli.main import run
from refold.errors import ConfigurationError

Run = Callable[..., tuple[int, list[dict[str, Any]]]]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=1000)]


def _talker(schema: type, saver: BaseCheckpointSaver[Any]) -> Any:
    builder: StateGraph[Any] = StateGraph(schema)
    builder.add_node("answer", lambda state: {"messages": [AIMessage("yes", id=f"a{len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def _fill(saver: BaseCheckpointSaver[Any]) -> None:
    for thread, schema in (("plain", Plain), ("delta", Log)):
        for turn in range(3):
            message = HumanMessage(f"question {turn}", id=f"q{turn}")
            _talker(schema, saver).invoke({"messages": [message]}, {"configurable": {"thread_id": thread}})


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    path = tmp_path / "refold.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        _fill(saver)
    return path


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "langgraph.db"
    with LangGraphSqliteSaver.from_conn_string(str(path)) as saver:
        _fill(saver)
    return path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command with --json; its exit code and what it printed."""

    def call(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = run([*map(str, arguments), "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


class TestThreads:
    @pytest.mark.parametrize("which", ["ours", "theirs"])
    def test_both_kinds_of_databases(self, which: str, request: pytest.FixtureRequest, command: Run) -> None:
        """Threads with their checkpoints, of refold's savers and of LangGraph's."""
        code, rows = command("threads", request.getfixturevalue(which))
        assert code == 0
        assert [(row["thread"], row["checkpoints"], row["namespaces"]) for row in rows] == [
            ("delta", 9, 1),
            ("plain", 9, 1),
        ]
        assert all(row["newest"] > "2020" for row in rows)

    @pytest.mark.parametrize("which", ["ours", "theirs"])
    @pytest.mark.parametrize("thread", ["plain", "delta"])
    def test_messages(self, which: str, thread: str, request: pytest.FixtureRequest, command: Run) -> None:
        """The messages of a thread, of a delta channel too: what a runtime without that channel cannot show (169)."""
        code, rows = command("threads", request.getfixturevalue(which), "--messages", thread)
        assert code == 0
        assert [row["id"] for row in rows] == ["q0", "a1", "q1", "a3", "q2", "a5"]
        assert rows[0] | {"type": "human", "content": "question 0"} == rows[0]

    def test_table(self, ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """For people, a table and a count."""
        assert run(["threads", str(ours)]) == 0
        out = capsys.readouterr().out
        assert "plain" in out
        assert "2 threads" in out

    def test_unknown_names(self, ours: Path) -> None:
        """A thread or a channel that is not there is a usage error."""
        assert run(["threads", str(ours), "--messages", "nobody"]) == 2
        assert run(["threads", str(ours), "--messages", "plain", "--channel", "files"]) == 2


class TestStatsAndVerify:
    def test_stats(self, ours: Path, command: Run) -> None:
        """Counts of what is stored."""
        code, [row] = command("stats", ours)
        assert code == 0
        assert (row["threads"], row["checkpoints"]) == (2, 18)
        assert row["database_bytes"] > 0

    def test_a_sound_database(self, ours: Path, command: Run) -> None:
        """Nothing to say: exit code 0."""
        code, [row] = command("verify", ours)
        assert (code, row["problems"]) == (0, [])
        assert row["checkpoints"] == 18

    def test_a_damaged_database(self, ours: Path, command: Run) -> None:
        """One changed byte in a value: exit code 5, and the problem is named."""
        with closing(sqlite3.connect(ours)) as db, db:
            blob, data = db.execute("SELECT id, data FROM refold_blob ORDER BY id DESC LIMIT 1").fetchone()
            db.execute("UPDATE refold_blob SET data = ? WHERE id = ?", (data[:-1] + bytes([data[-1] ^ 1]), blob))
        code, [row] = command("verify", ours)
        assert code == 5
        assert row["problems"]

    def test_not_a_database_of_ours(self, theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """LangGraph's files, missing files and other files are refused, and none is made."""
        assert run(["stats", str(theirs)]) == 2
        assert "refold migrate" in capsys.readouterr().err
        assert run(["stats", str(tmp_path / "none.db")]) == 2
        assert not (tmp_path / "none.db").exists()
        (tmp_path / "text").write_text("text" * 100)
        assert run(["verify", str(tmp_path / "text")]) == 2


class TestPrune:
    def test_keep(self, ours: Path, command: Run) -> None:
        """The newest two of each namespace stay, and the threads read as before."""
        code, [row] = command("prune", ours, "--keep", 2)
        assert (code, row["checkpoints"], row["removed_checkpoints"]) == (0, 4, 14)
        for thread in ("plain", "delta"):
            assert len(command("threads", ours, "--messages", thread)[1]) == 6

    def test_one_thread(self, ours: Path, command: Run) -> None:
        """Only the thread that is named."""
        code, [row] = command("prune", ours, "--keep", 1, "--thread", "plain")
        assert (code, row["checkpoints"]) == (0, 10)

    def test_a_thread_that_is_not_there(self, ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A usage error that names it, and nothing is removed from the others that were named."""
        assert run(["prune", str(ours), "--keep", "1", "--thread", "plain", "--thread", "plane"]) == 2
        assert "plane" in capsys.readouterr().err
        with SqliteSaver.from_conn_string(str(ours)) as saver:
            assert saver.stats().checkpoints == 18

    def test_by_age(self, ours: Path, command: Run) -> None:
        """Nothing is older than a day; everything but the newest is older than nothing."""
        assert command("prune", ours, "--older-than", "1d")[1][0]["removed_checkpoints"] == 0
        assert command("prune", ours, "--older-than", "0s")[1][0]["checkpoints"] == 2

    def test_idle_threads(self, ours: Path, command: Run) -> None:
        """Whole threads, when they were idle long enough."""
        assert command("prune", ours, "--idle", "1h")[1][0]["threads"] == 2
        code, [row] = command("prune", ours, "--idle", "0s", "--batch", 1)
        assert (code, row["threads"], row["checkpoints"]) == (0, 0, 0)

    def test_one_rule(self, ours: Path) -> None:
        """No rule, two rules, or an age that is none: usage errors, and nothing is removed."""
        assert run(["prune", str(ours)]) == 2
        assert run(["prune", str(ours), "--keep", "1", "--idle", "1d"]) == 2
        assert run(["prune", str(ours), "--older-than", "yesterday"]) == 2
        with SqliteSaver.from_conn_string(str(ours)) as saver:
            assert saver.stats().checkpoints == 18

    def test_ages(self) -> None:
        """Numbers with units."""
        now = datetime(2026, 1, 31, tzinfo=UTC)
        assert moment("30d", now=now) == datetime(2026, 1, 1, tzinfo=UTC)
        assert moment("1.5h", now=now) == now - timedelta(minutes=90)
        with pytest.raises(ConfigurationError, match="30d"):
            moment("30")
        for far in ("900000d", "99999999999d", "9" * 400 + "s"):
            with pytest.raises(ConfigurationError, match="longer ago"):
                moment(far)


class TestGc:
    def test_what_a_deletion_leaves(self, ours: Path, command: Run) -> None:
        """Values of a deleted thread are freed; those of the others stay."""
        with SqliteSaver.from_conn_string(str(ours)) as saver:
            saver.delete_thread("plain")
        code, [row] = command("gc", ours, "--compact")
        assert code == 0
        assert row["now_bytes"] <= row["bytes"]
        assert command("verify", ours)[0] == 0
        assert len(command("threads", ours, "--messages", "delta")[1]) == 6


class TestMigrate:
    def test_there_and_back(self, theirs: Path, tmp_path: Path, command: Run) -> None:
        """LangGraph's file into ours and ours into LangGraph's; every message is there, and the report says so."""
        middle, last = tmp_path / "middle.db", tmp_path / "last.db"
        code, [row] = command("migrate", theirs, middle)
        assert (code, row["checkpoints"], row["copied"], row["caught_up"]) == (0, 18, 18, "yes")
        assert row["source_bytes"] > 0
        assert row["target_bytes"] > 0
        assert command("verify", middle)[0] == 0
        assert command("migrate", middle, last)[0] == 0
        for path in (middle, last):
            for thread in ("plain", "delta"):
                assert len(command("threads", path, "--messages", thread)[1]) == 6

    def test_again(self, theirs: Path, tmp_path: Path, command: Run) -> None:
        """A second run finds everything done; a ledger may be put elsewhere."""
        ledger = tmp_path / "elsewhere"
        command("migrate", theirs, tmp_path / "new.db", "--ledger", ledger)
        code, [row] = command("migrate", theirs, tmp_path / "new.db", "--ledger", ledger)
        assert (code, row["copied"], row["done_before"]) == (0, 0, 18)
        assert ledger.exists()

    def test_a_target_that_was_removed(self, theirs: Path, tmp_path: Path, command: Run) -> None:
        """Its ledger says that all is done; a new target gets everything all the same, a pruned one nothing."""
        target = tmp_path / "new.db"
        command("migrate", theirs, target)
        command("prune", target, "--keep", "1")
        assert command("migrate", theirs, target)[1][0]["copied"] == 0
        for path in tmp_path.glob("new.db*"):
            if not path.name.endswith(".migration"):
                path.unlink()
        code, [row] = command("migrate", theirs, target)
        assert (code, row["copied"], row["done_before"]) == (0, 18, 0)
        assert len(command("threads", target, "--messages", "plain")[1]) == 6

    def test_what_cannot_be(self, theirs: Path, tmp_path: Path) -> None:
        """No source, the same file twice, a source that does not hold what was asked for: usage errors."""
        assert run(["migrate", str(tmp_path / "none.db"), str(tmp_path / "new.db")]) == 2
        assert run(["migrate", str(theirs), str(theirs)]) == 2
        assert run(["migrate", str(theirs), str(tmp_path / "new.db"), "--from", "refold"]) == 2
        assert not (tmp_path / "new.db").exists()

    def test_the_source_is_only_read(self, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """However its file is named: as the target, through a link, or as the ledger."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "link.db").symlink_to(ours)
        for target in (f"./{ours.name}", ours.name, f"../{tmp_path.name}/{ours.name}", "link.db"):
            assert run(["migrate", str(ours), target]) == 2
        for ledger in (ours.name, "link.db", "new.db", ".", "none/ledger"):
            assert run(["migrate", str(ours), "new.db", "--ledger", ledger]) == 2
        with closing(sqlite3.connect(ours)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert not tables & {"checkpoints", "writes", "about", "done"}

    def test_without_the_package_of_the_other_side(
        self, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The way back needs LangGraph's own saver, and says which package has it."""
        monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)
        assert run(["migrate", str(ours), str(tmp_path / "back.db")]) == 2
        assert "pip install langgraph-checkpoint-sqlite" in " ".join(capsys.readouterr().err.split())

    def test_with_the_key_of_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run
    ) -> None:
        """With LangGraph's key in the environment, encrypted values are read and written; a bad key says so."""
        from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

        monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
        source = tmp_path / "encrypted.db"
        with LangGraphSqliteSaver.from_conn_string(str(source)) as saver:
            saver.serde = EncryptedSerializer.from_pycryptodome_aes()
            _fill(saver)
        assert command("migrate", source, tmp_path / "new.db")[0] == 0
        assert len(command("threads", tmp_path / "new.db", "--messages", "delta")[1]) == 6
        assert b"question 1" not in (tmp_path / "new.db").read_bytes()
        monkeypatch.setenv("LANGGRAPH_AES_KEY", "short")
        assert command("threads", tmp_path / "new.db")[0] == 2
