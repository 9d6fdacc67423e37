"""Summaries never reach the user's stream as a message, a token or a model event (faults 134, 136)."""

import asyncio
from typing import Any

import pytest
from agents import QUICK, SUMMARY, TOOLS, worker_model
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from refold.agent.window import WindowMiddleware
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}
WRITERS = ["live", "separate", "fallback"]


def start() -> dict[str, Any]:
    return {"messages": [HumanMessage("Do all the steps.", id="task")]}


def parts(writer: str) -> tuple[Any, Any]:
    """A compiled agent that summarises by the given route, and its models."""
    model, worker = worker_model(8, limit=2_600, chunk_size=12)
    options: dict[str, Any] = {}
    writes = StrictModel(script=lambda messages: SUMMARY, chunk_size=12, model_name="writer")
    if writer == "separate":
        options["summary_model"] = writes
    if writer == "fallback":
        broken = StrictModel(script=lambda messages: RuntimeError("down"), model_name="broken")
        options |= {"summary_model": broken, "fallback_model": writes}
    window = WindowMiddleware(files=MemoryFiles(), policy=QUICK, **options)
    graph = create_agent(model, TOOLS, middleware=[window], checkpointer=InMemorySaver(), name="agent")
    return graph, worker


def nested(writer: str) -> Any:
    """The agent as a node of another graph."""
    graph, _ = parts(writer)
    outer = StateGraph(MessagesState)
    outer.add_node("worker", graph)
    outer.add_edge(START, "worker")
    return outer.compile(checkpointer=InMemorySaver())


def in_a_tool(writer: str) -> Any:
    """The agent inside a tool of another agent."""
    graph, _ = parts(writer)

    @tool
    def delegate(task: str) -> str:
        """Hand a task to another agent."""
        return str(graph.invoke(start(), {"configurable": {"thread_id": "inner"}})["messages"][-1].text)

    steps = [AIMessage("", tool_calls=[{"id": "d", "name": "delegate", "args": {"task": "x"}}]), "All is done."]
    return create_agent(StrictModel(script=steps), [delegate], checkpointer=InMemorySaver())


def clean(item: object) -> str:
    """A streamed item as text, without the private folds, which are data and may hold summaries, and without the
    windows that model-start events carry."""
    match item:
        case BaseMessage():
            return "" if isinstance(item, HumanMessage) else repr((item.content, item.additional_kwargs))
        case dict():
            return "".join(
                f"{key}{clean(value)}" for key, value in item.items() if key not in ("folds", "input", "messages_in")
            )
        case list() | tuple():
            return "".join(map(clean, item))
        case _:
            return repr(item) if not hasattr(item, "generations") else clean([g.message for g in item.generations[0]])


def summarised(graph: Any) -> bool:
    states = [graph.get_state(CONFIG, subgraphs=True).values]
    return any(fold["kind"] == "summary" for state in states for fold in state.get("folds", []))


BUILDS = {"plain": lambda writer: parts(writer)[0], "nested": nested, "in a tool": in_a_tool}


CASES = [("plain", writer) for writer in WRITERS] + [("nested", "live"), ("nested", "separate"), ("in a tool", "live")]


@pytest.mark.parametrize(("build", "writer"), CASES)
class TestTheSummaryIsNotStreamed:
    @pytest.mark.parametrize("mode", ["messages", "custom", "updates", "values", "debug"])
    def test_sync_modes(self, build: str, writer: str, mode: str) -> None:
        """No mode shows a message, token or custom event with the summary, nested graphs included."""
        graph = BUILDS[build](writer)
        items = list(graph.stream(start(), CONFIG, stream_mode=mode, subgraphs=True))
        assert items or (mode == "custom" and build == "in a tool")
        assert "SUMMARY" not in clean(items)
        if build == "plain":
            assert summarised(graph)

    @pytest.mark.parametrize("mode", ["messages", "custom"])
    def test_async_modes(self, build: str, writer: str, mode: str) -> None:
        """The same awaited."""
        graph = BUILDS[build](writer)

        async def collect() -> list[Any]:
            return [item async for item in graph.astream(start(), CONFIG, stream_mode=mode, subgraphs=True)]

        assert "SUMMARY" not in clean(asyncio.run(collect()))

    @pytest.mark.parametrize("version", ["v1", "v2"])
    @pytest.mark.filterwarnings("ignore:astream_events version='v1'")
    def test_events(self, build: str, writer: str, version: str) -> None:
        """`astream_events`: no model event of the summary, neither start nor token nor end."""
        graph = BUILDS[build](writer)

        async def collect() -> list[Any]:
            return [event async for event in graph.astream_events(start(), CONFIG, version=version)]

        events = asyncio.run(collect())
        model_events = [event for event in events if "chat_model" in event["event"]]
        assert model_events
        assert "SUMMARY" not in clean(
            [event["data"].get("chunk") or event["data"].get("output") for event in model_events]
        )
        assert not any("summary" in event["name"].lower() or event["name"] == "writer" for event in model_events)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
class TestTypedStreams:
    def test_events_v3(self, writer: str) -> None:
        """LangGraph's typed event stream: the messages projection holds answers only."""
        graph, worker = parts(writer)
        stream = graph.stream_events(start(), CONFIG, version="v3")
        texts = [str(message.text) for message in stream.messages]
        assert worker.answer in texts
        assert not any("SUMMARY" in text for text in texts)

    def test_no_ghost_message(self, writer: str) -> None:
        """Fault 136: the streamed chunks, joined by id, are the AI messages of the log, and no more."""
        graph, _ = parts(writer)
        joined: dict[str | None, AIMessageChunk] = {}
        for chunk, _meta in graph.stream(start(), CONFIG, stream_mode="messages"):
            if isinstance(chunk, AIMessageChunk):
                joined[chunk.id] = joined[chunk.id] + chunk if chunk.id in joined else chunk  # type: ignore[assignment]
        log = [m for m in graph.get_state(CONFIG).values["messages"] if isinstance(m, AIMessage)]
        assert {m.id: m.text for m in log} == {key: chunk.text for key, chunk in joined.items()}


class TestProvidersOwnItemsPassThrough:
    def test_a_compaction_item_survives(self) -> None:
        """Faults 137, 206: an opaque compaction block of the provider stays, byte for byte, through every fold."""
        block = {"type": "compaction", "id": "cmp_1", "encrypted_content": "b3BhcXVl"}
        model, worker = worker_model(18, provider=None)
        script = model.script

        def first(messages: Any) -> Any:
            if worker.calls == 0:
                worker.calls = 1
                calls = [{"type": "tool_call", "id": "call-0", "name": "work", "args": {"step": 0}}]
                return AIMessage([block, {"type": "text", "text": "on"}], tool_calls=calls)
            return script(messages)

        model.script = first
        graph = create_agent(
            model, TOOLS, middleware=[WindowMiddleware(files=MemoryFiles(), policy=QUICK)], checkpointer=InMemorySaver()
        )
        graph.invoke(start(), CONFIG)
        assert summarised(graph)
        kept = [m for m in model.requests[-1].window if isinstance(m.content, list) and block in m.content]
        assert len(kept) == 1
