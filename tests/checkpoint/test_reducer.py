"""The batch reducer: the same log however the writes are cut, and LangGraph's own where that one is well defined."""

import copy
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Overwrite

from refold.checkpoint.reducer import Write, reduce_messages

IDS = st.sampled_from(["a", "b", "c", "d", "e"])
TEXT = st.text(alphabet="xyz ", max_size=6)


def _message(kind: str, text: str, message_id: str | None) -> AnyMessage:
    match kind:
        case "human":
            return HumanMessage(text, id=message_id)
        case "ai":
            return AIMessage(text, id=message_id)
        case "chunk":
            return AIMessageChunk(content=text, id=message_id)
        case "system":
            return SystemMessage(text, id=message_id)
        case _:
            return ToolMessage(text, tool_call_id="call", id=message_id)


KINDS = st.sampled_from(["human", "ai", "tool", "system"])
MESSAGES = st.builds(_message, KINDS, TEXT, IDS | st.none() | st.just(""))
RAW = st.one_of(
    MESSAGES,
    st.builds(_message, st.just("chunk"), TEXT, IDS),
    IDS.map(lambda i: RemoveMessage(id=i)),
    st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES)),
    st.builds(lambda text, i: {"role": "user", "content": text, "id": i}, TEXT, IDS),
    st.builds(lambda i: {"type": "remove", "content": "", "id": i}, IDS),
    st.builds(lambda text: ("assistant", text), TEXT),
    TEXT,
)
LISTS = st.lists(RAW, max_size=4)
WRITES = st.one_of(
    LISTS,
    RAW,
    st.none(),
    st.builds(lambda items: Overwrite(items), LISTS),
    st.builds(lambda items: {"__overwrite__": items}, LISTS),
    st.builds(lambda items: {"type": "__overwrite__", "value": items}, LISTS),
)
STATES = st.none() | LISTS | st.lists(MESSAGES, max_size=8)


def _dump(log: Sequence[BaseMessage]) -> list[dict[str, object]]:
    return [{"class": type(message).__name__, **message.model_dump()} for message in log]


class TestTheCutDoesNotMatter:
    @given(STATES, st.lists(WRITES, max_size=6), st.lists(WRITES, max_size=6))
    def test_two_folds_equal_the_fold_of_both(
        self, state: list[AnyMessage] | None, xs: list[Write], ys: list[Write]
    ) -> None:
        """Folding batch after batch gives the same log as folding their concatenation (faults 162, 164)."""
        assert _dump(reduce_messages(reduce_messages(state, xs), ys)) == _dump(reduce_messages(state, [*xs, *ys]))

    @given(STATES, st.lists(WRITES, max_size=8))
    def test_one_write_at_a_time(self, state: list[AnyMessage] | None, writes: list[Write]) -> None:
        """The finest cut, one write a fold, gives the same log as one fold of all."""
        log = reduce_messages(state, [])
        for write in writes:
            log = reduce_messages(log, [write])
        assert _dump(log) == _dump(reduce_messages(state, writes))

    @given(STATES, st.lists(st.lists(RAW, max_size=5), max_size=5))
    def test_lists_are_transparent(self, state: list[AnyMessage] | None, writes: list[Write]) -> None:
        """Messages written as lists or one by one give the same log."""
        flat = [item for write in writes if isinstance(write, list) for item in write]
        assert _dump(reduce_messages(state, writes)) == _dump(reduce_messages(state, flat))

    def test_the_case_that_add_messages_gets_two_ways(self) -> None:
        """A removal and a new message of the same id: at the end in one fold as in two."""
        log = [HumanMessage("1", id="a"), HumanMessage("2", id="b")]
        removal, again = RemoveMessage(id="a"), HumanMessage("3", id="a")
        expected = [log[1], again]
        assert reduce_messages(log, [[removal, again]]) == expected
        assert reduce_messages(reduce_messages(log, [removal]), [again]) == expected
        assert add_messages(log, [removal, again]) != expected, "LangGraph's own depends on the cut"


class TestPurity:
    @given(STATES, st.lists(WRITES, max_size=6))
    def test_nothing_given_is_changed(self, state: list[AnyMessage] | None, writes: list[Write]) -> None:
        """Neither the state, nor a write, nor a message in them is edited."""
        before = copy.deepcopy((state, writes))
        reduce_messages(state, writes)
        assert (state, writes) == before

    @given(STATES, st.lists(WRITES, max_size=6))
    def test_replay_gives_the_same(self, state: list[AnyMessage] | None, writes: list[Write]) -> None:
        """Two folds of the same input agree in every field, ids included: nothing is made inside."""
        assert _dump(reduce_messages(state, writes)) == _dump(reduce_messages(state, writes))

    def test_no_id_is_made(self) -> None:
        """A message without an id keeps none, and is appended even when it equals another."""
        log = reduce_messages(None, ["hi", ("user", "hi"), HumanMessage("hi")])
        assert [message.id for message in log] == [None, None, None]

    def test_the_result_is_a_new_list(self) -> None:
        """Nobody's list is handed back, so a caller that appends to the result changes no state."""
        state = [HumanMessage("hi", id="a")]
        result = reduce_messages(state, [])
        assert result == state
        assert result is not state


