"""What cannot be migrated: one checkpoint does not stop the others, and a database or a key is one typed error."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from refold.checkpoint import SqliteSaver
from refold.checkpoint.migrate import LangGraphSqliteSource, Ledger, lossless, migrate
from refold.cli.main import run

Saver = BaseCheckpointSaver[Any]
Run = Callable[..., tuple[int, list[dict[str, Any]], str]]
KEY, WRONG, OTHER = "0123456789abcdef", "f" * 16, "another key of 32 bytes, exactly"


def put(saver: Saver, thread: str, value: object, metadata: Any = None) -> None:
    """A checkpoint that holds a value."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"v": value}, {"v": 1}
    saver.put({"configurable": {"thread_id": thread, "checkpoint_ns": ""}}, checkpoint, metadata or {}, {"v": 1})


def value_of(saver: Saver, thread: str) -> object:
    """What `put` put there."""
    found = saver.get_tuple({"configurable": {"thread_id": thread}})
    return None if found is None else found.checkpoint["channel_values"].get("v")


def encrypting(key: str) -> SerializerProtocol:
    """LangGraph's serializer with a key."""
    return EncryptedSerializer.from_pycryptodome_aes(key=key.encode())


@contextmanager
def theirs(path: Path, serde: SerializerProtocol | None = None) -> Iterator[LangGraphSqliteSaver]:
    """LangGraph's saver."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield LangGraphSqliteSaver(connection, serde=serde)


@contextmanager
def ours(path: Path, serde: SerializerProtocol | None = None) -> Iterator[SqliteSaver]:
    """refold's saver."""
    with SqliteSaver.from_conn_string(str(path), serde=serde) as saver:
        yield saver


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command: its exit code, its lines of JSON, and what stands on standard error, in one line."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, key: str | None = None, target_key: str | None = None) -> Any:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in (("LANGGRAPH_AES_KEY", key), ("REFOLD_TARGET_AES_KEY", target_key)):
                patch.delenv(name, raising=False)
                if value is not None:
                    patch.setenv(name, value)
            code = run([*map(str, arguments), "--json"])
        printed = capsys.readouterr()
        return code, [json.loads(line) for line in printed.out.splitlines()], " ".join(printed.err.split())

    return call


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """A new database, named by a URL as the command line takes it."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(postgres_url)
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


class TestKeys:
    @pytest.fixture
    def encrypted(self, tmp_path: Path) -> Path:
        path = tmp_path / "encrypted.db"
        with theirs(path, encrypting(KEY)) as saver:
            put(saver, "t", ["secret"])
        return path

    @pytest.mark.parametrize("key", [None, WRONG])
    def test_a_missing_or_wrong_key(self, key: str | None, encrypted: Path, command: Run, tmp_path: Path) -> None:
        """One typed error that says what to set, before a target is made: the right key then works (14)."""
        target = tmp_path / "target.db"
        for arguments in (("migrate", encrypted, target), ("threads", encrypted), ("report", encrypted, "t")):
            code, rows, error = command(*arguments, key=key)
            assert (code, rows) == (2, [])
            assert "LANGGRAPH_AES_KEY" in error
        assert not target.exists()
        assert command("migrate", encrypted, target, key=KEY)[0] == 0
        with ours(target, encrypting(KEY)) as saver:
            assert value_of(saver, "t") == ["secret"]

    @pytest.mark.parametrize("key", [None, WRONG])
    def test_a_collection_that_cannot_read(
        self, key: str | None, encrypted: Path, command: Run, tmp_path: Path
    ) -> None:
        """It does not know what checkpoints point at, so it removes nothing and says why."""
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "kept").write_text("kept")
        code, rows, error = command(
            "collect", encrypted, "--files", "files", "--most-files", 0, "--grace", "0s", key=key
        )
        assert (code, rows) == (5, [])
        assert "can be read" in error
        assert (tmp_path / "files" / "kept").exists()

    def test_one_value_that_does_not_open(self, encrypted: Path, command: Run, tmp_path: Path) -> None:
        """Under the right key, a damaged value is one checkpoint's affair; so is one under another key."""
        with theirs(encrypted, encrypting(WRONG)) as saver:
            put(saver, "other", 1)
        code, [row], _ = command("migrate", encrypted, tmp_path / "target.db", key=KEY)
        assert (code, row["copied"], [found["thread"] for found in row["differing"]]) == (5, 1, ["other"])

    def test_a_key_that_is_no_key(self, encrypted: Path, command: Run, tmp_path: Path) -> None:
        """A length that AES does not have is said, of either variable."""
        for keys in ({"key": "short"}, {"key": KEY, "target_key": "short"}):
            code, _, error = command("migrate", encrypted, tmp_path / "target.db", **keys)
            assert code == 2
            assert "16, 24 or 32 bytes" in error
        assert not (tmp_path / "target.db").exists()

    def test_another_key_for_the_target(self, encrypted: Path, command: Run, tmp_path: Path) -> None:
        """A key is changed by a move: the source's key and the target's."""
        middle, last = tmp_path / "middle.db", tmp_path / "last.db"
        assert command("migrate", encrypted, middle, key=KEY)[0] == 0
        assert command("migrate", middle, last, "--to", "refold", key=KEY, target_key=OTHER)[0] == 0
        with ours(last, encrypting(OTHER)) as saver:
            assert value_of(saver, "t") == ["secret"]
        assert command("stats", last, key=KEY)[0] == 2
        assert command("verify", last, key=OTHER)[0] == 0

    def test_a_database_without_a_key_stays_without(self, command: Run, tmp_path: Path) -> None:
        """A key in the environment of a command does not lock an application without one out of its database."""
        path = tmp_path / "plain.db"
        with ours(path) as saver:
            put(saver, "t", [1])
        for arguments in (
            ("stats", path),
            ("verify", path),
            ("threads", path),
            ("gc", path),
            ("migrate", path, "to.db"),
        ):
            assert command(*arguments, key=WRONG)[0] == 0
        with ours(path) as saver:
            assert value_of(saver, "t") == [1]


