"""Rounds: results find their calls, and cuts never split what belongs together."""

from collections.abc import Sequence

from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.blocks import blocks_of
from refold.core.messages import answers_of, calls_of
from refold.core.rounds import pair, units_of
from refold.testing.strategies import histories


def calls(*ids: str | None) -> AIMessage:
    return AIMessage("", tool_calls=[{"type": "tool_call", "id": i, "name": "f", "args": {}} for i in ids])


def result(call_id: str, text: str = "r") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def answered(messages: Sequence[BaseMessage]) -> list[tuple[str | None, int, int | None]]:
    return [(paired.call.id, paired.made_by, paired.answered_by) for paired in pair(messages).calls]


class TestResultsFindTheirCalls:
    """Pairing is by order and id."""

    def test_parallel_calls_in_any_order(self) -> None:
        """Each result answers the call with its id, wherever it stands among the results."""
        assert answered([calls("a", "b"), result("b"), result("a")]) == [("a", 0, 2), ("b", 0, 1)]

    def test_interleaved_results_of_two_messages(self) -> None:
        """Fault 54: results of two AI messages in one run each go to their own."""
        history = [calls("a"), calls("b", "c"), result("c"), result("a"), result("b")]
        assert answered(history) == [("a", 0, 3), ("b", 1, 4), ("c", 1, 2)]

    def test_an_id_used_again_pairs_round_by_round(self) -> None:
        """Servers that reuse ids: a result answers the latest open call with its id."""
        history = [calls("x"), result("x"), calls("x"), result("x")]
        assert answered(history) == [("x", 0, 1), ("x", 2, 3)]

    def test_a_dangling_call_does_not_take_a_later_result(self) -> None:
        """The first call stays unanswered; the result is the later call's."""
        assert answered([calls("x"), HumanMessage("?"), calls("x"), result("x")]) == [("x", 0, None), ("x", 2, 3)]

    def test_one_id_twice_in_a_message_is_answered_in_order(self) -> None:
        """Two calls with one id: the first result is the first call's, a single one too."""
        assert answered([calls("x", "x"), result("x"), result("x")]) == [("x", 0, 1), ("x", 0, 2)]
        assert answered([calls("x", "x"), result("x")]) == [("x", 0, 1), ("x", 0, None)]

    def test_missing_ids_pair_by_order(self) -> None:
        """No id and the empty id are the same: results come in the order of the calls."""
        assert answered([calls(None, ""), result(""), result("")]) == [(None, 0, 1), (None, 0, 2)]

    def test_orphans(self) -> None:
        """A result before its call, of no call, or a second one is an orphan, with its id."""
        history = [result("a"), calls("a"), result("a"), result("a"), result("z")]
        assert pair(history).orphans == ((0, "a"), (3, "a"), (4, "z"))
        assert pair(history).unanswered() == ()

    @given(histories())
    def test_every_call_and_every_answer_is_accounted_for(self, history: list[BaseMessage]) -> None:
        """Each call appears once; each answer either answers one call or is an orphan; answers come after calls."""
        pairing = pair(history)
        assert [p.call for p in pairing.calls] == [call for message in history for call in calls_of(message)]
        taken = [p.answered_by for p in pairing.calls if p.answered_by is not None]
        answers = [i for i, message in enumerate(history) for _ in answers_of(message)]
        assert sorted([*taken, *(i for i, _ in pairing.orphans)]) == answers
        assert all(p.made_by < p.answered_by for p in pairing.calls if p.answered_by is not None)


class TestUnits:
    """A history may be cut between units only."""

    def test_a_round_is_one_unit(self) -> None:
        """An AI message with its results; messages alone are units of their own."""
        history = [HumanMessage("h"), calls("a", "b"), result("a"), result("b"), AIMessage("done")]
        units = units_of(history)
        assert [(u.start, u.stop, u.has_ai, u.open) for u in units] == [
            (0, 1, False, False),
            (1, 4, True, False),
            (4, 5, True, False),
        ]
        assert [len(u) for u in units] == [1, 3, 1]

    def test_interleaved_rounds_are_one_unit(self) -> None:
        """Fault 54: no cut in a run that holds results of both."""
        history = [calls("a"), calls("b"), result("b"), result("a"), HumanMessage("h")]
        assert [(u.start, u.stop) for u in units_of(history)] == [(0, 4), (4, 5)]

    def test_a_late_answer_keeps_all_between_in_its_unit(self) -> None:
        """Fault 59: ten turns between a call and its answer are one unit; an open call is marked."""
        between: list[BaseMessage] = [HumanMessage("h"), AIMessage("a")] * 5
        assert [(u.start, u.stop, u.open) for u in units_of([calls("x"), *between, result("x")])] == [(0, 12, False)]
        assert units_of([calls("x"), *between])[0].open

    def test_a_server_tool_stays_with_its_result(self) -> None:
        """Fault 64: a server-side call whose result comes in the next message is not cut off from it."""
        use = AIMessage(
            [{"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {}}, *calls("c").content]
        )
        use = use.model_copy(update={"tool_calls": calls("c").tool_calls})
        done = AIMessage([{"type": "code_execution_tool_result", "tool_use_id": "s", "content": []}])
        assert [(u.start, u.stop) for u in units_of([use, result("c"), done, AIMessage("x")])] == [(0, 3), (3, 4)]

    @given(histories())
    def test_units_are_a_partition_that_splits_no_pair(self, history: list[BaseMessage]) -> None:
        """Units cover the history in order without gaps; a call and its answer are in one of them."""
        units = units_of(history)
        assert [i for unit in units for i in range(unit.start, unit.stop)] == list(range(len(history)))
        unit_of = {i: number for number, unit in enumerate(units) for i in range(unit.start, unit.stop)}
        for paired in pair(history).calls:
            if paired.answered_by is not None:
                assert unit_of[paired.made_by] == unit_of[paired.answered_by]
            else:
                assert units[unit_of[paired.made_by]].open
        assert [u.has_ai for u in units] == [
            any(isinstance(history[i], AIMessage) for i in range(u.start, u.stop)) for u in units
        ]

    @given(histories())
    def test_units_are_as_small_as_they_can_be(self, history: list[BaseMessage]) -> None:
        """Every cut inside a unit would split some pair."""
        spans = [(p.made_by, p.answered_by) for p in pair(history).calls if p.answered_by is not None]
        server: dict[str, int] = {}
        for index, message in enumerate(history):
            for block in blocks_of(message):
                if block.kind == "server_call" and block.call_id:
                    server[block.call_id] = index
                elif block.kind == "server_result" and block.call_id in server:
                    spans.append((server[block.call_id], index))
        for unit in units_of(history):
            for cut in range(unit.start + 1, unit.stop):
                assert any(start < cut <= stop for start, stop in spans)

    def test_an_empty_history(self) -> None:
        """Nothing gives nothing."""
        assert pair([]).calls == ()
        assert units_of([]) == ()
