"""The repair of a log itself: pairing is whole afterwards, nothing else changes, and a second time changes nothing."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph.message import add_messages

from refold.agent.repair import LogRepair, log_update
from refold.checkpoint.reducer import reduce_messages
from refold.core.blocks import blocks_of
from refold.core.repair import repair
from refold.core.repair.logged import check_log, repaired_log, waiting_calls
from refold.testing.strategies import histories

WRITTEN = {"answered", "moved", "orphan-dropped", "duplicate-dropped", "call-id"}


def ai(identity: str, *calls: str) -> AIMessage:
    return AIMessage("", id=identity, tool_calls=[{"name": "f", "args": {}, "id": call} for call in calls])


def tool(identity: str, call: str, text: str = "r") -> ToolMessage:
    return ToolMessage(text, id=identity, tool_call_id=call)


def pairing_faults(messages: Sequence[BaseMessage]) -> list[str]:
    found = repair(messages, waiting=waiting_calls(messages)).repairs
    return [mended.kind for mended in found if mended.kind in WRITTEN]


def named(history: list[BaseMessage]) -> list[BaseMessage]:
    """The history with an id on each message, as LangGraph's reducer leaves it."""
    return [m if m.id else m.model_copy(update={"id": f"given-{n}"}) for n, m in enumerate(history)]


ODD = histories(without={"missing_message_ids"}).map(named)
DAMAGED: list[BaseMessage] = [
    HumanMessage("go", id="h0"),
    ai("a0", "x", "y"),
    tool("t0", "x"),
    HumanMessage("never mind", id="h1"),
    tool("stray", "nobody"),
    AIMessage("done", id="a1"),
    tool("again", "x", "second answer"),
    HumanMessage("next", id="h2"),
]


class TestPairingIsWholeAfterwards:
    @settings(max_examples=30)
    @given(ODD)
    def test_any_history(self, history: list[BaseMessage]) -> None:
        """No pairing fault is left; doing it again changes nothing; a log without faults stays as it is."""
        mended = list(repaired_log(history))
        assert pairing_faults(mended) == []
        assert len({message.id for message in mended}) == len(mended)
        assert list(repaired_log(mended)) == mended
        assert check_log(mended) is not None
        if check_log(history) is not None:
            assert log_update(history, repaired_log(history)) == []

    @settings(max_examples=30)
    @given(ODD)
    def test_what_is_no_pairing_stays(self, history: list[BaseMessage]) -> None:
        """Messages that are no results keep their order and their text; real results keep theirs."""
        mended = repaired_log(history)
        spoken = [(m.type, m.text) for m in history if not isinstance(m, ToolMessage) and m.text]
        assert [(m.type, m.text) for m in mended if not isinstance(m, ToolMessage) and m.text] == spoken
        texts = [str(m.content) for m in history if isinstance(m, ToolMessage)]
        blocks = [block for m in history if isinstance(m, HumanMessage) for block in blocks_of(m)]
        texts += [str(block.raw["content"]) for block in blocks if block.kind == "answer"]
        made = [m for m in mended if isinstance(m, ToolMessage) and "refold" not in m.additional_kwargs]
        assert all(str(m.content) in texts for m in made if isinstance(m.content, str))

    def test_what_each_fault_becomes(self) -> None:
        """The unanswered call is answered in place, the stray and the second result are gone."""
        mended = repaired_log(DAMAGED)
        assert [m.id for m in mended if "refold" not in m.additional_kwargs] == ["h0", "a0", "t0", "h1", "a1", "h2"]
        assert mended[3].additional_kwargs["refold"] == {"kind": "repair", "reason": "unknown"}

    def test_a_late_answer_takes_the_place_of_the_synthetic_one(self) -> None:
        """What was not known when the log was mended is known now."""
        log = list(repaired_log([HumanMessage("go", id="h"), ai("a", "x"), HumanMessage("hm", id="h2")]))
        assert log[2].additional_kwargs["refold"]["kind"] == "repair"
        log = list(repaired_log([*log, tool("late", "x", "here it is")]))
        assert [m.id for m in log] == ["h", "a", "late", "h2"]

    def test_the_newest_round_waits(self) -> None:
        """Calls that a tool or a human may still answer are left alone; malformed ones never run."""
        bad = {"name": "f", "args": "{", "id": "bad", "error": "cut", "type": "invalid_tool_call"}
        newest = AIMessage("", id="a", tool_calls=[{"name": "f", "args": {}, "id": "x"}], invalid_tool_calls=[bad])
        mended = repaired_log([HumanMessage("go", id="h"), newest])
        assert [getattr(m, "tool_call_id", None) for m in mended] == [None, None, "bad"]

    def test_what_a_summary_covers_stays(self) -> None:
        """Messages before the start are not touched, and a late answer to a call among them is not lost."""
        log: list[BaseMessage] = [HumanMessage("go", id="h"), ai("a", "x", "y"), HumanMessage("on", id="h2")]
        assert list(repaired_log([*log, tool("late", "x")], start=3)) == [*log, tool("late", "x")]


