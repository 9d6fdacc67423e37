"""Listings of many threads and namespaces: their order, and what happens to the database while they go on."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from refold.checkpoint import PostgresSaver, SqliteSaver, listing

Config = Any
NAMES = ("1f000000-0000-6000-8000-00000000000{}", "{}", "zz{}", "1F000000-0000-6000-8000-00000000000{}")
ids = st.builds(str.format, st.sampled_from(NAMES), st.integers(0, 9))
uuids = st.builds(NAMES[0].format, st.integers(0, 9))
spaces = st.tuples(st.sampled_from(("a", "b", "c")), st.sampled_from(("", "sub")))
puts = st.lists(st.tuples(spaces, uuids | ids, st.integers(0, 2)), max_size=40)


def at(thread: str, ns: str = "", checkpoint_id: str | None = None) -> Config:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **named}}


def put(saver: SqliteSaver | PostgresSaver, thread: str, ns: str, checkpoint_id: str, step: int = 0) -> None:
    made = empty_checkpoint()
    made["id"] = checkpoint_id
    made["channel_values"] = {"a": f"{thread} {ns} {checkpoint_id}"}
    made["channel_versions"] = {"a": 1}
    saver.put(at(thread, ns), made, {"source": "loop", "step": step}, {"a": 1})


def shown(item: Any) -> tuple[str, str, str, int]:
    place = item.config["configurable"]
    named = place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]
    assert item.checkpoint["id"] == named[2]
    assert item.checkpoint["channel_values"] == {"a": " ".join(named)}
    return (*named, item.metadata["step"])


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of few checkpoints of few namespaces."""
    monkeypatch.setattr(listing, "PAGE", 3)
    monkeypatch.setattr(listing, "_KEYS", 4)
    monkeypatch.setattr(listing, "_TOGETHER", 2)


@pytest.mark.usefixtures("narrow")
class TestOrder:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        stored=puts,
        thread=st.sampled_from((None, "a")),
        ns=st.sampled_from((None, "", "sub")),
        before=st.none() | ids,
        only=st.none() | ids,
        step=st.sampled_from((None, 1)),
        limit=st.sampled_from((None, 1, 4)),
    )
    def test_is_that_of_a_list_that_is_sorted(
        self, stored: Any, thread: str | None, ns: str | None, before: str | None, only: str | None, step: int | None,
        limit: int | None,
    ) -> None:  # fmt: skip
        """Whatever the ids are, and in whatever threads and namespaces: newest first, as texts compare."""
        known = {(*space, checkpoint_id): step for space, checkpoint_id, step in stored}
        config: Config = None
        if thread is not None:
            options = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": only}
            config = {"configurable": {key: value for key, value in options.items() if value is not None}}
        with SqliteSaver.from_conn_string(":memory:") as saver:
            for space, checkpoint_id, number in stored:
                put(saver, *space, checkpoint_id, number)
            found = [
                shown(item)
                for item in saver.list(
                    config,
                    filter=None if step is None else {"step": step},
                    before=None if before is None else at("", "", before),
                    limit=limit,
                )
            ]
        expected = [
            (*key, number)
            for key, number in known.items()
            if (before is None or key[2] < before)
            and (step is None or number == step)
            and (config is None or (key[0] == thread and (ns is None or key[1] == ns) and (not only or key[2] == only)))
        ]
        assert [item[2] for item in found] == sorted((key[2] for key in expected), reverse=True)[:limit]
        assert set(found) <= set(expected)
        assert len(set(found)) == len(found)

    def test_filters_compare_as_python_does(self, saver: SqliteSaver) -> None:
        """Whatever the metadata is: texts, which are in the templates of rows, and all else."""
        values: list[Any] = [
            "text", "", "1", 1, 1.0, True, False, 0, None, {"a": "b"}, {"a": 1}, ["x"], [], {},
            "1f000000-0000-6000-8000-000000000000", b"bytes", {1: 2},
        ]  # fmt: skip
        stored: list[dict[str, Any]] = [{"source": "loop", "k": value} for value in values]
        stored += [{"source": "input"}, {}, {"other": "text"}]
        for number, metadata in enumerate(stored):
            made = empty_checkpoint()
            made["id"] = f"{number:03}"
            saver.put(at(f"t{number % 5}"), made, metadata, {})  # type: ignore[arg-type]
        wanted: list[dict[str, Any]] = [{"k": value} for value in values]
        wanted += [{"source": "loop", "k": "text"}, {"source": "input"}, {"source": "input", "k": None}, {"no": None}]
        for query in wanted:
            found = [item.checkpoint["id"] for item in saver.list(None, filter=query)]
            assert found == [
                f"{number:03}"
                for number in reversed(range(len(stored)))
                if all(stored[number].get(key) == value for key, value in query.items())
            ], query

    def test_is_the_same_on_postgres(self, postgres_url: str) -> None:
        """Namespaces with ids of both kinds, and a filter."""
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            for number, (thread, ns) in itertools.product(range(5), (("a", ""), ("b", ""), ("b", "sub"))):
                put(saver, thread, ns, NAMES[number % 2 if thread == "a" else 0].format(number), number)
            found = [shown(item) for item in saver.list(None)]
            assert [item[2] for item in found] == sorted((item[2] for item in found), reverse=True)
            assert len(set(found)) == 15
            assert [shown(item) for item in saver.list(None, filter={"step": 3}, limit=2)] == [
                item for item in found if item[3] == 3
            ][:2]
            bound = at("", "", found[9][2])
            assert [shown(item) for item in saver.list(None, before=bound)] == [
                item for item in found if item[2] < found[9][2]
            ]


