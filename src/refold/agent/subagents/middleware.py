"""`SubagentMiddleware`: the `task` tool, beside a `WindowMiddleware` of the same agent.

    window = WindowMiddleware()
    agent = create_agent(model, tools, middleware=[
        window,
        SubagentMiddleware(window, [GENERAL_PURPOSE], defaults=SubagentDefaults(model=model, tools=tools)),
    ])

A child runs as a nested graph of the tool call: it has a namespace and checkpoints of its own under the caller's
thread; its stream is seen with `subgraphs=True`; its custom events and interrupts reach the caller, and a resumed run
goes on inside the child where it stopped. Several calls of one message run in one superstep, side by side.

What a child raises goes up, as from any tool: the run stops, the children that finished are kept by the checkpointer,
and `invoke(None, config)` goes on where each other one stopped. For a caller that should be told instead, there is
LangChain's `ToolErrorMiddleware`, for one that should try again, its `ToolRetryMiddleware`; interrupts pass both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, cast

from langchain.agents.middleware.types import AgentMiddleware, AgentState
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphRecursionError
from langgraph.types import Command
from pydantic import BaseModel, Field, WithJsonSchema, create_model

from refold.agent.models import facts_of
from refold.agent.offload import Thresholds
from refold.agent.sessions import with_files
from refold.agent.subagents.building import SubagentDefaults, build_child, init_model
from refold.agent.subagents.delegate import TASK, Delegation, Ended, RunChild, delegate_gen, task_message
from refold.agent.subagents.history import history_tools
from refold.agent.subagents.levels import LEVELS, LevelName
from refold.agent.subagents.room import ANSWERS, AnswerRoom
from refold.agent.subagents.specs import GENERAL_PURPOSE, AnySubagent, check_specs
from refold.agent.subagents.words import not_delegated, task_description, unknown_subagent
from refold.agent.threads import child_thread_name
from refold.agent.window import WindowMiddleware
from refold.core.effects import Report
from refold.core.program import Effect, Program, arun, run
from refold.files import aanswer, answer, files_session
from refold.files.state import outside_sessions


class SubagentMiddleware(AgentMiddleware[AgentState[object], None, object]):
    """Lets an agent hand work to subagents.

    Args:
        window: The agent's own window. Its files are shared with the children, its policy, summary model, meter and
            hooks are theirs too unless a spec says otherwise, and its free room sizes their answers.
        subagents: Who can be asked; declarations and compiled graphs.
        defaults: What declared subagents have where their spec says nothing.
        answers: How much of the window answers may take; what is over it is stored, with a preview and a path.

    Raises `ConfigurationError` for subagents that cannot work: equal names, no description, unknown tools, no model,
    state keys that are not there.
    """

    def __init__(
        self,
        window: WindowMiddleware,
        subagents: Sequence[AnySubagent] = (GENERAL_PURPOSE,),
        *,
        defaults: SubagentDefaults = SubagentDefaults(),  # noqa: B008 - a frozen value
        answers: Thresholds = ANSWERS,
    ) -> None:
        super().__init__()
        check_specs(subagents)
        model = init_model(defaults.model)
        known = replace(defaults, model=model)
        self._window = window
        self._children = {spec.name: build_child(spec, window, known) for spec in subagents}
        self._room = AnswerRoom(
            window=window, thresholds=answers, facts=facts_of(model, {}) if model is not None else None
        )
        granting = any(spec.grant_history for spec in subagents)
        self.tools: Sequence[BaseTool] = [
            self._task_tool(subagents),
            *(history_tools(window.files, window.paging) if granting else ()),
        ]

    def _task_tool(self, specs: Sequence[AnySubagent]) -> BaseTool:
        def task(
            description: str, subagent: str, runtime: ToolRuntime, level: LevelName | None = None
        ) -> Command[object]:
            program = self._task_gen(description, subagent, level, runtime)
            with files_session(self._window.files, runtime.state) as session:
                return with_files(run(program, partial(self._answer, runtime)), session.update())

        async def atask(
            description: str, subagent: str, runtime: ToolRuntime, level: LevelName | None = None
        ) -> Command[object]:
            program = self._task_gen(description, subagent, level, runtime)
            with files_session(self._window.files, runtime.state) as session:
                return with_files(await arun(program, partial(self._aanswer, runtime)), session.update())

        return StructuredTool.from_function(
            task, atask, name=TASK, description=task_description(specs), args_schema=task_arguments(specs),
            infer_schema=False,
        )  # fmt: skip

    def _task_gen(
        self, description: str, subagent: str, level: LevelName | None, runtime: ToolRuntime
    ) -> Program[Command[object]]:
        child = self._children.get(subagent)
        if child is None:
            return refused(unknown_subagent(subagent, list(self._children)), runtime)
        if unknown := stray_arguments(runtime):
            return refused(not_delegated(unknown), runtime)
        scope, most = self._room.scope(runtime)
        chosen, call_id = level or child.spec.level, runtime.tool_call_id or ""
        asked = task_message(child.spec, description, chosen, call_id)
        job = Delegation(
            child=child,
            task=asked,
            level=chosen,
            limit=runtime.config.get("recursion_limit"),
            call_id=call_id,
            state=cast("Mapping[str, object]", runtime.state),
            scope=scope,
            threshold=most,
            thread=child_thread_name(runtime.config, [asked]),
        )
        return (yield from delegate_gen(job))

    def _answer(self, runtime: ToolRuntime, effect: Effect[object]) -> object:
        match effect:
            case RunChild():
                with outside_sessions(self._window.files):
                    return run_child(effect)
            case Report():
                self._window.report(effect, runtime.stream_writer)
                return None
            case _:
                return answer(self._window.files, effect)

    async def _aanswer(self, runtime: ToolRuntime, effect: Effect[object]) -> object:
        match effect:
            case RunChild():
                with outside_sessions(self._window.files):
                    return await arun_child(effect)
            case Report():
                self._window.report(effect, runtime.stream_writer)
                return None
            case _:
                return await aanswer(self._window.files.asynchronous(), effect)


def run_child(effect: RunChild) -> Ended:
    """Run a child's graph nested in the current run, to its end or its bound on steps."""
    last: object = None
    try:
        for state in effect.child.graph.stream(effect.given, config_of(effect), stream_mode="values"):
            last = state
    except GraphRecursionError:
        return Ended(state=last, out_of_steps=True)
    return Ended(state=last)


