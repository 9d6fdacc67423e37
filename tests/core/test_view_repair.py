"""The repaired window of a growing log: made step by step, it is the window made at once."""

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.project import Window, project
from refold.core.validate import all_violations
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
