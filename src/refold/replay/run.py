"""Playing a recording through a real LangGraph agent.

The agent is LangChain's `create_agent` with whatever middleware is given; the recording plays model and tools. Nothing
goes over a network, and tracing is off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain.agents import create_agent
from langchain.agents.middleware.types import AgentMiddleware, InputAgentState
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langsmith import tracing_context

from refold.agent.window import WindowMiddleware
from refold.core.canonical import Json
from refold.core.messages import content_hash
from refold.errors import ReplayMismatchError
from refold.replay.measure import Scale
from refold.replay.model import RecordedModel
from refold.replay.tape import Tape
from refold.replay.tools import RecordedSteps, recorded_tool

THREAD = "replay"


@dataclass(frozen=True, kw_only=True)
class Played:
    """The end of a run: its log, and the folds in its state."""

    messages: tuple[BaseMessage, ...]
    folds: tuple[Mapping[str, Json], ...]


def play(
    tape: Tape,
    middleware: Sequence[AgentMiddleware[Any, None, Any]],
    *,
    limit: int,
    model_name: str,
    scale: Scale,
    saver: BaseCheckpointSaver[Any],
) -> Played:
    """Run the agent until it has the whole recording.

    Raises `ReplayMismatchError` when the run does not go on as recorded, and whatever the middleware raises.
    """
    model = RecordedModel.playing(tape, scale=scale, limit=limit, model_name=model_name)
    own = {tool.name for each in middleware if isinstance(each, WindowMiddleware) for tool in each.tools}
    agent = create_agent(
        model,
        [recorded_tool(schema) for schema in tape.transcript.tools if schema.name not in own],
        system_prompt=tape.transcript.system or None,
        middleware=[RecordedSteps(tape), *middleware],
        checkpointer=saver,
    )
    config: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": 4 * len(tape) + 100}
    with tracing_context(enabled=False):
        while not tape.ended:
            start = tape.position
            agent.invoke(cast("InputAgentState", {"messages": tape.feed()}), config)
            if tape.position == start:
                raise ReplayMismatchError(f"the agent did not go on after {start} of {len(tape)} recorded messages")
        values = agent.get_state(config).values
    return Played(messages=tuple(values["messages"]), folds=tuple(values.get("folds") or ()))


def check_log(played: Sequence[BaseMessage], recorded: Sequence[BaseMessage]) -> None:
    """Raise `ReplayMismatchError` unless the run's log is the recorded one: same ids, same content, same order."""
    for index, (mine, theirs) in enumerate(zip(played, recorded, strict=False)):
        if mine.id != theirs.id or content_hash(mine) != content_hash(theirs):
            raise ReplayMismatchError(f"message {index} of the replayed log ({mine.id}) is not the recorded one")
    if len(played) != len(recorded):
        raise ReplayMismatchError(f"the replayed log has {len(played)} messages, the recorded one {len(recorded)}")
