"""`ControlMiddleware`: tools by which the model steers its own window.

`compact_conversation` asks for a fold pass, `pin` and `unpin` keep small notes always in view, `context_usage`, where
the policy wants it, says how full the window is. A pass is never made inside a tool: the tool leaves a request in the
state, and the next model call folds, the one place where folding is safe; it tells the model what came of it. What a
tool says is what is known when it says it.
"""

from typing import Annotated, Final, NotRequired, cast

from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from refold.agent.threads import thread_name
from refold.agent.window import WindowMiddleware
from refold.core.estimate import estimate_text

COMPACT: Final = "compact_conversation"
PIN: Final = "pin"
UNPIN: Final = "unpin"
CONTEXT_USAGE: Final = "context_usage"
_PIN_SHARE: Final = 0.05
"""Part of the budget that pinned notes may take."""


def reduce_pins(left: dict[str, str] | None, right: dict[str, str | None] | None) -> dict[str, str]:
    """The reducer of the `pins` channel: a text sets a note, None takes it away. Pure."""
    merged: dict[str, str | None] = {**(left or {}), **(right or {})}
    return {name: text for name, text in merged.items() if text is not None}


def reduce_compaction(
    left: dict[str, str | None] | None, right: dict[str, str | None] | None
) -> dict[str, str | None] | None:
    """The reducer of the `compaction` channel: None clears it, requests of one step are one request. Pure."""
    if left is None or right is None:
        return right
    wanted = dict.fromkeys(focus for focus in (left.get("focus"), right.get("focus")) if focus)
    return {"focus": "; ".join(wanted) or None}


class ControlState(AgentState[object]):
    """The pinned notes, and the fold pass that was asked for. Private, like the folds."""

    pins: NotRequired[Annotated[dict[str, str], PrivateStateAttr, reduce_pins]]
    compaction: NotRequired[Annotated[dict[str, str | None] | None, PrivateStateAttr, reduce_compaction]]


class ControlMiddleware(AgentMiddleware[ControlState, None, object]):
    """Gives the model the tools of this module, beside a `WindowMiddleware` of the same agent. `context_usage` is among
    them where its policy has `budget_line`.

        window = WindowMiddleware()
        agent = create_agent(model, tools, middleware=[window, ControlMiddleware(window)])

    Arguments:
        window: The middleware whose window is steered.
        least: Part of the budget below which a requested compaction is declined: about half the trigger.
        pin_tokens: Tokens that all pinned notes together may take; never more than a twentieth of the budget.
    """

    state_schema = ControlState

    def __init__(self, window: WindowMiddleware, *, least: float = 0.4, pin_tokens: int = 1_500) -> None:
        super().__init__()
        self._window = window
        self._least = least
        self._pin_tokens = pin_tokens
        self.tools = [self._compact_tool(), self._pin_tool(), self._unpin_tool()]
        if window.setup.policy.budget_line:
            self.tools.append(self._usage_tool())

    def _occupancy(self, runtime: ToolRuntime) -> tuple[int, int]:
        """Tokens in the window with the newest answer, as reported first, and its budget; (0, 0) where this process has
        not sent a window of the thread."""
        messages = runtime.state["messages"]
        newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
        return self._window.occupancy_after(thread_name(runtime.config, messages), newest)

    def _most_pinned(self, runtime: ToolRuntime) -> int:
        """Tokens that all notes together may take: pinned notes are always in view, so a small window has few."""
        _, budget = self._occupancy(runtime)
        return min(self._pin_tokens, round(_PIN_SHARE * budget)) if budget else self._pin_tokens

    def _compact_tool(self) -> BaseTool:
        def compact(runtime: ToolRuntime, focus: str = "") -> Command[object]:
            used, budget = self._occupancy(runtime)
            held = f"The window holds {used} of {budget} tokens. " if budget else ""
            if budget and used < self._least * budget:
                text = f"Not needed. {held}Below {self._least:.0%} of it nothing is folded; nothing was changed."
                return Command(update={"messages": [_result(runtime, COMPACT, text)]})
            text = f"Requested. {held}Older rounds are folded before your next step, which is told what came of it."
            request: dict[str, str | None] = {"focus": focus or None}
            return Command(update={"messages": [_result(runtime, COMPACT, text)], "compaction": request})

        return StructuredTool.from_function(
            compact, name=COMPACT,
            description="Have older rounds of this conversation shortened now, for instance between two phases of the "
            "work. `focus` names what the summary should say most about.",
        )  # fmt: skip

    def _pin_tool(self) -> BaseTool:
        def pin(name: str, text: str, runtime: ToolRuntime) -> Command[object]:
            most = self._most_pinned(runtime)
            size = _size(reduce_pins(_notes(runtime, most), {name: text}))
            if size > most:
                words = f"Not pinned: all notes would take {size} tokens, over {most}. Shorten or unpin."
                return Command(update={"messages": [_result(runtime, PIN, words, failed="error")]})
            words = f"Pinned {name!r}; notes take {size} of {most} tokens."
            return Command(update={"messages": [_result(runtime, PIN, words)], "pins": {name: text}})

        return StructuredTool.from_function(
            pin, name=PIN,
            description="Keep a short note always in view, under a name; the same name again replaces it.",
        )  # fmt: skip

    def _unpin_tool(self) -> BaseTool:
        def unpin(name: str, runtime: ToolRuntime) -> Command[object]:
            if name not in _notes(runtime, self._most_pinned(runtime)):
                return Command(
                    update={"messages": [_result(runtime, UNPIN, f"No note is called {name!r}.", failed="error")]}
                )
            return Command(update={"messages": [_result(runtime, UNPIN, f"Unpinned {name!r}.")], "pins": {name: None}})

        return StructuredTool.from_function(unpin, name=UNPIN, description="Take a pinned note away.")

    def _usage_tool(self) -> BaseTool:
        def usage(runtime: ToolRuntime) -> str:
            used, budget = self._occupancy(runtime)
            if budget == 0:
                return "How full the window is is not known yet: ask again after your next step."
            share = f"{used / max(1, budget):.0%}"
            return f"The window holds {used} of {budget} tokens ({share}); {max(0, budget - used)} are free."

        return StructuredTool.from_function(
            usage, name=CONTEXT_USAGE, description="How many tokens of this conversation's window are used and free."
        )


def _notes(runtime: ToolRuntime, most: int) -> dict[str, str]:
    """The notes as a call finds them: those of the state, and what earlier calls of its message do to them, which run
    beside it."""
    messages = runtime.state["messages"]
    notes = cast("dict[str, str]", runtime.state.get("pins") or {})
    newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    for call in newest.tool_calls if newest is not None else ():
        if call["id"] == runtime.tool_call_id:
            break
        name, text = call["args"].get("name"), call["args"].get("text")
        if call["name"] == UNPIN and isinstance(name, str):
            notes = reduce_pins(notes, {name: None})
        elif call["name"] == PIN and isinstance(name, str) and isinstance(text, str):
            changed = reduce_pins(notes, {name: text})
            notes = changed if _size(changed) <= most else notes
    return notes


def _size(notes: dict[str, str]) -> int:
    return sum(estimate_text(f"{title}: {note}") for title, note in notes.items())


def _result(runtime: ToolRuntime, name: str, text: str, *, failed: str = "success") -> ToolMessage:
    status = "error" if failed == "error" else "success"
    return ToolMessage(content=text, name=name, tool_call_id=runtime.tool_call_id or "", status=status)
