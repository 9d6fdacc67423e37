"""The Postgres savers on a real server: the same answers, writers side by side, and what happens when it fails."""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from checkpoint_graphs import Script, build
from checkpoint_mirror import MirrorSaver, plain
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from refold.checkpoint import AsyncPostgresSaver, PostgresSaver
from refold.checkpoint.collect import collect_gen
from refold.checkpoint.effects import Select
from refold.checkpoint.postgres.progress import ADVISORY_KEY
from refold.checkpoint.removal import delete_for_runs_gen
from refold.core.program import Effect, run
from refold.errors import (
    ConfigurationError,
    CorruptionError,
    DatabaseUnavailableError,
    HeadMovedError,
    SchemaVersionError,
)

pytestmark = pytest.mark.postgres

Config = Any


def at(thread: str) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def message(number: int) -> HumanMessage:
    return HumanMessage(f"{number} " + " ".join(str(number * k % 997) for k in range(100)), id=str(number))


def checkpoint_of(count: int) -> Any:
    made = empty_checkpoint()
    made["id"] = str(uuid6())
    made["channel_values"] = {"messages": [message(n) for n in range(count)]}
    made["channel_versions"] = {"messages": count}
    return made


def step(saver: PostgresSaver, config: Config, count: int, **metadata: Any) -> Config:
    made = checkpoint_of(count)
    config = saver.put(config, made, {"source": "loop", "step": count, **metadata}, {"messages": count})  # type: ignore[typeddict-unknown-key]
    saver.put_writes(config, [("messages", [message(count)])], f"task {count}")
    return config


def own(number: int) -> Any:
    """A checkpoint whose values no other has."""
    made = checkpoint_of(0)
    made["channel_values"] = {"messages": [message(1000 + number), message(2000 + number)]}
    return made


def count_of(saver: PostgresSaver, thread: str) -> int:
    found = saver.get_tuple(at(thread))
    return 0 if found is None else len(found.checkpoint["channel_values"]["messages"])


@pytest.fixture
def saver(postgres_url: str) -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(postgres_url) as found:
        found.setup()
        yield found


SCRIPT = [
    ("run", [("say", 1), ("call", 2), ("fan", 2), ("trail", 3), ("file", 4), ("scribble", 1), ("items", 7)], 1),
    ("rewind", [("replace", 1), ("note", 4), ("restart", 2), ("overwrite", 6), ("trail", 8), ("trail", 9)], 4),
    ("update old", [], 3),
    ("run", [("file", 5), ("file", 6), ("overtype", 0), ("trail", 10), ("fan", 1)], 2),
]


