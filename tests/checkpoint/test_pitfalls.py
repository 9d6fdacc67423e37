"""What goes wrong in savers that store values once: each is a promise here."""

import copy
import json
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, Send

from refold.checkpoint import SqliteSaver
from refold.errors import ConfigurationError, CorruptionError

Config = Any


def at(thread: str = "t", ns: str = "", checkpoint_id: str | None = None) -> Config:
    found = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": found if checkpoint_id is None else {**found, "checkpoint_id": checkpoint_id}}


def checkpoint_of(values: dict[str, Any], version: int = 1, checkpoint_id: str | None = None) -> Any:
    made = empty_checkpoint()
    made.pop("pending_sends", None)
    made["id"] = checkpoint_id or str(uuid6())
    made["channel_values"] = dict(values)
    made["channel_versions"] = dict.fromkeys(values, version)
    return made


def put(saver: SqliteSaver, config: Config, values: dict[str, Any], version: int = 1, **metadata: Any) -> Config:
    made = checkpoint_of(values, version)
    return saver.put(config, made, {"source": "loop", "step": version, **metadata}, dict(made["channel_versions"]))  # type: ignore[typeddict-unknown-key]


def values(saver: SqliteSaver, config: Config) -> dict[str, Any]:
    found = saver.get_tuple(config)
    assert found is not None
    return found.checkpoint["channel_values"]


def long(number: int) -> str:
    return f"text {number} " + "word " * 100


class CountingSerializer(JsonPlusSerializer):
    """Counts the messages that it is asked to serialize."""

    def __init__(self) -> None:
        super().__init__()
        self.dumped: list[str] = []

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if isinstance(obj, HumanMessage | AIMessage | ToolMessage):
            self.dumped.append(str(obj.id))
        return super().dumps_typed(obj)


class TestEditsInPlace:
    @pytest.mark.parametrize("depth", ["content", "nested", "extra"])
    def test_an_edit_of_an_old_message_is_stored(self, saver: SqliteSaver, depth: str) -> None:
        """A node that changes an old message object, however deep, changes what the next checkpoint reads back, and not
        the checkpoints before."""
        call = {"name": "f", "args": {"deep": {"n": [1]}}, "id": "c"}
        messages: list[Any] = [AIMessage(long(n), id=str(n), tool_calls=[copy.deepcopy(call)]) for n in range(30)]
        first = put(saver, at(), {"messages": messages}, 1)
        match depth:
            case "content":
                messages[3].content = "changed"
            case "nested":
                messages[3].tool_calls[0]["args"]["deep"]["n"].append(2)
            case _:
                messages[3].brand_new = [1]
        second = put(saver, first, {"messages": [*messages, HumanMessage("x", id="new")]}, 2)
        assert values(saver, second)["messages"] == [*messages, HumanMessage("x", id="new")]
        assert values(saver, first)["messages"][3].tool_calls[0]["args"] == call["args"]
        assert values(saver, first)["messages"][3].content == long(3)

    def test_what_is_read_may_be_edited_freely(self, saver: SqliteSaver) -> None:
        """No two reads share an object: editing what one returned does not show in another, nor in the store."""
        config = put(saver, at(), {"messages": [AIMessage(long(1), id="1", response_metadata={"a": [1]})]})
        one, two = values(saver, config)["messages"], values(saver, config)["messages"]
        one[0].response_metadata["a"].append(2)
        one[0].content = "changed"
        assert two[0].response_metadata == {"a": [1]}
        assert values(saver, config)["messages"][0].content == long(1)

    @pytest.mark.parametrize("readings", [1, 2, 3])
    def test_an_edit_of_what_was_read_is_stored(self, saver: SqliteSaver, readings: int) -> None:
        """The next process loads, edits in place, and stores: the edit is there, however often the thread was read."""
        config = put(saver, at(), {"messages": [AIMessage(long(n), id=str(n)) for n in range(20)]})
        other = SqliteSaver(saver.conn)
        loaded = [values(other, config)["messages"] for _ in range(readings)][-1]
        loaded[4].additional_kwargs["mark"] = 1
        after = put(other, config, {"messages": [*loaded, HumanMessage("x", id="x")]}, 2)
        assert values(other, after)["messages"][4].additional_kwargs == {"mark": 1}
        assert values(saver, config)["messages"][4].additional_kwargs == {}


