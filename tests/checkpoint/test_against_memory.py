"""Whatever an app does, our savers answer as LangGraph's InMemorySaver does."""

from typing import Any

import pytest
from checkpoint_graphs import GrowingState, Script, State, build
from checkpoint_mirror import MirrorSaver, plain, shown
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from refold.checkpoint import SqliteSaver, lists

STEPS = (
    "say", "call", "nameless", "replace", "remove", "restart", "scribble", "overtype", "overwrite", "trail", "file",
    "items", "note", "fan", "amend", "redact",
)  # fmt: skip

steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), min_size=1, max_size=5)
turns = st.lists(
    st.tuples(st.sampled_from(("run", "run", "run", "rewind", "update", "update old")), steps, st.integers(0, 30)),
    min_size=1,
    max_size=4,
)


def play(
    mirror: BaseCheckpointSaver[Any], script_turns: Any, thread: str, durability: str, state: type[State] = State
) -> Any:
    """Runs, forks from older checkpoints and updates, as told; the graph."""
    script = Script([])
    graph = build(script, mirror, state)
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    for kind, told, pick in script_turns:
        past = [item.config for item in mirror.list({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})]
        at = past[pick % len(past)] if past else config
        script.steps = list(told)
        match kind:
            case "run":
                graph.invoke({"note": pick}, config, durability=durability)
            case "rewind":
                graph.invoke({"note": f"again {pick}"}, at, durability=durability)
            case "update":
                graph.update_state(config, {"trail": [pick], "note": "updated"}, as_node="work")
            case _:
                graph.update_state(at, {"items": [pick], "messages": [("user", f"late {pick}")]}, as_node="work")
    return graph