class TestLikeLangGraph:
    @given(
        st.lists(st.builds(_message, KINDS, TEXT, IDS), max_size=6, unique_by=lambda message: message.id),
        st.lists(st.builds(_message, KINDS | st.just("chunk"), TEXT, IDS), max_size=6),
    )
    def test_appends_and_updates(self, state: list[AnyMessage], written: list[AnyMessage]) -> None:
        """Messages with ids, new or known, chunks too: what `add_messages` gives."""
        expected = add_messages(list(state), list(written))
        assert _dump(reduce_messages(state, [written])) == _dump(expected)  # type: ignore[arg-type]

    @given(
        st.lists(st.builds(_message, KINDS, TEXT, IDS), max_size=6, unique_by=lambda message: message.id),
        st.data(),
    )
    def test_removals_of_known_ids(self, state: list[AnyMessage], data: st.DataObject) -> None:
        """Removals of ids that are there, and of everything: what `add_messages` gives."""
        known = [message.id for message in state if message.id]
        removed = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        written: list[AnyMessage] = [RemoveMessage(id=message_id) for message_id in removed]
        if data.draw(st.booleans()):
            written = [*written, RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("new", id="n")]
        assert _dump(reduce_messages(state, [written])) == _dump(add_messages(list(state), list(written)))  # type: ignore[arg-type]

    @given(st.lists(st.builds(lambda text, i: {"role": "user", "content": text, "id": i}, TEXT, IDS), max_size=5))
    def test_raw_input(self, written: list[dict[str, str]]) -> None:
        """Dicts become the messages that `add_messages` makes of them."""
        assert _dump(reduce_messages(None, [written])) == _dump(add_messages([], written))  # type: ignore[arg-type]


class TestRules:
    def test_an_update_stays_in_its_place(self) -> None:
        """A known id replaces the message where it stands."""
        log = [HumanMessage("1", id="a"), AIMessage("2", id="b")]
        assert reduce_messages(log, [HumanMessage("new", id="a")]) == [HumanMessage("new", id="a"), log[1]]

    def test_an_id_written_twice_in_one_batch(self) -> None:
        """The second write of a new id updates the first."""
        assert reduce_messages([], [[AIMessage("1", id="a"), AIMessage("2", id="a")]]) == [AIMessage("2", id="a")]

    def test_removing_what_is_not_there(self) -> None:
        """An unknown id is no error: two parallel tasks may remove the same message, and replay must not raise."""
        log = [HumanMessage("1", id="a")]
        assert reduce_messages(log, [RemoveMessage(id="a"), RemoveMessage(id="a"), RemoveMessage(id="z")]) == []

    def test_a_removal_takes_every_message_of_its_id(self) -> None:
        """A log that another reducer left with an id twice loses both."""
        log = [HumanMessage("1", id="a"), AIMessage("2", id="b"), HumanMessage("3", id="a")]
        assert reduce_messages(log, [RemoveMessage(id="a")]) == [log[1]]

    def test_reset_keeps_what_follows_the_last_one(self) -> None:
        """Of several removals of everything, the last decides; what follows goes through the ordinary rules."""
        everything = RemoveMessage(id=REMOVE_ALL_MESSAGES)
        writes = [[everything, HumanMessage("1", id="a")], [everything, AIMessage("2", id="b")], AIMessage("3", id="b")]
        assert reduce_messages([HumanMessage("0", id="z")], writes) == [AIMessage("3", id="b")]

    @pytest.mark.parametrize(
        "form",
        [
            Overwrite([{"role": "user", "content": "new", "id": "n"}]),
            {"__overwrite__": [{"role": "user", "content": "new", "id": "n"}]},
            {"type": "__overwrite__", "value": [{"role": "user", "content": "new", "id": "n"}]},
        ],
        ids=["typed", "keyed", "erased"],
    )
    def test_every_form_of_overwrite(self, form: Write) -> None:
        """An overwrite, also as JSON leaves it, replaces the log; writes after it are applied."""
        after = AIMessage("after", id="m")
        assert reduce_messages([HumanMessage("old", id="o")], [HumanMessage("lost", id="l"), form, after]) == [
            HumanMessage("new", id="n"),
            after,
        ]

    def test_overwrite_by_nothing(self) -> None:
        """`Overwrite(None)` empties the log."""
        assert reduce_messages([HumanMessage("old", id="o")], [Overwrite(None)]) == []

    def test_state_of_raw_input(self) -> None:
        """A state that an overwrite left as raw dicts is coerced before the batch is applied to it (fault 166)."""
        state = [{"role": "user", "content": "1", "id": "a"}, ("assistant", "2")]
        assert reduce_messages(state, [RemoveMessage(id="a")]) == [AIMessage("2")]

    def test_no_state(self) -> None:
        """`None`, the state of a thread whose first checkpoint had no messages, is the empty log (fault 167)."""
        assert reduce_messages(None, [HumanMessage("1", id="a")]) == [HumanMessage("1", id="a")]
        assert reduce_messages(None, []) == []

    def test_a_tuple_of_messages_is_a_list(self) -> None:
        """Tuples that hold messages are lists of them; a pair of texts is one message."""
        pair = (HumanMessage("1", id="a"), AIMessage("2", id="b"))
        assert reduce_messages(None, [pair]) == list(pair)
        assert reduce_messages(None, [("user", "hello")]) == [HumanMessage("hello")]

    def test_what_is_no_message(self) -> None:
        """Anything else is refused with LangChain's error, not dropped."""
        with pytest.raises((ValueError, NotImplementedError)):
            reduce_messages(None, [[object()]])  # type: ignore[list-item]

    def test_appending_never_looks_into_messages(self) -> None:
        """The fast path reads types and ids alone: it hands on the same objects, in order."""
        log = [HumanMessage(str(n), id=str(n)) for n in range(100)]
        new = [AIMessage("x", id="x"), ToolMessage("y", tool_call_id="c", id="y")]
        result = reduce_messages(log, [new])
        assert [id(message) for message in result] == [id(message) for message in [*log, *new]]
