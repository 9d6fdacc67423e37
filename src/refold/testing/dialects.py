"""How servers say that a request is too large: status, text and body of the refusal, by server.

The shapes are the servers' own, with their numbers where they put them; a server that names no number names none here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from langchain_core.exceptions import ContextOverflowError

from refold.core.validate import Violation

Dialect: TypeAlias = Literal[
    "langchain",
    "openai",
    "openai_requested",
    "openai_responses",
    "azure",
    "github",
    "anthropic",
    "anthropic_output",
    "gemini",
    "vertex",
    "vllm",
    "vllm_prompt",
    "sglang",
    "llamacpp",
    "lmstudio",
    "ollama",
    "ollama_cloud",
    "bedrock",
    "dashscope",
    "moonshot",
    "zhipu",
    "openrouter",
    "groq",
    "mistral",
    "fireworks",
    "cerebras",
]

_TEXTS: Final[Mapping[Dialect, tuple[int, str]]] = {
    "langchain": (400, "The input of {prompt} tokens exceeds the model's limit of {limit} tokens."),
    "openai": (
        400,
        "This model's maximum context length is {limit} tokens. However, your messages resulted in {prompt} tokens. "
        "Please reduce the length of the messages. (context_length_exceeded)",
    ),
    "openai_requested": (
        400,
        "This model's maximum context length is {limit} tokens. However, you requested {total} tokens ({prompt} in the "
        "messages, {output} in the completion). (context_length_exceeded)",
    ),
    "openai_responses": (400, "Your input exceeds the context window of this model. (context_length_exceeded)"),
    "azure": (
        400,
        "Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in {prompt} tokens.",
    ),
    "github": (413, "Request body too large for the model. Max size: {limit} tokens."),
    "anthropic": (400, "prompt is too long: {prompt} tokens > {limit} maximum"),
    "anthropic_output": (400, "input length and `max_tokens` exceed context limit: {prompt} + {output} > {limit}"),
    "gemini": (400, "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({limit})."),
    "vertex": (400, "Unable to submit request: input token count is {prompt} but model only supports up to {limit}."),
    "vllm": (
        400,
        "This model's maximum context length is {limit} tokens. However, your request has {prompt} input tokens. "
        "(parameter=input_tokens, value={prompt})",
    ),
    "vllm_prompt": (400, "The decoder prompt (length {prompt}) is longer than the maximum model length of {limit}."),
    "sglang": (400, "The input ({prompt} tokens) is longer than the model's context length ({limit} tokens)."),
    "llamacpp": (
        400,
        "request ({prompt} tokens) exceeds the available context size ({limit} tokens), try increasing it",
    ),
    "lmstudio": (
        400,
        "Trying to keep the first {prompt} tokens when context overflows, but the model has a context length of only "
        "{limit} tokens.",
    ),
    "ollama": (200, ""),
    "ollama_cloud": (400, "prompt too long; exceeded max context length by {over} tokens"),
    "bedrock": (400, "Input is too long for requested model."),
    "dashscope": (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {limit}]"),
    "moonshot": (400, "Your request exceeded model token limit: {limit} (requested: {total})"),
    "zhipu": (400, "code 1261: Prompt exceeds max length"),
    "openrouter": (
        400,
        "This endpoint's maximum context length is {limit} tokens. However, you requested about {total} tokens "
        "({prompt} of text input, {output} in the output).",
    ),
    "groq": (400, "Please reduce the length of the messages or completion. (context_length_exceeded)"),
    "mistral": (
        400,
        "Prompt contains {prompt} tokens and 0 draft tokens, too large for model with {limit} maximum context length",
    ),
    "fireworks": (400, "The prompt is too long: {prompt}, model maximum context length: {limit}"),
    "cerebras": (400, "Current length is {prompt} while limit is {limit}. (context_length_exceeded)"),
}

DIALECTS: Final[tuple[Dialect, ...]] = tuple(_TEXTS)


class ProviderError(Exception):
    """A refusal as a client library without LangChain's error types would raise it.

    `status_code` is the HTTP status, `body` what the server sent, `violations` the structural rules that were broken
    (empty for a refusal of another kind).
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int = 400,
        body: Mapping[str, object] | None = None,
        violations: tuple[Violation, ...] = (),
    ) -> None:
        self.status_code = status_code
        self.body = body if body is not None else {"error": {"message": message, "type": "invalid_request_error"}}
        self.violations = violations
        super().__init__(f"Error code: {status_code} - {message}")


class OverflowRefusal(ProviderError, ContextOverflowError):
    """A refusal that LangChain's partner package recognised, so that it has LangChain's own type too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OversizedRequest:
    """A request that is too large, in tokens."""

    limit: int
    prompt: int
    output: int = 0

    def error(self, dialect: Dialect) -> ProviderError:
        """The refusal as the server words it."""
        status, text = _TEXTS[dialect]
        total = self.prompt + self.output
        message = text.format(
            limit=self.limit, prompt=self.prompt, output=self.output, total=total, over=max(1, total - self.limit)
        )
        if dialect == "langchain":
            return OverflowRefusal(message, status_code=status)
        if dialect == "llamacpp":
            numbers = {"n_prompt_tokens": self.prompt, "n_ctx": self.limit}
            body = {"error": {"message": message, "type": "exceed_context_size_error", "code": status, **numbers}}
            return ProviderError(message, status_code=status, body=body)
        return ProviderError(message, status_code=status)
