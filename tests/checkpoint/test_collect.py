"""Collection, compaction and verification, at every moment at which another writer may come between."""

import dataclasses
import operator
import random
import re
import sqlite3
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from refold.checkpoint import SqliteSaver
from refold.checkpoint.blobs import unpack_pack
from refold.checkpoint.collect import collect_gen
from refold.checkpoint.compact import PACK_BYTES
from refold.checkpoint.effects import Barrier, Transaction
from refold.checkpoint.removal import delete_for_runs_gen
from refold.checkpoint.seal import Sealer
from refold.checkpoint.threads import delete_thread_gen
from refold.core.program import Effect, run
from refold.errors import CorruptionError

Config = Any


def at(thread: str) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def put(saver: SqliteSaver, config: Config, texts: list[str], version: int = 1, **metadata: Any) -> Config:
    made = empty_checkpoint()
    made["id"] = str(uuid6())
    made["channel_values"] = {"messages": [HumanMessage(text, id=text[:8]) for text in texts]}
    made["channel_versions"] = {"messages": version}
    return saver.put(config, made, {"source": "loop", "step": version, **metadata}, {"messages": version})  # type: ignore[typeddict-unknown-key]


def texts_of(saver: SqliteSaver, config: Config) -> list[str]:
    found = saver.get_tuple(config)
    assert found is not None
    return [message.content for message in found.checkpoint["channel_values"]["messages"]]


def long(name: str, count: int = 20) -> list[str]:
    return [f"{name}-{n:04} " + " ".join(f"{name}{n * k % 991}" for k in range(60)) for n in range(count)]


def rows(saver: SqliteSaver) -> dict[str, int]:
    tables = saver.conn.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'refold_%'"
    ).fetchall()
    return {name: saver.conn.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in tables}


def names_of_runs(saver: SqliteSaver) -> list[str]:
    return sorted(name.decode() for (name,) in saver.conn.execute("SELECT name FROM refold_run"))


def forget(saver: SqliteSaver, run_id: str) -> None:
    """Delete a run's checkpoints without the collection that may follow."""
    run(delete_for_runs_gen(saver._ctx(), [run_id]), saver._driver.handle)


class Stepping:
    """A collection that is run one effect at a time."""

    def __init__(self, saver: SqliteSaver) -> None:
        self._saver = saver
        self._program = collect_gen(saver._ctx(), datetime.now(UTC))
        self._effect: Effect[object] | None = next(self._program)

    def step(self, count: int) -> None:
        """Up to `count` effects more."""
        for _ in range(count):
            if self._effect is None:
                return
            answer = self._saver._driver.handle(self._effect)
            try:
                self._effect = self._program.send(answer)
            except StopIteration:
                self._effect = None


