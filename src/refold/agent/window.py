"""`WindowMiddleware`: keeps an agent's requests inside its model's window, in any LangChain `create_agent`.

It only adapts: each hook converts the request, starts the program of `refold.core.turn`, and answers its effects. The
log (`state["messages"]`) is never changed; folds are committed to the private `folds` channel in the same superstep as
the model's answer.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, Literal, TypeAlias, cast

from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langchain.agents.middleware.types import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from refold.agent.edge import (
    AfterFold,
    AsyncHandler,
    BeforeFold,
    Edge,
    Handler,
    Models,
    Request,
    committed_passes,
    refuse_awaitable,
)
from refold.agent.host import Host
from refold.agent.occupancy import marked, occupancy_of
from refold.agent.recall import Paging, read_history_tool
from refold.agent.repair import LogRepair
from refold.agent.search import search_history_tool
from refold.agent.setup import Binding, Setup, refuse_name
from refold.agent.state import FilesWindowState, WindowState
from refold.agent.telemetry import open_telemetry
from refold.agent.threads import thread_name
from refold.core.canonical import Json
from refold.core.effects import Report
from refold.core.meter import Meter
from refold.core.passes.args import has_reference
from refold.core.policy import Policy
from refold.core.program import arun, run
from refold.core.turn import Outcome, Turn, model_call_gen
from refold.core.usage import read_usage
from refold.errors import ConfigurationError
from refold.files import Files, LocalFiles, files_session
from refold.files.state import FilesSession, uses_state

RepairMode: TypeAlias = Literal["view", "state"]
"""Where a log whose calls and results do not fit together is mended."""


class WindowMiddleware(AgentMiddleware[WindowState, None, object]):
    """Keeps every request inside the model's input limit without losing a byte.

        agent = create_agent(model, tools, middleware=[WindowMiddleware()])

    Arguments:
        files: Where originals go that leave the window. Default: the directory `.refold` under the working directory.
        policy: Every threshold; see `Policy`.
        summary_model: The model that writes summaries. Default: the agent's own, in its live prefix.
        fallback_model: Asked when the first one fails.
        meter: Counts tokens. Default: an estimator for the model's tokenizer family, corrected by reported usage.
        before_fold: Called before a fold pass is made; may veto or amend it.
        after_fold: Called once per pass after it is committed, with the numbers before and after. It takes a node of
            its own after the model, which costs a superstep per model call; without it there is none.
        binding: The names of the agent's tools that read files and messages back. Default: `read_history` and
            `search_history`, which this middleware adds. What no bound tool can read back never leaves the window.
        repair: `view` shows a log whose calls and results do not fit together mended, and leaves it as it is. `state`
            writes the repair of pairing to the log as well, from a node before the model, which costs a superstep per
            model call: for those whose other code reads the log.
        name: The middleware's name; LangChain refuses two of the same.

    Raises, from the model node: `ContextOverflowError` when no fold can make a request fit, with all numbers.
    """

    state_schema = WindowState
    transformers: ClassVar[Sequence[type]] = (InternalCallTransformer,)  # type: ignore[misc]

    def __new__(
        cls, *, after_fold: AfterFold | None = None, repair: RepairMode = "view", **options: object
    ) -> "WindowMiddleware":
        """LangChain adds a node for a class that defines one of its hooks, so only one that needs it does."""
        kind = _NODES[after_fold is not None, repair == "state"] if cls is WindowMiddleware else cls
        return super().__new__(kind)

    def __init__(
        self,
        *,
        files: Files | None = None,
        policy: Policy | None = None,
        summary_model: BaseChatModel | None = None,
        fallback_model: BaseChatModel | None = None,
        meter: Meter | None = None,
        before_fold: BeforeFold | None = None,
        after_fold: AfterFold | None = None,
        binding: Binding | None = None,
        repair: RepairMode = "view",
        name: str = "RefoldWindow",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        if repair not in ("view", "state"):
            raise ConfigurationError(f"repair={repair!r} is not known: take 'view', or 'state' to mend the log itself")
        refuse_name("files", files, "refold.open_files(...) makes the storage of a path or URL")
        for argument, model in (("summary_model", summary_model), ("fallback_model", fallback_model)):
            refuse_name(argument, model, "langchain's init_chat_model makes a model of it")
        self._files = files if files is not None else LocalFiles(".refold")
        if uses_state(self._files):
            self.state_schema = FilesWindowState
        self._before_fold = before_fold
        self._after_fold = after_fold
        self._log_repair = LogRepair()
        self._name = name
        self._clock = clock
        self._telemetry = open_telemetry()
        self._models = Models(summary=summary_model, fallback=fallback_model)
        self.setup = Setup(
            policy=policy or Policy(), models=self._models, meter=meter, host=Host(), binding=binding or Binding()
        )
        self.tools: Sequence[BaseTool] = () if binding is not None else self._recall_tools()

    @property
    def name(self) -> str:
        """The name under which LangChain knows this middleware."""
        return self._name

    def wrap_model_call(
        self, request: Request, handler: Handler
    ) -> ModelResponse[object] | ExtendedModelResponse[object]:
        """Send the fold of the log instead of the log."""
        with files_session(self._files, request.state) as session:
            turn, edge = self._open(request)
            outcome = run(model_call_gen(turn), partial(edge.answer, handler=handler))
            return self._commit(edge, outcome, session)

    async def awrap_model_call(
        self, request: Request, handler: AsyncHandler
    ) -> ModelResponse[object] | ExtendedModelResponse[object]:
        """Send the fold of the log instead of the log."""
        with files_session(self._files, request.state) as session:
            turn, edge = self._open(request)
            outcome = await arun(model_call_gen(turn), partial(edge.aanswer, handler=handler))
            return self._commit(edge, outcome, session)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[object]]
    ) -> ToolMessage | Command[object]:
        """Refuse a call whose arguments hold a copied reference to a withheld value."""
        return refusal_of(request, self.setup.reader) or handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[object]]],
    ) -> ToolMessage | Command[object]:
        """Refuse a call whose arguments hold a copied reference to a withheld value."""
        return refusal_of(request, self.setup.reader) or await handler(request)

    @property
    def files(self) -> Files:
        """Where originals are."""
        return self._files

    @property
    def paging(self) -> Paging:
        """How large the answers of tools that read may be."""
        return Paging(page=self.setup.policy.read_page, occupancy=self.occupancy)

    def derived(
        self, *, policy: Policy | None, summary_model: BaseChatModel | None, binding: Binding | None = None
    ) -> "WindowMiddleware":
        """The same for another agent, with another policy, summariser and readers; None keeps this one's.

        Files, meter and hooks are the same, and what refusals teach about a model is known to both.
        """
        other = copy(self)
        other._models = replace(self._models, summary=summary_model or self._models.summary)
        other.setup = replace(
            self.setup, policy=policy or self.setup.policy, models=other._models, binding=binding or self.setup.binding
        )
        other.tools = other._recall_tools() if self.tools else ()
        return other

    def report(self, effect: Report, stream: Callable[[object], object]) -> None:
        """Tell the outside what another middleware did with these files."""
        self._telemetry.event(effect.event, effect.data, stream=stream)

    def occupancy(self, thread: str, messages: Sequence[BaseMessage] = ()) -> tuple[int, int]:
        """Tokens of messages in the last window of a thread (`thread_name`), and its budget; (0, 0) before any.

        Given the thread's log, it is the same in every process, and right in a fork."""
        return occupancy_of(messages) or self.setup.host.occupancy.get(thread, (0, 0))

    def occupancy_after(self, thread: str, answer: AIMessage | None) -> tuple[int, int]:
        """The same with the newest answer in it: as the provider reported both, where it did."""
        used, budget = self.occupancy(thread, () if answer is None else (answer,))
        known = self.setup.host.last(thread)
        if known is None or answer is None:
            return used, budget
        usage = read_usage(answer)
        if usage is None:
            return used + round(known.scale * known.meter.count(answer).tokens), budget
        return max(0, usage.context - known.fixed), budget

    def _recall_tools(self) -> Sequence[BaseTool]:
        return read_history_tool(self._files, paging=self.paging), search_history_tool(self._files, paging=self.paging)

    def _open(self, request: ModelRequest[None]) -> tuple[Turn, Edge]:
        return self.setup.open(
            request, files=self._files, telemetry=self._telemetry, before_fold=self._before_fold, now=self._clock()
        )

    def _commit(
        self, edge: Edge, outcome: Outcome, session: FilesSession
    ) -> ModelResponse[object] | ExtendedModelResponse[object]:
        self.setup.host.put(
            edge.thread, outcome.gauge, self._clock(), budget=outcome.room.messages, vetoed=outcome.vetoed
        )
        self._telemetry.window(
            outcome.gauge, outcome.room, limit=edge.room.limits.input, stream=edge.request.runtime.stream_writer
        )
        response = marked(
            cast("ModelResponse[object]", outcome.response), used=outcome.gauge.used, budget=outcome.room.messages
        )
        update = {**edge.cleared(), **session.update()}
        if not outcome.folds and not update:
            return response
        return ExtendedModelResponse(
            model_response=response, command=Command(update={**update, "folds": list(outcome.folds)})
        )


