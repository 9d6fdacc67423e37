"""`OffloadMiddleware`: large tool results become files when they come, and their stubs enter the log.

The log then stays light for every reader of it. How large is too large depends on the window: a share of its budget,
less where little room is left, and less again where several calls of one message return together, since results that
are each small enough can overflow together (fault 2). Fails closed: what cannot be stored and read back enters whole.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, cast

from langchain.agents.middleware.types import AgentMiddleware, AgentState, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from refold.agent.sessions import with_files
from refold.agent.threads import thread_name
from refold.agent.window import WindowMiddleware
from refold.core.effects import Report
from refold.core.ingest import Ingestion, ingest_gen
from refold.core.passes import Scope
from refold.core.program import Effect, Program, arun, run
from refold.errors import ConfigurationError
from refold.files import aanswer, answer, files_session

ToolResult: TypeAlias = ToolMessage | Command[object]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When a result is stored, in tokens.

    `share` is the part of the window's budget that one result may take, `room` the part of the free room that all
    results of one message may take together; `least` is what always enters whole. `per_tool` sets a fixed threshold.
    `slack` is by how much of its share a result may be over it and still enter whole: moving it would save little,
    and a model that needs it all would read it in a call more (fault 114). `media_bytes` is the most that the base64 of
    one medium may have to enter whole, None for no limit: 5 MiB is the least that a large provider takes of one image
    (Anthropic's); set it lower for a checkpointer whose items are bounded.
    """

    share: float = 0.1
    room: float = 0.5
    least: int = 800
    slack: float = 0.25
    media_bytes: int | None = 5 * 1024 * 1024
    per_tool: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or not 0 < self.room <= 1 or self.least < 0 or not 0 <= self.slack <= 1:
            raise ConfigurationError(
                "offload thresholds need 0 < share < 1, 0 < room <= 1, least >= 0 and 0 <= slack <= 1: "
                f"{self}; try the defaults"
            )
        if self.media_bytes is not None and self.media_bytes <= 0:
            raise ConfigurationError(f"offload media_bytes={self.media_bytes} must be positive, or None for no limit")

    def of(self, tool: str, *, used: int, budget: int, together: int) -> int:
        """The threshold for a result of a tool, of which `together` come at once."""
        if tool in self.per_tool:
            return self.per_tool[tool]
        free = max(0, budget - used)
        most = min((1 + self.slack) * self.share * budget, self.room * free / max(1, together))
        return max(self.least, round(most))


class OffloadMiddleware(AgentMiddleware[AgentState[object], None, object]):
    """Stores over-large tool results at ingestion, beside a `WindowMiddleware` whose files and readers it uses.

        window = WindowMiddleware()
        agent = create_agent(model, tools, middleware=[window, OffloadMiddleware(window)])

    Results of the tools in `Policy.exclude_tools` enter whole: they read what was stored, or answer in one line.
    """

    def __init__(
        self, window: WindowMiddleware, *, thresholds: Thresholds | None = None, name: str = "OffloadMiddleware"
    ) -> None:
        super().__init__()
        self.tools = ()
        self._window = window
        self._thresholds = thresholds or Thresholds()
        self._name = name

    @property
    def name(self) -> str:
        """The name under which LangChain knows this middleware."""
        return self._name

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        """Let the tool run, and its result in."""
        result = handler(request)
        with files_session(self._window.files, request.state) as session:
            taken = run(self._taken_gen(request, result), partial(self._answer, request))
            return with_files(taken, session.update())

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Let the tool run, and its result in."""
        result = await handler(request)
        with files_session(self._window.files, request.state) as session:
            taken = await arun(self._taken_gen(request, result), partial(self._aanswer, request))
            return with_files(taken, session.update())

    def _taken_gen(self, request: ToolCallRequest, result: ToolResult) -> Program[ToolResult]:
        """The result with its messages ingested; every other field of a `Command` stays."""
        if isinstance(result, list):  # several of one tool, which LangGraph lets through
            taken: list[ToolMessage | Command[object]] = []
            for one in result:
                taken.append((yield from self._taken_gen(request, one)))
            return cast("ToolResult", taken)
        if isinstance(result, ToolMessage):
            return cast("ToolMessage", (yield from self._ingested_gen(request, result)))
        update = result.update
        if not isinstance(update, Mapping) or not isinstance(update.get("messages"), list):
            return result
        messages: list[BaseMessage] = []
        for message in update["messages"]:
            messages.append((yield from self._ingested_gen(request, message)))
        return replace(result, update={**update, "messages": messages})

    def _ingested_gen(self, request: ToolCallRequest, message: BaseMessage) -> Program[BaseMessage]:
        if not isinstance(message, ToolMessage):
            return message
        history = request.state["messages"]
        thread = thread_name(request.runtime.config, history)
        used, budget = self._window.occupancy(thread, history)
        if budget == 0:
            return message  # no request was measured yet, so no tool can have been called by the model
        newest = next((m for m in reversed(history) if isinstance(m, AIMessage)), None)
        threshold = self._thresholds.of(
            message.name or request.tool_call["name"], used=used, budget=budget,
            together=len(newest.tool_calls) if newest is not None else 1,
        )  # fmt: skip
        bound = self._window.setup.bound_file_reader(request.runtime.tools)
        scope = Scope(thread=thread, policy=self._window.setup.policy, file_reader=bound, log_reader=None)
        job = Ingestion(
            message=message, scope=scope, threshold=threshold, media_bytes=self._thresholds.media_bytes
        )  # fmt: skip
        return (yield from ingest_gen(job))

    def _answer(self, request: ToolCallRequest, effect: Effect[object]) -> object:
        if isinstance(effect, Report):
            self._window.report(effect, request.runtime.stream_writer)
            return None
        return answer(self._window.files, effect)

    async def _aanswer(self, request: ToolCallRequest, effect: Effect[object]) -> object:
        if isinstance(effect, Report):
            self._window.report(effect, request.runtime.stream_writer)
            return None
        return await aanswer(self._window.files.asynchronous(), effect)