class TestOnlyWhatIsNewIsSerialized:
    def test_unchanged_messages_are_not_serialized_again(self) -> None:
        """One message more: one message serialized, whether the list is the writer's own or was loaded."""
        serde = CountingSerializer()
        with SqliteSaver.from_conn_string(":memory:", serde=serde) as saver:
            messages: list[Any] = [HumanMessage(long(n), id=f"m{n}") for n in range(50)]
            config = put(saver, at(), {"messages": messages})
            serde.dumped.clear()
            config = put(saver, config, {"messages": [*messages, HumanMessage("x", id="new")]}, 2)
            assert serde.dumped == ["new"]
            loaded = values(saver, config)["messages"]
            serde.dumped.clear()
            put(saver, config, {"messages": [*loaded, HumanMessage("y", id="newer")]}, 3)
            assert serde.dumped == ["newer"]

    def test_equal_objects_are_recognised(self, saver: SqliteSaver) -> None:
        """A list of copies adds nothing but its new message to the database."""
        messages: list[Any] = [HumanMessage(long(n), id=f"m{n}") for n in range(50)]
        config = put(saver, at(), {"messages": messages})
        before = saver.stats()
        put(saver, config, {"messages": [*copy.deepcopy(messages), HumanMessage(long(99), id="new")]}, 2)
        after = saver.stats()
        assert after.logs == before.logs
        assert after.blobs <= before.blobs + 2


class TestEachMessageOnce:
    @pytest.mark.parametrize("wrap", ["input", "send", "overwrite", "command", "list", "nested send"])
    def test_wherever_it_stands(self, saver: SqliteSaver, wrap: str) -> None:
        """A message inside inputs, sends, overwrites and commands is the blob that the channel has."""
        messages: list[Any] = [HumanMessage("once " * 2000 + str(n), id=str(n)) for n in range(3)]
        config = put(saver, at(), {"messages": messages})
        before = saver.stats().blob_bytes
        value: Any = {
            "input": {"messages": messages},
            "send": Send("node", {"messages": messages}),
            "overwrite": Overwrite(messages),
            "command": Command(update={"messages": messages}, goto="x"),
            "list": messages,
            "nested send": [Send("a", {"state": {"messages": messages[:1]}}), Send("b", messages)],
        }[wrap]
        saver.put_writes(config, [("channel", value)], "task")
        assert saver.stats().blob_bytes < before + 1200
        found = saver.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "channel", value)]
        assert saver.verify().ok

    @pytest.mark.parametrize("wrap", ["beside", "inside", "sends", "twice"])
    def test_more_than_once_in_what_a_task_writes(self, saver: SqliteSaver, wrap: str) -> None:
        """A message that a task writes to its log and hands on in the same writes."""
        message = HumanMessage(long(1), id="1")
        more: Any = {
            "beside": [("last", message)],
            "inside": [("found", {"answer": message})],
            "sends": [("__pregel_tasks", Send("w", {"m": message})), ("__pregel_tasks", Send("w", {"m": message}))],
            "twice": [("messages", [message])],
        }[wrap]
        config = put(saver, at(), {"n": 1})
        saver.put_writes(config, [("messages", [message]), *more], "task")
        found = saver.get_tuple(config)
        assert found is not None
        assert [(channel, value) for _, channel, value in found.pending_writes or ()] == [
            ("messages", [message]), *more
        ]  # fmt: skip
        assert saver.verify().problems == ()

    def test_a_late_id_costs_one_message(self, saver: SqliteSaver) -> None:
        """A write that was stored before its message had an id keeps that message without; the checkpoint's has it."""
        config = put(saver, at(), {"messages": []})
        message = HumanMessage(long(1))
        saver.put_writes(config, [("messages", [message])], "task")
        message.id = "late"
        after = put(saver, config, {"messages": [message]}, 2)
        found = saver.get_tuple(config)
        assert found is not None
        assert found.pending_writes is not None
        assert found.pending_writes[0][2][0].id is None
        assert values(saver, after)["messages"][0].id == "late"


