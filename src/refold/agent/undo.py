"""`undo_summary`: take back the newest summary of a thread, in any graph that has the window.

    undone = undo_summary(agent, config, model=larger_model)

It is one more fold in the state (`refold.core.undo`), written with the graph's own `update_state`: it survives a
restart, and on a fork it is the fork's alone. `Policy(undo=True)` does the same by itself, at a model call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from refold.agent.edge import Models
from refold.agent.host import Host
from refold.agent.models import facts_of
from refold.agent.setup import Binding, Setup
from refold.core.canonical import Json, derived_id
from refold.core.cost import Tool
from refold.core.folds import Fold
from refold.core.gauge import Gauge, measure
from refold.core.limits import Budget, budget
from refold.core.meter import Count, Meter
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.turn import overflow_error
from refold.core.undo import UndoScope, newest_summary, undo_fold

# LangGraph's own signature has these parameters open; a graph of any state and context must be accepted.
Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """What was taken back: the ids of the folds that no longer act, the tokens of the window's messages before and
    after, what they may take (`budget`), and the config of the checkpoint that says so."""

    folds: tuple[str, ...]
    before: int
    after: int
    budget: int
    config: RunnableConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoTarget:
    """For which model a window is made larger again, and what else its requests hold."""

    model: BaseChatModel
    policy: Policy
    meter: Meter | None
    system_prompt: SystemMessage | str | None
    tools: Sequence[Tool]


def undo_summary(
    graph: Graph,
    config: RunnableConfig,
    *,
    model: BaseChatModel,
    policy: Policy | None = None,
    meter: Meter | None = None,
    system_prompt: SystemMessage | str | None = None,
    tools: Sequence[Tool] = (),
    scope: UndoScope = "pass",
    as_node: str | None = None,
) -> Undone | None:
    """Show again, word for word, what the newest summary of a thread stands for. None where there is no summary.

    Args:
        graph, config: A graph with a checkpointer, and the thread; with a `checkpoint_id` that checkpoint is forked.
        model: The model that goes on with the thread. Its limit, and `policy.context_limit`, say what fits.
        policy, meter: Those of the window; by default the defaults.
        system_prompt, tools: What the requests hold besides messages, to be counted with them.
        scope: `pass` takes back everything that was folded with the summary, `summary` leaves the rest folded.
        as_node: As in `update_state`.

    Raises `ContextOverflowError`, with the numbers, where the window would not fit; nothing is changed then.
    """
    target = UndoTarget(
        model=model, policy=policy or Policy(), meter=meter, system_prompt=system_prompt, tools=tools
    )  # fmt: skip
    state = graph.get_state(config)
    found = undo_of(state.values, target, scope)
    if found is None:
        return None
    fold, gauge, room = found
    written = graph.update_state(state.config, {"folds": [fold.to_json()]}, as_node=as_node)
    return _undone(fold, gauge, room, written)


async def aundo_summary(
    graph: Graph,
    config: RunnableConfig,
    *,
    model: BaseChatModel,
    policy: Policy | None = None,
    meter: Meter | None = None,
    system_prompt: SystemMessage | str | None = None,
    tools: Sequence[Tool] = (),
    scope: UndoScope = "pass",
    as_node: str | None = None,
) -> Undone | None:
    """The same as `undo_summary`, awaited."""
    target = UndoTarget(
        model=model, policy=policy or Policy(), meter=meter, system_prompt=system_prompt, tools=tools
    )  # fmt: skip
    state = await graph.aget_state(config)
    found = undo_of(state.values, target, scope)
    if found is None:
        return None
    fold, gauge, room = found
    written = await graph.aupdate_state(state.config, {"folds": [fold.to_json()]}, as_node=as_node)
    return _undone(fold, gauge, room, written)


def undo_of(values: Mapping[str, object], target: UndoTarget, scope: UndoScope) -> tuple[Fold, Gauge, Budget] | None:
    """The fold that takes back the newest summary of a state, the window with it, and the room that it has.

    Raises `ContextOverflowError` where it would not fit.
    """
    messages = cast("Sequence[BaseMessage]", values.get("messages") or ())
    window = project(messages, cast("Sequence[Mapping[str, Json]]", values.get("folds") or ()))
    folds = newest_summary(window, scope=scope)
    if not folds:
        return None
    setup = Setup(
        policy=target.policy, models=Models(summary=None, fallback=None), meter=target.meter, host=Host(),
        binding=Binding(),
    )  # fmt: skip
    facts = facts_of(target.model, {})
    meter = target.meter or setup.host.meter(facts.family)
    system = _system(target.system_prompt, meter)
    tools = meter.count_tools(target.tools)
    before = measure(window, meter, system=system, tools=tools, scale=1.0)
    at = window.log.anchor(len(window.log) - 1)
    pass_id = derived_id("pass", "undo", at.key, at.hash, str(len(window.raw_folds)))
    fold, after = undo_fold(before, folds, pass_id=pass_id, reason="asked for")
    room = setup.room(facts)
    divided = budget(
        room.limits, reserve=room.reserve, system=round(after.scale * system.tokens),
        tools=round(after.scale * tools.tokens),
    )  # fmt: skip
    if after.used > divided.messages:
        raise overflow_error("the window with its newest summary undone does not fit", after, divided)
    return fold, after, divided


def _system(prompt: SystemMessage | str | None, meter: Meter) -> Count:
    if prompt is None:
        return Count(tokens=0, bytes=0)
    return meter.count(prompt if isinstance(prompt, SystemMessage) else SystemMessage(prompt))


def _undone(fold: Fold, gauge: Gauge, room: Budget, config: RunnableConfig) -> Undone:
    return Undone(
        folds=tuple(sorted(fold.undone)), before=fold.before, after=gauge.used, budget=room.messages, config=config
    )