class TestSameAnswers:
    @pytest.mark.parametrize("durability", ["sync", "exit"])
    def test_as_the_memory_saver(self, saver: PostgresSaver, durability: str) -> None:
        """Runs, forks, parallel tasks, edits and delta channels read back as from LangGraph's InMemorySaver."""
        mirror = MirrorSaver(saver, InMemorySaver())
        script = Script([])
        graph = build(script, mirror)
        for kind, told, pick in SCRIPT:
            past = [item.config for item in mirror.list(at("t"))]
            script.steps = list(told)
            target = at("t") if kind == "run" else past[pick % len(past)]
            if kind == "update old":
                graph.update_state(target, {"items": [pick]}, as_node="work")
            else:
                graph.invoke({"note": pick}, target, durability=durability)
        for item in mirror.list(at("t")):
            mirror.get_tuple(item.config)
            mirror.get_delta_channel_history(config=item.config, channels=["trail", "files"])
        list(mirror.list(at("t"), filter={"source": "loop"}, limit=3))
        assert saver.verify().problems == ()
        states = {str(item.config): graph.get_state(item.config).values for item in mirror.list(at("t"))}
        saver.prune(["t"], strategy="keep_last", keep=2)
        saver.gc()
        saver.compact()
        assert saver.verify().problems == ()
        assert [states[str(item.config)] for item in saver.list(at("t"))] == [
            build(script, saver).get_state(item.config).values for item in saver.list(at("t"))
        ]

    async def test_sync_and_async_read_each_other(self, postgres_url: str) -> None:
        """What one class wrote the other reads, and goes on with."""
        async with AsyncPostgresSaver.from_conn_string(postgres_url) as other:
            await other.setup()
            made = checkpoint_of(5)
            config = await other.aput(at("t"), made, {"source": "loop", "step": 5}, {"messages": 5})

            def in_thread() -> object:
                with PostgresSaver.from_conn_string(postgres_url) as saver:
                    found = plain(saver.get_tuple(config))
                    step(saver, config, 6)
                    return found

            found = await asyncio.to_thread(in_thread)
            assert found == plain(await other.aget_tuple(config))
            latest = await other.aget_tuple(at("t"))
            assert latest is not None
            assert len(latest.checkpoint["channel_values"]["messages"]) == 6
            assert (await other.averify()).problems == ()
            assert [item async for item in other.alist(at("t"))] == await asyncio.to_thread(
                lambda: [*other.list(at("t"))]
            )

    async def test_sync_methods_on_the_loop_are_refused(self, postgres_url: str) -> None:
        """A sync method on the async saver's own loop would wait for itself: it says so."""
        async with AsyncPostgresSaver.from_conn_string(postgres_url) as saver:
            with pytest.raises(ConfigurationError, match="event loop"):
                saver.get_tuple(at("t"))

    def test_connections_of_the_caller(self, postgres_url: str) -> None:
        """A connection or a pool of the caller's works, whatever its row factory, also in a pipeline; one that would
        not commit is refused."""
        with psycopg.connect(postgres_url, autocommit=True, row_factory=dict_row) as connection:
            step(PostgresSaver(connection), at("a"), 3)
            with connection.pipeline() as pipe:
                step(PostgresSaver(connection, pipe), at("b"), 3)
            assert count_of(PostgresSaver(connection), "b") == 3
        with ConnectionPool(postgres_url, kwargs={"autocommit": True}, min_size=1, max_size=2) as pool:
            assert count_of(PostgresSaver(pool), "a") == 3
        with psycopg.connect(postgres_url) as connection, pytest.raises(ConfigurationError, match="autocommit"):
            step(PostgresSaver(connection), at("c"), 1)

    def test_half_a_surrogate_pair(self, saver: PostgresSaver) -> None:
        """Ids may have one; a thread id may not."""
        half = "\ud800"
        made = {**checkpoint_of(2), "id": half}
        config = saver.put(at("t"), made, {"run_id": half}, {"messages": 2})
        saver.put_writes(config, [(half, 1)], half, half)
        saver.copy_thread("t", "copy")
        found = [*saver.list(None)]
        assert [(item.checkpoint["id"], item.pending_writes) for item in found] == [(half, [(half, half, 1)])] * 2
        saver.delete_for_runs([half])
        assert not [*saver.list(None)]
        for call in (saver.delete_thread, lambda name: saver.get_tuple(at(name)), lambda name: saver.prune([name])):
            with pytest.raises(ConfigurationError, match="surrogate"):
                call(half)

    def test_encrypted(self, postgres_url: str) -> None:
        """With a cipher no text is readable in the tables, and all is read back."""
        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
        with PostgresSaver.from_conn_string(postgres_url, serde=serde) as saver:
            step(saver, at("t"), 8, run_id="secret-run")
            assert count_of(saver, "t") == 8
            saver.compact()
            assert saver.verify().ok
        with psycopg.connect(postgres_url) as connection:
            for table in ("blob", "pack", "checkpoint", "task_write", "run"):
                for (text,) in connection.execute(f"SELECT t::text FROM refold_{table} t"):  # type: ignore[arg-type]
                    assert b"secret".hex() not in text
                    assert b"messages".hex() not in text
        with (
            PostgresSaver.from_conn_string(postgres_url) as saver,
            pytest.raises(ConfigurationError, match="encrypted"),
        ):
            saver.get_tuple(at("t"))


