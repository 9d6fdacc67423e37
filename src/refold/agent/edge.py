"""The edge: one model request, and the answers to the effects that its program asks for, sync and async.

An `Edge` lives for one call. It knows the request, the handler of the rest of the chain, the files and the hooks; the
program knows none of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias, cast

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langgraph.errors import GraphBubbleUp

from refold.agent.host import output_tools
from refold.agent.models import ModelFacts, tool_choice_off
from refold.agent.quiet import acall_quietly, call_quietly, quiet_config
from refold.agent.telemetry import Telemetry
from refold.core import overflow as refusals
from refold.core.canonical import Json
from refold.core.effects import (
    AskSummariser,
    CallModel,
    ConfirmFolds,
    Failure,
    LearnLimit,
    Reply,
    Report,
    Room,
    Sleep,
)
from refold.core.folds import read_folds
from refold.core.log import is_of
from refold.core.messages import REFOLD_KEY
from refold.core.program import Effect
from refold.core.record import wrap_record
from refold.errors import ConfigurationError, SummaryError
from refold.files import Files, aanswer, answer

_LEAST_FOR_NOTE: Final = 120
"""Free tokens that a note about a requested pass needs."""

Request: TypeAlias = ModelRequest[None]
Handler: TypeAlias = Callable[[Request], ModelResponse[object]]
AsyncHandler: TypeAlias = Callable[[Request], Awaitable[ModelResponse[object]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldProposal:
    """What a `before_fold` hook is shown: the folds of a pass that is about to be made, and its effect in tokens."""

    folds: Sequence[Mapping[str, Json]]
    before: int
    after: int
    reason: str
    thread: str


BeforeFold: TypeAlias = Callable[
    [FoldProposal],
    "Sequence[Mapping[str, Json]] | bool | Awaitable[Sequence[Mapping[str, Json]] | bool | None] | None",
]
"""Called once before a pass is made. None or True lets it pass, False vetoes it, a list keeps only those folds, whose
texts (`fold["data"]["text"]` of a summary or STATE) may be changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldCommitted:
    """A fold pass that is in the state by now. `before` and `after` are the window's tokens around it."""

    pass_id: str
    reason: str
    before: int
    after: int
    folds: Sequence[Mapping[str, Json]]


AfterFold: TypeAlias = Callable[[FoldCommitted], Awaitable[None] | None]
"""Called once per pass, after the superstep that committed it. May be async where the agent is awaited."""