class TestNothingStays:
    def test_a_deleted_thread_leaves_no_row(self, saver: SqliteSaver) -> None:
        """Fault 154: when the only thread is deleted, every table of values and checkpoints is empty."""
        config = at("t")
        for n in range(3):
            config = put(saver, config, long("a", 5 + n), n + 1, run_id="r")
            saver.put_writes(config, [("messages", [HumanMessage("x" * 300)])], f"task {n}")
        saver.compact()
        saver.delete_thread("t")
        assert {name: count for name, count in rows(saver).items() if count and name != "refold_meta"} == {}

    def test_deleted_text_is_gone_from_packs(self, saver: SqliteSaver) -> None:
        """A pack that held a deleted thread's messages is written again without them."""
        kept = put(saver, at("kept"), long("keep"))
        put(saver, at("gone"), long("gone"))
        saver.compact()
        saver.delete_thread("gone")
        saver.gc()
        assert texts_of(saver, kept) == long("keep")
        assert saver.verify().ok
        opened = [
            saver._sealer().open(codec, data)
            for codec, data in saver.conn.execute("SELECT codec, data FROM refold_pack")
        ]
        assert opened
        assert not any(b"gone" in plain for plain in opened)

    def test_shared_values_stay(self, saver: SqliteSaver) -> None:
        """What another thread has too survives the deletion of one."""
        one = put(saver, at("one"), long("shared"))
        two = put(saver, at("two"), [*long("shared"), "more " * 100])
        saver.delete_thread("one")
        saver.gc()
        assert saver.get_tuple(one) is None
        assert texts_of(saver, two)[:20] == long("shared")
        assert saver.verify().ok

    def test_the_tail_of_a_log_goes(self, saver: SqliteSaver) -> None:
        """When only an older, shorter list is left, what came after it is freed, and the thread goes on."""
        first = put(saver, at("t"), long("a", 20), 1, run_id="one")
        put(saver, first, long("a", 60), 2, run_id="two")
        saver.delete_for_runs(["two"])
        saver.gc()
        assert saver.stats().blobs < 30
        again = put(saver, first, [*long("a", 20), *long("b", 5)], 2)
        assert texts_of(saver, again) == [*long("a", 20), *long("b", 5)]
        assert saver.verify().ok

    def test_old_threads_in_batches(self, saver: SqliteSaver) -> None:
        """Fault 161: a retention job over all threads, three at a time, leaves the two that are new."""
        for n in range(12):
            made = empty_checkpoint()
            made["id"] = str(uuid6())
            age = timedelta(days=30 if n < 10 else 0)
            made["ts"] = (datetime.now(UTC) - age).isoformat()
            saver.put(at(f"t{n:02}"), made, {"source": "loop", "step": 1}, {})
        saver.prune(None, strategy="delete", before=datetime.now(UTC) - timedelta(days=7), batch_size=3)
        assert {item.config["configurable"]["thread_id"] for item in saver.list(None)} == {"t10", "t11"}

    @pytest.mark.parametrize("ts", ["2026-13-45T99:00:00.000000+00:00", "yesterday", "", "2020-01-01T00:00:00"])
    def test_a_time_of_another_kind(self, saver: SqliteSaver, ts: str) -> None:
        """It comes back as it was. One that cannot be read is too old for nothing; one without a zone is UTC."""
        made = empty_checkpoint()
        made["ts"] = ts
        config = saver.put(at("t"), made, {"source": "loop", "step": 1}, {})
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint["ts"] == ts
        saver.prune(None, strategy="delete", before=datetime.now(UTC))
        assert len([*saver.list(None)]) == int(not ts.startswith("2020"))

    def test_a_thread_without_a_name_is_one_of_all(self, saver: SqliteSaver) -> None:
        """Whoever prunes all threads prunes the one whose id is empty, too."""
        for name in ("", "t"):
            put(saver, put(saver, at(name), long("a")), long("a"), 2)
        saver.prune(None)
        assert [item.metadata["step"] for item in saver.list(None)] == [2, 2]
        saver.prune(None, strategy="delete")
        assert not [*saver.list(None)]

    def test_prune_by_age_keeps_the_newest(self, saver: SqliteSaver) -> None:
        """Old checkpoints of a thread go, its newest stays however old."""
        config = at("t")
        for n in range(5):
            config = put(saver, config, long("a", n + 1), n + 1)
        saver.prune(["t"], strategy="older_than", before=datetime.now(UTC) + timedelta(days=1))
        assert [item.metadata["step"] for item in saver.list(at("t"))] == [5]
        assert texts_of(saver, at("t")) == long("a", 5)

    def test_runs_go_with_their_last_checkpoint(self, saver: SqliteSaver) -> None:
        """After prunes and deletions of runs only the runs of what is left are stored."""
        config = at("t")
        for n in range(6):
            config = put(saver, config, long("a", n + 1), n + 1, run_id=f"run-{n}")
        put(saver, at("u"), long("b"), run_id="run-0")
        saver.delete_for_runs(["run-3"])
        assert names_of_runs(saver) == ["run-0", "run-0", "run-1", "run-2", "run-4", "run-5"]
        saver.prune(["t"])
        assert names_of_runs(saver) == ["run-0", "run-5"]
        assert saver.verify().ok

    def test_runs_that_an_earlier_release_left_go(self, saver: SqliteSaver) -> None:
        """By a collection, and by the deletion of some run of the namespace; readable ids from before encryption
        too."""
        put(saver, at("t"), long("a"), run_id="run-1")
        for name, space in ((b"old", 1), (b"older", 1), (b"gone", 99)):
            saver.conn.execute("INSERT INTO refold_run (name, space) VALUES (?, ?)", (name, space))
        saver.delete_for_runs(["old"])
        assert names_of_runs(saver) == ["gone", "run-1"]
        saver.conn.execute("INSERT INTO refold_run (name, space) VALUES (x'6f6c64', 1)")
        keyed = SqliteSaver(saver.conn, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 16))
        keyed.gc()
        assert names_of_runs(saver) == ["run-1"]

    @pytest.mark.parametrize(
        "options",
        [
            {"strategy": "all"},
            {"strategy": "keep_last", "keep": 0},
            {"strategy": "keep_latest", "keep": 3},
            {"strategy": "older_than"},
            {"batch_size": 0},
            {"batch_size": -1},
        ],
    )
    def test_a_prune_that_cannot_be_meant_is_refused(self, saver: SqliteSaver, options: Any) -> None:
        """Unknown strategies and missing arguments change nothing."""
        put(saver, at("t"), long("a"))
        for threads in (["t"], None):
            with pytest.raises(ValueError, match="prune"):
                saver.prune(threads, **options)
        for method in (saver.prune, saver.delete_for_runs):
            with pytest.raises(TypeError):
                method("t")
        assert len(list(saver.list(at("t")))) == 1