async def arun_child(effect: RunChild) -> Ended:
    """The same as `run_child`, awaited."""
    last: object = None
    try:
        async for state in effect.child.graph.astream(effect.given, config_of(effect), stream_mode="values"):
            last = state
    except GraphRecursionError:
        return Ended(state=last, out_of_steps=True)
    return Ended(state=last)


def config_of(effect: RunChild) -> RunnableConfig:
    """What differs from the caller's configuration, which LangGraph hands down by itself."""
    name = effect.child.spec.name
    config = RunnableConfig(run_name=name, metadata={"lc_agent_name": name})
    if effect.steps is not None:
        config["recursion_limit"] = effect.steps
    return config


class TaskArguments(BaseModel):
    """The arguments of `task` as the model is told of them."""

    description: str = Field(
        min_length=1, description="The whole task, for someone who knows nothing of it: aim, paths, what to answer."
    )
    subagent: str = Field(description="Who is asked.")
    level: Annotated[LevelName | None, WithJsonSchema({"type": "string", "enum": list(LEVELS)})] = Field(
        default=None, description="How far to go; the subagent's own if left out."
    )


def task_arguments(specs: Sequence[AnySubagent]) -> type[BaseModel]:
    """The arguments, with the names that there are. Another name is answered by the tool, not by validation, so that
    the model reads what it can call."""
    names = Annotated[str, WithJsonSchema({"type": "string", "enum": [spec.name for spec in specs]})]
    return create_model("TaskArguments", __base__=TaskArguments, subagent=(names, Field(description="Who is asked.")))


def stray_arguments(runtime: ToolRuntime) -> list[str]:
    """Arguments of the call that the tool does not know: a model that put its instructions under another name would
    have them dropped, and the subagent would work from a title."""
    newest = next((m for m in reversed(runtime.state["messages"]) if isinstance(m, AIMessage)), None)
    calls = newest.tool_calls if newest is not None else []
    given = next((call["args"] for call in calls if call["id"] == runtime.tool_call_id), {})
    return sorted(set(given) - set(TaskArguments.model_fields))


def refused(text: str, runtime: ToolRuntime) -> Command[object]:
    """The error result of a call that was not run."""
    message = ToolMessage(text, name=TASK, tool_call_id=runtime.tool_call_id or "", status="error")
    return Command(update={"messages": [message]})
