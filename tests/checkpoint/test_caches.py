"""What savers remember: never more than they were told, and nothing that another branch stored."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from refold.checkpoint import SqliteSaver
from refold.checkpoint.caches import Lru, weight_of
from refold.checkpoint.lists import mark_of


def at(thread: str, checkpoint_id: str | None = None) -> Any:
    found = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": found if checkpoint_id is None else {**found, "checkpoint_id": checkpoint_id}}


def put(saver: SqliteSaver, config: Any, messages: list[BaseMessage], run: str = "r") -> Any:
    made = empty_checkpoint()
    made["id"] = str(uuid6())
    made["channel_values"] = {"messages": messages}
    made["channel_versions"] = {"messages": len(messages)}
    metadata: Any = {"source": "loop", "step": len(messages), "run_id": run}
    return saver.put(config, made, metadata, {"messages": len(messages)})


def say(count: int, size: int = 200) -> list[BaseMessage]:
    return [HumanMessage(f"message {number} " + "x" * size, id=str(number)) for number in range(count)]


class TestBranches:
    @pytest.mark.parametrize("same", [True, False], ids=["the same objects", "equal ones"])
    def test_what_another_branch_stored_is_not_relied_on(self, saver: SqliteSaver, same: bool) -> None:
        """A step that is repeated after its first outcome was deleted and collected stores its values again."""
        base = put(saver, at("t"), say(20), "first")
        longer = say(21)
        put(saver, base, longer, "second")
        saver.delete_for_runs(["second"])
        saver.gc()
        put(saver, base, longer if same else say(21), "third")
        assert saver.verify().problems == ()
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == say(21)

    def test_two_branches_of_one_parent(self, saver: SqliteSaver) -> None:
        """Each branch reads back its own end, however often the writer goes from one to the other."""
        base = put(saver, at("t"), say(20))
        heads = dict.fromkeys("ab", base)
        lists = {name: say(20) for name in "ab"}
        for number in range(6):
            for name in "ab":
                lists[name] = [*lists[name], HumanMessage(f"{name} {number}", id=f"{name}{number}")]
                heads[name] = put(saver, heads[name], lists[name], name)
        for name in "ab":
            found = saver.get_tuple(heads[name])
            assert found is not None
            assert found.checkpoint["channel_values"]["messages"] == lists[name]
        assert saver.verify().problems == ()


class TestBounds:
    def saver_of(self, path: Path, cache_bytes: int) -> SqliteSaver:
        return SqliteSaver(
            sqlite3.connect(path, check_same_thread=False, isolation_level=None), cache_bytes=cache_bytes
        )

    def test_many_threads_do_not_fill_the_memory(self, tmp_path: Path) -> None:
        """What is remembered of lists is bounded by `cache_bytes`, whatever the messages weigh."""
        saver = self.saver_of(tmp_path / "db", 500_000)
        with closing(saver.conn):
            for number in range(60):
                put(saver, at(f"t{number}"), say(10, 20_000))
            lists = saver._shared.caches.lists
            held = sum(weight_of(state.elements.marks) for state in lists._items.values())
            assert held == lists._used <= 4 * 500_000

    def test_the_list_that_grows_is_remembered_however_long_it_is(self, tmp_path: Path) -> None:
        """A thread that weighs more than the cache may hold is not serialized anew in each step."""
        saver = self.saver_of(tmp_path / "db", 10)
        with closing(saver.conn):
            messages: list[BaseMessage] = []
            config = at("t")
            for number in range(30):
                messages = [*messages, AIMessage("x" * 5_000, id=str(number))]
                config = put(saver, config, messages)
            assert [state.length for state in saver._shared.caches.lists._items.values()] == [30]

    def test_the_weight_of_growing_lists_is_that_of_their_elements(self, saver: SqliteSaver) -> None:
        """Counted step by step, and after a shorter list went on another way, it is what counting anew gives."""
        messages = say(5)
        config = put(saver, at("t"), messages)
        for number in range(20):
            messages = [*(messages if number % 7 else messages[:3]), HumanMessage("y" * 300, id=f"n{number}")]
            config = put(saver, config, messages)
        for state in saver._shared.caches.lists._items.values():
            counted = weight_of([mark_of(element) for element in state.elements.objects[: state.length]])
            assert abs(state.weight - counted) < counted * 0.2

    def test_the_last_ones_stay(self) -> None:
        """A bounded mapping keeps as many of its last values as it is told to, whatever they cost."""
        lru: Lru[int, int] = Lru(10, sum, keep=2)
        for number in range(5):
            lru.put(number, 100)
        assert [lru.get(number) for number in range(5)] == [None, None, None, 100, 100]