class Count(TypedDict):
    n: Annotated[int, operator.add]


def namespaces(saver: SqliteSaver) -> list[str]:
    """With task ids left out."""
    found = saver.conn.execute("SELECT ns FROM refold_space ORDER BY id").fetchall()
    return [re.sub(":[0-9a-f-]+", ":", ns) for (ns,) in found]


def graph(saver: Any, name: str, node: Any) -> Any:
    return StateGraph(Count).add_node(name, node).add_edge(START, name).compile(checkpointer=saver)


def calls(app: Any, count: int) -> Any:
    return [app.invoke({"n": 0}) for _ in range(count)].pop()


class TestNamespacesOfCalls:
    """What a subgraph stored for one call goes with the checkpoint that the call began at."""

    def test_every_call_of_a_node(self, saver: SqliteSaver) -> None:
        """Also the second call of a subgraph by one task and those after it, and what they call in turn."""
        inner = graph(None, "leaf", lambda state: {"n": 1})
        middle = graph(None, "middle", lambda state: calls(inner, 2))
        app = graph(saver, "caller", lambda state: calls(middle, 3))
        for _ in range(3):
            app.invoke({"n": 1}, at("t"))
            saver.prune(["t"])
        kept = namespaces(saver)
        assert len(kept) == len(set(kept))
        app.update_state(at("t"), {"n": 1})
        saver.prune(["t"])
        assert namespaces(saver) == [""]
        assert saver.verify().ok

    def test_a_memory_of_its_own_stays(self, saver: SqliteSaver) -> None:
        """A subgraph with `checkpointer=True` remembers its calls, also one that is called by a subgraph."""
        memory = graph(True, "leaf", lambda state: {"n": 1})
        middle = graph(None, "middle", memory)
        app = graph(saver, "caller", middle)
        remembered = 0
        for _ in range(3):
            app.invoke({"n": 0}, at("t"))
            saver.prune(["t"])
            [own] = saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": "caller|middle"}})
            assert own.checkpoint["channel_values"]["n"] > remembered
            remembered = own.checkpoint["channel_values"]["n"]

    def test_the_parent_went_earlier(self, saver: SqliteSaver) -> None:
        """A call that one run began and another ended: the first run is deleted, and the next prune takes the rest."""
        sub = graph(None, "ask", lambda state: {"n": interrupt("how many?")})
        app = graph(saver, "sub", sub)
        app.invoke({"n": 0}, {**at("t"), "metadata": {"run_id": "r1"}})
        app.invoke(Command(resume=1), {**at("t"), "metadata": {"run_id": "r2"}})
        saver.delete_for_runs(["r1"])
        assert namespaces(saver) == ["", "sub:"]
        saver.prune(["t"])
        assert namespaces(saver) == [""]

    @pytest.mark.parametrize("strategy", ["keep_latest", "keep_last"])
    def test_a_call_that_waits_stays(self, saver: SqliteSaver, strategy: str) -> None:
        """A prune in the middle of an approval takes nothing that its end needs."""
        sub = graph(None, "ask", lambda state: {"n": interrupt("how many?")})
        app, never_pruned = graph(saver, "sub", sub), graph(InMemorySaver(), "sub", sub)
        for _ in range(2):
            app.invoke({"n": 0}, at("t"))
            saver.prune(["t"], strategy=strategy)
            assert namespaces(saver) == ["", "sub:"]
            assert "__interrupt__" in never_pruned.invoke({"n": 0}, at("t"))
            assert app.invoke(Command(resume=1), at("t")) == never_pruned.invoke(Command(resume=1), at("t"))

    def test_a_parent_that_is_still_coming_is_waited_for(self, saver: SqliteSaver) -> None:
        """A child's checkpoint may be stored before its parent's: it is newer than all that is there."""
        put(saver, put(saver, at("t"), long("a")), long("a"), 2)
        coming = str(uuid6())
        child = {"configurable": {"thread_id": "t", "checkpoint_ns": "sub:1"}}
        put(saver, child, long("b"), parents={"": coming})
        saver.prune(["t"])
        assert namespaces(saver) == ["", "sub:"]
        put(saver, at("t"), long("a"), 3)
        saver.prune(["t"])
        assert namespaces(saver) == [""]