def compare_everything(mirror: MirrorSaver, graph: Any, thread: str) -> None:
    """Every way to read, on every checkpoint."""
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    everything = [*mirror.list(config)]
    for item in everything:
        mirror.get_tuple(item.config)
        mirror.get_delta_channel_history(config=item.config, channels=["trail", "files", "messages"])
    graph.get_state(config)
    list(graph.get_state_history(config))
    for filtered in ({"source": "loop"}, {"step": 1}, {"source": "update", "step": 2}):
        list(mirror.list(config, filter=filtered))
    if everything:
        middle = everything[len(everything) // 2].config
        list(mirror.list(config, before=middle, limit=3))
        list(mirror.list(middle))


@pytest.mark.parametrize("durability", ["sync", "exit"])
class TestSameAnswers:
    @settings(max_examples=12)
    @given(script=turns)
    def test_for_any_run(self, script: Any, durability: str) -> None:
        """Runs, forks, updates, removals, overwrites, edits in place and parallel tasks read back the same, while the
        saver's caches are warm."""
        with SqliteSaver.from_conn_string(":memory:") as ours:
            mirror = MirrorSaver(ours, InMemorySaver())
            graph = play(mirror, script, "thread", durability)
            compare_everything(mirror, graph, "thread")
            assert ours.verify().problems == ()

    @settings(max_examples=8)
    @given(script=turns, more=turns)
    def test_after_a_restart(self, script: Any, more: Any, durability: str) -> None:
        """A saver that remembers nothing goes on with what another one wrote."""
        with SqliteSaver.from_conn_string(":memory:") as first:
            theirs = InMemorySaver()
            play(MirrorSaver(first, theirs), script, "thread", durability)
            second = SqliteSaver(first.conn)
            mirror = MirrorSaver(second, theirs)
            graph = play(mirror, more, "thread", durability)
            compare_everything(mirror, graph, "thread")
            assert second.verify().problems == ()


class TestSameAnswersWithOurReducer:
    @settings(max_examples=12)
    @given(script=turns, more=turns)
    def test_for_any_run(self, script: Any, more: Any) -> None:
        """`add_messages` of refold in the place of LangGraph's, in a run and after a restart."""
        with SqliteSaver.from_conn_string(":memory:") as first:
            theirs = InMemorySaver()
            mirror = MirrorSaver(first, theirs)
            compare_everything(mirror, play(mirror, script, "thread", "sync", GrowingState), "thread")
            second = SqliteSaver(first.conn)
            mirror = MirrorSaver(second, theirs)
            compare_everything(mirror, play(mirror, more, "thread", "sync", GrowingState), "thread")
            assert second.verify().problems == ()

    @settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(script=turns, more=turns)
    def test_where_old_messages_are_not_compared(self, script: Any, more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """All that a step returns is stored, an edited old message and a whole edited log too, where hardly any message
        is new enough to be compared without being returned."""
        monkeypatch.setattr(lists, "NEWEST", 1)
        careless = {"scribble", "overtype"}
        first, second = (
            [(kind, [step for step in steps if step[0] not in careless], pick) for kind, steps, pick in told]
            for told in (script, more)
        )
        with SqliteSaver.from_conn_string(":memory:") as ours:
            mirror = MirrorSaver(ours, InMemorySaver())
            play(mirror, first, "thread", "sync", GrowingState)
            compare_everything(mirror, play(mirror, second, "thread", "sync", GrowingState), "thread")
            assert ours.verify().problems == ()


class TestIntegerVersions:
    @settings(max_examples=10)
    @given(script=turns)
    def test_same_states_with_our_own_versions(self, script: Any) -> None:
        """Versions that are plain integers, two siblings with the same one included, give the states that LangGraph's
        random ones give. (LangGraph's savers key values by version, so there siblings with one version collide.)"""
        told = [
            (kind, [(name, n) for name, n in steps if name != "nameless"], pick)
            for kind, steps, pick in script
            if kind != "update old"  # makes a message without an id, which would be another in each run
        ]
        states = []
        with SqliteSaver.from_conn_string(":memory:") as ours:
            for saver in (ours, InMemorySaver()):
                graph = play(saver, told, "thread", "sync")
                past = graph.get_state_history({"configurable": {"thread_id": "thread"}})
                states.append([(shown(item.values), item.next, item.metadata["step"]) for item in past])
        assert states[0] == states[1]


class TestWhatStaysAfterRemoval:
    @settings(max_examples=12)
    @given(script=turns, keep=st.integers(1, 4))
    def test_kept_checkpoints_read_as_before(self, script: Any, keep: int) -> None:
        """After a prune, a collection and a compaction every checkpoint that is still listed is what it was, its delta
        channels included, and the thread goes on."""
        with SqliteSaver.from_conn_string(":memory:") as ours:
            theirs = InMemorySaver()
            mirror = MirrorSaver(ours, theirs)
            graph = play(mirror, script, "thread", "sync")
            config: RunnableConfig = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
            before = [*ours.list(config)]
            states = [graph.get_state(item.config).values for item in before]
            ours.prune(["thread"], strategy="keep_last", keep=keep)
            ours.gc()
            ours.compact()
            assert ours.verify().problems == ()
            plain_graph = build(Script([]), ours)
            after = [*ours.list(config)]
            assert [plain(item, with_parent=False) for item in after] == [
                plain(item, with_parent=False) for item in before[:keep]
            ]
            for item, expected in zip(after, states, strict=False):
                assert plain_graph.get_state(item.config).values == expected
            plain_graph.invoke({"note": "goes on"}, {"configurable": {"thread_id": "thread"}})
            assert ours.verify().problems == ()

    @settings(max_examples=8)
    @given(script=turns)
    def test_a_copy_is_the_thread(self, script: Any) -> None:
        """A copy has every checkpoint and write of the original, and outlives it."""
        with SqliteSaver.from_conn_string(":memory:") as ours:
            theirs = InMemorySaver()
            mirror = MirrorSaver(ours, theirs)
            play(mirror, script, "thread", "sync")
            ours.copy_thread("thread", "copy")
            ours.delete_thread("thread")
            ours.gc()
            assert ours.verify().problems == ()
            copied = [*ours.list({"configurable": {"thread_id": "copy"}})]
            original = [*theirs.list({"configurable": {"thread_id": "thread"}})]
            assert [unnamed(item) for item in copied] == [unnamed(item) for item in original]


def unnamed(item: Any) -> Any:
    found = plain(item)
    assert isinstance(found, dict)
    return {
        **found,
        "place": found["place"][1:],
        "parent": found["parent"] and found["parent"][1:],
        "metadata": {k: v for k, v in found["metadata"].items() if k != "thread_id"},
    }
