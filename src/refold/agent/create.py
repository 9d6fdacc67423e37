"""`create_agent`: an agent that can run for days, in one call. Every part of it can be replaced.

It is LangChain's `create_agent` with refold's middleware in front: the window, offload of large results, control tools,
and file tools over the same files that hold the artifacts. What it returns is a LangGraph graph like any other.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from weakref import finalize

from langchain.agents import create_agent as create_langchain_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, InterruptOnConfig
from langchain.agents.middleware.types import AgentMiddleware, AgentState, InputAgentState, OutputAgentState
from langchain.agents.structured_output import ResponseFormat
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from refold.agent.arguments import check_arguments
from refold.agent.edge import AfterFold, BeforeFold
from refold.agent.offload import Thresholds
from refold.agent.recall import READ_HISTORY, Paging, read_history_tool
from refold.agent.retention import RetentionMiddleware
from refold.agent.search import search_history_tool
from refold.agent.setup import Binding
from refold.agent.stack import window_with
from refold.agent.subagents import AnySubagent, SubagentDefaults, SubagentMiddleware
from refold.agent.subagents.building import beside, check_names, check_reviewed, init_model, tool_name
from refold.agent.tools import Permissions, file_tools
from refold.agent.window import RepairMode, WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.checkpoint.saver import BaseSaver
from refold.checkpoint.sqlite.connect import connect
from refold.checkpoint.state import GrowingState, LogState
from refold.core.meter import Meter
from refold.core.policy import Policy
from refold.errors import ConfigurationError
from refold.files import Files, LocalFiles, Retention, open_files

# LangChain's own signature has these parameters open; an agent of any state and context must be accepted.
Middleware: TypeAlias = AgentMiddleware[Any, Any, Any]
Agent: TypeAlias = CompiledStateGraph[AgentState[Any], Any, InputAgentState, OutputAgentState[Any]]
Tool: TypeAlias = BaseTool | Callable[..., Any] | dict[str, Any]

HOME = ".refold"
"""The directory, under the working directory, of an agent that is told nothing else: files and threads."""


def create_agent(
    model: str | BaseChatModel,
    tools: Sequence[Tool] = (),
    *,
    system_prompt: str | SystemMessage | None = None,
    files: Files | str | Path | None = None,
    checkpointer: BaseCheckpointSaver[str] | str | Path | None = None,
    store: BaseStore | None = None,
    subagents: Sequence[AnySubagent] = (),
    policy: Policy | None = None,
    summary_model: str | BaseChatModel | None = None,
    fallback_model: str | BaseChatModel | None = None,
    meter: Meter | None = None,
    before_fold: BeforeFold | None = None,
    after_fold: AfterFold | None = None,
    repair: RepairMode = "view",
    offload: Thresholds | None = Thresholds(),  # noqa: B008 - a frozen value
    control: bool = True,
    permissions: Permissions | None = None,
    interrupt_on: Mapping[str, bool | InterruptOnConfig] | None = None,
    retention: Retention | None = None,
    response_format: ResponseFormat[Any] | type[Any] | dict[str, Any] | None = None,
    middleware: Sequence[Middleware] = (),
    context_schema: type[Any] | None = None,
    name: str | None = None,
) -> Agent:
    """An agent whose window always fits and whose checkpoints stay linear.

        agent = refold.create_agent("openai:gpt-5", [search], system_prompt="You are a researcher.")
        agent.invoke({"messages": [("user", "...")]}, {"configurable": {"thread_id": "1"}})

    Args:
        model: A chat model, or a name for `init_chat_model`.
        tools: Your tools. `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep`, `delete`, `read_history`,
            `search_history` and the control tools are there already; one of yours with such a name takes its place.
        files: Storage of the agent's files and of artifacts: a `Files`, a path or a URL (`s3://...`, extra `objects`).
            Default: `.refold/files`.
        checkpointer: A saver, a path of a SQLite file, or a `postgresql://` URL (extra `postgres`). Default:
            `.refold/threads.db`. With savers that are not refold's, the log is a delta channel (`LogState`).
        subagents: Who the agent can hand work to, with the tool `task`: declarations (`Subagent`), compiled graphs
            (`CompiledSubagent`), and `GENERAL_PURPOSE`, which is this agent again. Default: nobody, and no such tool.
        policy, summary_model, fallback_model, meter, before_fold, after_fold, repair: See `WindowMiddleware`.
        offload, control: When a result is stored as it comes, and whether the model gets the control tools; see
            `refold.middleware`. All these are the subagents' too, unless a declaration says otherwise, and so are
            tools, permissions, `interrupt_on` and middleware.
        permissions: What the file tools may do, by glob and operation.
        interrupt_on: Tools that wait for a human, as in LangChain's `HumanInTheLoopMiddleware`; a name that no tool has
            is refused.
        retention: Bounds on stored originals that no checkpoint of the saver points at: they are collected after runs,
            at most once an hour. Default: everything is kept.
        middleware: More middleware, inside refold's.

    Raises `ConfigurationError` for settings that cannot work.
    """
    check_arguments(
        {
            "model": model, "summary_model": summary_model, "fallback_model": fallback_model, "files": files,
            "checkpointer": checkpointer, "offload": offload, "policy": policy,
            "permissions": permissions, "interrupt_on": interrupt_on, "retention": retention,
            "tools": tools, "subagents": subagents, "middleware": middleware,
        }
    )  # fmt: skip
    storage = files if isinstance(files, Files) else _open_files(files)
    chat = init_model(model)
    names = frozenset(tool_name(tool) for tool in tools)
    binding = Binding(file_reader="read_file", log_reader=READ_HISTORY).beside(names).under(permissions)
    window = WindowMiddleware(
        files=storage, policy=policy, summary_model=init_model(summary_model), binding=binding,
        fallback_model=init_model(fallback_model), meter=meter, before_fold=before_fold, after_fold=after_fold,
        repair=repair,
    )  # fmt: skip
    others = isinstance(checkpointer, BaseCheckpointSaver) and not isinstance(checkpointer, BaseSaver)
    defaults = SubagentDefaults(
        model=chat, tools=tools, middleware=middleware, interrupt_on=interrupt_on, permissions=permissions,
        offload=offload, control=control,
        own_tools=partial(own_tools, storage), state_schema=LogState if others else GrowingState,
        context_schema=context_schema,
    )  # fmt: skip
    stack = window_with(window, offload=offload, control=control)
    if subagents:
        stack.append(SubagentMiddleware(window, subagents, defaults=defaults))
    check_names(tools, stack)
    all_tools = [*tools, *beside(tools, own_tools(storage, permissions, window.paging))]
    if interrupt_on is not None:
        check_reviewed(interrupt_on, all_tools, [*stack, *middleware])
        stack.append(HumanInTheLoopMiddleware(interrupt_on=dict(interrupt_on)))
    saver = _open_saver(checkpointer)  # after all that may be refused: a refusal leaves no database behind
    if retention is not None:
        stack.append(RetentionMiddleware(saver, storage, retention))
    return create_langchain_agent(
        chat,
        all_tools,
        system_prompt=system_prompt,
        middleware=[*stack, *middleware],
        response_format=response_format,
        state_schema=defaults.state_schema,
        context_schema=context_schema,
        checkpointer=saver,
        store=store,
        name=name,
    )


def own_tools(files: Files, permissions: Permissions | None, paging: Paging) -> Sequence[BaseTool]:
    """The tools that an agent of refold's has over its files: files, and recall of its log."""
    return [
        *file_tools(files, permissions=permissions, page_tokens=max(100, paging.page)),
        read_history_tool(files, paging=paging),
        search_history_tool(files, paging=paging),
    ]


def _open_files(place: str | Path | None) -> Files:
    return LocalFiles(f"{HOME}/files") if place is None else open_files(place)


def _open_saver(given: BaseCheckpointSaver[str] | str | Path | None) -> BaseCheckpointSaver[str]:
    if isinstance(given, BaseCheckpointSaver):
        return given
    place = str(given) if given is not None else None
    if place is not None and place.startswith(("postgres://", "postgresql://")):
        from refold.checkpoint import PostgresSaver  # an extra

        stack = ExitStack()
        saver = stack.enter_context(PostgresSaver.from_conn_string(place))
        finalize(saver, stack.close)  # the pool lives as long as the saver, hence as the agent
        return saver
    place = place or f"{HOME}/threads.db"
    if not place.startswith("file:"):  # SQLite's own URIs
        if "://" in place:
            raise ConfigurationError(
                f"no checkpointer answers to {place.partition('://')[0]}://: give the path of a SQLite file, "
                "a postgresql:// URL, or a saver"
            )
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    return SqliteSaver(connect(place, timeout=30.0))
