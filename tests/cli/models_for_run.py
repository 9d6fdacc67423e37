"""Scripted models and tools that the tests of `refold run` name on its command line."""

import sys
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import interrupt

from refold.agent.create import create_agent
from refold.checkpoint import SqliteSaver
from refold.files import MemoryFiles
from refold.testing import BreakOff, Hang, StrictModel
from refold.testing.strict_model import Step


def call(name: str, call_id: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}


def _stepwise(messages: Sequence[BaseMessage], *steps: Step) -> Step:
    """The step after as many answers as there are since the newest human message: the same in any process."""
    since = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
    return steps[min(len(steps) - 1, sum(isinstance(message, AIMessage) for message in messages[since:]))]


def _last_result(messages: Sequence[BaseMessage]) -> str:
    return next(message.text for message in reversed(messages) if isinstance(message, ToolMessage))


def writer() -> StrictModel:
    """Looks, writes a note, and says what came of it."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        look = AIMessage(
            "Let me look. \x1b[2J",
            tool_calls=[call("ls", "c1", path="/work"), call("read_file", "c2", path="/work/.refold/threads.db")],
        )
        write = AIMessage("", tool_calls=[call("write_file", "c3", path="/work/note.txt", content="hello\n")])
        if len([m for m in messages if isinstance(m, ToolMessage)]) < 3:
            return _stepwise(messages, look, write)
        return f"Result: {_last_result(messages)}"

    return StrictModel(script=script, limit=32_000)


def hostile() -> StrictModel:
    """Says what reorders what a person reads, then fails with what steers a terminal."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        said = _stepwise(messages, AIMessage("see \u202egpj.\u2066", tool_calls=[call("ls", "c1", path="/")]), "")
        return RuntimeError("down\x1b]0;owned\x07\x9b2J") if said == "" else said

    return StrictModel(script=script, limit=32_000)


def echo() -> StrictModel:
    """Says how many human messages it sees, and repeats the newest."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        said = [message.text for message in messages if isinstance(message, HumanMessage)]
        return f"message {len(said)}: {said[-1]}"

    return StrictModel(script=script, limit=32_000)


def rival() -> StrictModel:
    """While it answers, somebody else says something in its thread, on the same file."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        with SqliteSaver.from_conn_string(".refold/threads.db") as saver:
            other = create_agent(echo(), files=MemoryFiles(), checkpointer=saver)
            other.invoke({"messages": [HumanMessage("from another terminal")]}, {"configurable": {"thread_id": "t"}})
        return "too late"

    return StrictModel(script=script, limit=32_000)


def asks() -> StrictModel:
    """Calls a tool that asks the person something."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        if not isinstance(messages[-1], ToolMessage):
            return AIMessage("", tool_calls=[call("ask_user", "c1", question="Which colour?")])
        return f"You said: {_last_result(messages)}"

    return StrictModel(script=script, limit=32_000)


def adds() -> StrictModel:
    """Calls `add`."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        if not isinstance(messages[-1], ToolMessage):
            return AIMessage("", tool_calls=[call("add", "c1", a=2, b=3)])
        return f"It is: {_last_result(messages)}"

    return StrictModel(script=script, limit=32_000)


def hangs() -> StrictModel:
    """Never answers a message that says "wait", but tells the terminal that it was called."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        if "wait" not in messages[-1].text:
            return f"message {len(messages)}"
        sys.stderr.write("(called)\n")
        sys.stderr.flush()
        return Hang()

    return StrictModel(script=script, limit=32_000)


def breaks() -> StrictModel:
    """Fails in the middle of an answer."""
    return StrictModel(
        script=lambda _: BreakOff(answer="Half of it", error=OSError("the line went dead")), limit=32_000
    )


def ask_user(question: str) -> str:
    """Ask the person at the terminal."""
    return f"{interrupt(question)}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TOOLS = [add, ask_user]
