"""Effects that core programs ask for: what a model call, a compaction or an ingestion needs of the world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.canonical import Json
from refold.core.limits import Learned, Limits
from refold.core.overflow import Overflow
from refold.core.program import Effect

WriteMode: TypeAlias = Literal["create", "replace", "append"]
"""How a write meets what is there: see `refold.files.Files.write`."""


@dataclass(frozen=True, kw_only=True)
class ReadFile(Effect[bytes]):
    """The bytes of a file. Raises `FileMissingError` into the program when nothing is stored there."""

    path: str


@dataclass(frozen=True, kw_only=True)
class WriteFile(Effect[None]):
    """Store bytes under a path; the modes and errors are those of `refold.files.Files.write`."""

    path: str
    data: bytes
    mode: WriteMode


@dataclass(frozen=True, kw_only=True)
class Sleep(Effect[None]):
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a summariser answered."""

    message: AIMessage


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A model call that failed. `overflow` is set when the provider refused it as too long, `media` says that it
    refused a medium in it."""

    error: Exception
    overflow: Overflow | None = None
    media: bool = False


Route: TypeAlias = Literal["live", "summary", "fallback"]
"""How a summary is asked for: in the live request's own prefix, of the summary model, or of the fall-back model."""


@dataclass(frozen=True, kw_only=True)
class AskSummariser(Effect[Reply | Failure]):
    """Ask a model for a summary, unseen by the user's streams. Model errors and time-outs are answers, not exceptions.

    For the `live` route `messages` are the window and an instruction: system prompt, tools and model stay those of
    the request, with tool calls switched off. For the other routes `messages` are the whole request, of `sent` tokens
    by an upper bound.
    """

    route: Route
    messages: Sequence[BaseMessage]
    timeout: float
    sent: int = 0


@dataclass(frozen=True, kw_only=True)
class CallModel(Effect[object | Failure]):
    """Send the window to the model. Answers with the response, whatever its type, or a `Failure` whose `overflow` or
    `media` is set; every other error of the model is thrown. `over` says that the request is over what is assumed of
    the model: then a refusal that says nothing is taken for an overflow."""

    messages: Sequence[BaseMessage]
    over: bool = False
    free: int = 0
    """Tokens of the budget that the window leaves free."""
    note: str = ""
    """What the model is told once, behind the window: it is in no later request."""


@dataclass(frozen=True, kw_only=True)
class ConfirmFolds(Effect[Sequence[Mapping[str, Json]]]):
    """Show the folds of a pass to the user's `before_fold` hook. Answers with those to keep: all, some, or none; the
    texts of segments and STATE may be others."""

    folds: Sequence[Mapping[str, Json]]
    before: int
    after: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Report(Effect[None]):
    """Tell the outside what happened: to logs, metrics and custom streams. Never fails."""

    event: str
    data: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What is known of what a request may take.

    `learned` is what refusals taught about the model, `reserve` the output cap that was asked for (None: unknown),
    `body_limit` the most bytes of a body (None: no limit).
    """

    limits: Limits
    learned: Learned | None
    reserve: int | None
    body_limit: int | None


@dataclass(frozen=True, kw_only=True)
class LearnLimit(Effect[Room]):
    """Remember what a refusal says about the model's limit. Answers with the room for the next, smaller request.

    `sent` are the tokens of the whole refused request by our own count, estimates times `scale`; `size` its bytes.
    """

    overflow: Overflow
    sent: int
    size: int
    scale: float