class TestWritersInBetween:
    def collect(self, saver: SqliteSaver, between: Callable[[int, Effect[object]], None]) -> None:
        """A collection, with something done by another writer before each of its steps."""
        count = 0

        def handle(effect: Effect[object]) -> object:
            nonlocal count
            between(count, effect)
            count += 1
            return saver._driver.handle(effect)

        run(collect_gen(saver._ctx(), datetime.now(UTC)), handle)

    def test_a_value_stored_again_at_any_step_survives(self, saver: SqliteSaver) -> None:
        """Whenever another saver stores what is being collected, it is there afterwards."""
        for step in range(12):
            thread = f"t{step}"
            put(saver, at(thread), long("lost"), 1, run_id=thread)
            forget(saver, thread)
            other = SqliteSaver(saver.conn)
            stored: list[Config] = []

            def between(
                count: int,
                effect: Effect[object],
                step: int = step,
                stored: list[Config] = stored,
                other: SqliteSaver = other,
            ) -> None:
                if count == step:
                    stored.append(put(other, at(f"again{step}"), long("lost")))

            self.collect(saver, between)
            assert saver.verify().problems == ()
            for config in stored:
                assert texts_of(other, config) == long("lost")
            saver.delete_thread(f"again{step}")
            saver.gc()

    def test_a_thread_that_goes_on_at_any_step_survives(self, saver: SqliteSaver) -> None:
        """A run that extends, forks and reuses while a collection is under way loses nothing."""
        for step in range(12):
            base = put(saver, at(f"live{step}"), long("live", 30))
            put(saver, at(f"dead{step}"), [*long("dead", 10), *long("live", 5)], 1, run_id=f"r{step}")
            forget(saver, f"r{step}")
            made: list[Config] = []

            def between(
                count: int, effect: Effect[object], step: int = step, base: Config = base, made: list[Config] = made
            ) -> None:
                if count == step:
                    made.append(put(saver, base, [*long("live", 30), *long("dead", 3)], 2))
                    saver.put_writes(
                        made[-1], [("messages", [HumanMessage(long("dead", 9)[8], id="dead-000")])], "task"
                    )

            self.collect(saver, between)
            assert saver.verify().problems == ()
            for config in made:
                assert texts_of(saver, config) == [*long("live", 30), *long("dead", 3)]

    def test_a_stopped_collection_is_harmless(self, saver: SqliteSaver) -> None:
        """Stopped before any of its steps, a collection leaves a database that verifies, and the next one finishes."""
        stopped = 0
        for step in range(10):
            keep = put(saver, at(f"keep{step}"), long("keep"))
            put(saver, at(f"lost{step}"), long(f"lost{step}"), 1, run_id=f"r{step}")
            forget(saver, f"r{step}")

            class Stop(Exception):
                pass

            def between(count: int, effect: Effect[object], step: int = step, stop: type[Exception] = Stop) -> None:
                if count == step:
                    raise stop

            try:
                self.collect(saver, between)
            except Stop:
                stopped += 1
            assert saver.verify().problems == ()
            assert texts_of(saver, keep) == long("keep")
        assert stopped >= 6
        saver.gc()
        for step in range(10):
            saver.delete_thread(f"keep{step}")
        saver.gc()
        assert {name: count for name, count in rows(saver).items() if count and name != "refold_meta"} == {}

    def test_the_barrier_comes_between_listing_and_marking(self, saver: SqliteSaver) -> None:
        """What is doomed is committed before the wait, and marked again after it."""
        put(saver, at("t"), long("a"), 1, run_id="r")
        put(saver, at("u"), long("b"))
        forget(saver, "r")
        order: list[object] = []

        def note(count: int, effect: Effect[object]) -> None:
            order.append(effect.write if isinstance(effect, Transaction) else type(effect))

        self.collect(saver, note)
        assert order[:5] == [True, False, True, Barrier, False]

    @pytest.mark.parametrize("first", range(1, 8))
    @pytest.mark.parametrize("second", range(1, 6))
    def test_two_collections_at_once(self, tmp_path: Path, first: int, second: int) -> None:
        """Wherever one collection stands when another begins, and wherever that one stands when a writer stores again
        what both want to remove: it is there afterwards, and the one that began last finishes the work."""
        with SqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
            put(saver, at("keep"), long("keep"))
            put(saver, at("gone"), long("gone"), 1, run_id="gone")
            put(saver, at("garbage"), long("garbage"), 1, run_id="garbage")
            forget(saver, "gone")
            forget(saver, "garbage")
            one, two = Stepping(saver), Stepping(saver)
            one.step(first)
            two.step(second)
            again = put(SqliteSaver(saver.conn), at("again"), long("gone"))
            two.step(1)
            one.step(100)
            two.step(100)
            assert saver.verify().problems == ()
            assert texts_of(saver, again) == long("gone")
            saver.delete_thread("again")
            saver.delete_thread("keep")
            saver.gc()
            assert {name: count for name, count in rows(saver).items() if count and name != "refold_meta"} == {}

    def test_who_finds_that_a_collection_is_due_does_it(self, saver: SqliteSaver) -> None:
        """The count of what was removed begins anew with the collection, not at its end: others that remove something
        meanwhile do not begin one each."""
        for number in range(40):
            put(saver, at(f"t{number}"), long(f"{number:03}", 3))
        begun = 0
        handle = saver._driver.handle

        def count(effect: Effect[object]) -> object:
            nonlocal begun
            if isinstance(effect, Barrier):
                begun += 1
                if begun == 1:
                    SqliteSaver(saver.conn).delete_thread("t39")
            return handle(effect)

        saver._driver.handle = count  # type: ignore[method-assign]
        for number in range(12):
            saver.delete_thread(f"t{number}")
        assert begun == 1

    def test_rows_that_nothing_leads_to_go(self, saver: SqliteSaver) -> None:
        """Writes of a checkpoint that is gone, and packs without values, which a fault of an earlier release left
        behind, are reported and removed."""
        config = put(saver, at("t"), long("a"))
        saver.put_writes(config, [("messages", [HumanMessage("deleted text")])], "task")
        saver.compact()
        saver.conn.execute("INSERT INTO refold_pack (codec, data) VALUES (0, x'00')")
        saver.conn.execute(
            "INSERT INTO refold_task_write (checkpoint, task, template, data) "
            "SELECT checkpoint + 1000, task, template, data FROM refold_task_write"
        )
        found = saver.verify().problems
        assert [problem.split(" ", 1)[0] for problem in found] == ["1", "1"]
        assert all("gc" in problem for problem in found)
        assert saver.gc().packs == 1
        assert saver.verify().problems == ()
        assert texts_of(saver, config) == long("a")

    def test_another_process_collects_what_a_cache_remembers(self, tmp_path: Path) -> None:
        """A saver whose caches know values that another one deleted and collected stores them again."""
        file = str(tmp_path / "c.db")
        with SqliteSaver.from_conn_string(file) as one, SqliteSaver.from_conn_string(file) as two:
            put(one, at("t"), long("a"))
            two.delete_thread("t")
            two.gc()
            config = put(one, at("u"), long("a"))
            assert texts_of(two, config) == long("a")
            assert two.verify().ok


