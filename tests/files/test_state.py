"""Files in graph state: deltas, and a reducer that replays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from refold.errors import ConfigurationError
from refold.files import CompositeFiles, FilesState, MemoryFiles, StateFiles, files_session, reduce_files
from refold.files.state import CHANNEL

DELTAS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["put", "append", "create", "drop"]),
            "path": st.sampled_from(["/a", "/b"]),
            "size": st.integers(0, 9),
            "modified": st.floats(0, 9),
            "pieces": st.lists(st.fixed_dictionaries({"encoding": st.just("utf-8"), "data": st.text(max_size=3)})),
        }
    ),
    max_size=4,
)


class TestTheReducer:
    """Pure, and the same in any batches."""

    @given(st.lists(DELTAS, max_size=5), st.integers(0, 5))
    def test_batches_do_not_matter(self, writes: list[list[Any]], at: int) -> None:
        """Replaying writes in one batch or in several gives the same files, and the input is not touched."""
        before = json.dumps(writes)
        whole = reduce_files({}, writes)
        assert reduce_files(reduce_files({}, writes[:at]), writes[at:]) == whole
        assert reduce_files(None, writes) == whole
        assert json.dumps(writes) == before

    def test_deltas_survive_json(self) -> None:
        """An update that went through a JSON boundary does the same."""
        files = StateFiles(clock=lambda: 5.0)
        with files.session({}) as session:
            files.write("/a", b"\x00\xff", mode="create")
            files.write("/a", "中".encode(), mode="append")
            update = session.update()
        state = reduce_files({}, [json.loads(json.dumps(update[CHANNEL]))])
        with files.session({CHANNEL: json.loads(json.dumps(state))}):
            assert files.read("/a") == b"\x00\xff" + "中".encode()
            assert files.stat("/a").modified == 5.0  # type: ignore[union-attr]

    def test_the_first_create_of_a_step_stays(self) -> None:
        """Two calls of one step that create one path with other bytes: the reducer never overwrites."""
        files = StateFiles()
        updates = []
        for data in (b"first", b"second"):
            with files.session({}) as session:
                files.write("/a", data, mode="create")
                updates.append(session.update()[CHANNEL])
        with files.session({CHANNEL: reduce_files({}, updates)}):  # type: ignore[arg-type]
            assert files.read("/a") == b"first"


class TestDeltas:
    """A write is a delta."""

    def test_an_update_holds_only_what_changed(self) -> None:
        """With 1 MB in state, appending a line is an update of less than 300 bytes."""
        files = StateFiles()
        with files.session({}) as session:
            files.write("/big", b"x" * 1_000_000, mode="create")
            state = {CHANNEL: reduce_files({}, [session.update()[CHANNEL]])}  # type: ignore[list-item]
        with files.session(state) as session:
            files.write("/big", b"one line\n", mode="append")
            assert len(json.dumps(session.update())) < 300

    def test_checkpoints_grow_by_the_deltas(self) -> None:
        """Fifty steps that append 1 kB to a file of 200 kB store no copy of it per step."""
        files = StateFiles()

        def write(state: FilesState) -> dict[str, object]:
            with files.session(state) as session:
                files.write("/log", b"y" * 1_000 if files.stat("/log") else b"x" * 200_000, mode="append")
                return session.update()

        graph = StateGraph(FilesState)
        graph.add_node("write", write)
        graph.add_edge(START, "write")
        graph.add_edge("write", END)
        saver = InMemorySaver()
        compiled = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "1"}}
        for _ in range(51):
            compiled.invoke({}, config)
        stored = sum(len(value[1]) for value in saver.blobs.values())
        stored += sum(len(write[2][1]) for writes in saver.writes.values() for write in writes.values())
        with files.session(compiled.get_state(config).values):
            assert len(files.read("/log")) == 250_000
        assert stored < 3 * 250_000


class TestSessions:
    """State is changed only by what a node returns."""

    def test_outside_of_a_session(self) -> None:
        """Each method says what to do."""
        with pytest.raises(ConfigurationError, match="session"):
            StateFiles().read("/a")
        with pytest.raises(ConfigurationError, match="session"):
            StateFiles().write("/a", b"", mode="create")

    def test_own_writes_are_seen_and_leave_with_the_session(self) -> None:
        """A session reads what it wrote; the state that it was given does not change."""
        files = StateFiles()
        state: dict[str, object] = {}
        with files.session(state) as session:
            files.write("/a", b"x", mode="create")
            assert files.read("/a") == b"x"
            with files.session({}) as inner:
                assert inner is session
        assert state == {}
        with files.session(state) as session:
            assert files.stat("/a") is None
            assert session.update() == {}

    def test_any_files_have_sessions(self) -> None:
        """`files_session` opens the state parts of composites, and costs others nothing."""
        with files_session(MemoryFiles(), {}) as session:
            assert session.update() == {}
        mounted = CompositeFiles(MemoryFiles(), {"/t": CompositeFiles(MemoryFiles(), {"/u": StateFiles()})})
        with files_session(mounted, {}) as session:
            mounted.write("/t/u/a", b"1", mode="create")
            mounted.write("/t/b", b"2", mode="create")
            assert [delta["path"] for delta in session.update()[CHANNEL]] == ["/a"]  # type: ignore[index]
        twice = CompositeFiles(StateFiles(), {"/t": StateFiles()})
        with pytest.raises(ConfigurationError, match="two StateFiles"), files_session(twice, {}):
            pass