@pytest.mark.usefixtures("narrow")
class TestChangesMeanwhile:
    @pytest.fixture
    def begun(self, saver: SqliteSaver) -> tuple[SqliteSaver, Iterator[Any], list[Any]]:
        """Four threads of six checkpoints each, and a listing of which some pages were read."""
        for number, thread in itertools.product(range(6), "abcd"):
            put(saver, thread, "", NAMES[0].format(number), number)
        going = saver.list(None)
        return saver, going, [shown(next(going)) for _ in range(6)]

    def test_deleted_threads_are_not_missed(self, begun: Any) -> None:
        """What is deleted while a listing goes on is left out of what was not read yet; the rest comes."""
        saver, going, found = begun
        saver.delete_thread("b")
        saver.gc()
        rest = [shown(item) for item in going]
        assert {item[0] for item in rest} == set("acd")
        assert {item for item in [*found, *rest] if item[0] != "b"} == {
            (thread, "", NAMES[0].format(number), number) for number in range(6) for thread in "acd"
        }

    def test_removed_checkpoints_stop_nothing(self, begun: Any) -> None:
        """Where the row at which a listing stands is removed, it goes on behind it, and gives nothing twice."""
        saver, going, found = begun
        for seq in [row[0] for row in saver.conn.execute("SELECT seq FROM refold_checkpoint ORDER BY id, seq")][8:16]:
            saver.conn.execute("DELETE FROM refold_checkpoint WHERE seq = ?", (seq,))
        rest = [shown(item) for item in going]
        everything = [*found, *rest]
        assert {item[2:] for item in everything} >= {(NAMES[0].format(number), number) for number in (0, 1, 4, 5)}
        assert len(everything) == len(set(everything))
        assert sum(item[3] in (0, 1) for item in everything) == 8

    def test_a_space_that_becomes_wide(self, begun: Any) -> None:
        """Ids of another kind that come to a thread change nothing of what is listed."""
        saver, going, found = begun
        for thread in "abcd":
            put(saver, thread, "", "zz", 9)
        rest = [shown(item) for item in going]
        assert len({*found, *rest}) == len(found) + len(rest) == 24

    def test_hidden_checkpoints_are_left_out(self, begun: Any) -> None:
        """Also where the listing stands at one."""
        saver, going, found = begun
        saver.conn.execute("UPDATE refold_checkpoint SET state = 1 WHERE id >= ?", (bytes.fromhex(
            NAMES[0].format(2).replace("-", "")),))  # fmt: skip
        rest = [shown(item) for item in going]
        assert sum(item[3] in (0, 1) for item in rest) == 8
        assert len(rest) < 8 + 3  # what is left of the page that was read
        assert not set(rest) & set(found)