class TestCompaction:
    def test_packed_values_read_the_same(self, saver: SqliteSaver) -> None:
        """After a compaction everything reads as before, is smaller, and the thread goes on; a second one is
        harmless."""
        config = at("t")
        for n in range(1, 200):
            config = put(saver, config, long("a", n), n)
        before = saver.stats()
        first = saver.compact()
        assert first.blobs > 150
        assert saver.stats().database_bytes < before.database_bytes
        fresh = SqliteSaver(saver.conn)
        assert texts_of(fresh, config) == long("a", 199)
        assert fresh.verify().ok
        assert fresh.compact().packs == 0
        config = put(fresh, config, long("a", 200), 300)
        assert texts_of(fresh, config) == long("a", 200)

    def test_a_backup_is_a_database(self, saver: SqliteSaver, tmp_path: Path) -> None:
        """A backup opens, verifies and has everything; it does not overwrite."""
        config = put(saver, at("t"), long("a"))
        target = tmp_path / "copy.db"
        saver.backup(target)
        with SqliteSaver.from_conn_string(str(target)) as copied:
            assert texts_of(copied, config) == long("a")
            assert copied.verify().ok
        with pytest.raises(Exception, match="exists"):
            saver.backup(target)
        assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


DAMAGE = {
    "blob data": "UPDATE refold_blob SET data = CAST(substr(data, 1, 5) || x'ffff' || substr(data, 8) AS BLOB) "
    "WHERE length(data) > 200",
    "blob hash": "UPDATE refold_blob SET hash = randomblob(16) "
    "WHERE id = (SELECT max(id) FROM refold_blob WHERE (codec & 15) = 1)",
    "blob gone": "DELETE FROM refold_blob WHERE id = (SELECT min(id) FROM refold_blob)",
    "checkpoint row": "UPDATE refold_checkpoint SET data = CAST(data || x'00' AS BLOB)",
    "checkpoint text": "UPDATE refold_checkpoint SET data = 'text'",
    "checkpoint template": "UPDATE refold_checkpoint SET template = (SELECT min(id) FROM refold_blob)",
    "rows swapped": "UPDATE refold_checkpoint SET data = (SELECT data FROM refold_checkpoint WHERE seq = 1) "
    "WHERE seq = 2",
    "writes row": "UPDATE refold_task_write SET data = zeroblob(8)",
    "segment": "UPDATE refold_segment SET data = CAST(x'02' || data AS BLOB)",
    "segment gone": "DELETE FROM refold_segment",
    "parent gone": "DELETE FROM refold_checkpoint WHERE seq = 1",
    "hash text": "UPDATE refold_blob SET hash = 'text' || id",
    "space gone": "DELETE FROM refold_space WHERE thread = 't'",
    "ids of another kind": "UPDATE refold_space SET wide = 1 WHERE thread = 't'",
    "id cut": "UPDATE refold_checkpoint SET id = substr(id, 1, 9) WHERE seq = 2",
    "task empty": "UPDATE refold_task_write SET task = x''",
    "task of no kind": "UPDATE refold_task_write SET task = x'07ff'",
    "run gone": "DELETE FROM refold_run",
    "run of another thread": "UPDATE refold_checkpoint SET run = (SELECT max(id) FROM refold_run) WHERE seq = 2",
    "moved to another thread": "UPDATE refold_checkpoint SET space = 2 WHERE seq = 2",
    "parent in another thread": "UPDATE refold_checkpoint SET parent = 3 WHERE seq = 2",
    "parent is itself": "UPDATE refold_checkpoint SET parent = 2 WHERE seq = 2",
    "parents in a ring": "UPDATE refold_checkpoint SET parent = 2 WHERE seq = 1",
    "unknown state": "UPDATE refold_checkpoint SET state = 7 WHERE seq = 2",
    "listed became awaited": "UPDATE refold_checkpoint SET state = 2 WHERE seq = 2",
    "awaited became listed": "UPDATE refold_checkpoint SET state = 0 WHERE state = 2",
}