class Local:
    """Of this module, which msgpack has no form for."""

    def __init__(self) -> None:
        self.x = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Local) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class TestOneCheckpointOfMany:
    def test_a_pickled_value(self, command: Run, tmp_path: Path) -> None:
        """From the command line it is named with what to do; the rest is copied. From Python it is copied."""
        source, pickling = tmp_path / "source.db", JsonPlusSerializer(pickle_fallback=True)
        with theirs(source, pickling) as saver:
            put(saver, "a", [1])
            put(saver, "b", Local())
            put(saver, "c", [3])
        code, [row], error = command("migrate", source, tmp_path / "target.db")
        assert (code, row["copied"]) == (5, 2)
        [found] = row["differing"]
        assert found["thread"] == "b"
        assert "pickle_fallback=True" in found["difference"]
        assert "pickle_fallback=True" in error
        assert [line["thread"] for line in command("threads", source)[1]] == ["a", "b", "c"]
        assert command("threads", source)[0] == command("threads", source, "--messages", "b")[0] == 5
        with (
            LangGraphSqliteSource.open(source, pickling) as reading,
            ours(tmp_path / "python.db", lossless(pickling)) as target,
            Ledger.open(tmp_path / "ledger", source="a", target="b") as ledger,
        ):
            assert migrate(reading, target, ledger=ledger).proved
            assert value_of(target, "b") == Local()

    @pytest.mark.parametrize("damage", [b"\x81", b"\xc1", b"", b"\x93\x01\x02\x03", b"\xff" * 9])
    def test_a_damaged_row(self, damage: bytes, command: Run, tmp_path: Path) -> None:
        """It is named by thread, namespace and id; the checkpoints before and after it are copied, and a mended row is
        copied by the next run."""
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with theirs(source) as saver:
            for thread in ("a", "b", "c"):
                put(saver, thread, [thread])
        with closing(sqlite3.connect(source)) as db, db:
            [whole] = db.execute("SELECT checkpoint FROM checkpoints WHERE thread_id = 'b'").fetchone()
            db.execute("UPDATE checkpoints SET checkpoint = ? WHERE thread_id = 'b'", (damage,))
        code, [row], error = command("migrate", source, target)
        assert (code, row["copied"]) == (5, 2)
        [found] = row["differing"]
        assert (found["thread"], found["namespace"]) == ("b", "")
        assert found["checkpoint"]
        assert "cannot be read" in found["difference"]
        assert "Traceback" not in error
        with closing(sqlite3.connect(source)) as db, db:
            db.execute("UPDATE checkpoints SET checkpoint = ? WHERE thread_id = 'b'", (whole,))
        code, [row], _ = command("migrate", source, target)
        assert (code, row["copied"], row["done_before"]) == (0, 1, 2)

    def test_damaged_metadata_and_writes(self, command: Run, tmp_path: Path) -> None:
        """Whatever part of a checkpoint it is."""
        source = tmp_path / "source.db"
        with theirs(source) as saver:
            for thread in ("a", "b", "c"):
                put(saver, thread, [thread])
            found = saver.get_tuple({"configurable": {"thread_id": "b"}})
            assert found is not None
            saver.put_writes(found.config, [("v", 1)], "task")
        with closing(sqlite3.connect(source)) as db, db:
            db.execute("UPDATE checkpoints SET metadata = CAST('{' AS BLOB) WHERE thread_id = 'a'")
            db.execute("UPDATE writes SET value = x'c1' WHERE thread_id = 'b'")
        code, [row], _ = command("migrate", source, tmp_path / "target.db")
        assert (code, [item["thread"] for item in row["differing"]]) == (5, ["a", "b"])

    def test_a_damaged_value_of_ours(self, command: Run, tmp_path: Path) -> None:
        """On the way back too."""
        source = tmp_path / "source.db"
        with ours(source) as saver:
            for thread in ("a", "b"):
                put(saver, thread, [thread * 2000])
        with closing(sqlite3.connect(source)) as db, db:
            blob, data = db.execute("SELECT id, data FROM refold_blob ORDER BY id DESC LIMIT 1").fetchone()
            db.execute("UPDATE refold_blob SET data = ? WHERE id = ?", (data[:-1] + bytes([data[-1] ^ 1]), blob))
        code, [row], _ = command("migrate", source, tmp_path / "back.db")
        assert code == 5
        assert row["copied"] + len(row["differing"]) == 2
        assert row["differing"]

    def test_what_their_savers_cannot_hold(self, command: Run, tmp_path: Path) -> None:
        """LangGraph's SqliteSaver writes metadata as JSON: a date in it is one checkpoint's affair."""
        source = tmp_path / "source.db"
        with ours(source) as saver:
            put(saver, "a", [1], {"when": datetime(2026, 1, 1, tzinfo=UTC)})
            put(saver, "b", [2], {"source": "input"})
        code, [row], _ = command("migrate", source, tmp_path / "back.db")
        assert (code, [item["thread"] for item in row["differing"]]) == (5, ["a"])
        assert "datetime" in row["differing"][0]["difference"]
        with theirs(tmp_path / "back.db") as saver:
            assert value_of(saver, "b") == [2]

    @pytest.mark.postgres
    def test_what_their_postgres_cannot_hold(self, database_url: str, command: Run, tmp_path: Path) -> None:
        """JSON of Postgres has no NUL, no NaN and no negative zero: each is said of its checkpoint."""
        source = tmp_path / "source.db"
        values = {"bad-nul": "a\0b", "bad-nan": float("nan"), "bad-zero": -0.0, "good": ["a\0b", -0.0], "last": 1}
        with ours(source) as saver:
            for thread, value in values.items():
                put(saver, thread, value)
            put(saver, "bad-date", 1, {"when": datetime(2026, 1, 1, tzinfo=UTC)})
        code, [row], _ = command("migrate", source, database_url)
        expected = sorted(["bad-date", "bad-nan", "bad-nul", "bad-zero"])
        assert (code, [item["thread"] for item in row["differing"]]) == (5, expected)
        assert command("migrate", source, database_url)[1][0]["done_before"] == 2
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(database_url) as saver:
            assert (value_of(saver, "good"), value_of(saver, "last")) == (["a\0b", -0.0], 1)

    @pytest.mark.postgres
    @pytest.mark.parametrize("kind", ["refold", "langgraph"])
    def test_a_name_that_postgres_cannot_hold(self, kind: str, database_url: str, command: Run, tmp_path: Path) -> None:
        """A thread id with a NUL is one thread's affair, in a first run and in a later one."""
        with ours(tmp_path / "source.db") as saver:
            for thread in ("a", "b\0b", "c"):
                put(saver, thread, [thread])
        for copied in (2, 0):
            code, [row], _ = command("migrate", "source.db", database_url, "--to", kind)
            assert (code, row["copied"], [item["thread"] for item in row["differing"]]) == (5, copied, ["b\0b"])


