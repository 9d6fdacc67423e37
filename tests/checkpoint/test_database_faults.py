"""When the database fails: a typed error that says what to do, and nothing lost. SQLite here."""

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from refold.checkpoint import AsyncSqliteSaver, SqliteSaver
from refold.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptionError,
    DatabaseUnavailableError,
    HeadMovedError,
    SchemaVersionError,
)

Config = Any
ROOT: Config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def step(saver: SqliteSaver, config: Config, number: int) -> Config:
    """One superstep: a checkpoint with one message more, and a task's writes."""
    made = empty_checkpoint()
    made["id"] = str(uuid6())
    made["channel_values"] = {"messages": [message(n) for n in range(number)]}
    made["channel_versions"] = {"messages": number}
    config = saver.put(config, made, {"source": "loop", "step": number}, {"messages": number})
    saver.put_writes(config, [("messages", [message(number)])], f"task {number}")
    return config


def message(number: int) -> HumanMessage:
    return HumanMessage(f"{number} " + " ".join(str(number * k % 997) for k in range(200)), id=str(number))


def state(saver: SqliteSaver) -> list[str | None]:
    found = saver.get_tuple(ROOT)
    return [] if found is None else [item.id for item in found.checkpoint["channel_values"]["messages"]]


class TestTypedErrors:
    def test_locked(self, tmp_path: Path) -> None:
        """Another writer that does not let go: the error names the time-out; afterwards the step works."""
        file = str(tmp_path / "c.db")
        with SqliteSaver.from_conn_string(file, timeout=0.05) as saver:
            config = step(saver, ROOT, 1)
            blocker = sqlite3.connect(file, isolation_level=None)
            blocker.execute("BEGIN IMMEDIATE")
            with pytest.raises(DatabaseUnavailableError, match="time-out") as caught:
                step(saver, config, 2)
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            assert state(saver) == ["0"]  # reading goes on beside the writer
            blocker.execute("ROLLBACK")
            blocker.close()
            step(saver, config, 2)
            assert saver.verify().ok

    def test_full(self, saver: SqliteSaver) -> None:
        """No space: the error says so, what was stored before is whole, and with space again the step works."""
        config = step(saver, ROOT, 1)
        pages = saver.conn.execute("PRAGMA page_count").fetchone()[0]
        saver.conn.execute(f"PRAGMA max_page_count = {pages + 2}")

        def fill(config: Config) -> None:
            for number in range(2, 60):
                config = step(saver, config, number)

        with pytest.raises(DatabaseUnavailableError, match="full"):
            fill(config)
        reached = state(saver)
        assert saver.verify().ok
        saver.conn.execute("PRAGMA max_page_count = 1000000")
        found = saver.get_tuple(ROOT)
        assert found is not None
        step(saver, found.config, len(reached) + 1)
        assert len(state(saver)) == len(reached) + 1

    def test_read_only(self, tmp_path: Path) -> None:
        """A file that may only be read can be read; writing says why not."""
        file = tmp_path / "c.db"
        with SqliteSaver.from_conn_string(str(file)) as saver:
            config = step(saver, ROOT, 3)
        with SqliteSaver.from_conn_string(f"file:{file}?mode=ro") as saver:
            assert state(saver) == ["0", "1", "2"]
            assert saver.verify().ok
            with pytest.raises(DatabaseUnavailableError, match="permissions"):
                step(saver, config, 4)

    def test_no_database(self, tmp_path: Path) -> None:
        """A file that is no database, and a folder that does not exist."""
        file = tmp_path / "c.db"
        file.write_bytes(b"this is no database, but long enough to look at " * 50)
        with SqliteSaver.from_conn_string(str(file)) as saver, pytest.raises(CorruptionError, match="backup"):
            saver.get_tuple(ROOT)
        with (
            pytest.raises(DatabaseUnavailableError, match="permissions"),
            SqliteSaver.from_conn_string(str(tmp_path / "missing" / "c.db")) as saver,
        ):
            saver.setup()

    def test_a_damaged_page(self, tmp_path: Path) -> None:
        """Pages overwritten with rubbish: reading raises a typed error, and does not return something else."""
        file = tmp_path / "c.db"
        with SqliteSaver.from_conn_string(str(file)) as saver:
            config = ROOT
            for number in range(1, 40):
                config = step(saver, config, number)
        data = bytearray(file.read_bytes())
        for page in range(3, len(data) // 4096):
            data[page * 4096 + 100 : page * 4096 + 3900] = random.Random(page).randbytes(3800)
        file.write_bytes(data)
        with SqliteSaver.from_conn_string(str(file)) as saver, pytest.raises(CheckpointError):
            state(saver)

    def test_a_flipped_bit_in_a_value(self) -> None:
        """Wherever one bit of a compressed value is flipped, it is read as it was or not at all."""
        rng = random.Random(7)
        whole = sqlite3.connect(":memory:", check_same_thread=False)
        step(SqliteSaver(whole), ROOT, 12)
        expected = state(SqliteSaver(whole)), SqliteSaver(whole).get_tuple(ROOT)
        rows = whole.execute("SELECT id, data FROM refold_blob WHERE codec & 15 <> 0").fetchall()
        refused = 0
        for _ in range(200):
            damaged = sqlite3.connect(":memory:", check_same_thread=False)
            whole.backup(damaged)
            blob, data = rng.choice(rows)
            bits = bytearray(data)
            bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
            damaged.execute("UPDATE refold_blob SET data = ? WHERE id = ?", (bytes(bits), blob))
            damaged.commit()
            try:
                assert (state(SqliteSaver(damaged)), SqliteSaver(damaged).get_tuple(ROOT)) == expected
            except CorruptionError:
                refused += 1
            damaged.close()
        assert refused > 100

    def test_a_newer_format_is_left_alone(self, tmp_path: Path) -> None:
        """A database of a later version is refused, and not touched."""
        file = tmp_path / "c.db"
        with SqliteSaver.from_conn_string(str(file)) as saver:
            step(saver, ROOT, 1)
            saver.conn.execute("UPDATE refold_meta SET value = '999' WHERE key = 'format'")
        before = file.read_bytes()
        with (
            SqliteSaver.from_conn_string(str(file)) as saver,
            pytest.raises(SchemaVersionError, match="upgrade refold"),
        ):
            saver.get_tuple(ROOT)
        assert file.read_bytes() == before

    def test_a_closed_connection(self, saver: SqliteSaver) -> None:
        """Using a saver after its end says what happened."""
        saver.setup()
        saver.conn.close()
        with pytest.raises(DatabaseUnavailableError, match="closed"):
            saver.get_tuple(ROOT)

    def test_a_transaction_of_the_callers_is_not_committed(self, saver: SqliteSaver) -> None:
        """A connection in the middle of somebody's transaction is refused rather than committed for them."""
        step(saver, ROOT, 1)
        saver.conn.execute("BEGIN")
        with pytest.raises(ConfigurationError, match="transaction of its own"):
            step(saver, ROOT, 2)
        saver.conn.execute("ROLLBACK")


def mode_of(saver: SqliteSaver) -> str:
    return str(saver.conn.execute("PRAGMA journal_mode").fetchone()[0])


class TestReadersAndAWriter:
    """Whoever opens a file puts it in WAL mode, in which readers and a writer do not wait for each other."""

    @pytest.mark.parametrize("copied", ["backup", "VACUUM INTO", "as it is", "another tool"])
    def test_a_copy_gets_the_mode_back(self, saver: SqliteSaver, tmp_path: Path, copied: str) -> None:
        """A backup that takes the place of the database, and files that lost the mode otherwise."""
        step(saver, ROOT, 2)
        file = tmp_path / "copy.db"
        match copied:
            case "backup":
                saver.backup(file)
            case "VACUUM INTO":
                saver.conn.execute("VACUUM INTO ?", (str(file),))
            case "as it is":
                saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                file.write_bytes((tmp_path / "checkpoints.db").read_bytes())
            case _:
                saver.backup(file)
                other = sqlite3.connect(file)
                other.execute("PRAGMA journal_mode = PERSIST").fetchall()
                other.close()
        with SqliteSaver.from_conn_string(file, timeout=0.5) as restored:
            config = step(restored, ROOT, 3)
            assert mode_of(restored) == "wal"
            reader = sqlite3.connect(file, isolation_level=None)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM refold_blob").fetchall()
            step(restored, config, 4)
            reader.close()

    def test_a_copy_in_use_is_not_waited_for(self, saver: SqliteSaver, tmp_path: Path) -> None:
        """While somebody reads it the mode cannot change: the copy opens as it is, at once, and the next one gets it.
        The time that a writer is waited for is the caller's again."""
        step(saver, ROOT, 2)
        file = tmp_path / "copy.db"
        saver.backup(file)
        reader = sqlite3.connect(file, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM refold_blob").fetchall()
        began = time.monotonic()
        with SqliteSaver.from_conn_string(file, timeout=20) as restored:
            assert state(restored) == ["0", "1"]
            assert mode_of(restored) == "delete"
            assert restored.conn.execute("PRAGMA busy_timeout").fetchone() == (20_000,)
        assert time.monotonic() - began < 5
        reader.close()
        with SqliteSaver.from_conn_string(file) as restored:
            assert state(restored) == ["0", "1"]
            assert mode_of(restored) == "wal"

    @pytest.mark.parametrize("how", ["mode=ro", "immutable=1"])
    def test_a_copy_that_may_only_be_read(self, saver: SqliteSaver, tmp_path: Path, how: str) -> None:
        """It is read, and stays as it is."""
        step(saver, ROOT, 2)
        file = tmp_path / "copy.db"
        saver.backup(file)
        before = file.read_bytes()
        with SqliteSaver.from_conn_string(f"file:{file}?{how}") as restored:
            assert state(restored) == ["0", "1"]
            assert restored.verify().ok
        assert file.read_bytes() == before

    def test_a_database_in_memory(self) -> None:
        """It has no such mode, and opens any number of times."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        step(SqliteSaver(connection), ROOT, 2)
        assert state(SqliteSaver(connection)) == ["0", "1"]
        connection.close()


class TestTwoWriters:
    def test_the_second_is_refused_when_exclusive(self, tmp_path: Path) -> None:
        """Fault 171: of two exclusive savers that extend one head the second learns both ids, and nothing is stored."""
        file = str(tmp_path / "c.db")
        with (
            SqliteSaver.from_conn_string(file, exclusive=True) as one,
            SqliteSaver.from_conn_string(file, exclusive=True) as two,
        ):
            head = step(one, ROOT, 1)
            winner = step(one, head, 2)
            with pytest.raises(HeadMovedError) as caught:
                step(two, head, 2)
            assert caught.value.expected == head["configurable"]["checkpoint_id"]
            assert caught.value.found == winner["configurable"]["checkpoint_id"]
            with pytest.raises(HeadMovedError):
                step(two, ROOT, 1)
            step(two, winner, 3)
            assert len(list(one.list(ROOT))) == 3

    def test_a_fork_is_allowed_by_default(self, saver: SqliteSaver) -> None:
        """Otherwise both branches are there, as in LangGraph."""
        head = step(saver, ROOT, 1)
        branches = [step(saver, head, 2) for _ in range(2)]
        for branch in branches:
            found = saver.get_tuple(branch)
            assert found is not None
            assert found.parent_config == head

    def test_a_history_that_is_being_read_holds_nothing(self, tmp_path: Path) -> None:
        """A listing that is stopped in the middle lets writers through, in its process and in others, and goes on."""
        file = str(tmp_path / "c.db")
        with (
            SqliteSaver.from_conn_string(file) as saver,
            SqliteSaver.from_conn_string(file, timeout=0.2) as other,
        ):
            config = ROOT
            for number in range(1, 200):
                config = step(saver, config, number)
            listing = saver.list(ROOT)
            first = [next(listing) for _ in range(3)]
            config = step(other, config, 200)
            step(saver, config, 201)
            other.prune(["another"])
            assert len(first) + len(list(listing)) == 199

    def test_threads_share_a_saver(self, saver: SqliteSaver) -> None:
        """Many threads on one saver, each with its own LangGraph thread: all that they stored is there."""
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                config: Config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
                for number in range(1, 12):
                    config = step(saver, config, number)
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert saver.stats().checkpoints == 88
        assert saver.verify().ok

    def test_processes_share_a_file(self, tmp_path: Path) -> None:
        """Four processes that write, prune and collect in one file at once: it verifies, and every thread is whole."""
        file = str(tmp_path / "c.db")
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=_work, args=(file, f"p{n}", 8)) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
        with SqliteSaver.from_conn_string(file) as saver:
            assert saver.verify().problems == ()
            for n in range(4):
                found = saver.get_tuple({"configurable": {"thread_id": f"p{n}", "checkpoint_ns": ""}})
                assert found is not None
                assert len(found.checkpoint["channel_values"]["messages"]) == 8


def _work(file: str, name: str, steps: int) -> None:
    with SqliteSaver.from_conn_string(file) as saver:
        config: Config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        for number in range(1, steps + 1):
            config = step(saver, config, number)
            if number == steps // 2:
                saver.prune([name])
                saver.gc()


def _work_for_ever(file: str) -> None:
    """Store, prune, collect, compact and copy until killed."""
    with SqliteSaver.from_conn_string(file) as saver:
        found = saver.get_tuple(ROOT)
        config = ROOT if found is None else found.config
        number = len(state(saver))
        while True:
            number += 1
            config = step(saver, config, number)
            if number % 5 == 0:
                saver.prune(["t"], strategy="keep_last", keep=3)
            if number % 7 == 0:
                saver.gc()
            if number % 11 == 0:
                saver.compact()
            if number % 6 == 0:
                saver.delete_thread("copy")
                saver.copy_thread("t", f"copy {number}")
                saver.delete_thread(f"copy {number - 6}")


class TestKilledAtAnyMoment:
    def test_the_file_opens_verifies_and_goes_on(self, tmp_path: Path) -> None:
        """SIGKILL at random moments of put, put_writes, prune, gc, compact and copy: each time the database verifies,
        the state is one that was stored, and the next process goes on from it."""
        file = str(tmp_path / "c.db")
        context = multiprocessing.get_context("spawn")
        chance = random.Random(7)
        before = 0
        for _ in range(4):
            worker = context.Process(target=_work_for_ever, args=(file,))
            worker.start()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:  # let it begin to work, however slow the machine is
                time.sleep(0.05)
                if Path(file).exists() and _length(file) > before:
                    break
            time.sleep(chance.random() * 0.3)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
            with SqliteSaver.from_conn_string(file) as saver:
                assert saver.verify().problems == ()
                found = state(saver)
                assert found == [str(n) for n in range(len(found))]
                assert len(found) > before
                before = len(found)


def _length(file: str) -> int:
    """How many messages are stored, 0 while the tables are being made."""
    db = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'refold_doomed'").fetchone():
            return 0
    except sqlite3.OperationalError:
        return 0
    finally:
        db.close()
    with SqliteSaver.from_conn_string(file) as saver:
        return len(state(saver))


class TestAsync:
    async def test_a_cancelled_step_is_whole_or_absent(self, tmp_path: Path) -> None:
        """Tasks cancelled at any moment leave a database that verifies, and the saver works on."""
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as saver:
            await saver.setup()
            for number in range(12):
                made = empty_checkpoint()
                made["id"] = str(uuid6())
                made["channel_values"] = {"messages": [message(number)]}
                made["channel_versions"] = {"messages": 1}
                task = asyncio.ensure_future(
                    saver.aput(ROOT, made, {"source": "loop", "step": number}, {"messages": 1})
                )
                await asyncio.sleep(0.0005 * number)
                task.cancel()
                with pytest.raises(asyncio.CancelledError) if not task.done() else _nothing():
                    await task
            assert (await saver.averify()).problems == ()
            assert await saver.aget_tuple(ROOT) is not None or (await saver.astats()).checkpoints == 0

    async def test_many_coroutines(self, tmp_path: Path) -> None:
        """Fifty threads of LangGraph at once through one async saver."""
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as saver:

            async def work(name: str) -> None:
                config: Config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
                made = empty_checkpoint()
                made["channel_values"] = {"messages": [message(1)]}
                made["channel_versions"] = {"messages": 1}
                config = await saver.aput(config, made, {"source": "loop", "step": 1}, {"messages": 1})
                await saver.aput_writes(config, [("messages", message(2))], "task")

            await asyncio.gather(*(work(f"t{n}") for n in range(50)))
            assert len([item async for item in saver.alist(None)]) == 50
            assert (await saver.astats()).blobs < 10


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