class TestSerdes:
    def test_type_tags_are_kept_apart(self, saver: SqliteSaver) -> None:
        """Equal bytes of different types are different values."""
        wanted = {
            "a": b"12345678901234567890",
            "b": bytearray(b"12345678901234567890"),
            "c": None,
            "d": "12345678901234567890",
        }
        assert values(saver, put(saver, at(), wanted)) == wanted

    def test_a_foreign_serializer_is_kept_whole(self) -> None:
        """A serializer that knows only `dumps` and `loads` works, as a black box."""

        class Json:
            def dumps(self, obj: Any) -> bytes:
                return json.dumps(obj, default=str).encode()

            def loads(self, data: bytes) -> Any:
                return json.loads(data)

        with SqliteSaver.from_conn_string(":memory:", serde=Json()) as saver:  # type: ignore[arg-type]
            config = put(saver, at(), {"messages": ["a" * 500, {"b": 1}], "n": 3})
            saver.put_writes(config, [("x", ["y"])], "task")
            assert values(saver, config) == {"messages": ["a" * 500, {"b": 1}], "n": 3}
            assert saver.verify().ok

    def test_a_pickled_value(self) -> None:
        """What msgpack cannot hold goes through the fall-back of the serializer."""
        with SqliteSaver.from_conn_string(":memory:", serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
            config = put(saver, at(), {"odd": {(1, 2): 2**80}, "list": [2**80, "x" * 200, {"y": 2**90}]})
            assert values(saver, config) == {"odd": {(1, 2): 2**80}, "list": [2**80, "x" * 200, {"y": 2**90}]}

    def test_an_allowlist_makes_a_clone_on_the_same_data(self, saver: SqliteSaver) -> None:
        """`with_allowlist` gives a saver that reads and extends what this one wrote."""
        strict = SqliteSaver(saver.conn, serde=JsonPlusSerializer(allowed_msgpack_modules=[("a", "B")]))
        clone = strict.with_allowlist([("x", "Y")])
        assert clone is not strict
        config = put(strict, at(), {"messages": [HumanMessage("x", id="1")]})
        assert values(clone, config) == {"messages": [HumanMessage("x", id="1")]}  # type: ignore[arg-type]
        put(clone, config, {"messages": []}, 2)  # type: ignore[arg-type]

    def test_what_cannot_be_serialized_stores_nothing(self, saver: SqliteSaver) -> None:
        """The serializer's error reaches the caller; the database is as before."""
        config = put(saver, at(), {"a": 1})
        before = saver.stats()
        with pytest.raises(TypeError):
            put(saver, config, {"a": object(), "b": "x" * 1000}, 2)
        assert saver.stats() == before


def aes(key: bytes = b"0123456789abcdef") -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(key=key)


class TestEncryption:
    def fill(self, saver: SqliteSaver) -> Config:
        secret = HumanMessage("the secret word is xylophone " * 20, id="secret-message-id")
        config = put(saver, at(), {"messages": [secret], "note": "xylophone"}, user="secret-user", run_id="secret-run")
        saver.put_writes(config, [("messages", [secret]), ("note", "xylophone")], "task", "secret/path")
        return config

    def test_nothing_readable_is_on_the_disk(self, tmp_path: Any) -> None:
        """Values, metadata, writes, channel names and run ids: none of them can be read in the file."""
        file = tmp_path / "c.db"
        with SqliteSaver.from_conn_string(str(file), serde=aes()) as saver:
            self.fill(saver)
            saver.compact()
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        for word in (b"xylophone", b"secret", b"messages", b"note"):
            assert word not in raw

    def test_it_reads_back_and_deduplicates(self, tmp_path: Any) -> None:
        """Same answers, and still each message once, though a ciphertext never repeats."""
        with SqliteSaver.from_conn_string(str(tmp_path / "c.db"), serde=aes()) as saver:
            messages: list[Any] = []
            config = at()
            for n in range(20):
                messages = [*messages, HumanMessage(long(n), id=str(n))]
                config = put(saver, config, {"messages": messages}, n + 1)
                saver.put_writes(config, [("messages", [HumanMessage(long(n + 1), id=str(n + 1))])], f"task {n}")
            assert values(saver, config)["messages"] == messages
            assert saver.stats().blobs < 70
            assert len(list(saver.list(at(), filter={"step": 7}))) == 1
            saver.compact()
            assert saver.verify().problems == ()
            assert values(saver, config)["messages"] == messages

    def test_runs_can_be_deleted_by_id(self, tmp_path: Any) -> None:
        """Run ids are keyed hashes there, and are still found."""
        with SqliteSaver.from_conn_string(str(tmp_path / "c.db"), serde=aes()) as saver:
            config = self.fill(saver)
            saver.delete_for_runs(["secret-run"])
            assert saver.get_tuple(config) is None

    def test_runs_from_before_the_key_can_be_deleted_by_id(self, tmp_path: Any) -> None:
        """Their ids are stored readable, later ones hashed: both are found, those of one run in one thread too. An id
        may hold anything."""
        file = str(tmp_path / "c.db")
        for serde in (None, aes()):
            with SqliteSaver.from_conn_string(file, serde=serde) as saver:
                for run_id in ("run-1", "run-2", "run-\ud800"):
                    put(saver, at(), {"a": 1}, run_id=run_id)
        with SqliteSaver.from_conn_string(file, serde=aes()) as saver:
            saver.delete_for_runs(["run-1", "run-\ud800"])
            assert [item.metadata["run_id"] for item in saver.list(at())] == ["run-2", "run-2"]

    def test_names_are_keyed(self, tmp_path: Any) -> None:
        """Two databases with the same content and key have different hashes: a guess at content cannot be confirmed."""
        hashes = []
        for name in ("a", "b"):
            with SqliteSaver.from_conn_string(str(tmp_path / name), serde=aes()) as saver:
                self.fill(saver)
                hashes.append({row[0] for row in saver.conn.execute("SELECT hash FROM refold_blob")})
        assert not hashes[0] & hashes[1]

    def test_a_wrong_or_missing_key_is_refused(self, tmp_path: Any) -> None:
        """Opening with another key, or without, says so before anything is read or written."""
        file = str(tmp_path / "c.db")
        with SqliteSaver.from_conn_string(file, serde=aes()) as saver:
            self.fill(saver)
        for serde in (None, aes(b"another key 1234")):
            with (
                SqliteSaver.from_conn_string(file, serde=serde) as saver,
                pytest.raises(ConfigurationError, match="encrypted"),
            ):
                saver.get_tuple(at())

    def test_an_older_plain_database_goes_on_encrypted(self, tmp_path: Any) -> None:
        """A key given later covers what is written from then on; what was there stays readable and verifies."""
        file = str(tmp_path / "c.db")
        with SqliteSaver.from_conn_string(file) as saver:
            first = put(saver, at(), {"messages": [HumanMessage(long(n), id=str(n)) for n in range(10)]})
        with SqliteSaver.from_conn_string(file, serde=aes()) as saver:
            loaded = values(saver, first)["messages"]
            second = put(saver, first, {"messages": [*loaded, HumanMessage("new", id="new")]}, 2)
            saver.compact()
            assert len(values(saver, second)["messages"]) == 11
            assert saver.verify().problems == ()

    def test_a_changed_ciphertext_is_noticed(self, tmp_path: Any) -> None:
        """Damage of an encrypted row is an error, not another value."""
        with SqliteSaver.from_conn_string(str(tmp_path / "c.db"), serde=aes()) as saver:
            config = self.fill(saver)
            saver.conn.execute("UPDATE refold_checkpoint SET data = data || x'00'")
            with pytest.raises(CorruptionError):
                saver.get_tuple(config)


class TestIds:
    def test_any_id_keeps_its_order(self, saver: SqliteSaver) -> None:
        """Ids that are no UUIDs, beside ones that are: newest, listing and `before` compare them as text."""
        known = [str(uuid6()) for _ in range(3)] + ["7", "zz", "1f", "1f1ed0fc-a8b7-6635-bfff-ebe8008ed0"]
        for checkpoint_id in known:
            saver.put(
                at(), checkpoint_of({"a": checkpoint_id}, 1, checkpoint_id), {"source": "loop", "step": 1}, {"a": 1}
            )
        ordered = sorted(known, reverse=True)
        assert [item.checkpoint["id"] for item in saver.list(at())] == ordered
        found = saver.get_tuple(at())
        assert found is not None
        assert found.checkpoint["id"] == ordered[0]
        for bound in [*known, "1", "2", "zzz"]:
            below = [item.checkpoint["id"] for item in saver.list(at(), before=at(checkpoint_id=bound))]
            assert below == [known_id for known_id in ordered if known_id < bound]

    def test_a_bound_that_is_no_uuid(self, saver: SqliteSaver) -> None:
        """`before` may be any text also where all ids are UUIDs."""
        configs = [put(saver, at(), {"a": n}) for n in range(5)]
        ids = sorted((c["configurable"]["checkpoint_id"] for c in configs), reverse=True)
        for bound in (ids[2][:20], "0", "g", ids[2] + "0"):
            found = [item.checkpoint["id"] for item in saver.list(at(), before=at(checkpoint_id=bound), limit=3)]
            assert found == [known for known in ids if known < bound][:3]

    def test_thread_ids_may_be_numbers(self, saver: SqliteSaver) -> None:
        """A thread id that is an int is the thread of that name."""
        config = put(saver, {"configurable": {"thread_id": 7, "checkpoint_ns": ""}}, {"a": 1})
        assert config["configurable"]["thread_id"] == 7
        assert saver.get_tuple(at("7")) is not None

    def test_reads_without_a_namespace(self, saver: SqliteSaver) -> None:
        """A config may lack `checkpoint_ns`: the root is meant."""
        put(saver, at(), {"a": 1})
        assert saver.get_tuple({"configurable": {"thread_id": "t"}}) is not None

    @pytest.mark.parametrize("encrypted", [False, True])
    def test_half_a_surrogate_pair(self, saver: SqliteSaver, encrypted: bool) -> None:
        """Ids of checkpoints, tasks and runs, paths, channels and metadata may have one, and come back; threads can be
        copied, pruned, deleted and collected."""
        saver = SqliteSaver(saver.conn, serde=aes() if encrypted else None)
        half = "\ud800"
        for number in range(2):
            parent = at() if number == 0 else at(checkpoint_id=f"{half}0")
            made = checkpoint_of({half: number}, number + 1, f"{half}{number}")
            config = saver.put(parent, made, {"run_id": half, "text": half}, {half: number + 1})  # type: ignore[typeddict-unknown-key]
            saver.put_writes(config, [(half, number)], half, half)
        saver.copy_thread("t", "copy")
        for thread in ("t", "copy"):
            found = [*saver.list(at(thread))]
            assert [item.checkpoint["id"] for item in found] == [f"{half}1", f"{half}0"]
            assert [item.checkpoint["channel_values"] for item in found] == [{half: 1}, {half: 0}]
            assert [item.pending_writes for item in found] == [[(half, half, 1)], [(half, half, 0)]]
            assert found[0].metadata["text"] == half  # type: ignore[typeddict-item]
        saver.prune(["t"])
        saver.delete_for_runs([half])
        assert not [*saver.list(None)]
        put(saver, at(), {"a": 1})
        saver.put(at(), checkpoint_of({"a": 1}, 1, half), {}, {"a": 1})
        saver.delete_thread("t")
        saver.gc()
        assert saver.verify().ok
        assert not [*saver.list(None)]

    def test_a_name_that_is_no_text_is_refused(self, saver: SqliteSaver) -> None:
        """A thread id or namespace with half a surrogate pair, in every call that takes one."""
        half = "\ud800"
        put(saver, at(), {"a": 1})
        calls: list[Any] = [
            lambda: saver.get_tuple(at(half)),
            lambda: saver.get_tuple(at("t", half)),
            lambda: [*saver.list(at(half))],
            lambda: put(saver, at(half), {"a": 1}),
            lambda: put(saver, at("t", half), {"a": 1}),
            lambda: saver.put_writes(at(half, "", "1"), [("a", 1)], "task"),
            lambda: saver.get_delta_channel_history(config=at(half), channels=["a"]),
            lambda: saver.delete_thread(half),
            lambda: saver.prune([half]),
            lambda: saver.copy_thread(half, "u"),
            lambda: saver.copy_thread("t", half),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match="surrogate"):
                call()

    def test_a_config_without_thread_is_refused(self, saver: SqliteSaver) -> None:
        """With a message that shows what to pass."""
        with pytest.raises(ConfigurationError, match="thread_id"):
            saver.get_tuple({"configurable": {}})

    def test_the_same_version_for_different_values(self, saver: SqliteSaver) -> None:
        """Siblings may use one version for two values; each checkpoint has its own."""
        parent = put(saver, at(), {"a": "parent" * 50})
        one, two = (put(saver, parent, {"a": text * 50}, 2) for text in ("one", "two"))
        assert values(saver, one) == {"a": "one" * 50}
        assert values(saver, two) == {"a": "two" * 50}

    def test_versions_that_are_strings_go_on(self, saver: SqliteSaver) -> None:
        """A migrated thread keeps LangGraph's string versions, growing."""
        before = "00000000000000000000000000000042.0.8131"
        after = saver.get_next_version(before, None)
        assert after > before
        assert saver.get_next_version(None, None) == 1
        assert saver.get_next_version(41, None) == 42


class TestCopies:
    @pytest.mark.parametrize("used", ["", "other", "awaited"])
    def test_a_target_that_is_used_is_refused(self, saver: SqliteSaver, used: str) -> None:
        """A target with a checkpoint in any namespace, or writes for one to come, is left as it is."""
        source = put(saver, at("source"), {"a": 1})
        put(saver, at("source", "sub"), {"a": 2})
        saver.put_writes(source, [("a", 1)], "task")
        if used == "awaited":
            saver.put_writes(at("target", "other", "1f000000-0000-6000-8000-000000000000"), [("a", 1)], "task")
        else:
            put(saver, at("target", used), {"a": 3})
        before = saver.stats()
        with pytest.raises(ConfigurationError, match="delete it first"):
            saver.copy_thread("source", "target")
        assert saver.stats() == before
        saver.delete_thread("target")
        saver.copy_thread("source", "target")
        assert [item.checkpoint for item in saver.list({"configurable": {"thread_id": "target"}})] == [
            item.checkpoint for item in saver.list({"configurable": {"thread_id": "source"}})
        ]


class TestEarlyAndLateWrites:
    def test_writes_may_come_before_their_checkpoint(self, saver: SqliteSaver) -> None:
        """In the background, a task's writes may be stored first: they are there when the checkpoint comes, and before
        that there is no checkpoint."""
        made = checkpoint_of({"a": 1})
        config = at(checkpoint_id=made["id"])
        saver.put_writes(config, [("a", 2)], "task")
        assert saver.get_tuple(config) is None
        assert list(saver.list(at())) == []
        saver.put(at(), made, {"source": "loop", "step": 1}, {"a": 1})
        found = saver.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "a", 2)]

    def test_a_parent_that_is_not_stored_stays_the_parent(self, saver: SqliteSaver) -> None:
        """The link to it is kept."""
        config = put(saver, at(checkpoint_id="missing"), {"a": 1})
        found = saver.get_tuple(config)
        assert found is not None
        assert found.parent_config == at(checkpoint_id="missing")
        assert saver.get_tuple(at(checkpoint_id="missing")) is None

    def test_a_deleted_thread_stays_deleted(self, saver: SqliteSaver) -> None:
        """Fault 152: what a run that is still going writes after its thread was deleted is dropped, however many steps;
        a new run of the thread works."""
        config = put(saver, at(), {"a": 1})
        saver.delete_thread("t")
        saver.put_writes(config, [("a", 2)], "task")
        for n in range(3):
            config = put(saver, config, {"a": n}, 2 + n)
            saver.put_writes(config, [("a", n)], "task")
        assert list(saver.list(at())) == []
        assert saver.stats().checkpoints == saver.stats().writes == saver.stats().namespaces == 0
        fresh = put(saver, at(), {"a": "new"})
        assert values(saver, fresh) == {"a": "new"}

    def test_writes_are_idempotent_and_special_ones_replace(self, saver: SqliteSaver) -> None:
        """A repeated write changes nothing; an error or interrupt of the same task takes the place of the older one."""
        config = put(saver, at(), {"a": 1})
        saver.put_writes(config, [("a", 1), ("b", 2)], "task")
        saver.put_writes(config, [("a", 9), ("b", 9), ("c", 3)], "task")
        saver.put_writes(config, [("__error__", "one")], "task")
        saver.put_writes(config, [("__error__", "two")], "task")
        found = saver.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [
            ("task", "__error__", "two"),
            ("task", "a", 1),
            ("task", "b", 2),
            ("task", "c", 3),
        ]

    def test_parallel_tasks_lose_nothing(self, saver: SqliteSaver) -> None:
        """Fault 172: threads that write for different tasks, and for one, at the same moment: all writes are there."""
        config = put(saver, at(), {"a": 1})
        barrier = threading.Barrier(8)

        def work(number: int) -> None:
            barrier.wait()
            saver.put_writes(config, [("a", number)], f"task {number}")
            saver.put_writes(config, [("x", 0)] * number + [("shared", number)], "shared task")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = saver.get_tuple(config)
        assert found is not None
        writes = found.pending_writes or []
        assert {value for task, channel, value in writes if channel == "a"} == set(range(8))
        assert len([1 for task, _, _ in writes if task == "shared task"]) == 8