class TestDamageIsNoticed:
    @pytest.mark.parametrize("damage", DAMAGE)
    def test_verify_says_where(self, saver: SqliteSaver, damage: str) -> None:
        """Every kind of damage to a row is a problem in the report of `verify`, which never raises for it."""
        config = put(saver, at("t"), long("a"), run_id="run-1")
        config = put(saver, config, long("a", 30), 2, run_id="run-1")
        put(saver, at("u"), long("b"), run_id="run-2")
        saver.put_writes(config, [("messages", [HumanMessage("w" * 300)])], "task")
        coming = {"configurable": {**at("t")["configurable"], "checkpoint_id": str(uuid6())}}
        saver.put_writes(coming, [("messages", [])], "task")
        assert saver.verify().problems == ()
        saver.conn.execute(DAMAGE[damage])
        report = SqliteSaver(saver.conn).verify()
        assert report.problems
        assert not report.ok

    @pytest.mark.parametrize(
        "damage",
        ["blob data", "checkpoint row", "checkpoint text", "segment", "segment gone", "ids of another kind"],
    )
    def test_reading_raises(self, saver: SqliteSaver, damage: str) -> None:
        """What is damaged is never handed out: reading it raises."""
        put(saver, at("t"), long("a"))
        saver.conn.execute(DAMAGE[damage])
        with pytest.raises(CorruptionError, match="backup"):
            SqliteSaver(saver.conn).get_tuple(at("t"))

    @pytest.mark.parametrize("said", [None, "x", "", "0", "-1", "1.0"])
    def test_a_database_that_does_not_say_its_format(self, saver: SqliteSaver, said: str | None) -> None:
        """It is not opened, not taken for an empty one, and not changed."""
        put(saver, at("t"), long("a"))
        saver.conn.execute("DELETE FROM refold_meta WHERE key = 'format'")
        if said is not None:
            saver.conn.execute("INSERT INTO refold_meta (key, value) VALUES ('format', ?)", (said,))
        before = [*saver.conn.iterdump()]
        with pytest.raises(CorruptionError, match="backup"):
            SqliteSaver(saver.conn).get_tuple(at("t"))
        assert [*saver.conn.iterdump()] == before

    @pytest.mark.parametrize(
        ("key", "reader"), [("freed", lambda saver: saver.delete_thread("t")), ("collection", SqliteSaver.gc)]
    )
    def test_a_count_that_is_none(self, saver: SqliteSaver, key: str, reader: Any) -> None:
        """What the database counts is checked like the rest."""
        put(saver, at("t"), long("a"))
        saver.gc()
        saver.conn.execute("UPDATE refold_meta SET value = x'78' WHERE key = ?", (key,))
        with pytest.raises(CorruptionError, match=key):
            reader(saver)

    def test_stats_count(self, saver: SqliteSaver) -> None:
        """Every field of the statistics, on a small database."""
        config = put(saver, at("t"), long("a", 3))
        put(saver, at("u"), long("a", 2))
        saver.put_writes(config, [("x", 1)], "task")
        found = dataclasses.asdict(saver.stats())
        assert {k: found[k] for k in ("threads", "namespaces", "checkpoints", "hidden", "writes", "packs", "logs")} == {
            "threads": 2, "namespaces": 2, "checkpoints": 2, "hidden": 0, "writes": 1, "packs": 0, "logs": 2,
        }  # fmt: skip
        assert found["blob_bytes"] > 0
        assert found["database_bytes"] > 0


