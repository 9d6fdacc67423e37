"""A chat model that refuses what a provider refuses: its structural rules, its exact limits, its wording.

`StrictModel` is the oracle for windows. It answers from a script, and it checks every request before it answers: the
rules of one provider (`refold.core.validate`), the input limit by its own count, the size of the body, the cap on
output. It records every request, and how much of it a prompt cache would have served.

    model = StrictModel(script=["Hello."], limit=1_000, provider="anthropic")
    model.invoke("Hi").content        # "Hello."
    model.requests[0].tokens          # what its counter said
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr, SkipValidation

from refold.core.canonical import canonical_bytes, digest, digest_of
from refold.core.messages import content_hash
from refold.core.validate import Provider, violations
from refold.testing.answers import FINISH, UsageStyle, chunks_of, cut_to, reported, stamped
from refold.testing.counting import Counter, utf8_quarter
from refold.testing.dialects import Dialect, OversizedRequest, ProviderError


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A step that never answers: it waits `seconds`, then times out. Cancelling an async call ends it at once."""

    seconds: float = 3600.0


@dataclass(frozen=True, kw_only=True)
class BreakOff:
    """A step that streams the first `after` chunks of `answer` and then fails; a call without streaming just fails."""

    answer: AIMessage | str
    error: Exception
    after: int = 1


@dataclass(frozen=True, kw_only=True)
class CutOff:
    """A step whose answer hits the output limit: the first `characters` of its text, finished by `length`."""

    answer: AIMessage | str
    characters: int


Step: TypeAlias = AIMessage | str | Exception | Hang | BreakOff | CutOff
"""What the model does on one call. A text is an answer with that text ("" for an empty one), an exception is raised."""

Script: TypeAlias = Sequence[Step] | Callable[[Sequence[BaseMessage]], Step]
"""The steps in order, or what to do for each request (its messages, the system prompt included)."""


class ScriptEndedError(AssertionError):
    """The model was called more often than its script has steps."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as the model got it. `tokens` is the model's own count of messages and tools.

    `cached` is how many messages, from the first on, an earlier request with the same tools began with too: what a
    provider's prompt cache could serve. `refusal` is the error it met before any step of the script, None for none.
    """

    messages: tuple[BaseMessage, ...]
    tools: tuple[Mapping[str, object], ...]
    kwargs: Mapping[str, object]
    stream: bool
    tokens: int
    cached: int
    refusal: ProviderError | None

    @property
    def system(self) -> str:
        """The text of the system prompt; empty without one."""
        first = self.messages[:1]
        return str(first[0].text) if first and isinstance(first[0], SystemMessage) else ""

    @property
    def window(self) -> tuple[BaseMessage, ...]:
        """The messages without the system prompt."""
        return self.messages[1:] if isinstance(self.messages[:1] and self.messages[0], SystemMessage) else self.messages

    @property
    def size(self) -> int:
        """Bytes of the request as canonical JSON, inline media included."""
        return len(canonical_bytes([[m.type, m.content, m.additional_kwargs] for m in self.messages])) + len(
            canonical_bytes(self.tools)
        )


@dataclass(kw_only=True)
class _Tape:
    """What the copies of one model share: the requests so far, the prefixes that they began with, the lock."""

    requests: list[Request] = field(default_factory=list)
    answered: int = 0
    prefixes: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __deepcopy__(self, memo: dict[int, object]) -> "_Tape":
        return self