class TestGrowth:
    def test_a_long_thread_is_linear(self, saver: SqliteSaver) -> None:
        """Fault 146: twice the messages take about twice the bytes, every checkpoint kept."""
        sizes = []
        config = at()
        messages: list[Any] = []
        for n in range(400):
            messages = [
                *messages,
                HumanMessage(f"{n * 7919} " + " ".join(str(n * k % 9973) for k in range(120)), id=str(n)),
            ]
            config = put(saver, config, {"messages": messages}, n + 1)
            if n + 1 in (200, 400):
                sizes.append(saver.stats().database_bytes)
        assert sizes[1] < 2.2 * sizes[0]

    def test_a_constant_channel_is_stored_once(self, saver: SqliteSaver) -> None:
        """Fault 149: a large value that does not change costs nothing per step."""
        large = {"text": "".join(str(n * n) for n in range(5000))}
        config = put(saver, at(), {"large": large, "n": 0})
        before = saver.stats().database_bytes
        for n in range(1, 100):
            made = checkpoint_of({"large": large, "n": n}, 1)
            made["channel_versions"]["n"] = n + 1
            config = saver.put(config, made, {"source": "loop", "step": n}, {"n": n + 1})
        assert saver.stats().database_bytes < before + 40_000
        assert values(saver, config) == {"large": large, "n": 99}

    def test_listing_takes_few_statements(self, saver: SqliteSaver) -> None:
        """Fault 156: a hundred checkpoints are read with a number of statements that does not follow their number."""
        config = at()
        for n in range(100):
            config = put(saver, config, {"messages": [HumanMessage(long(n), id=str(n))]}, n + 1)
            saver.put_writes(config, [("a", n)], f"task {n}")
        reader = SqliteSaver(saver.conn)
        reader.setup()
        statements: list[str] = []
        saver.conn.set_trace_callback(statements.append)
        assert len(list(reader.list(at()))) == 100
        saver.conn.set_trace_callback(None)
        assert len(statements) < 70

    def test_statements_of_a_listing_are_of_pages_not_of_threads(self, saver: SqliteSaver) -> None:
        """However many threads a page is from; and a listing that ends early reads no more than it needs."""
        heads: list[Config] = [at(f"t{number}") for number in range(320)]
        for version in range(1, 4):
            heads = [put(saver, head, {"a": version}, version) for head in heads]
        statements: list[str] = []

        def listed(**options: Any) -> list[str]:
            statements.clear()
            saver.conn.set_trace_callback(statements.append)
            found = [str(item.checkpoint["id"]) for item in saver.list(None, **options)]
            saver.conn.set_trace_callback(None)
            return found

        found = listed()
        assert found == sorted(found, reverse=True)
        assert len(found) == 960
        assert len(statements) < 6 * 960 // 32
        assert listed(limit=5) == found[:5]
        assert len(statements) < 12
        assert listed(filter={"step": 1}, limit=5) == found[640:645]
        assert len(statements) < 20
        assert listed(filter={"step": 9}) == []
        assert len(statements) < 20
        assert listed(before=at(checkpoint_id=found[900])) == found[901:]
        assert len(statements) < 20

    def test_a_fork_is_small_and_both_branches_stay(self, saver: SqliteSaver) -> None:
        """A fork of a long thread shares its values."""
        messages: list[Any] = [HumanMessage(long(n), id=str(n)) for n in range(500)]
        first = put(saver, at(), {"messages": messages[:400]})
        main = put(saver, first, {"messages": messages}, 2)
        before = saver.stats()
        fork = put(saver, first, {"messages": [*messages[:400], HumanMessage("other", id="o")]}, 2)
        after = saver.stats()
        assert after.blob_bytes - before.blob_bytes < 400
        assert values(saver, main)["messages"] == messages
        assert values(saver, fork)["messages"][-1].content == "other"


