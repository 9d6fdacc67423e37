"""What can be read off a LangChain chat model: its name, address, caps, and the provider whose rules it follows.

Partner packages name the same field differently. Only fields that the model's class declares are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage

from refold.core.family import Family, family_of
from refold.core.limits import ModelKey
from refold.core.validate import Provider

T = TypeVar("T")

_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment", "endpoint_name", "repo_id")
_ADDRESSES = ("openai_api_base", "anthropic_api_url", "base_url", "endpoint_url", "azure_endpoint", "api_base")
_CAPS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict", "max_new_tokens")
_SEEN_NAMES = ("model_name", "model", "model_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """What is known about a model from its own declaration. `output_cap` is a cap on output and nothing else."""

    name: str
    address: str
    output_cap: int | None
    profile: Mapping[str, object]
    family: Family
    provider: Provider
    integration: str

    @property
    def key(self) -> ModelKey:
        """Under which what this model taught is remembered."""
        return ModelKey(base_url=self.address or None, model=self.name)


def facts_of(model: BaseChatModel, settings: Mapping[str, object]) -> ModelFacts:
    """What is known about a model; `settings` are the call's own, which win over the model's."""
    name = _declared(model, _NAMES, str) or type(model).__name__
    cap = next((value for key in _CAPS if isinstance(value := settings.get(key), int) and value > 0), None)
    if cap is None:
        declared = _declared(model, _CAPS, int)
        cap = declared if declared is not None and declared > 0 else None
    return ModelFacts(
        name=name,
        address=_declared(model, _ADDRESSES, str) or "",
        output_cap=cap,
        profile={str(key): value for key, value in (model.profile or {}).items()},
        family=family_of(name),
        provider=_provider(model),
        integration=type(model).__module__,
    )


def may_be_same_model(facts: ModelFacts, message: AIMessage) -> bool:
    """Whether a reply may have come from the model: its own count of tokens is then a measure for this one too.

    Providers answer with longer names than they are asked by (a date, a prefix), so only another tokenizer family is
    taken as another model.
    """
    seen = next((v for key in _SEEN_NAMES if isinstance(v := message.response_metadata.get(key), str) and v), None)
    return seen is None or family_of(seen) == facts.family


def tool_choice_off(facts: ModelFacts) -> str | None:
    """How tool calls are switched off without losing the cached prefix.

    OpenAI-compatible servers and Gemini take "none". At Anthropic another `tool_choice` than the last request's drops
    the cached messages (https://docs.claude.com/en/docs/build-with-claude/prompt-caching, "what invalidates the
    cache"), so there the instruction has to do.
    """
    return None if facts.provider == "anthropic" else "none"


def _provider(model: BaseChatModel) -> Provider:
    origin = " ".join(f"{cls.__module__}.{cls.__name__}" for cls in type(model).__mro__).lower()
    if "anthropic" in origin:
        return "anthropic"
    if "google" in origin:
        return "gemini"
    responses = _declared(model, ("use_responses_api",), bool) is True
    versioned = _declared(model, ("output_version",), str)
    return "openai_responses" if responses or versioned == "responses/v1" else "openai_chat"


def _declared(model: BaseChatModel, names: Sequence[str], kind: type[T]) -> T | None:
    """The first declared field of those names that holds a value of the kind."""
    for name in names:
        if name in type(model).model_fields:
            value = getattr(model, name)
            if isinstance(value, kind):
                return value
    return None