class TestAWholeDatabase:
    def test_a_target_that_cannot_be_opened(self, command: Run, tmp_path: Path) -> None:
        """One typed error for either kind, and the ledger is not blamed."""
        with ours(tmp_path / "ours.db") as saver:
            put(saver, "a", 1)
        with theirs(tmp_path / "theirs.db") as saver:
            put(saver, "a", 1)
        for source in ("ours.db", "theirs.db"):
            code, rows, error = command("migrate", source, "/nowhere/target.db")
            assert (code, rows) == (5, [])
            assert "ledger" not in error
            assert "opened" in error or "open" in error

    def test_a_target_that_fails_on_the_way(self, command: Run, tmp_path: Path) -> None:
        """A lock, a full disk: the run ends with a typed error that names the side."""
        with ours(tmp_path / "ours.db") as saver:
            put(saver, "a", 1)
        with theirs(tmp_path / "target.db") as saver:
            saver.setup()
        with closing(sqlite3.connect(tmp_path / "target.db")) as db, db:
            db.execute("CREATE TRIGGER full BEFORE INSERT ON checkpoints BEGIN SELECT no_such_function(); END")
        code, rows, error = command("migrate", "ours.db", "target.db")
        assert (code, rows) == (5, [])
        assert "target database cannot be used" in error

    @pytest.mark.postgres
    def test_a_role_that_may_not_create(
        self, database_url: str, postgres_url: str, command: Run, tmp_path: Path
    ) -> None:
        """Either kind of target: what the role lacks is said."""
        import psycopg

        with ours(Path("ours.db")) as saver:
            put(saver, "a", 1)
        with theirs(Path("theirs.db")) as saver:
            put(saver, "a", 1)
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute("DROP ROLE IF EXISTS may_not_create")
            db.execute("CREATE ROLE may_not_create LOGIN")
        account, _, place = database_url.partition("@")
        url = f"{account.rpartition('/')[0]}/may_not_create@{place}"
        for source in ("ours.db", "theirs.db"):
            code, rows, error = command("migrate", source, url)
            assert (code, rows) == (5, [])
            assert "permission denied" in error
            assert "role" in error


