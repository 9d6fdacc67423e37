"""From a declaration to an agent: LangChain's `create_agent` with a window of its own in front.

A child's window is the caller's with another policy and summariser (`WindowMiddleware.derived`): the same files, meter,
hooks and reader, and what refusals teach about a model is known to all. Its log, folds, archives and indexes go by its
own thread name, which LangGraph's namespace makes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, overload

from langchain.agents import create_agent as create_langchain_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, InterruptOnConfig
from langchain.agents.middleware.types import AgentState
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from refold.agent.offload import Thresholds
from refold.agent.recall import READ_HISTORY, Paging
from refold.agent.setup import tool_names
from refold.agent.stack import window_with
from refold.agent.subagents.delegate import Child
from refold.agent.subagents.specs import AnySubagent, CompiledSubagent, Graph, Middleware, Subagent, Tool, check_state
from refold.agent.subagents.words import child_prompt
from refold.agent.tools import Permissions
from refold.agent.window import WindowMiddleware
from refold.errors import ConfigurationError

OwnTools: TypeAlias = Callable[[Permissions | None, Paging], Sequence[BaseTool]]
"""Makes an agent's tools over the shared files, with its permissions and its pages."""


@dataclass(frozen=True, kw_only=True)
class SubagentDefaults:
    """What declared subagents have where their spec says nothing.

    Args:
        model: A chat model, or a name for `init_chat_model`.
        tools: The tools of a spec without `tools`, and those that a spec can name.
        middleware: The middleware of a spec without `middleware`.
        interrupt_on: Which tools wait for a human.
        permissions: What file tools may do; None for their own default.
        offload, control: See `refold.middleware`.
        own_tools: Makes the tools that every child has over the shared files. None: none but those that the window
            brings, `read_history` and `search_history`.
        state_schema, context_schema: As for LangChain's `create_agent`.
    """

    model: str | BaseChatModel | None = None
    tools: Sequence[Tool] = ()
    middleware: Sequence[Middleware] = ()
    interrupt_on: Mapping[str, bool | InterruptOnConfig] | None = None
    permissions: Permissions | None = None
    offload: Thresholds | None = field(default_factory=Thresholds)
    control: bool = True
    own_tools: OwnTools | None = None
    state_schema: type[AgentState[Any]] | None = None
    context_schema: type[Any] | None = None


def build_child(spec: AnySubagent, window: WindowMiddleware, defaults: SubagentDefaults) -> Child:
    """The child of a spec, for the caller whose window is given. Raises `ConfigurationError` for what cannot work."""
    graph: Graph = spec.graph if isinstance(spec, CompiledSubagent) else _build(spec, window, defaults)
    check_state(spec, graph)
    return Child(spec=spec, graph=graph)


def child_window(
    spec: Subagent, window: WindowMiddleware, permissions: Permissions | None = None, tools: Sequence[Tool] = ()
) -> WindowMiddleware:
    """The caller's window for a child: its policy and summariser, unless the spec has its own (fault 196), and readers
    that the child's permissions cannot keep from what was stored."""
    policy = spec.policy
    if policy is None and spec.model is not None:  # numbers of the caller's model are not the child's
        policy = replace(window.setup.policy, context_limit=None, output_reserve=None)
    names = frozenset(tool_name(tool) for tool in tools)
    binding = window.setup.binding.beside(names).under(permissions)
    return window.derived(policy=policy, summary_model=init_model(spec.summary_model), binding=binding)


