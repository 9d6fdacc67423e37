"""Scripted callers and children: what each of them does is a function of the messages that it is shown."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from refold.core.messages import text_of
from refold.testing import Step, StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}
WIDE = 200_000
Given = dict[str, Any] | Command[Any] | None


def call(name: str, number: int | str = 1, /, **args: object) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "args": args, "id": f"{name}-{number}"}


def calls(*made: dict[str, Any]) -> AIMessage:
    return AIMessage("", tool_calls=list(made))


def task(description: str, subagent: str = "helper", number: int | str = 1, /, **more: object) -> dict[str, Any]:
    return call("task", number, description=description, subagent=subagent, **more)


def delegates(*made: dict[str, Any], then: str = "parent done") -> Callable[[Sequence[BaseMessage]], Step]:
    """A caller that makes the given calls in one message, and answers when their results are there."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        return then if isinstance(messages[-1], ToolMessage) else calls(*made)

    return script


def says(text: str) -> Callable[[Sequence[BaseMessage]], Step]:
    return lambda messages: text


def uses(made: dict[str, Any], then: str = "child done") -> Callable[[Sequence[BaseMessage]], Step]:
    """A child that makes one call, and answers with what came of it."""

    def script(messages: Sequence[BaseMessage]) -> Step:
        last = messages[-1]
        return f"{then}: {text_of(last)[:200]}" if isinstance(last, ToolMessage) else calls(made)

    return script


def model_of(script: Any, limit: int = WIDE, **options: Any) -> StrictModel:
    return StrictModel(script=script, limit=limit, **options)


def start(text: str = "go") -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id="human-1")]}


def drive(graph: Any, given: Given, config: Any = CONFIG, *, is_async: bool = False, **more: Any) -> dict[str, Any]:
    """One run of a graph; its state, or what it returned at an interrupt."""
    found = asyncio.run(graph.ainvoke(given, config, **more)) if is_async else graph.invoke(given, config, **more)
    assert isinstance(found, dict)
    return found


def results(state: dict[str, Any], name: str = "task") -> list[ToolMessage]:
    return [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == name]


def seen_by(model: StrictModel) -> str:
    """Everything that a model was ever shown, as one text."""
    return "\n".join(repr((m.content, m.additional_kwargs)) for r in model.requests for m in r.messages)


def refusals(*models: StrictModel) -> list[object]:
    return [request.refusal for model in models for request in model.requests if request.refusal is not None]
