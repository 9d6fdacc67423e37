"""What the requests of a replay would be billed, through a simulated prompt cache, with and without refold."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.replay.cache import (
    Billed,
    CacheRules,
    Part,
    PrefixCache,
    anthropic_rules,
    cost,
    deepseek_rules,
    gemini_rules,
    input_equivalents,
    openai_rules,
)
from refold.replay.measure import Request, Scale
from refold.replay.prices import find_prices
from refold.replay.transcript import Transcript


@dataclass(frozen=True, kw_only=True, slots=True)
class Money:
    """A bill in a currency."""

    currency: str
    without: float
    managed: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """A session's bill in fresh input tokens, without refold and managed by it (summaries included).

    `calls` are how the managed requests were billed, `bare` those without refold. `money` is None where no price is
    known; `prices` says where prices are from, or why there are none.
    """

    rules: str
    calls: tuple[Billed, ...]
    bare: tuple[Billed, ...]
    without: float
    managed: float
    money: Money | None
    prices: str

    @property
    def cached_share(self) -> float:
        """The part of all managed input tokens that was read from the cache."""
        whole = sum(billed.input for billed in self.calls)
        return sum(billed.read for billed in self.calls) / whole if whole else 0.0

    @property
    def cached_share_without(self) -> float:
        """The same without refold."""
        whole = sum(billed.input for billed in self.bare)
        return sum(billed.read for billed in self.bare) / whole if whole else 0.0


def bill(requests: Sequence[Request], bare: Sequence[tuple[Request, Sequence[Part]]], *, model: str) -> Bill:
    """Bill the accepted requests, and the same calls with the whole log (`bare`)."""
    name, rules = cache_rules(model)
    managed, alone = PrefixCache(rules), PrefixCache(rules)
    calls = [managed.observe(r.parts, r.at, output=r.output) for r in requests if not r.refused]
    whole = [alone.observe(parts, request.at, output=request.output) for request, parts in bare]
    prices = find_prices(model)
    money = None
    if prices.value is not None:
        money = Money(
            currency=prices.value.currency,
            without=sum(cost(billed, prices.value) for billed in whole),
            managed=sum(cost(billed, prices.value) for billed in calls),
        )
    return Bill(
        rules=name,
        calls=tuple(calls),
        bare=tuple(whole),
        without=sum(input_equivalents(billed, rules) for billed in whole),
        managed=sum(input_equivalents(billed, rules) for billed in calls),
        money=money,
        prices=prices.reason,
    )


def bare_requests(
    transcript: Transcript, requests: Sequence[Request], scale: Scale
) -> list[tuple[Request, list[Part]]]:
    """What each accepted model call would have sent without refold: the whole log so far."""
    system = requests[0].parts[0] if requests else ("", 0)
    tools = scale.parts(None, [schema.as_openai() for schema in transcript.tools], ())[1]
    log = list(scale.parts(None, (), transcript.messages)[2:])
    return [(r, [system, tools, *log[: r.position]]) for r in requests if r.kind == "model" and not r.refused]


def cache_rules(model: str) -> tuple[str, CacheRules]:
    """A provider's cache rules by a model's name; Anthropic's, whose prices the policy assumes, for any other."""
    name = model.lower()
    if any(part in name for part in ("gpt", "codex", "o1", "o3", "o4")):
        return "openai", openai_rules(model)
    if "gemini" in name:
        return "gemini", gemini_rules(model)
    if "deepseek" in name:
        return "deepseek", deepseek_rules(model)
    return "anthropic", anthropic_rules(model)