class TestPacks:
    def values_of(self, saver: SqliteSaver, size: int, count: int = 20) -> list[str]:
        texts = [random.Random(number).randbytes(size // 2).hex() for number in range(count)]
        for number, text in enumerate(texts):
            put(saver, at(f"t{number}"), [text])
        return texts

    def test_large_values_stay_alone(self, saver: SqliteSaver) -> None:
        """A large value is read without others, and no pack grows beyond what can be stored or read at once."""
        texts = self.values_of(saver, 200_000)
        saver.conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        assert saver.compact().packs == 0
        assert [texts_of(saver, at(f"t{number}")) for number in range(20)] == [[text] for text in texts]
        assert saver.verify().problems == ()

    def test_packs_are_bounded_in_bytes(self, saver: SqliteSaver) -> None:
        """Values that are neither small nor large go into packs of some of them."""
        texts = self.values_of(saver, 50_000, 40)
        assert saver.compact().packs == 4
        largest = saver.conn.execute("SELECT max(length(data)) FROM refold_pack").fetchone()[0]
        assert largest < PACK_BYTES
        assert [texts_of(saver, at(f"t{number}")) for number in range(40)] == [[text] for text in texts]
        assert saver.verify().problems == ()

    def test_a_pack_becomes_smaller_while_others_write(
        self, saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is left of it is compressed outside the transaction that puts it in place, also in an old pack of any
        size; packs of which nothing is left go without being opened."""
        monkeypatch.setattr("refold.checkpoint.compact.LARGE", 10_000_000)
        monkeypatch.setattr("refold.checkpoint.compact.PACK_BYTES", 100_000_000)
        for number in range(60):
            put(saver, at(f"t{number}"), long(f"t{number}", 20))
        put(saver, at("large"), [random.Random(number).randbytes(300_000).hex() for number in range(64)])
        saver.compact()
        monkeypatch.undo()
        for number in [*range(20), *range(20, 60, 3)]:
            run(delete_thread_gen(saver._ctx(), f"t{number}"), saver._driver.handle)
        run(delete_thread_gen(saver._ctx(), "large"), saver._driver.handle)
        put(saver, at("one of them"), [random.Random(7).randbytes(300_000).hex()])
        seal, opens, inside = Sealer.seal, Sealer.open, list[bool]()

        def watched(work: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **options: (inside.append(saver.conn.in_transaction), work(*args, **options))[1]

        monkeypatch.setattr(Sealer, "seal", watched(seal))
        monkeypatch.setattr(Sealer, "open", watched(opens))
        assert saver.gc().packs > 0
        assert inside
        assert not any(inside)
        monkeypatch.undo()
        assert texts_of(saver, at("one of them")) == [random.Random(7).randbytes(300_000).hex()]
        for number in range(21, 60, 3):
            assert texts_of(saver, at(f"t{number}")) == long(f"t{number}", 20)
        assert saver.verify().problems == ()
        ids = {row[0] for row in saver.conn.execute("SELECT id FROM refold_blob WHERE codec & 15 = 3")}
        for codec, data in saver.conn.execute("SELECT codec, data FROM refold_pack"):
            assert unpack_pack(saver._sealer().open(codec, data)).keys() <= ids

    @pytest.mark.parametrize("moment", range(12))
    def test_a_value_of_a_pack_is_wanted_again(self, saver: SqliteSaver, moment: int) -> None:
        """At whatever moment of a collection: it is there, and so is the rest of its pack."""
        put(saver, at("kept"), long("keep", 30))
        put(saver, at("gone"), long("gone", 30))
        saver.compact()
        run(delete_thread_gen(saver._ctx(), "gone"), saver._driver.handle)
        collection = Stepping(saver)
        collection.step(moment)
        put(saver, at("again"), long("gone", 30)[::2])
        collection.step(1000)
        assert texts_of(saver, at("again")) == long("gone", 30)[::2]
        assert texts_of(saver, at("kept")) == long("keep", 30)
        assert saver.verify().problems == ()
        saver.gc()
        assert saver.verify().problems == ()

    @pytest.mark.parametrize("size", [2_000, 200_000])
    def test_values_from_before_the_key_are_encrypted_whatever_their_size(self, tmp_path: Path, size: int) -> None:
        """Compaction leaves no value readable that was stored before the database had a key."""
        path = tmp_path / "db"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            texts = self.values_of(saver, size)
        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 32)
        with SqliteSaver.from_conn_string(str(path), serde=serde) as saver:
            put(saver, at("more"), ["more"])
            saver.compact()
            assert saver.conn.execute("SELECT count(*) FROM refold_blob WHERE codec & 15 < 2 AND codec & 32 = 0 AND "
                                      "length(data) > 500").fetchone()[0] == 0  # fmt: skip
            assert [texts_of(saver, at(f"t{number}")) for number in range(20)] == [[text] for text in texts]
            assert saver.verify().problems == ()

    @pytest.mark.parametrize("size", [500, 200_000])
    def test_a_few_values_from_before_the_key_are_encrypted_too(self, tmp_path: Path, size: int) -> None:
        """Also where there are not enough of them for a pack."""
        path = tmp_path / "db"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            texts = self.values_of(saver, size, 3)
        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 32)
        with SqliteSaver.from_conn_string(str(path), serde=serde) as saver:
            saver.compact()
            plain = "SELECT count(*) FROM refold_blob WHERE codec & 15 < 2 AND codec & 96 = 0"
            assert saver.conn.execute(plain).fetchone()[0] == 0
            assert [texts_of(saver, at(f"t{number}")) for number in range(3)] == [[text] for text in texts]

    def test_verifying_opens_a_pack_once(self, saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many values it holds, and wherever their rows lie; those of others that refer to them share it."""
        texts = self.values_of(saver, 2_000, 128)
        assert saver.compact().packs == 2
        for number, text in enumerate(texts[:20]):
            found = saver.get_tuple(at(f"t{number}"))
            assert found is not None
            message = HumanMessage(text, id=text[:8])
            saver.put_writes(found.config, [("other", {"in": [message, "x" * 600, number]})], "task")
        assert saver.conn.execute("SELECT count(*) FROM refold_blob WHERE codec & 16").fetchone()[0] >= 20
        monkeypatch.setattr("refold.checkpoint.verify._PAGE", 8)
        opened: list[int] = []
        monkeypatch.setattr(
            "refold.checkpoint.blobs.unpack_pack", lambda data: (opened.append(1), unpack_pack(data))[1]
        )
        assert saver.verify().problems == ()
        assert len(opened) <= 4

    def test_verifying_holds_little(self, saver: SqliteSaver) -> None:
        """However large the values are: one at a time, with what it is made of."""
        self.values_of(saver, 1_000_000, 40)
        tracemalloc.start()
        try:
            assert saver.verify().problems == ()
            assert tracemalloc.get_traced_memory()[1] < 12_000_000
        finally:
            tracemalloc.stop()
