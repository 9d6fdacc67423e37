"""Folds as a file format: plain JSON, versioned, derived ids, a pure reducer."""

import json
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from refold.core.folds import Anchor, Fold, append_folds, make_fold, read_folds, span_digest, span_of
from refold.core.policy import Policy
from refold.testing.world import World

ANCHOR = Anchor(key="m1", hash="a" * 32)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def fold(kind: str = "args", data: Mapping[str, object] | None = None) -> Fold:
    return make_fold(
        kind, data if data is not None else {"items": []}, pass_id="p", reason="trigger", at=ANCHOR, before=10,
        after=5, scale=1.23456,
    )  # type: ignore[arg-type]  # fmt: skip


class TestFoldsArePlainJson:
    def test_a_fold_reads_back_as_it_was_written(self) -> None:
        """Every field survives the way through the state."""
        made = fold(data={"items": [{"m": "m1", "h": "a" * 32, "values": ["v"], "message": "m1", "reader": "r"}]})
        folds, unreadable = read_folds([json.loads(json.dumps(made.to_json()))])
        assert unreadable == ()
        assert folds == (made,)
        assert folds[0].items[0].data == {"values": ["v"], "message": "m1", "reader": "r"}

    def test_a_fold_survives_langgraphs_serializer(self) -> None:
        """What a checkpointer gives back is the same JSON (fault 42: a stored summary comes back as a plain dict)."""
        serde = JsonPlusSerializer()
        raw = fold("state", {"text": "中文 ✓"}).to_json()
        assert serde.loads_typed(serde.dumps_typed([raw])) == [raw]

    @given(st.lists(st.dictionaries(st.text(max_size=6), json_values, max_size=6) | json_values, max_size=5))
    def test_garbage_is_kept_aside_never_raised(self, raw: list[object]) -> None:
        """A fold of another kind, version or shape is reported, and no other fold suffers from it."""
        good = fold()
        folds, unreadable = read_folds([*raw, good.to_json()])  # type: ignore[list-item]
        assert folds == (good,)
        assert len(unreadable) == len(raw)

    def test_unknown_kinds_and_versions_say_what_to_do(self) -> None:
        """A newer refold's fold is named, with the advice to upgrade."""
        newer = {**fold().to_json(), "v": 2}
        other = {**fold().to_json(), "kind": "teleport"}
        _, unreadable = read_folds([newer, other])
        assert [entry.id for entry in unreadable] == [fold().id, fold().id]
        assert all("upgrade refold" in entry.reason for entry in unreadable)

    def test_ids_follow_from_content(self) -> None:
        """The same fold has the same id in every process; other content has another."""
        assert fold().id == fold().id
        assert fold().id != fold(data={"items": [{"m": "x", "h": "y"}]}).id


class TestReducerIsPure:
    @given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 12))
    def test_batching_does_not_matter(self, numbers: list[int], cut: int) -> None:
        """Appending in two batches equals appending in one, and repeating a batch changes nothing."""
        raw = [fold(data={"items": [{"m": str(n), "h": "h"}]}).to_json() for n in numbers]
        unique = list({entry["id"]: entry for entry in raw}.values())
        first, second = unique[:cut], unique[cut:]
        assert append_folds(append_folds(None, first), second) == append_folds([], unique)
        assert append_folds(append_folds([], unique), unique) == unique

    def test_inputs_are_not_changed(self) -> None:
        """A replay gives the same result."""
        left: list[Mapping[str, object]] = []
        append_folds(left, [fold().to_json()])  # type: ignore[arg-type]
        assert left == []


class TestSpans:
    @given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=1, max_size=8))
    def test_a_digest_depends_on_every_key_and_hash(self, pairs: list[tuple[str, str]]) -> None:
        """Another key or hash anywhere in the span gives another digest."""
        anchors = [Anchor(key=key, hash=content) for key, content in pairs]
        changed = [*anchors[:-1], Anchor(key=anchors[-1].key, hash=anchors[-1].hash + "x")]
        assert span_digest(anchors) != span_digest(changed)
        assert span_of(anchors).count == len(anchors)


class TestAChainedRequestSeesTheFold:
    def test_answers_before_a_fold_lose_their_response_id(self) -> None:
        """With `use_previous_response_id` the server goes on from the newest answer with an id: what was said before
        the fold must not be that, what is said after it may."""
        here = World(limit=2_000, policy=Policy(output_reserve=200, summary_backoff=0.0))
        log: list[BaseMessage] = [HumanMessage("Do it.", id="h0")]

        def work(start: int) -> None:
            for n in range(start, start + 30):
                call = {"id": f"c{n}", "name": "run", "args": {}}
                log.append(AIMessage("", id=f"a{n}", tool_calls=[call], response_metadata={"id": f"resp_{n}"}))
                log.append(ToolMessage("a line of output\n" * 10, tool_call_id=f"c{n}", id=f"t{n}"))

        work(0)
        folds = here.call(log).folds
        assert folds
        answers = [message for message in here.sent[-1] if isinstance(message, AIMessage)]
        assert answers
        assert not any("id" in message.response_metadata for message in answers)
        log.append(AIMessage("Well.", id="after", response_metadata={"id": "resp_after"}))
        log.append(HumanMessage("And?", id="h1"))
        assert here.call(log, folds).folds == ()
        chained = [m.response_metadata.get("id") for m in here.sent[-1] if isinstance(m, AIMessage)]
        assert chained == [*(None for _ in answers), "resp_after"]
        assert log[1].response_metadata == {"id": "resp_0"}
