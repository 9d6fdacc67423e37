"""The replaying model: it answers with the recorded replies, and looks at every request as a provider would.

It counts strictly, refuses what is over the limit, and reports the tokens that it counted. A request for a summary (by
the tag under which refold asks for one) is answered by `summarise`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.constants import TAG_NOSTREAM
from pydantic import PrivateAttr

from refold.replay.extract import summarise
from refold.replay.measure import Request, Scale, human_problems, invalid_rules
from refold.replay.tape import Tape, as_reported


class RequestRefusedError(ContextOverflowError):
    """The refusal of a request over the limit, in the words that servers use."""


class RecordedModel(BaseChatModel):
    """A chat model that plays a tape; made by `playing`.

    `limit` is the input limit in tokens of the strict counter; `model_name` decides which tokenizer family
    refold estimates for.
    """

    limit: int
    model_name: str
    _tape: Tape = PrivateAttr()
    _scale: Scale = PrivateAttr()
    _schemas: dict[int, tuple[object, dict[str, Any]]] = PrivateAttr(default_factory=dict)

    @classmethod
    def playing(cls, tape: Tape, *, scale: Scale, limit: int, model_name: str) -> Self:
        """The model of a tape."""
        model = cls(limit=limit, model_name=model_name)
        model._tape, model._scale = tape, scale
        return model

    @property
    def _llm_type(self) -> str:
        return "refold-recorded"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools; their schemas are part of each request."""
        return self.bind(tools=[self._schema(tool) for tool in tools], **kwargs)

    def _schema(self, tool: dict[str, Any] | type | Callable[..., Any] | BaseTool) -> dict[str, Any]:
        """The schema of a tool, converted once: an agent binds the same tools for every call."""
        if id(tool) not in self._schemas:
            self._schemas[id(tool)] = (tool, convert_to_openai_tool(tool))
        return self._schemas[id(tool)][1]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tags = run_manager.tags if run_manager is not None else []
        return self._answered(messages, kwargs.get("tools") or (), summary=TAG_NOSTREAM in tags)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tags = run_manager.tags if run_manager is not None else []
        return self._answered(messages, kwargs.get("tools") or (), summary=TAG_NOSTREAM in tags)

    def _answered(
        self, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, object]], *, summary: bool
    ) -> ChatResult:
        has_system = bool(messages) and isinstance(messages[0], SystemMessage)
        system, window = (messages[0], messages[1:]) if has_system else (None, messages)
        parts = self._scale.parts(system, tools, window)
        tokens = sum(size for _, size in parts)
        reply = AIMessage(summarise(window)) if summary else self._tape.reply()
        recorded = reply.usage_metadata
        output = recorded["output_tokens"] if recorded is not None else self._scale.meter.count(reply).tokens
        request = Request(
            kind="summary" if summary else "model",
            position=self._tape.position,
            at=self._tape.now(),
            parts=parts,
            output=output,
            categories=self._scale.categories(parts, window),
            invalid=invalid_rules(window),
            problems=() if summary else human_problems(window, self._tape.transcript.messages[: self._tape.position]),
            refused=tokens > self.limit,
        )
        self._tape.note(request)
        if request.refused:
            raise RequestRefusedError(f"prompt is too long: {tokens} tokens > {self.limit} maximum")
        if not summary:
            self._tape.replied()
        return ChatResult(generations=[ChatGeneration(message=as_reported(reply, tokens=tokens, output=output))])
