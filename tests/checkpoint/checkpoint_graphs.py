"""A graph whose steps are told to it: every way in which an app can change its channels."""

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Overwrite, Send

from refold.checkpoint.add_messages import add_messages as add_messages_of_refold


def _append(state: Any, writes: Sequence[Any]) -> Any:
    found = list(state or [])
    for write in writes:
        found += write if isinstance(write, list) else [write]
    return found


def _merge(state: Any, writes: Sequence[Any]) -> Any:
    found = dict(state or {})
    for write in writes:
        found |= write
    return found


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    trail: Annotated[list[Any], DeltaChannel(_append, list, snapshot_frequency=3)]
    files: Annotated[dict[str, Any], DeltaChannel(_merge, dict, snapshot_frequency=4)]
    items: Annotated[list[Any], operator.add]
    note: Any


class GrowingState(State, total=False):
    messages: Annotated[list[AnyMessage], add_messages_of_refold]


class Script:
    """The steps still to take. A step is (name, number)."""

    def __init__(self, steps: Sequence[tuple[str, int]]) -> None:
        self.steps = list(steps)
        self.last: tuple[str, int] | None = None

    def take(self) -> tuple[str, int] | None:
        return self.steps.pop(0) if self.steps else None


def long_text(number: int) -> str:
    return f"line {number}: " + " ".join(f"word{(number * 7 + n) % 97}" for n in range(40))


def change(state: State, step: tuple[str, int]) -> dict[str, Any]:
    """What one step writes. Some steps edit the state's own objects, as careless nodes do."""
    name, number = step
    messages = state.get("messages") or []
    old = messages[number % len(messages)] if messages else None
    match name:
        case "say":
            return {"messages": [HumanMessage(long_text(number), id=f"h{number}")]}
        case "call":
            call = {"name": "read", "args": {"path": f"/f{number}", "deep": {"n": [number]}}, "id": f"c{number}"}
            answer = ToolMessage(long_text(number + 1), tool_call_id=f"c{number}", id=f"t{number}")
            return {"messages": [AIMessage(long_text(number), id=f"a{number}", tool_calls=[call]), answer]}
        case "nameless":
            return {"messages": [("user", long_text(number))]}
        case "replace":
            return {"messages": [HumanMessage(f"edited {number}", id=old.id)] if old is not None else []}
        case "remove":
            return {"messages": [RemoveMessage(id=old.id)] if old is not None else []}
        case "restart":
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages[number % 3 :]]}
        case "scribble":
            if old is not None:
                old.additional_kwargs.setdefault("marks", []).append(number)
            return {"messages": [HumanMessage("after a scribble", id=f"s{number}")]}
        case "overtype":
            if old is not None:
                old.content = long_text(number)
            return {"note": number, "messages": []}
        case "amend":
            if old is not None:
                old.content = long_text(number)
            return {"messages": [] if old is None else [old, HumanMessage("after an amendment", id=f"m{number}")]}
        case "redact":
            for message in messages:
                message.content = f"redacted {number}"
            return {"messages": Overwrite(messages)}
        case "overwrite":
            return {"messages": Overwrite([HumanMessage(long_text(number), id=f"o{number}")])}
        case "trail":
            return {"trail": [HumanMessage(long_text(number), id=f"d{number}"), {"n": number}]}
        case "file":
            return {"files": {f"/f{number % 4}": {"content": [long_text(number)] * (number % 5), "at": number}}}
        case "items":
            return {"items": [{"k": number, "text": long_text(number)}, f"i{number}", number, None][: 1 + number % 4]}
        case "note":
            return {"note": [None, number, 1.5, True, "x" * 300, b"raw", {"a": [1, (2, 3)]}, [1, 2]][number % 8]}
        case _:
            return {"note": name, "messages": [HumanMessage(long_text(number), id=f"p{number}")], "trail": [number]}


def build(script: Script, saver: BaseCheckpointSaver[Any], state: type[State] = State) -> Any:
    """The graph: `work` takes a step; a "fan" step sends to several tasks that write in parallel."""

    def work(state: Any) -> dict[str, Any]:
        step = script.take()
        script.last = step
        return {} if step is None or step[0] == "fan" else change(state, step)

    def fan(task: dict[str, Any]) -> dict[str, Any]:
        number = task["number"]
        return {"messages": [HumanMessage(long_text(number), id=f"f{number}")], "trail": [number], "items": [number]}

    def route(state: Any) -> Any:
        last = script.last
        if last is not None and last[0] == "fan":
            messages = (state.get("messages") or [])[:2]
            return [Send("fan", {"number": last[1] * 10 + n, "seen": messages}) for n in range(1 + last[1] % 3)]
        return "work" if script.steps else END

    def after(state: Any) -> str:
        return "work" if script.steps else END

    graph = StateGraph(state)
    graph.add_node("work", work)
    graph.add_node("fan", fan)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", route, ["work", "fan", END])
    graph.add_conditional_edges("fan", after, ["work", END])
    return graph.compile(checkpointer=saver)