class TestOldThreads:
    @pytest.mark.postgres
    def test_writes_in_the_metadata(self, database_url: str, command: Run, tmp_path: Path) -> None:
        """LangGraph's PostgresSaver leaves `writes` of the metadata out: known, counted, and no difference (15)."""
        with ours(tmp_path / "ours.db") as saver:
            put(saver, "old", [1], {"source": "loop", "writes": {"node": [1]}})
            put(saver, "new", [2], {"source": "loop"})
        code, [row], _ = command("migrate", "ours.db", database_url)
        assert (code, row["metadata_writes_left_out"], row["differing"]) == (0, 1, [])
        assert command("migrate", "ours.db", database_url)[1][0]["copied"] == 0
        assert command("migrate", "ours.db", tmp_path / "back.db")[1][0]["metadata_writes_left_out"] == 0


class TestDirections:
    def test_between_two_of_refold(self, command: Run, tmp_path: Path) -> None:
        """A move: into an existing one by what it holds, into a new one by --to; LangGraph's tables are in neither."""
        for name in ("one", "two"):
            with ours(tmp_path / f"{name}.db") as saver:
                put(saver, name, [name])
        for target, options in (("two.db", ()), ("three.db", ("--to", "refold"))):
            code, [row], _ = command("migrate", "one.db", target, *options)
            assert (code, row["copied"]) == (0, 1)
            assert command("verify", target)[0] == 0
            with ours(tmp_path / target) as saver:
                assert value_of(saver, "one") == ["one"]
            with closing(sqlite3.connect(tmp_path / target)) as db:
                assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'checkpoints'").fetchone() == (0,)
        with ours(tmp_path / "two.db") as saver:
            assert value_of(saver, "two") == ["two"]

    @pytest.mark.postgres
    def test_to_postgres_and_back(self, database_url: str, command: Run, tmp_path: Path) -> None:
        """From refold's SQLite to refold's Postgres and back; a database is not moved into itself by another URL."""
        with ours(tmp_path / "one.db") as saver:
            put(saver, "one", ["one"])
            versions = saver.get_tuple({"configurable": {"thread_id": "one"}})
        assert command("migrate", "one.db", database_url, "--to", "refold")[0] == 0
        assert command("migrate", database_url, "back.db", "--to", "refold")[0] == 0
        with ours(tmp_path / "back.db") as saver:
            assert saver.get_tuple({"configurable": {"thread_id": "one"}}) == versions
        code, _, error = command("migrate", database_url, f"{database_url}&application_name=x")
        assert code == 2
        assert "same database" in error
        assert command("migrate", database_url, database_url, "--to", "langgraph")[0] == 0
        assert command("migrate", database_url, database_url, "--from", "langgraph", "--to", "refold")[0] == 0

    @pytest.mark.postgres
    def test_a_thread_that_was_deleted_in_postgres(self, database_url: str, command: Run, tmp_path: Path) -> None:
        """It is let in again, as in SQLite."""
        from refold.checkpoint import PostgresSaver

        with theirs(tmp_path / "theirs.db") as saver:
            put(saver, "a", [1])
        assert command("migrate", "theirs.db", database_url)[0] == 0
        with PostgresSaver.from_conn_string(database_url) as saver:
            saver.delete_thread("a")
        code, [row], _ = command("migrate", "theirs.db", database_url)
        assert (code, row["copied"], row["lacked_in_target"]) == (0, 1, 1)

    def test_between_two_of_langgraph(self, command: Run, tmp_path: Path) -> None:
        """Refused, before anything is written; --to refold puts refold's tables beside the others."""
        for name in ("one", "two"):
            with theirs(tmp_path / f"{name}.db") as saver:
                put(saver, name, [name])
        before = (tmp_path / "two.db").read_bytes()
        for options in ((), ("--to", "langgraph")):
            assert command("migrate", "one.db", "two.db", *options)[0] == 2
        assert (tmp_path / "two.db").read_bytes() == before
        assert command("migrate", "one.db", "two.db", "--to", "refold")[0] == 0