def committed_passes(messages: Sequence[BaseMessage], folds: Sequence[Mapping[str, Json]]) -> list[FoldCommitted]:
    """The passes that the superstep of the newest answer committed: those made at the message before it.

    Read off the state alone, so that a process that goes on after a crash tells what the one before could not.
    """
    newest = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], AIMessage)), 0)
    if not newest:
        return []
    before = messages[newest - 1]
    passes: dict[str, list[Mapping[str, Json]]] = {}
    for raw in reversed(folds):
        found, _ = read_folds([raw])
        if not found or not is_of(found[0].at, before):
            break
        passes.setdefault(found[0].pass_id, []).insert(0, raw)
    return [
        FoldCommitted(pass_id=name, reason=made[0].reason, before=made[0].before, after=made[0].after, folds=tuple(raw))
        for name, raw in reversed(passes.items())
        if (made := read_folds(raw)[0])
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The models that may write summaries besides the request's own."""

    summary: BaseChatModel | None
    fallback: BaseChatModel | None


@dataclass(kw_only=True)
class Edge:
    """Answers effects for one request. `learn` remembers a refusal and answers with what is known then; `learn_of`
    remembers one of another model that writes summaries."""

    request: Request
    facts: ModelFacts
    files: Files
    models: Models
    telemetry: Telemetry
    thread: str
    learn: Callable[[LearnLimit], Room]
    learn_of: Callable[[BaseChatModel, LearnLimit], None]
    room: Room
    before_fold: BeforeFold | None = None
    budget_line: bool = False

    def cleared(self) -> dict[str, object]:
        """What of the state was a request to this call, and is answered by it."""
        return {"compaction": None} if self.request.state.get("compaction") is not None else {}

    def answer(self, effect: Effect[object], handler: Handler) -> object:
        """Answer an effect, blocking."""
        match effect:
            case CallModel(over=over):
                try:
                    return handler(self._with(self._tailed(effect)))
                except Exception as error:  # noqa: BLE001 - refusals are answers, everything else goes on
                    return _refused(error, over=over)
            case AskSummariser():
                try:
                    with self.telemetry.span("refold.summary"):
                        return Reply(message=call_quietly(lambda: self._ask(effect, handler), timeout=effect.timeout))
                except GraphBubbleUp:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a model raises is a failed summary
                    return self._failed(effect, error)
            case Sleep(seconds=seconds):
                time.sleep(seconds)
                return None
            case ConfirmFolds():
                decision = self._hook(effect)
                if isinstance(decision, Awaitable):
                    refuse_awaitable("before_fold", decision)
                return self._confirmed(effect, decision)
            case LearnLimit() | Report():
                return self._inform(effect)
            case _:
                return answer(self.files, effect)

    async def aanswer(self, effect: Effect[object], handler: AsyncHandler) -> object:
        """Answer an effect, awaiting."""
        match effect:
            case CallModel(over=over):
                try:
                    return await handler(self._with(self._tailed(effect)))
                except Exception as error:  # noqa: BLE001 - refusals are answers, everything else goes on
                    return _refused(error, over=over)
            case AskSummariser():
                try:
                    with self.telemetry.span("refold.summary"):
                        message = await acall_quietly(lambda: self._aask(effect, handler), timeout=effect.timeout)
                        return Reply(message=message)
                except GraphBubbleUp:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a model raises is a failed summary
                    return self._failed(effect, error)
            case Sleep(seconds=seconds):
                await asyncio.sleep(seconds)
                return None
            case ConfirmFolds():
                decision = self._hook(effect)
                return self._confirmed(effect, await decision if isinstance(decision, Awaitable) else decision)
            case LearnLimit() | Report():
                return self._inform(effect)
            case _:
                return await aanswer(self.files.asynchronous(), effect)

    def _tailed(self, call: CallModel) -> Sequence[BaseMessage]:
        """The window, with last lines that are in no later request, so that everything before them stays a prefix: what
        became of a pass that the model asked for, and how much is free where that was asked for (fault 201)."""
        tail: list[HumanMessage] = []
        if call.note and call.free > _LEAST_FOR_NOTE:
            tail.append(_line(call.note, kind="compaction"))
        if self.budget_line:
            tail.append(_line(f"{max(0, call.free)} tokens of this conversation's window are free.", kind="budget"))
        return [*call.messages, *tail] if tail else call.messages

    def _with(self, messages: Sequence[BaseMessage]) -> Request:
        return self.request.override(messages=cast("list[AnyMessage]", list(messages)))

    def _ask(self, effect: AskSummariser, handler: Handler) -> AIMessage:
        if effect.route == "live":
            return _only(handler(self._live(effect)))
        return _as_ai(self._model(effect).invoke(list(effect.messages), quiet_config()))

    async def _aask(self, effect: AskSummariser, handler: AsyncHandler) -> AIMessage:
        if effect.route == "live":
            return _only(await handler(self._live(effect)))
        return _as_ai(await self._model(effect).ainvoke(list(effect.messages), quiet_config()))

    def _failed(self, effect: AskSummariser, error: Exception) -> Failure:
        """A summary that failed; a refusal as too long is remembered of a model that is asked for summaries alone."""
        overflow = refusals.parse_overflow(error)
        if overflow is not None and (model := self._model(effect)) is not self.request.model and effect.route != "live":
            self.learn_of(model, LearnLimit(overflow=overflow, sent=effect.sent, size=0, scale=1.0))
        return Failure(error=error, overflow=overflow)

    def _live(self, effect: AskSummariser) -> Request:
        """The request itself plus the instruction: the same model, system prompt and tools, no structured output."""
        structured = output_tools(self.request.response_format, self.facts.profile)
        return self._with(effect.messages).override(
            tools=[*self.request.tools, *structured],
            tool_choice=tool_choice_off(self.facts) or self.request.tool_choice,
            response_format=None,
        )

    def _model(self, effect: AskSummariser) -> BaseChatModel:
        if effect.route == "fallback" and self.models.fallback is not None:
            return self.models.fallback
        return self.models.summary or self.request.model

    def _inform(self, effect: LearnLimit | Report) -> Room | None:
        if isinstance(effect, LearnLimit):
            self.room = self.learn(effect)
            return self.room
        self.telemetry.event(effect.event, effect.data, stream=self.request.runtime.stream_writer)
        return None

    def _hook(self, effect: ConfirmFolds) -> object:
        if self.before_fold is None:
            return None
        return self.before_fold(
            FoldProposal(
                folds=effect.folds, before=effect.before, after=effect.after, reason=effect.reason, thread=self.thread
            )
        )

    def _confirmed(self, effect: ConfirmFolds, decision: object) -> Sequence[Mapping[str, Json]]:
        match decision:
            case None | True:
                return effect.folds
            case False:
                return ()
            case list() | tuple():
                return cast("Sequence[Mapping[str, Json]]", decision)
            case _:
                raise ConfigurationError(
                    f"before_fold returned {type(decision).__name__}: return None or True to let the pass be made, "
                    "False to veto it, or a list of the folds to keep"
                )


def _line(text: str, *, kind: str) -> HumanMessage:
    return HumanMessage(wrap_record(text, kind=kind), additional_kwargs={REFOLD_KEY: {"kind": kind}})


def _refused(error: Exception, *, over: bool) -> Failure:
    """The refusal that an error of the model is; raises the error itself where it is something else."""
    overflow = None if isinstance(error, GraphBubbleUp) else refusals.parse_overflow(error, estimated_over=over)
    media = overflow is None and not isinstance(error, GraphBubbleUp) and refusals.refuses_media(error)
    if overflow is None and not media:
        raise error
    return Failure(error=error, overflow=overflow, media=media)


def refuse_awaitable(hook: str, decision: Awaitable[object]) -> NoReturn:
    """Raise for an async hook of an agent that is not awaited."""
    if isinstance(decision, Coroutine):
        decision.close()
    raise ConfigurationError(
        f"{hook} is an async function, but the agent was called without await: use ainvoke or astream, or give a "
        "plain function"
    )


def _only(response: object) -> AIMessage:
    """The AI message of a response, in whichever form the chain returned it."""
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    if isinstance(response, ModelResponse):
        response = next((message for message in response.result if isinstance(message, AIMessage)), None)
    return _as_ai(response)


def _as_ai(message: object) -> AIMessage:
    if not isinstance(message, AIMessage):
        raise SummaryError(f"the summariser answered with {type(message).__name__}, not with an AI message")
    return message