class _RepairingWindowMiddleware(WindowMiddleware):
    """Mends the log in a node before the model."""

    def before_model(self, state: WindowState, runtime: Runtime[None]) -> dict[str, object] | None:
        """What of the log's pairing is to be mended."""
        return self._mended(state, runtime)

    async def abefore_model(self, state: WindowState, runtime: Runtime[None]) -> dict[str, object] | None:
        """What of the log's pairing is to be mended."""
        return self._mended(state, runtime)

    def _mended(self, state: WindowState, runtime: Runtime[None]) -> dict[str, object] | None:
        messages = state["messages"]
        folds = cast("Sequence[Mapping[str, Json]]", state.get("folds") or ())
        update = self._log_repair.update(thread_name(get_config(), messages), messages, folds)
        if not update:
            return None
        self.report(Report(event="repaired", data={"messages": len(update)}), runtime.stream_writer)
        return {"messages": update}


class _AnnouncingWindowMiddleware(WindowMiddleware):
    """Calls `after_fold` from a node after the model, whose state holds what the model's superstep committed."""

    def after_model(self, state: WindowState, runtime: Runtime[None]) -> None:
        """Announce the passes that are in the state by now."""
        for waiting in self._told(state):
            if isinstance(waiting, Awaitable):
                refuse_awaitable("after_fold", waiting)

    async def aafter_model(self, state: WindowState, runtime: Runtime[None]) -> None:
        """Announce the passes that are in the state by now."""
        for waiting in self._told(state):
            if isinstance(waiting, Awaitable):
                await waiting

    def _told(self, state: WindowState) -> Iterator[object]:
        """What the hook gives back for each pass."""
        folds = cast("Sequence[Mapping[str, Json]]", state.get("folds") or ())
        for committed in committed_passes(state["messages"], folds):
            if self._after_fold is not None:
                yield self._after_fold(committed)


class _AnnouncingRepairingWindowMiddleware(_AnnouncingWindowMiddleware, _RepairingWindowMiddleware):
    """Both."""


_NODES: Final[Mapping[tuple[bool, bool], type[WindowMiddleware]]] = {
    (False, False): WindowMiddleware,
    (False, True): _RepairingWindowMiddleware,
    (True, False): _AnnouncingWindowMiddleware,
    (True, True): _AnnouncingRepairingWindowMiddleware,
}
"""By whether folds are announced and whether the log is mended."""


def refusal_of(request: ToolCallRequest, reader: str | None) -> ToolMessage | None:
    """The error result for a call that repeats a reference instead of content (fault 131), or None for any other."""
    found = has_reference(request.tool_call["args"])
    if found is None:
        return None
    return ToolMessage(
        content=(
            f"Not run: the argument {found or 'arguments'!r} holds a note that stands for text which this conversation "
            "shows shortened, not the text itself. "
            + (f"Read the original with {reader}, then call again with the whole text." if reader else "Write it out.")
        ),
        name=request.tool_call["name"],
        tool_call_id=request.tool_call["id"] or "",
        status="error",
    )