class TestManyWriters:
    def test_fifty_threads(self, saver: PostgresSaver) -> None:
        """Fault 157: fifty LangGraph threads through one saver and its pool, all at once."""
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                config = at(name)
                for number in range(1, 4):
                    config = step(saver, config, number)
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert saver.stats().checkpoints == 150
        assert saver.verify().problems == ()

    def test_writers_of_one_thread(self, saver: PostgresSaver) -> None:
        """Eight writers that extend one head and write for one checkpoint at once: eight forks, no write lost."""
        head = step(saver, at("t"), 5)
        barrier = threading.Barrier(8)
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                barrier.wait()
                saver.put_writes(head, [("x", number)], f"mine {number}")
                saver.put_writes(head, [("y", 0)] * number + [("y", number)], "shared")
                step(saver, head, 6 + number)
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        found = saver.get_tuple(head)
        assert found is not None
        writes = found.pending_writes or []
        assert {value for task, _, value in writes if task.startswith("mine")} == set(range(8))
        assert len([1 for task, _, _ in writes if task == "shared"]) == 8
        assert len(list(saver.list(at("t")))) == 9
        assert saver.verify().problems == ()

    def test_writers_of_other_threads_wait_for_no_one(self, saver: PostgresSaver, postgres_url: str) -> None:
        """While a transaction holds all that a step of one thread locks, a step of another goes through; one of that
        thread waits."""
        head, other = step(saver, at("held"), 1), step(saver, at("free"), 1)
        impatient = make_conninfo(postgres_url, options="-c lock_timeout=500ms")
        with psycopg.connect(postgres_url) as holder, PostgresSaver.from_conn_string(impatient) as second:
            for held in ("space WHERE id = 1", "checkpoint WHERE space = 1", "log WHERE id = 1"):
                holder.execute(f"SELECT 1 FROM refold_{held} FOR UPDATE")  # type: ignore[arg-type]
            step(second, other, 2)
            with pytest.raises(DatabaseUnavailableError):
                step(second, head, 2)
        step(saver, head, 2)
        assert saver.verify().problems == ()

    def test_a_history_that_is_being_read_holds_nothing(self, postgres_url: str) -> None:
        """With one connection: a listing that is stopped in the middle lets writers through, and goes on."""
        with PostgresSaver.from_conn_string(postgres_url, max_size=1) as saver:
            config = at("t")
            for number in range(1, 200):
                config = step(saver, config, number)
            listing = saver.list(at("t"))
            first = [next(listing) for _ in range(3)]
            step(saver, config, 200)
            saver.delete_thread("none")
            assert len(first) + len(list(listing)) == 199

    def test_the_second_is_refused_when_exclusive(self, postgres_url: str) -> None:
        """Fault 171: of two exclusive writers that race for one head exactly one wins."""
        with PostgresSaver.from_conn_string(postgres_url, exclusive=True) as saver:
            head = step(saver, at("t"), 2)
            barrier = threading.Barrier(4)
            refused: list[HeadMovedError] = []

            def work() -> None:
                made = checkpoint_of(3)
                barrier.wait()
                try:
                    saver.put(head, made, {"source": "loop", "step": 3}, {"messages": 3})
                except HeadMovedError as error:
                    refused.append(error)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(refused) == 3
            assert len(list(saver.list(at("t")))) == 2
            assert {error.expected for error in refused} == {head["configurable"]["checkpoint_id"]}

    def test_an_exclusive_head_whose_namespace_becomes_wide(self, postgres_url: str) -> None:
        """The first id of another kind is stored after the head, as any other."""
        with PostgresSaver.from_conn_string(postgres_url, exclusive=True) as saver:
            head = step(saver, at("t"), 2)
            made = checkpoint_of(3)
            made["id"] = "zzz"
            saver.put(head, made, {"source": "loop", "step": 3}, {"messages": 3})
            assert count_of(saver, "t") == 3

    def test_collecting_beside_writers(self, saver: PostgresSaver) -> None:
        """A collection while others store, delete and store again the same values: nothing that is reachable is
        lost."""
        stop = threading.Event()
        failures: list[BaseException] = []

        def write(name: str) -> None:
            try:
                number = 0
                while not stop.is_set():
                    number += 1
                    step(saver, at(f"{name} {number}"), 3 + number % 5)
                    run(delete_for_runs_gen(saver._ctx(), ["none"]), saver._driver.handle)
                    if number > 1:
                        saver.delete_thread(f"{name} {number - 1}")
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        writers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(3)]
        for writer in writers:
            writer.start()
        for _ in range(6):
            run(collect_gen(saver._ctx(), datetime.now(UTC)), saver._driver.handle)
        stop.set()
        for writer in writers:
            writer.join()
        assert failures == []
        assert saver.verify().problems == ()

    def test_a_value_stored_again_during_a_collection(self, saver: PostgresSaver) -> None:
        """At every step of a collection another writer stores what it wants to remove: it is there afterwards."""
        for at_step in range(10):
            step(saver, at(f"a{at_step}"), 6, run_id=f"r{at_step}")
            run(delete_for_runs_gen(saver._ctx(), [f"r{at_step}"]), saver._driver.handle)
            count = 0

            def handle(effect: Effect[object], at_step: int = at_step) -> object:
                nonlocal count
                if count == at_step:
                    step(saver, at(f"b{at_step}"), 6)
                count += 1
                return saver._driver.handle(effect)

            run(collect_gen(saver._ctx(), datetime.now(UTC)), handle)
            assert saver.verify().problems == ()
            assert count_of(saver, f"b{at_step}") == (6 if count > at_step else 0)
            saver.delete_thread(f"b{at_step}")
            saver.gc()

    def test_a_thread_that_goes_on_while_it_is_copied(
        self, saver: PostgresSaver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A copy is the thread as it was at one moment: a step of another run waits for it."""
        head = step(saver, at("t"), 3, run_id="first")
        writer = threading.Thread(target=step, args=(saver, head, 4), kwargs={"run_id": "second"})
        statement = saver._driver._statement

        def and_a_step(connection: Any, progress: Any, effect: Any) -> object:
            answer = statement(connection, progress, effect)
            if isinstance(effect, Select) and effect.statement == "runs_of_space" and writer.ident is None:
                writer.start()
                writer.join(0.5)
            return answer

        monkeypatch.setattr(saver._driver, "_statement", and_a_step)
        saver.copy_thread("t", "copy")
        writer.join()
        monkeypatch.undo()
        assert (count_of(saver, "copy"), count_of(saver, "t")) == (3, 4)
        assert saver.verify().problems == ()


class Pausing:
    """Lets a saver stop once, in the middle of a transaction, right after a statement."""

    def __init__(self, saver: PostgresSaver, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        answer = saver._driver._statement

        def pause(connection: Any, progress: Any, effect: Any) -> object:
            found = answer(connection, progress, effect)
            if getattr(effect, "statement", "") == statement and not self.reached.is_set():
                self.reached.set()
                assert self.go_on.wait(20)
            return found

        monkeypatch.setattr(saver._driver, "_statement", pause)


def rows_of(url: str) -> dict[str, int]:
    """Rows of every table."""
    with psycopg.connect(url, autocommit=True) as db:
        names = [
            row[0] for row in db.execute("SELECT relname FROM pg_class WHERE relname ~ '^refold_' AND relkind = 'r'")
        ]
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}  # type: ignore[arg-type,index]


class TestSideBySide:
    """Two writers that meet, stopped where it hurts."""

    @pytest.fixture
    def other(self, postgres_url: str) -> Iterator[PostgresSaver]:
        with PostgresSaver.from_conn_string(postgres_url) as found:
            yield found

    @pytest.mark.parametrize("removal", ["delete_thread", "prune", "delete_for_runs"])
    def test_writes_that_come_while_their_checkpoint_goes(
        self,
        saver: PostgresSaver,
        other: PostgresSaver,
        postgres_url: str,
        removal: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What a task stores while its checkpoint is removed is removed too: fault 154 wants no row left."""
        config = step(saver, at("t"), 2, run_id="r")
        other.get_tuple(at("t"))
        pausing = Pausing(saver, "blob_find", monkeypatch)
        writer = threading.Thread(
            target=saver.put_writes, args=(config, [("messages", [HumanMessage("secret text " * 20)])], "late")
        )
        writer.start()
        assert pausing.reached.wait(20)
        remove = {
            "delete_thread": lambda: other.delete_thread("t"),
            "prune": lambda: other.prune(["t"], strategy="delete"),
            "delete_for_runs": lambda: other.delete_for_runs(["r"]),
        }[removal]
        remover = threading.Thread(target=remove)
        remover.start()
        remover.join(0.5)
        pausing.go_on.set()
        writer.join()
        remover.join()
        other.gc()
        assert {name for name, count in rows_of(postgres_url).items() if count} <= {"refold_meta"}
        assert other.verify().problems == ()

    def test_a_new_namespace_while_the_thread_goes(
        self, saver: PostgresSaver, other: PostgresSaver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A subgraph's first checkpoint that is stored while its thread is deleted does not bring the thread back."""
        step(saver, at("t"), 2)
        other.get_tuple(at("t"))
        pausing = Pausing(saver, "space_add", monkeypatch)
        inner: Config = {"configurable": {"thread_id": "t", "checkpoint_ns": "sub:1"}}
        writer = threading.Thread(target=step, args=(saver, inner, 1))
        writer.start()
        assert pausing.reached.wait(20)
        remover = threading.Thread(target=other.delete_thread, args=("t",))
        remover.start()
        remover.join(0.5)
        pausing.go_on.set()
        writer.join()
        remover.join()
        assert [
            found.config for found in other.list({"configurable": {"thread_id": "t"}}) if found.checkpoint["id"]
        ] == []

    @pytest.mark.parametrize("removal", ["delete_thread", "prune", "delete_for_runs"])
    def test_a_removal_that_waited_for_an_id_of_another_kind(
        self, saver: PostgresSaver, other: PostgresSaver, postgres_url: str, removal: str
    ) -> None:
        """A namespace whose ids became text while a removal waited for it is read as it is then."""
        first = step(saver, at("t"), 2, run_id="r")
        other.get_tuple(at("t"))
        made = checkpoint_of(3)
        made["id"] = "zzz"
        with psycopg.connect(postgres_url) as holder:
            holder.execute("SELECT 1 FROM refold_space FOR UPDATE")
            metadata: Any = {"source": "loop", "step": 3}
            writer = threading.Thread(target=saver.put, args=(first, made, metadata, {"messages": 3}))
            writer.start()
            time.sleep(0.3)
            remove = {
                "delete_thread": lambda: other.delete_thread("t"),
                "prune": lambda: other.prune(["t"]),
                "delete_for_runs": lambda: other.delete_for_runs(["r"]),
            }[removal]
            failures: list[BaseException] = []

            def work() -> None:
                try:
                    remove()
                except BaseException as error:  # noqa: BLE001 - reported below
                    failures.append(error)

            remover = threading.Thread(target=work)
            remover.start()
            time.sleep(0.3)
            holder.commit()
            writer.join()
            remover.join()
        assert failures == []
        assert saver.verify().problems == ()

    def test_two_compactions(
        self, saver: PostgresSaver, other: PostgresSaver, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A value goes into one pack: once it is deleted its text is nowhere."""
        for number in range(70):
            saver.put(at(f"t{number}"), own(number), {}, {"messages": 0})
        other.get_tuple(at("t1"))
        pausing = Pausing(saver, "pack_add", monkeypatch)
        first, second = threading.Thread(target=saver.compact), threading.Thread(target=other.compact)
        first.start()
        assert pausing.reached.wait(20)
        second.start()
        second.join(0.5)
        pausing.go_on.set()
        first.join()
        second.join()
        assert saver.verify().problems == ()
        for number in range(70):
            saver.delete_thread(f"t{number}")
        saver.gc()
        assert {name for name, count in rows_of(postgres_url).items() if count} <= {"refold_meta"}

    def test_a_value_that_is_packed_while_it_is_collected(
        self, saver: PostgresSaver, other: PostgresSaver, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A compaction that packs what a collection is about to remove leaves no text of it in the pack."""
        for number in range(70):
            metadata: Any = {"run_id": f"r{number}"}
            saver.put(at(f"t{number}"), own(number), metadata, {"messages": 0})
        other.get_tuple(at("t1"))
        run(delete_for_runs_gen(saver._ctx(), [f"r{number}" for number in range(70)]), saver._driver.handle)
        pausing = Pausing(saver, "pack_add", monkeypatch)
        packing = threading.Thread(target=saver.compact)
        packing.start()
        assert pausing.reached.wait(20)
        collecting = threading.Thread(target=other.gc)
        collecting.start()
        collecting.join(0.5)
        pausing.go_on.set()
        packing.join()
        collecting.join()
        other.gc()
        assert {name for name, count in rows_of(postgres_url).items() if count} <= {"refold_meta"}

    async def test_a_collection_that_is_cancelled_while_it_waits(self, postgres_url: str) -> None:
        """Cancelled at any moment of its wait for writers, a collection leaves no lock: all go on."""
        async with AsyncPostgresSaver.from_conn_string(postgres_url, max_size=4) as saver:
            for number in range(8):
                await saver.aput(at(f"t{number}"), own(number), {}, {"messages": 0})
            await saver.adelete_thread("t3")
            with psycopg.connect(postgres_url) as writer:
                writer.execute(f"SELECT pg_advisory_xact_lock_shared({ADVISORY_KEY})")
                collecting = asyncio.create_task(saver.agc())
                await asyncio.sleep(0.5)
                writer.commit()
                time.sleep(0.2)  # the server answers while the loop does not look
                collecting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await collecting
            puts = [saver.aput(at(f"n{number}"), checkpoint_of(1), {}, {"messages": 1}) for number in range(4)]
            await asyncio.wait_for(asyncio.gather(*puts), 10)


class TestAnyServer:
    """Settings of a server that an application does not choose."""

    @pytest.mark.parametrize("level", ["repeatable read", "serializable", "read uncommitted"])
    def test_isolation(self, postgres_url: str, level: str) -> None:
        """The savers choose the isolation that they need, whatever the database's default is."""
        name = conninfo_to_dict(postgres_url)["dbname"]
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")  # type: ignore[arg-type]
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            graph = (
                StateGraph(MessagesState)
                .add_node("say", lambda state: {"messages": [("ai", "x")]})
                .add_edge(START, "say")
                .compile(checkpointer=saver)
            )
            with ThreadPoolExecutor(8) as pool:
                states = list(
                    pool.map(lambda n: graph.invoke({"messages": [("user", "hi")]}, at(f"t{n % 8}")), range(16))
                )
            assert len(states) == 16
            assert saver.verify().problems == ()

    def test_set_up_by_many_at_once(self, postgres_url: str) -> None:
        """Processes that start together on an empty database all get one that is set up."""
        savers = 6
        barrier = threading.Barrier(savers)
        failures: list[BaseException] = []

        def start() -> None:
            try:
                with PostgresSaver.from_conn_string(postgres_url, max_size=1) as saver:
                    barrier.wait()
                    saver.setup()
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        for _ in range(5):
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            threads = [threading.Thread(target=start) for _ in range(savers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []

    def test_a_schema_of_its_own(self, postgres_url: str) -> None:
        """A tenant's schema before the shared one on the search path has tables of its own."""
        with PostgresSaver.from_conn_string(postgres_url) as shared:
            step(shared, at("shared"), 2)
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                admin.execute("CREATE SCHEMA tenant")
            with PostgresSaver.from_conn_string(f"{postgres_url} options='-c search_path=tenant,public'") as tenant:
                tenant.setup()
                assert list(tenant.list(None)) == []
                assert tenant.stats().checkpoints == 0
                step(tenant, at("own"), 3)
                tenant.gc()
                assert tenant.stats().database_bytes > 0
            assert [found.config["configurable"]["thread_id"] for found in shared.list(None)] == ["shared"]

    def test_an_encoding_without_text_is_refused(self, postgres_server: str, postgres_url: str) -> None:
        """SQL_ASCII gives bytes where text is meant: an error says what to do."""
        name = conninfo_to_dict(postgres_url)["dbname"]
        with psycopg.connect(postgres_server, autocommit=True) as admin:
            admin.execute(  # type: ignore[call-overload]
                f"CREATE DATABASE {name}_ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            )
        with (
            PostgresSaver.from_conn_string(make_conninfo(postgres_url, dbname=f"{name}_ascii")) as saver,
            pytest.raises(ConfigurationError, match="UTF8"),
        ):
            saver.setup()

    def test_a_database_that_is_not_there(self, postgres_url: str) -> None:
        """A wrong name is said at once, in the server's words, not after the pool's time."""
        url = make_conninfo(postgres_url, dbname="nosuchdb")
        with (
            pytest.raises(DatabaseUnavailableError, match="nosuchdb"),
            PostgresSaver.from_conn_string(url),
        ):
            pass

    async def test_a_database_that_is_not_there_awaited(self, postgres_url: str) -> None:
        """The same from a coroutine."""
        url = make_conninfo(postgres_url, dbname="nosuchdb")
        with pytest.raises(DatabaseUnavailableError, match="nosuchdb"):
            async with AsyncPostgresSaver.from_conn_string(url):
                pass


class Relay:
    """Passes bytes between clients on loopback and a server's socket, and counts the round trips."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.trips = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._path)
            answered = True
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is client and answered:
                        self.trips += 1
                    answered = source is server
                    (server if source is client else client).sendall(data)

    def close(self) -> None:
        self._listener.close()


class TestRoundTrips:
    """Each wait for the server counts when it is not on the same machine."""

    @pytest.fixture
    def relay(self, postgres_url: str) -> Iterator[Relay]:
        where = conninfo_to_dict(postgres_url)
        found = Relay(f"{where['host']}/.s.PGSQL.{where.get('port') or 5432}")
        yield found
        found.close()

    @pytest.fixture
    def far(self, relay: Relay, postgres_url: str) -> Iterator[PostgresSaver]:
        """A saver behind the relay that has prepared its statements, on a thread of some steps."""
        with PostgresSaver.from_conn_string(make_conninfo(postgres_url, host="127.0.0.1", port=relay.port)) as saver:
            config = at("t")
            for count in range(1, 16):
                config = step(saver, config, count)
            yield saver

    def trips(self, relay: Relay, work: Callable[[], object]) -> int:
        before = relay.trips
        work()
        return relay.trips - before

    def test_of_a_step(self, relay: Relay, far: PostgresSaver) -> None:
        """A checkpoint takes three round trips, and the writes of a task three: what is asked for, what is new, and
        what names it, committed. (One more is granted, for a statement that is prepared.)"""
        head = far.get_tuple(at("t"))
        assert head is not None
        made = checkpoint_of(16)
        metadata: Any = {"source": "loop", "step": 16}
        assert self.trips(relay, lambda: far.put(head.config, made, metadata, {"messages": 16})) <= 4
        config = at("t") | {"configurable": {**at("t")["configurable"], "checkpoint_id": made["id"]}}
        assert self.trips(relay, lambda: far.put_writes(config, [("messages", [message(16)])], "task 16")) <= 4

    def test_of_reading(self, relay: Relay, far: PostgresSaver, postgres_url: str) -> None:
        """A state takes five round trips, however long it is, and two where the saver has read the values before."""
        assert self.trips(relay, lambda: far.get_tuple(at("t"))) <= 6
        assert self.trips(relay, lambda: far.get_tuple(at("t"))) <= 3
        url = make_conninfo(postgres_url, host="127.0.0.1", port=relay.port)
        with PostgresSaver.from_conn_string(url) as other:
            other.get_tuple(at("none"))
            assert self.trips(relay, lambda: other.get_tuple(at("t"))) <= 6

    def test_a_guess_that_is_wrong_changes_nothing(self, saver: PostgresSaver, postgres_url: str) -> None:
        """What a saver remembers of a thread that another process deleted, or made anew, is asked for in vain."""
        config = step(saver, at("t"), 3)
        with PostgresSaver.from_conn_string(postgres_url) as other:
            other.delete_thread("t")
            assert saver.get_tuple(at("t")) is None
            step(other, at("other"), 2)
            newer = step(other, at("t"), 5)
            assert count_of(saver, "t") == 5
            step(saver, newer, 6)
            assert count_of(other, "t") == 6
            step(saver, config, 4)  # late: the thread was deleted
            assert count_of(other, "t") == 6
            assert other.verify().problems == ()


class TestWhenTheServerFails:
    def kill_others(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    def test_idle_connections_that_died(self, saver: PostgresSaver, postgres_url: str) -> None:
        """After a restart of the server the pool's connections are dead: the next step gets a new one."""
        config = step(saver, at("t"), 2)
        self.kill_others(postgres_url)
        step(saver, config, 3)
        assert count_of(saver, "t") == 3

    def test_a_connection_lost_in_mid_transaction(self, saver: PostgresSaver, postgres_url: str) -> None:
        """Lost between two statements: a typed error, nothing of the step stored, and the step can be repeated."""
        config = step(saver, at("t"), 2)
        before = saver.stats()
        killed = False
        statement = saver._driver._statement

        def cut(connection: Any, progress: Any, effect: Effect[object]) -> object:
            nonlocal killed
            answer = statement(connection, progress, effect)
            if not killed and connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                killed = True
                self.kill_others(postgres_url)
            return answer

        made = checkpoint_of(3)
        saver._driver._statement = cut  # type: ignore[method-assign]
        with pytest.raises(DatabaseUnavailableError, match="repeat"):
            saver.put(config, made, {"source": "loop", "step": 3}, {"messages": 3})
        saver._driver._statement = statement  # type: ignore[method-assign]
        assert killed
        after = saver.stats()
        assert (after.checkpoints, after.blobs) == (before.checkpoints, before.blobs)
        saver.put(config, made, {"source": "loop", "step": 3}, {"messages": 3})
        assert count_of(saver, "t") == 3

    def test_statement_timeout(self, postgres_url: str) -> None:
        """A statement that the server stops is a typed error that names the setting."""
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            config = step(saver, at("t"), 2)
            with psycopg.connect(postgres_url) as blocker:
                blocker.execute("SELECT * FROM refold_space FOR UPDATE")
                with (
                    PostgresSaver.from_conn_string(f"{postgres_url} options='-c statement_timeout=100'") as slow,
                    pytest.raises(DatabaseUnavailableError, match="statement_timeout"),
                ):
                    step(slow, config, 3)
            step(saver, config, 3)
            assert saver.verify().ok

    def test_a_lock_that_is_waited_for_in_vain_is_waited_for_once(self, postgres_url: str) -> None:
        """What the server refuses while a transaction begins is an error at once, however many connections the pool
        has; only a connection that died is replaced."""
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            config = step(saver, at("t"), 2)
            with (
                psycopg.connect(postgres_url) as blocker,
                ConnectionPool(
                    f"{postgres_url} options='-c lock_timeout=100'",
                    min_size=1,
                    max_size=20,
                    kwargs={"autocommit": True, "application_name": "impatient"},
                ) as pool,
            ):
                impatient = PostgresSaver(pool)  # type: ignore[arg-type]
                assert count_of(impatient, "t") == 2  # it knows the thread: the lock is asked for with the beginning
                waits: list[object] = []
                execute = impatient._driver._send
                impatient._driver._send = lambda *given, **named: (waits.append(given), execute(*given, **named))[1]  # type: ignore[method-assign]
                blocker.execute("SELECT * FROM refold_space FOR UPDATE")
                with pytest.raises(DatabaseUnavailableError, match="lock"):
                    step(impatient, config, 3)
                assert len(waits) == 1

    def test_a_pool_without_a_free_connection_is_waited_for_once(self, postgres_url: str) -> None:
        """The pool's own time-out counts once, not once for each of its connections."""
        with ConnectionPool(postgres_url, min_size=1, max_size=8, timeout=0.1, kwargs={"autocommit": True}) as pool:
            saver = PostgresSaver(pool)  # type: ignore[arg-type]
            saver.setup()
            asked: list[object] = []
            getconn = pool.getconn
            pool.getconn = lambda **given: (asked.append(given), getconn(**given))[1]  # type: ignore[method-assign]
            held = [getconn() for _ in range(8)]
            with pytest.raises(DatabaseUnavailableError):
                saver.get_tuple(at("t"))
            for connection in held:
                pool.putconn(connection)
            assert len(asked) == 1

    def test_no_server(self) -> None:
        """Where there is no server the error says that the pool gave no connection."""
        from refold.checkpoint.postgres import saver as module

        with (
            pytest.raises(DatabaseUnavailableError, match="server"),
            module.PostgresSaver.from_conn_string("host=/nonexistent dbname=x", connect_timeout=0.5),
        ):
            pass

    def test_read_only_server(self, postgres_url: str) -> None:
        """A role or server that may not write is named as the reason; reading works."""
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            config = step(saver, at("t"), 2)
        with PostgresSaver.from_conn_string(f"{postgres_url} options='-c default_transaction_read_only=on'") as saver:
            assert count_of(saver, "t") == 2
            with pytest.raises(DatabaseUnavailableError, match="written"):
                step(saver, config, 3)

    def test_a_newer_format_is_left_alone(self, postgres_url: str) -> None:
        """A database of a later version is refused."""
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            step(saver, at("t"), 1)
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("UPDATE refold_meta SET value = '999' WHERE key = 'format'")
        with PostgresSaver.from_conn_string(postgres_url) as saver, pytest.raises(SchemaVersionError):
            saver.get_tuple(at("t"))

    @pytest.mark.parametrize("damage", ["UPDATE refold_meta SET value = 'x'", "DELETE FROM refold_meta"])
    def test_a_database_that_does_not_say_its_format(self, postgres_url: str, damage: str) -> None:
        """It is not opened, and not taken for an empty one."""
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            step(saver, at("t"), 1)
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"{damage} WHERE key = 'format'")
        with PostgresSaver.from_conn_string(postgres_url) as saver, pytest.raises(CorruptionError, match="backup"):
            saver.get_tuple(at("t"))
