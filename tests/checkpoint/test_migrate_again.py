"""A migration that is run again: what the ledger says is done is in the target, and what changed meanwhile is found."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from refold.checkpoint import SqliteSaver
from refold.cli.main import run

Saver = BaseCheckpointSaver[Any]
Migrate = Callable[..., tuple[int, dict[str, Any]]]


def config_of(thread: str, namespace: str = "") -> Any:
    """Where a thread is."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}


def put_chain(saver: Saver, thread: str, count: int, *, namespace: str = "") -> list[Any]:
    """Checkpoints one after the other, each with a write; their configs."""
    at, configs = config_of(thread, namespace), []
    for step in range(count):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"v": [thread, step]}, {"v": f"{step:032}.0"}
        at = saver.put(at, checkpoint, {"source": "loop", "step": step}, {"v": f"{step:032}.0"})
        saver.put_writes(at, [("v", step)], f"task-{step}")
        configs.append(at)
    return configs


def read_all(saver: Saver, *threads: str) -> list[CheckpointTuple]:
    """Every listed checkpoint of some threads."""
    return [found for thread in threads for found in saver.list(config_of(thread))]


@contextmanager
def theirs(path: Path) -> Iterator[LangGraphSqliteSaver]:
    """LangGraph's saver."""
    with LangGraphSqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


