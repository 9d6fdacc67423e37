"""What a subagent is: a declaration that refold builds an agent from, or a graph that is compiled already.

    Subagent(
        name="researcher",
        description="Answers questions about the code base; knows where things are.",
        prompt="You read code and say what it does, with paths and line numbers.",
        tools=["grep_code", my_index],          # names are of the parent's tools
        model="openai:gpt-5-mini",
    )

What a declaration leaves out it has from its parent: model, tools, middleware, policy, summary model, permissions, and
which tools wait for a human, so that delegating never goes around an approval. Never from the parent: its messages,
prompt, or state. The state keys that may cross are named in `inputs` and `outputs`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from langchain.agents.middleware import InterruptOnConfig
from langchain.agents.middleware.types import AgentMiddleware
from langchain.agents.structured_output import ResponseFormat
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import PregelProtocol

from refold.agent.subagents.levels import LEVELS, LevelName
from refold.agent.tools import Permissions
from refold.core.policy import Policy
from refold.errors import ConfigurationError
from refold.files.state import CHANNEL

# LangChain's and LangGraph's own signatures have these parameters open.
Tool: TypeAlias = BaseTool | Callable[..., Any] | dict[str, Any]
Middleware: TypeAlias = AgentMiddleware[Any, Any, Any]
Graph: TypeAlias = PregelProtocol[Any, Any, Any, Any]
Format: TypeAlias = ResponseFormat[Any] | type[Any] | dict[str, Any]

KEPT_APART: Final = frozenset({"messages", "folds", "pins", "compaction", "structured_response", "jump_to", CHANNEL})
"""State keys that never cross, even where a spec asks for it: each agent's own."""


@dataclass(frozen=True, kw_only=True)
class Subagent:
    """A subagent as a declaration.

    Args:
        name: What the parent calls it by.
        description: What it is good for, for the parent's model.
        prompt: Its system prompt; how it answers its caller is added to it.
        tools: Its tools, or names of the parent's; None for all of the parent's. File tools and recall over the shared
            files are there besides, as the parent has them.
        model: A chat model, or a name for `init_chat_model`; None for the parent's.
        policy: None for the parent's; with another `model`, without the parent's `context_limit` and `output_reserve`,
            which are of the parent's model.
        summary_model: Writes its summaries; None for the parent's.
        permissions: What its file tools may do; None for the parent's rules.
        interrupt_on: Tools that wait for a human; None for the parent's, `{}` for none.
        response_format: Its answer as a structured value; the parent gets it as JSON.
        middleware: Its middleware, inside refold's; None for the parent's, `()` for none.
        inputs, outputs: State keys that are handed in from the parent's state, and back out. A key in `outputs` that
            parallel children write needs a reducer in the parent's state; one in both must not have a reducer that
            adds, or what was handed in comes back twice.
        level: The level of a call that names none.
        steps: The most supersteps of one run, whatever its level; None for the level's.
        grant_history: Whether the parent may search and read the messages of its runs, once they ended.
    """

    name: str
    description: str
    prompt: str = ""
    tools: Sequence[Tool | str] | None = None
    model: str | BaseChatModel | None = None
    policy: Policy | None = None
    summary_model: str | BaseChatModel | None = None
    permissions: Permissions | None = None
    interrupt_on: Mapping[str, bool | InterruptOnConfig] | None = None
    response_format: Format | None = None
    middleware: Sequence[Middleware] | None = None
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    level: LevelName = "standard"
    steps: int | None = None
    grant_history: bool = False


@dataclass(frozen=True, kw_only=True)
class CompiledSubagent:
    """A subagent as a graph of your own, whose state has `messages`; the other fields are those of `Subagent`.

    The graph is used as it is, with what it was compiled with: refold adds no window to it. It gets the description
    alone, as a human message.
    """

    name: str
    description: str
    graph: Graph
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    level: LevelName = "standard"
    steps: int | None = None
    grant_history: bool = False


AnySubagent: TypeAlias = Subagent | CompiledSubagent

GENERAL_PURPOSE: Final = Subagent(
    name="general-purpose",
    description=(
        "Has your tools and files, and a window of its own. For work of many steps whose details you will not need "
        "afterwards: searching through many files, a long investigation, a change in many places."
    ),
)
"""The parent again, without its conversation. Put it among the subagents, as it is or changed with
`dataclasses.replace`; leave it out to have only your own."""


def check_specs(specs: Sequence[AnySubagent]) -> None:
    """Raises `ConfigurationError` for specs that cannot work, each by itself and together."""
    if not specs:
        raise ConfigurationError("no subagent is given: name some, for instance GENERAL_PURPOSE, or leave them out")
    names = [spec.name for spec in specs]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"several subagents are called {', '.join(doubled)}: the parent picks them by name")
    for spec in specs:
        _check(spec)


def check_state(spec: AnySubagent, graph: Graph) -> None:
    """Raises `ConfigurationError` where a graph has no `messages`, or does not take or give the keys that are to cross:
    private keys are neither input nor output. The state of a graph that runs elsewhere is not known."""
    if not isinstance(graph, Pregel):
        return
    takes = gives = frozenset(graph.channels)
    if isinstance(graph, CompiledStateGraph):
        takes, gives = (
            frozenset(graph.builder.schemas[schema])
            for schema in (graph.builder.input_schema, graph.builder.output_schema)
        )
    wrong = {"messages"} - set(graph.channels), set(spec.inputs) - takes, set(spec.outputs) - gives
    if missing := sorted(set().union(*wrong)):
        raise ConfigurationError(
            f"the state of subagent {spec.name!r} has no {', '.join(missing)} that can be handed in or out: declare it "
            "in the state schema of the graph, or of a middleware of the subagent, and not as private"
        )


def _check(spec: AnySubagent) -> None:
    if not spec.name.strip() or spec.name != " ".join(spec.name.split()):
        raise ConfigurationError(f"a subagent is called {spec.name!r}: give it a name of one line, like 'researcher'")
    if not spec.description.strip():
        raise ConfigurationError(
            f"subagent {spec.name!r} has no description: say what it is good for; the parent's model chooses by it"
        )
    if spec.level not in LEVELS:
        raise ConfigurationError(f"subagent {spec.name!r} has level={spec.level!r}: choose from {', '.join(LEVELS)}")
    if spec.steps is not None and spec.steps < 1:
        raise ConfigurationError(f"subagent {spec.name!r} has steps={spec.steps}: it must be 1 or more, or None")
    if private := sorted(KEPT_APART & {*spec.inputs, *spec.outputs}):
        raise ConfigurationError(
            f"subagent {spec.name!r} names {', '.join(private)} in inputs or outputs: these are each agent's own; "
            "share a key of your own instead"
        )
    if isinstance(spec, CompiledSubagent) and not isinstance(spec.graph, PregelProtocol):
        raise ConfigurationError(
            f"the graph of subagent {spec.name!r} is a {type(spec.graph).__name__}: give a compiled LangGraph graph"
        )