def _build(spec: Subagent, window: WindowMiddleware, defaults: SubagentDefaults) -> Graph:
    model = spec.model if spec.model is not None else defaults.model
    if model is None:
        raise ConfigurationError(f"subagent {spec.name!r} has no model: give it one, or one for all in the defaults")
    rules = spec.permissions if spec.permissions is not None else defaults.permissions
    own = child_window(spec, window, rules, _tools(spec, defaults.tools) if defaults.own_tools is not None else ())
    stack = window_with(own, offload=defaults.offload, control=defaults.control)
    check_names(_tools(spec, defaults.tools), stack)
    asked = spec.interrupt_on if spec.interrupt_on is not None else defaults.interrupt_on
    if asked:
        stack.append(HumanInTheLoopMiddleware(interrupt_on=dict(asked)))
    return create_langchain_agent(
        init_model(model),
        [*_tools(spec, defaults.tools), *_own_tools(spec, own, defaults)],
        system_prompt=child_prompt(spec.prompt),
        middleware=[*stack, *(spec.middleware if spec.middleware is not None else defaults.middleware)],
        response_format=spec.response_format,
        state_schema=defaults.state_schema,
        context_schema=defaults.context_schema,
        name=spec.name,
    )


def _own_tools(spec: Subagent, window: WindowMiddleware, defaults: SubagentDefaults) -> Sequence[BaseTool]:
    if defaults.own_tools is None:
        if spec.permissions is not None:
            raise ConfigurationError(
                f"subagent {spec.name!r} has permissions, but no file tools that they are for: give `own_tools` in the "
                "defaults, or put `file_tools(files, permissions=...)` among its tools"
            )
        return ()
    rules = spec.permissions if spec.permissions is not None else defaults.permissions
    return beside(_tools(spec, defaults.tools), defaults.own_tools(rules, window.paging))


def _tools(spec: Subagent, known: Sequence[Tool]) -> list[Tool]:
    """The tools of a spec, names replaced by the caller's tools."""
    if spec.tools is None:
        return list(known)
    named = {tool_name(tool): tool for tool in known}
    if missing := [tool for tool in spec.tools if isinstance(tool, str) and tool not in named]:
        raise ConfigurationError(
            f"subagent {spec.name!r} names tools that the caller does not have: {', '.join(map(str, missing))}; there "
            f"are: {', '.join(named) or 'none'}"
        )
    return [named[tool] if isinstance(tool, str) else tool for tool in spec.tools]


def beside(given: Sequence[Tool], own: Sequence[BaseTool]) -> Sequence[BaseTool]:
    """refold's tools but those whose names the given ones take: a tool of the user's own is never replaced.

    Raises `ConfigurationError` for the name of the tool by which everything that is shown shortened is read back.
    """
    names = {tool_name(tool) for tool in given}
    if READ_HISTORY in names:
        raise ConfigurationError(
            f"a tool of yours is called {READ_HISTORY}, as the one that reads back what left the window: rename yours"
        )
    return [tool for tool in own if tool.name not in names]


def check_names(given: Sequence[Tool], stack: Sequence[Middleware]) -> None:
    """Raises `ConfigurationError` where a tool of the user's has the name of one that refold's middleware brings."""
    brought = {tool.name for part in stack for tool in part.tools}
    if taken := sorted(brought & {tool_name(tool) for tool in given}):
        raise ConfigurationError(
            f"tools of yours are called {', '.join(taken)}, as tools that come with refold's middleware: rename yours"
        )


def check_reviewed(names: Iterable[str], tools: Sequence[Tool], stack: Sequence[Middleware]) -> None:
    """Raises `ConfigurationError` for calls that shall wait for a human and cannot come: a misspelt name would be a
    question that is never asked."""
    known = {tool_name(tool) for tool in tools} | {tool.name for part in stack for tool in part.tools}
    if unknown := sorted(set(names) - known):
        raise ConfigurationError(
            f"calls of {unknown[0]} shall wait for a human, but no tool is called so; there are "
            f"{', '.join(sorted(known))}"
        )


def tool_name(tool: Tool) -> str:
    """The name that a model calls a tool by."""
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, dict):
        return next(iter(tool_names([tool])), "")
    return tool.__name__


@overload
def init_model(model: str | BaseChatModel) -> BaseChatModel: ...
@overload
def init_model(model: None) -> None: ...
def init_model(model: str | BaseChatModel | None) -> BaseChatModel | None:
    """The model itself, where it is given by name."""
    return init_chat_model(model) if isinstance(model, str) else model