class TestTheUpdateIsPlainMessages:
    """Fault 79: whatever carries it, the thread goes on."""

    @pytest.mark.parametrize("reducer", [add_messages, lambda left, right: reduce_messages(left, [right])])
    @settings(max_examples=30)
    @given(ODD)
    def test_both_reducers_and_json_give_the_mended_log(
        self, reducer: Callable[[Any, Any], Any], history: list[BaseMessage]
    ) -> None:
        """The reducers make the mended log of the update, also of one that went through JSON."""
        mended = list(repaired_log(history))
        update = log_update(history, mended)
        carried = json.loads(json.dumps([message.model_dump(mode="json") for message in update]))
        for given_update in (update, carried) if update else ():
            assert [(m.type, m.id, m.content or "") for m in reducer(list(history), given_update)] == [
                (m.type, m.id, m.content or "") for m in mended
            ]

    def test_it_is_small_where_nothing_comes_into_the_middle(self) -> None:
        """Removals and results at the end do not write the log again."""
        log = [HumanMessage("go", id="h"), tool("stray", "nobody"), ai("a", "x"), tool("t", "x")]
        assert [(m.type, m.id) for m in log_update(log, repaired_log(log))] == [("remove", "stray")]


class TestWorkIsOfWhatIsNew:
    @settings(max_examples=30)
    @given(histories(without={"missing_message_ids", "duplicate_message_ids"}), st.data())
    def test_a_log_that_was_checked_before(self, history: list[BaseMessage], data: st.DataObject) -> None:
        """However the log grew, a check with what is known finds what a check of the whole finds."""
        known = None
        for size in [*sorted(data.draw(st.lists(st.integers(0, len(history)), max_size=5))), len(history)]:
            found = check_log(history[:size], known=known)
            assert (found is None) == (check_log(history[:size]) is None)
            known = found or known

    def test_settled_messages_are_not_looked_at_again(self) -> None:
        """All but the newest round is settled, so that each look is at the newest."""
        history: list[BaseMessage] = [HumanMessage("go", id="h")]
        known = None
        for number in range(50):
            history += [ai(f"a{number}", f"x{number}"), tool(f"t{number}", f"x{number}")]
            known = check_log(history, known=known)
            assert known is not None
            assert len(history) - known.settled <= 2

    def test_a_fault_that_must_stay_is_accepted_once(self) -> None:
        """A fault before a summary's end gives no update, at this call or the next."""
        log: list[BaseMessage] = [HumanMessage("go", id="h"), tool("stray", "nobody"), AIMessage("ok", id="a")]
        mending = LogRepair()
        assert [m.id for m in mending.update("t", log, [])] == ["stray"]
        assert mending.update("t", [log[0], log[2]], []) == []
