"""The repaired window of a growing log: made step by step, it is the window made at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.project import project
from refold.core.validate import all_violations
from refold.core.window import Window
from refold.testing.strategies import histories


def grown(history: list[BaseMessage], sizes: list[int]) -> Window:
    """The window of the whole history, by way of windows of its beginnings."""
    window: Window | None = None
    for size in [*sorted(sizes), len(history)]:
        window = project(history[:size], [], previous=window)
    assert window is not None
    return window


class TestGrowingIsTheSameAsStartingAnew:
    """Law 5: a process that restarts shows the bytes that the one before it showed."""

    @given(histories(without={"missing_message_ids", "duplicate_message_ids"}), st.data())
    def test_any_history(self, history: list[BaseMessage], data: st.DataObject) -> None:
        """However the log grew, message by message or at once, the window is the same, and valid."""
        sizes = data.draw(st.lists(st.integers(0, len(history)), max_size=6))
        assert grown(history, sizes).messages == project(history, []).messages
        assert all_violations(project(history, []).messages) == {}

    def test_ids_that_come_again_in_each_round(self) -> None:
        """A server that counts from zero: the window after a restart has the ids that it had before."""
        history: list[BaseMessage] = [HumanMessage("go", id="u")]
        for number in range(6):
            call = {"type": "tool_call", "id": "call_0", "name": "f", "args": {}}
            history.append(AIMessage("", id=f"a{number}", tool_calls=[call]))  # type: ignore[list-item]
            history.append(ToolMessage("r", tool_call_id="call_0", id=f"t{number}"))
        window = grown(history, list(range(len(history))))
        assert window.messages == project(history, []).messages
        assert all_violations(window.messages) == {}


def damaged(rounds: int, *, valid: bool) -> list[BaseMessage]:
    """A call that nobody answers, then so many rounds whose ids all are `call_0`."""
    call: dict[str, object] = {"type": "tool_call", "id": "call_0", "name": "f", "args": {}}
    bad = {"type": "invalid_tool_call", "id": "call_0", "name": "f", "args": "{", "error": "cut off"}
    first = AIMessage("", id="lost", **({"tool_calls": [call]} if valid else {"invalid_tool_calls": [bad]}))
    history: list[BaseMessage] = [HumanMessage("go", id="u"), first, HumanMessage("and now?", id="v")]
    for number in range(rounds):
        history.append(AIMessage("", id=f"a{number}", tool_calls=[call]))  # type: ignore[list-item]
        history.append(ToolMessage("r", tool_call_id="call_0", id=f"t{number}"))
    return history


class TestAnUnansweredCallIsRepairedOnce:
    """The rest of the thread is not repaired again at each call because of it."""

    @pytest.mark.parametrize("valid", [True, False], ids=["never answered", "malformed"])
    def test_what_is_settled_grows_with_the_log(self, valid: bool) -> None:
        """All but the newest unit is settled, and grown windows are those made anew."""
        history = damaged(40, valid=valid)
        window: Window | None = None
        for size in range(3, len(history) + 1, 2):
            window = project(history[:size], [], previous=window)
            assert len(window.entries) - window.settled <= 2
            assert window.messages == project(history[:size], []).messages
        assert window is not None
        assert all_violations(window.messages) == {}

    def test_a_late_answer_still_comes_to_its_call(self) -> None:
        """The window after it is the window made anew: the answer stands behind its call, the synthetic one is gone."""
        history = damaged(5, valid=True)
        history[1] = AIMessage("", id="lost", tool_calls=[{"name": "f", "args": {}, "id": "lost-call"}])
        before = project(history, [])
        assert before.entries[2].kind == "repair"
        late = [*history, ToolMessage("at last", tool_call_id="lost-call", id="late")]
        after = project(late, [], previous=before)
        assert after.messages[2].id == "late"
        assert after.messages == project(late, []).messages
        assert all_violations(after.messages) == {}
