"""Structural rules of the four providers: what a request must look like so that it is not refused for its form.

The rules are those that the providers enforce on what LangChain's partner packages make of the messages; each module
names its sources. They are about form alone: whether the request fits is the meter's business. Blocks that one provider
made and another does not know (a server tool's result of Anthropic sent to OpenAI) are the partner packages' business;
here they count only for the provider that made them.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, assert_never

from langchain_core.messages import BaseMessage

from refold.core.validate import anthropic, gemini, openai_chat, openai_responses
from refold.core.validate.common import check_prefill
from refold.core.validate.shape import Shape, Violation, shapes_of

__all__ = ["PROVIDERS", "Provider", "Violation", "all_violations", "violations"]

Provider: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "gemini"]

PROVIDERS: Final[tuple[Provider, ...]] = ("openai_chat", "openai_responses", "anthropic", "gemini")


def violations(
    messages: Sequence[BaseMessage], provider: Provider, *, continues: bool = False, allow_prefill: bool = True
) -> tuple[Violation, ...]:
    """The rules of `provider` that a window breaks, in the order of its messages; empty for a valid one.

    `messages` are the window without the system prompt; indexes are into it. `continues` says that they are the tail of
    a window whose front was found valid and that was cut between two units (`units_of`), so that rules about the first
    message do not apply; repeated ids are then found within the tail only. `allow_prefill=False` refuses a window that
    ends with an AI message, as Claude 4.6 and Gemini 3 do. Linear in the messages given.

        violations([HumanMessage("hi"), ToolMessage("4", tool_call_id="a")], "anthropic")[0].rule  # "orphan-result"
    """
    shapes = shapes_of(messages)
    found = [*_check(shapes, provider, continues=continues), *(() if allow_prefill else check_prefill(shapes))]
    return tuple(sorted(found, key=lambda violation: violation.index))


def all_violations(
    messages: Sequence[BaseMessage], *, continues: bool = False
) -> dict[Provider, tuple[Violation, ...]]:
    """`violations` for each of the four providers; providers without any are left out, so a valid window gives `{}`."""
    shapes = shapes_of(messages)
    found = {provider: _check(shapes, provider, continues=continues) for provider in PROVIDERS}
    return {name: tuple(sorted(broken, key=lambda v: v.index)) for name, broken in found.items() if broken}


def _check(shapes: Sequence[Shape], provider: Provider, *, continues: bool) -> list[Violation]:
    match provider:
        case "openai_chat":
            return list(openai_chat.check(shapes))
        case "openai_responses":
            return list(openai_responses.check(shapes))
        case "anthropic":
            return list(anthropic.check(shapes, continues=continues))
        case "gemini":
            return list(gemini.check(shapes, continues=continues))
        case _:
            assert_never(provider)