class StrictModel(BaseChatModel):
    """A scripted chat model that enforces a provider's rules and limits.

    - `script`: the steps, or a function from the request's messages to a step.
    - `provider`: whose structural rules hold, None for none; `allow_prefill=False` for models that refuse to go on from
      a beginning of an answer.
    - `limit`: input limit in tokens of `count`, None for none. `output_limit` caps `max_tokens` (a larger one is
      refused). `shared_limit` counts `max_tokens` into `limit`, as vLLM does. `byte_limit` refuses larger bodies (413).
    - `count`: tokens of messages and tools. The default, `utf8_quarter`, counts UTF-8 bytes / 4: exact, simple, near to
      real tokenizers (Chinese: 0.75 per character), not equal to refold's estimate; pass another to be stricter.
    - `dialect`: the wording and type of an overflow; `overflow_at="stream"` raises it after the first chunk.
      `dialect="ollama"` refuses nothing, but reports no more than `limit` input tokens: that server truncates silently.
    - `usage`: where token counts are reported; `stream_usage=False` leaves them out of streams.

    A refusal is raised before a step of the script is used. Copies of a model share requests and script. `profile`
    carries the limits unless it is given.
    """

    script: Annotated[Script, SkipValidation]
    provider: Provider | None = "openai_chat"
    limit: int | None = None
    output_limit: int | None = None
    shared_limit: bool = False
    byte_limit: int | None = None
    count: Annotated[Counter, SkipValidation] = utf8_quarter
    dialect: Dialect = "langchain"
    overflow_at: Literal["call", "stream"] = "call"
    allow_prefill: bool = True
    usage: UsageStyle = "usage_metadata"
    stream_usage: bool = True
    chunk_size: int = 16
    model_name: str = "strict-model"
    max_tokens: int | None = None
    _tape: _Tape = PrivateAttr(default_factory=_Tape)

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request so far, refused ones included, in the order of their arrival."""
        return tuple(self._tape.requests)

    @property
    def _llm_type(self) -> str:
        return "refold-strict"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "provider": self.provider, "limit": self.limit}

    def _resolve_model_profile(self) -> ModelProfile | None:
        profile = ModelProfile(tool_calling=True)
        if self.limit is not None:
            profile["max_input_tokens"] = self.limit
        if self.output_limit is not None:
            profile["max_output_tokens"] = self.output_limit
        return profile

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools; requests record their schemas in OpenAI's form, and `tool_choice` in `kwargs`."""
        chosen = {} if tool_choice is None else {"tool_choice": tool_choice}
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **chosen, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request, step = self._receive(messages, kwargs, stream=False)
        if isinstance(step, Hang):
            time.sleep(step.seconds)
        return _result(self._answer(request, step))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request, step = self._receive(messages, kwargs, stream=False)
        if isinstance(step, Hang):
            await asyncio.sleep(step.seconds)
        return _result(self._answer(request, step))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request, step = self._receive(messages, kwargs, stream=True)
        if isinstance(step, Hang):
            time.sleep(step.seconds)
        for chunk in self._chunks(request, step):
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request, step = self._receive(messages, kwargs, stream=True)
        if isinstance(step, Hang):
            await asyncio.sleep(step.seconds)
        for chunk in self._chunks(request, step):
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk

    def _receive(self, messages: list[BaseMessage], kwargs: Mapping[str, Any], *, stream: bool) -> tuple[Request, Step]:
        """Record and check a request; the step that it gets. Raises the refusal."""
        tools = tuple(kwargs.get("tools") or ())
        tokens = self.count(messages, tools)
        with self._tape.lock:
            arrived = Request(
                messages=tuple(messages),
                tools=tools,
                kwargs={key: value for key, value in kwargs.items() if key != "tools"},
                stream=stream,
                tokens=tokens,
                cached=self._cached(messages, tools),
                refusal=None,
            )
            request = replace(arrived, refusal=self._refusal(arrived))
            self._tape.requests.append(request)
        if request.refusal is None:
            return request, self._next(request)
        if stream and self.overflow_at == "stream" and not request.refusal.violations:
            return request, BreakOff(answer="...", error=request.refusal)
        raise request.refusal

    def _next(self, request: Request) -> Step:
        if not isinstance(self.script, Sequence):
            return self.script(request.messages)
        with self._tape.lock:
            at = self._tape.answered
            self._tape.answered += 1
        if at >= len(self.script):
            raise ScriptEndedError(f"call {at + 1} came, but the script has {len(self.script)} steps")
        return self.script[at]

    def _cached(self, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, object]]) -> int:
        prefix, cached = digest_of(list(tools)), 0
        for number, message in enumerate(messages, start=1):
            prefix = digest(prefix + content_hash(message))
            if prefix in self._tape.prefixes:
                cached = number
            self._tape.prefixes.add(prefix)
        return cached

    def _refusal(self, request: Request) -> ProviderError | None:
        if self.byte_limit is not None and (size := request.size) > self.byte_limit:
            text = f"Request Entity Too Large: {size} bytes, at most {self.byte_limit}"
            return ProviderError(text, status_code=413)
        if self.provider is not None:
            offset = len(request.messages) - len(request.window)
            broken = violations(request.window, self.provider, allow_prefill=self.allow_prefill)
            if broken:
                text = "; ".join(f"messages.{v.index + offset}: {v.detail} ({v.rule})" for v in broken)
                return ProviderError(text, violations=broken)
        cap = self._cap(request)
        if cap is not None and self.output_limit is not None and cap > self.output_limit:
            return ProviderError(
                f"max_tokens: {cap} > {self.output_limit}, which is the maximum allowed for this model"
            )
        output = (cap or 0) if self.shared_limit else 0
        if self.limit is None or self.dialect == "ollama" or request.tokens + output <= self.limit:
            return None
        return OversizedRequest(limit=self.limit, prompt=request.tokens, output=output).error(self.dialect)

    def _cap(self, request: Request) -> int | None:
        for key in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
            if isinstance(cap := request.kwargs.get(key), int):
                return cap
        return self.max_tokens

    def _answer(self, request: Request, step: Step) -> AIMessage:
        """The finished answer of a step, or its error."""
        match step:
            case Hang():
                raise TimeoutError(f"the request timed out after {step.seconds} s")
            case Exception():
                raise step
            case BreakOff():
                raise step.error
            case CutOff():
                return self._finish(request, cut_to(_message(step.answer), step.characters), finish="length")
            case _:
                answer, cap = _message(step), self._cap(request)
                spent = self.count([answer], ())
                if cap is not None and spent > cap:
                    text = len(answer.text)
                    return self._finish(request, cut_to(answer, text * cap // spent), finish="length")
                return self._finish(request, answer, finish="tool_calls" if answer.tool_calls else "stop")

    def _finish(
        self, request: Request, answer: AIMessage, *, finish: Literal["stop", "tool_calls", "length"]
    ) -> AIMessage:
        metadata = {**FINISH[self.provider or "openai_chat"][finish], "model_name": self.model_name}
        answer = stamped(answer, metadata)
        if answer.usage_metadata is not None or (request.stream and not self.stream_usage):
            return answer
        shown = request.tokens if self.dialect != "ollama" or self.limit is None else min(request.tokens, self.limit)
        cached = self.count(request.messages[: request.cached], request.tools) if request.cached else 0
        return reported(answer, self.usage, spent=(shown, self.count([answer], ())), cached=min(cached, shown))

    def _chunks(self, request: Request, step: Step) -> Iterator[ChatGenerationChunk]:
        if isinstance(step, BreakOff):
            answer = self._finish(request, _message(step.answer), finish="stop")
            for number, chunk in enumerate(chunks_of(answer, self.chunk_size)):
                if number < step.after:
                    yield ChatGenerationChunk(message=chunk)
            raise step.error
        for chunk in chunks_of(self._answer(request, step), self.chunk_size):
            yield ChatGenerationChunk(message=chunk)


def _message(answer: AIMessage | str) -> AIMessage:
    """The scripted answer as a message of its own: LangChain writes ids and metadata into what a model returns."""
    return AIMessage(answer) if isinstance(answer, str) else answer.model_copy(deep=True)


def _result(answer: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=answer)])
