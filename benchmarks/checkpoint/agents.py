"""The agents that are measured: one scripted model, one tool, built on LangChain, LangGraph and deepagents."""

from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import ConfigDict, Field, PrivateAttr

from benchmarks.checkpoint.traffic import Traffic

ENDLESS = 10**9
"""A model limit that no run reaches, so that no agent summarises."""


class ScriptedModel(BaseChatModel):
    """Plays the calls `first` to `first + steps - 1` of the traffic, then answers. Notes when each call came.

    `delegate` names the calls that go to a sub-agent, by index from `first`.
    """

    traffic: Traffic
    steps: int
    first: int = 0
    delegate: frozenset[int] = frozenset()
    subagent: str = "helper"
    profile: dict[str, Any] | None = Field(default_factory=lambda: {"max_input_tokens": ENDLESS})
    _done: int = PrivateAttr(default=0)
    _times: list[tuple[float, float]] = PrivateAttr(default_factory=list)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def times(self) -> list[tuple[float, float]]:
        """The clock and the CPU time of the process at each call, in seconds."""
        return self._times

    def bind_tools(self, tools: Sequence[object], **kwargs: object) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        self._times.append((perf_counter(), process_time()))
        return ChatResult(generations=[ChatGeneration(message=self._next())])

    def _next(self) -> AIMessage:
        at, self._done = self._done, self._done + 1
        if at % (self.steps + 1) == self.steps:
            return self.traffic.answer(self.first + at)
        if at in self.delegate:
            return self.traffic.delegation(self.first + at, subagent=self.subagent)
        return self.traffic.call(self.first + at)


def tool_of(traffic: Traffic) -> BaseTool:
    @tool
    def inspect_source(path: str, pattern: str, offset: int) -> str:
        """Looks for a pattern in a source file."""
        return traffic.result(offset)

    return inspect_source


Build = Callable[[ScriptedModel, BaseCheckpointSaver[Any] | None], Any]
"""Makes a compiled graph of a model and a saver."""


def plain(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None) -> Any:
    """LangChain's `create_agent`: the messages channel is a plain list with `add_messages`."""
    return create_agent(model, [tool_of(model.traffic)], checkpointer=saver)


def growing(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None) -> Any:
    """`create_agent` with refold's `GrowingState`: a plain list with refold's `add_messages`."""
    from refold.checkpoint.state import GrowingState

    return create_agent(model, [tool_of(model.traffic)], state_schema=GrowingState, checkpointer=saver)


def log_state(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None) -> Any:
    """`create_agent` with refold's `LogState`: a delta channel."""
    from refold.checkpoint.state import LogState

    return create_agent(model, [tool_of(model.traffic)], state_schema=LogState, checkpointer=saver)


def deep(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None) -> Any:
    """deepagents' agent: a delta channel that copies the list every 50 updates."""
    from deepagents import create_deep_agent

    return create_deep_agent(model, [tool_of(model.traffic)], checkpointer=saver)


def graph(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None) -> Any:
    """A hand-written `StateGraph`: two nodes on `MessagesState`, no middleware."""
    return _graph(model, saver, MessagesState)


def growing_graph(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None) -> Any:
    """The same with refold's `add_messages`."""
    from refold.checkpoint import add_messages

    return _graph(model, saver, TypedDict("State", {"messages": Annotated[list[AnyMessage], add_messages]}))


def _graph(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None, schema: type) -> Any:
    traffic = model.traffic

    def ask(state: Any) -> dict[str, list[AnyMessage]]:
        return {"messages": [model.invoke(state["messages"][-1:])]}

    def act(state: Any) -> dict[str, list[AnyMessage]]:
        [call] = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage(traffic.result(call["args"]["offset"]), tool_call_id=call["id"])]}

    def more(state: Any) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    builder = StateGraph(schema)
    builder.add_node("ask", ask)
    builder.add_node("act", act)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", more, ["act", END])
    builder.add_edge("act", "ask")
    return builder.compile(checkpointer=saver)


def forked_subagents(model: ScriptedModel, saver: BaseCheckpointSaver[Any] | None, *, steps: int) -> Any:
    """A deep agent whose sub-agent continues a copy of its conversation for `steps` calls, then answers."""
    from deepagents import create_deep_agent

    helper = ScriptedModel(traffic=model.traffic, steps=steps, first=10_000)
    spec = {
        "name": model.subagent,
        "description": "Does a part of the work.",
        "mode": "fork",
        "model": helper,
        "tools": [tool_of(model.traffic)],
    }
    return create_deep_agent(model, [tool_of(model.traffic)], subagents=[spec], checkpointer=saver)  # type: ignore[list-item]


GRAPHS: dict[str, Build] = {
    "plain": plain,
    "growing": growing,
    "log": log_state,
    "deep": deep,
    "graph": graph,
    "growing-graph": growing_graph,
}


def config_of(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}, "recursion_limit": ENDLESS}
