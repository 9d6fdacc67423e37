"""Measuring a replay: the strict counter, and what each request held.

The strict counter is not the middleware's: it neither learns nor anchors. Text is counted by a real tokenizer
(o200k_base, of the extra `tokenizers`); without that package, by the estimator's upper bound, which is the stricter of
the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from langchain_core.messages import BaseMessage

from refold.core.canonical import digest_of
from refold.core.categories import CATEGORIES, Category, category_of
from refold.core.cost import Tool
from refold.core.messages import content_hash, is_record, role_of
from refold.core.meter import EstimatingMeter, ExactMeter, Meter, tokenizer_meter
from refold.core.validate import Provider, all_violations

_COUNTER_MODEL: Final = "gpt-4o"
"""A model of the o200k family."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request that reached the model.

    `position` is how many messages the log had, `parts` are (digest, tokens) of system prompt, tool schemas and each
    message, in the order of the wire, `at` the recording's seconds. `invalid` names the rules that it breaks, by
    provider; `problems` what else is wrong with it. A `refused` request was over the limit and got no answer.
    """

    kind: Literal["model", "summary"]
    position: int
    at: float
    parts: tuple[tuple[str, int], ...]
    output: int
    categories: Mapping[Category, int]
    invalid: Mapping[Provider, tuple[str, ...]]
    problems: tuple[str, ...]
    refused: bool

    @property
    def tokens(self) -> int:
        """The whole prompt by the strict counter."""
        return sum(tokens for _, tokens in self.parts)


@dataclass(kw_only=True)
class Scale:
    """Weighs requests: counts them strictly, validates them, and checks what the window promises about user words."""

    meter: Meter
    _tools: dict[str, int] = field(default_factory=dict)

    @classmethod
    def strict(cls) -> "Scale":
        """With the strict counter."""
        return cls(meter=strict_meter())

    def parts(
        self, system: BaseMessage | None, tools: Sequence[Tool], messages: Sequence[BaseMessage]
    ) -> tuple[tuple[str, int], ...]:
        """(digest, tokens) of each part of a request; an absent system prompt or tool set has 0 tokens."""
        head = ("", 0) if system is None else (content_hash(system), self.meter.count(system).tokens)
        return (head, self._tool_part(tools), *((content_hash(m), self.meter.count(m).tokens) for m in messages))

    def categories(self, parts: Sequence[tuple[str, int]], messages: Sequence[BaseMessage]) -> Mapping[Category, int]:
        """Tokens of a request by what they are."""
        found: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
        found["system"], found["tools"] = parts[0][1], parts[1][1]
        for message, (_, tokens) in zip(messages, parts[2:], strict=True):
            found[category_of(message)] += tokens
        return found

    def _tool_part(self, tools: Sequence[Tool]) -> tuple[str, int]:
        if not tools:
            return "", 0
        key = digest_of(list(tools))
        if key not in self._tools:
            self._tools[key] = self.meter.count_tools(tools).tokens
        return key, self._tools[key]


def strict_meter() -> Meter:
    """The strict counter."""
    exact = tokenizer_meter(_COUNTER_MODEL)
    return exact if isinstance(exact, ExactMeter) else EstimatingMeter(upper_bound=True)


def name_of(meter: Meter) -> str:
    """What a counter is called in results."""
    return "o200k_base" if isinstance(meter, ExactMeter) else "estimate, upper bound"


def invalid_rules(messages: Sequence[BaseMessage]) -> Mapping[Provider, tuple[str, ...]]:
    """The rules that a window breaks, by provider; providers without any are left out."""
    return {
        provider: tuple(f"{broken.rule} at message {broken.index}: {broken.detail}" for broken in found)
        for provider, found in all_violations(messages).items()
    }


def human_problems(window: Sequence[BaseMessage], log: Sequence[BaseMessage]) -> tuple[str, ...]:
    """What is wrong with user words in a window: the first and the newest human message must stand there verbatim, the
    newest last among them."""
    mine = [message for message in log if role_of(message) == "human"]
    if not mine:
        return ()
    shown = [content_hash(message) for message in window if role_of(message) == "human" and not is_record(message)]
    problems = []
    if content_hash(mine[0]) not in shown:
        problems.append("the first human message is not in it verbatim")
    if not shown or shown[-1] != content_hash(mine[-1]):
        problems.append("the newest human message is not the last human message in it, verbatim")
    return tuple(problems)