class TestRealGraphs:
    def test_a_step_that_edits_in_place(self, saver: SqliteSaver) -> None:
        """Through LangGraph: a node edits an old message and adds one; history shows the old text, the state the
        new."""

        class State(TypedDict):
            messages: Annotated[list[Any], add_messages]

        def node(state: State) -> dict[str, Any]:
            if len(state["messages"]) > 1:
                state["messages"][0].content = "edited"
            return {"messages": [AIMessage("reply")]}

        builder = StateGraph(State)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [HumanMessage("first")]}, at())
        graph.invoke({"messages": [HumanMessage("second")]}, at())
        assert graph.get_state(at()).values["messages"][0].content == "edited"
        contents = {s.values["messages"][0].content for s in graph.get_state_history(at()) if s.values.get("messages")}
        assert contents == {"edited", "first"}


class TestTheCallersObjects:
    def test_may_change_after_a_put(self, saver: SqliteSaver) -> None:
        """What is remembered of a checkpoint is a copy: a caller that reuses its dicts does not change what comes
        next."""
        made = checkpoint_of({"a": "x" * 100, "b": "y" * 100})
        metadata: Any = {"source": "loop", "step": 1, "deep": {"n": [1]}}
        config = saver.put(at(), made, metadata, {"a": 1, "b": 1})
        made["channel_versions"]["a"] = 2
        metadata["deep"]["n"].append(2)
        following = checkpoint_of({"a": "changed " * 20, "b": "y" * 100})
        following["channel_versions"]["a"] = 2
        after = saver.put(config, following, {"source": "loop", "step": 2}, {})
        assert values(saver, after)["a"] == "changed " * 20
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_versions"] == {"a": 1, "b": 1}
        assert found.metadata["deep"] == {"n": [1]}  # type: ignore[typeddict-item]

    def test_what_was_read_may_change(self, saver: SqliteSaver) -> None:
        """Metadata and versions that a read gave are the reader's own."""
        config = put(saver, at(), {"a": 1}, 1, deep={"n": [1]})
        for _ in range(2):
            found = saver.get_tuple(config)
            assert found is not None
            assert found.metadata["deep"] == {"n": [1]}  # type: ignore[typeddict-item]
            found.metadata["deep"]["n"].append(2)  # type: ignore[typeddict-item]
            found.checkpoint["channel_versions"]["a"] = 9