class TestPasswords:
    @pytest.mark.postgres
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://u:se@cretword@localhost/db",
            "postgresql://u:se/cretword@localhost/db",
            "postgresql://u:se?cretword@localhost/db",
            "postgresql://u:se?cretword=1@localhost/db",
            "postgresql://u:se%zzcretword@localhost/db",
            "postgresql://u:se@cret@word@localhost:1/db",
            "postgresql://u:se@[cretword@localhost/db",
            "postgresql://u:cretword@127.0.0.1:1/db",
            "postgresql://u@127.0.0.1:1/db?password=cretword",
            "postgresql://u@127.0.0.1:1/db?password=se&cretword",
            "postgresql://u@127.0.0.1:1/db?password=se%zzcretword",
            "host=127.0.0.1 port=1 user=u password=cretword",
            "host=127.0.0.1 port=1 user=u password = 'se cretword'",
            "mysql://u:cretword@host/db",
        ],
    )
    def test_no_part_is_shown(self, url: str, command: Run, caplog: pytest.LogCaptureFixture) -> None:
        """Whatever the driver makes of a URL, no command prints a part of its password; nor does a log."""
        commands = [("stats", url), ("threads", url), ("migrate", url, "to.db"), ("run", "--db", url, "task")]
        for arguments in commands:
            code, rows, error = command(*arguments)
            assert code in (2, 5)
            assert rows == []
            for part in ("cret", "word"):
                assert part not in error.replace("password", "")
                assert part not in caplog.text.replace("password", "")

    @pytest.mark.postgres
    def test_percent_encoded(self, command: Run) -> None:
        """A URL that is written as it should be reaches the server, and names with an @ are no error."""
        assert command("stats", "postgresql://u%40x:se%40cret@127.0.0.1:1/a%40b")[0] == 5