@contextmanager
def ours(path: Path) -> Iterator[SqliteSaver]:
    """refold's saver."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


@pytest.fixture
def migrate(capsys: pytest.CaptureFixture[str]) -> Migrate:
    """Runs the command with --json: its exit code and its report."""

    def call(source: Path, target: Path, *options: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["migrate", str(source), str(target), *options, "--json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else {"error": " ".join(printed.err.split())}

    return call


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy, in the place of what was there."""
    for path in target.parent.glob(f"{target.name}*"):
        if not path.name.endswith(".migration"):
            path.unlink()
    with closing(sqlite3.connect(source)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    shutil.copy(source, target)


@pytest.fixture(params=["to refold", "to LangGraph"])
def way(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """How source and target are opened."""
    return (theirs, ours) if request.param == "to refold" else (ours, theirs)


class TestTheLedgerIsNotBelieved:
    def test_a_target_that_was_restored(self, way: Any, migrate: Migrate, tmp_path: Path) -> None:
        """An older copy of the target lacks a thread and the newest of another: both are copied again."""
        opened, written = way
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with opened(source) as saver:
            put_chain(saver, "a", 2)
        migrate(source, target)
        copy_database(target, tmp_path / "older.db")
        with opened(source) as saver:
            put_chain(saver, "b", 2)
            put_chain(saver, "a", 1)
        assert migrate(source, target)[1]["copied"] == 3
        copy_database(tmp_path / "older.db", target)
        code, row = migrate(source, target)
        assert (code, row["copied"], row["lacked_in_target"], row["done_before"]) == (0, 3, 3, 2)
        with opened(source) as one, written(target) as other:
            assert len(read_all(other, "a", "b")) == len(read_all(one, "a", "b")) == 5

    def test_writes_that_an_older_copy_lacks(self, way: Any, migrate: Migrate, tmp_path: Path) -> None:
        """The newest checkpoint is there, but not what was written to it later."""
        opened, written = way
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with opened(source) as saver:
            head = put_chain(saver, "a", 2)[-1]
        migrate(source, target)
        copy_database(target, tmp_path / "older.db")
        with opened(source) as saver:
            saver.put_writes(head, [("v", "late")], "late-task")
        assert migrate(source, target)[1]["copied"] == 1
        copy_database(tmp_path / "older.db", target)
        assert migrate(source, target)[1]["copied"] == 1
        with written(target) as saver:
            found = saver.get_tuple(head)
            assert ("late-task", "v", "late") in found.pending_writes

    def test_a_thread_that_was_deleted_in_the_target(self, way: Any, migrate: Migrate, tmp_path: Path) -> None:
        """It is copied again, with and without the ledger, although refold remembers deletions for 30 days (16)."""
        opened, written = way
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with opened(source) as saver:
            for thread in ("a", "b", "c"):
                put_chain(saver, thread, 2)
            put_chain(saver, "c", 1, namespace="child:1")
        migrate(source, target)
        for ledger in (True, False):
            with written(target) as saver:
                saver.delete_thread("c")
            if not ledger:
                (tmp_path / "target.db.migration").unlink()
            code, row = migrate(source, target)
            assert (code, row["copied"]) == (0, 3 if ledger else 7)
            with written(target) as saver:
                assert len(read_all(saver, "c")) == 3 - 1

    def test_late_writes_of_a_deleted_thread_stay_away(self, migrate: Migrate, tmp_path: Path) -> None:
        """Only a migration lets a deleted thread in: another thread's deletion is remembered on."""
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with theirs(source) as saver:
            put_chain(saver, "a", 1)
        with ours(target) as saver:
            head = put_chain(saver, "other", 1)[-1]
            saver.delete_thread("other")
        assert migrate(source, target)[0] == 0
        with ours(target) as saver:
            saver.put_writes(head, [("v", "late")], "task")
            saver.put(head, empty_checkpoint(), {}, {})
            assert read_all(saver, "other") == []

    def test_a_deleted_thread_that_went_on(self, migrate: Migrate, tmp_path: Path) -> None:
        """Deleted in the target, then used there again. Its history comes in from its beginning; what builds on a
        checkpoint that the source no longer has is dropped, which is said with what to do."""
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with theirs(source) as saver:
            put_chain(saver, "whole", 2)
            put_chain(saver, "pruned", 3)
        migrate(source, target)
        with closing(sqlite3.connect(source)) as db, db:
            db.execute(
                "DELETE FROM checkpoints WHERE thread_id = 'pruned' AND checkpoint_id = "
                "(SELECT min(checkpoint_id) FROM checkpoints WHERE thread_id = 'pruned')"
            )
        with ours(target) as saver:
            for thread in ("whole", "pruned"):
                saver.delete_thread(thread)
                put_chain(saver, thread, 1)
        code, row = migrate(source, target)
        assert code == 5
        assert {item["thread"] for item in row["differing"]} == {"pruned"}
        assert all("deleted in the target" in item["difference"] for item in row["differing"])
        with ours(target) as saver:
            assert len(read_all(saver, "whole")) == 3
            saver.delete_thread("pruned")
        assert migrate(source, target)[0] == 0

    def test_what_was_pruned_stays_away(self, migrate: Migrate, tmp_path: Path) -> None:
        """A prune of the target is its owner's wish: not undone, and reported; nothing is said to be there."""
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with theirs(source) as saver:
            put_chain(saver, "a", 4)
            put_chain(saver, "a", 2, namespace="keeps")
        migrate(source, target)
        with ours(target) as saver:
            saver.prune(["a"])
        code, row = migrate(source, target)
        assert (code, row["copied"], row["done_before"], row["pruned_in_target"]) == (0, 0, 2, 4)
        with theirs(source) as saver:
            saver.put_writes(next(iter(saver.list(config_of("a")))).config, [("v", "late")], "late-task")
        assert migrate(source, target)[1]["copied"] == 1

    def test_what_it_says(self, migrate: Migrate, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """`proved` names what was read back, and of what was done before only that it is there."""
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with theirs(source) as saver:
            put_chain(saver, "a", 3)
        assert migrate(source, target)[1]["proved"] == "3 copied checkpoints read back equal"
        assert migrate(source, target)[1]["proved"] == "nothing was copied; 3 of an earlier run are in the target"


class TestWhatChangedInTheSource:
    def test_deletions_are_reported(self, way: Any, migrate: Migrate, tmp_path: Path) -> None:
        """What the target has and the source no longer has: how many, and of which threads; nothing is deleted."""
        opened, written = way
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with opened(source) as saver:
            for thread in ("a", "b", "c"):
                put_chain(saver, thread, 2)
        assert migrate(source, target)[1]["deleted_in_source"] == 0
        with opened(source) as saver:
            saver.delete_thread("b")
        for _ in range(2):
            code, row = migrate(source, target)
            assert (code, row["deleted_in_source"], row["threads_deleted_in_source"]) == (0, 2, ["b"])
        with written(target) as saver:
            assert len(read_all(saver, "b")) == 2
            saver.delete_thread("b")
        assert migrate(source, target)[1]["deleted_in_source"] == 0

    def test_a_checkpoint_that_was_put_again(self, way: Any, migrate: Migrate, tmp_path: Path) -> None:
        """Under its id, with other content of the same length: a later run copies it."""
        opened, written = way
        source, target = tmp_path / "source.db", tmp_path / "target.db"
        with opened(source) as saver:
            put_chain(saver, "a", 3)
        migrate(source, target)
        with opened(source) as saver:
            found = saver.get_tuple(config_of("a"))
            checkpoint = {**found.checkpoint, "channel_values": {"v": ["a", 9]}}
            saver.put(found.parent_config, checkpoint, found.metadata, {"v": checkpoint["channel_versions"]["v"]})
        code, row = migrate(source, target)
        assert (code, row["copied"]) == (0, 1)
        with written(target) as saver:
            assert saver.get_tuple(config_of("a")).checkpoint["channel_values"] == {"v": ["a", 9]}
        assert migrate(source, target)[1]["copied"] == 0

    @pytest.mark.postgres
    def test_put_again_in_postgres(self, postgres_url: str, tmp_path: Path) -> None:
        """LangGraph's Postgres tables too."""
        from langgraph.checkpoint.postgres import PostgresSaver

        from refold.checkpoint.migrate import LangGraphPostgresSource

        with PostgresSaver.from_conn_string(postgres_url) as saver:
            saver.setup()
            put_chain(saver, "a", 2)
            with LangGraphPostgresSource.open(postgres_url) as source:
                before = dict(source.index())
                assert dict(source.index()) == before
                found = saver.get_tuple(config_of("a"))
                assert found is not None
                assert found.parent_config is not None
                saver.put(found.parent_config, found.checkpoint, {**found.metadata, "step": 7}, {})
                assert [key for key, mark in source.index() if before[key] != mark] == [max(before)]
