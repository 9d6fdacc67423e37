"""Prices and windows of models, from a catalogue or as ratios; never a guess.

`find_prices` and `catalogue_limits` read the catalogue that ships inside the package `genai-prices` (extra `prices`);
nothing is downloaded. Where the package is absent or does not know the model, the answer is None and says why.
`relative_prices` needs no catalogue: what a cached token costs beside a fresh one follows from the provider's published
rules, and is enough to compare two ways of running the same session.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from refold.core.limits import Limits
from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, PriceCalculation

T = TypeVar("T")

RELATIVE: Final = "input tokens"
"""The currency of relative prices: one fresh input token costs 1."""
_PROVIDERS: Final = {
    "google_genai": "google",
    "google_vertexai": "google",
    "gemini": "google",
    "azure_openai": "azure",
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "amazon_bedrock": "aws",
    "mistralai": "mistral",
    "xai": "x-ai",
}
"""LangChain's provider names as the catalogue spells them; the others are the same in both."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """What `per` tokens cost, by kind. Where a provider gives no cache price, it is the input price.

    `dearer_above` is the size of a request, in tokens, from which the provider charges more than this; None where one
    price holds for every size.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    currency: str = "USD"
    per: int = 1_000_000
    dearer_above: int | None = None

    def __post_init__(self) -> None:
        if min(self.input, self.output, self.cache_read, self.cache_write) < 0 or self.per <= 0:
            raise ConfigurationError(f"prices cannot be negative and are per a positive number of tokens: {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found(Generic[T]):
    """A value, or None and the reason why there is none. With a value, `reason` says where it is from."""

    value: T | None
    reason: str


def find_prices(model: str, *, provider: str | None = None, at: datetime | None = None) -> Found[Prices]:
    """A model's prices in US dollars per million tokens.

    Args:
        model: The model's name as the provider or a gateway spells it.
        provider: LangChain's or the catalogue's name of the provider; without it the model's name decides.
        at: When the tokens were used (prices change, and some depend on the hour); now, if not given.
    """
    found = _look_up(model, provider, at)
    if found.value is None:
        return Found(value=None, reason=found.reason)
    price = found.value.model_price
    fresh, output = _base(price, "input_mtok"), _base(price, "output_mtok")
    if fresh is None or output is None:
        return Found(value=None, reason=f"{found.reason} has no token price for {model!r}")
    read, write = _base(price, "cache_read_mtok"), _base(price, "cache_write_mtok")
    prices = Prices(
        input=fresh,
        output=output,
        cache_read=fresh if read is None else read,
        cache_write=fresh if write is None else write,
        dearer_above=_first_tier(price),
    )
    return Found(value=prices, reason=found.reason)


def catalogue_limits(model: str, *, provider: str | None = None) -> Found[Limits]:
    """A model's window by the catalogue, taken as shared by prompt and answer (it lists 400,000 for GPT-5, whose prompt
    may have 272,000). The catalogue has no output limits."""
    found = _look_up(model, provider, None)
    window = found.value.model.context_window if found.value is not None else None
    if window is None or window <= 0:
        why = found.reason if found.value is None else f"{found.reason} has no window for {model!r}"
        return Found(value=None, reason=why)
    return Found(value=Limits(input=window, source="catalogue"), reason=found.reason)


def relative_prices(provider: str, model: str = "") -> Found[Prices]:
    """What tokens cost beside one fresh input token, by the provider's published rules. Sources:

    - Anthropic, platform.claude.com "Prompt caching": read 0.1, write 1.25 (five minutes); output 5 on current models.
    - OpenAI, developers.openai.com "Prompt caching": no write fee before GPT-5.6, 1.25 from it on. Reads by the price
      list: 0.1 from GPT-5 on, 0.25 for GPT-4.1, o3 and o4-mini, 0.5 for GPT-4o and o1. Output 8 (GPT-5 to 5.3), 6
      (5.4 and 5.5), 5 (from 5.6), 4 (before).
    - Google, docs.cloud.google.com "Context caching overview": read 0.1, no write fee; output 8 (Gemini 2.5 and 3).
    - DeepSeek, api-docs.deepseek.com "Models & Pricing" (2026): read 1/50 (flash), 1/30 (V4 pro); 0.26 for the older
      names. No write fee; output 4, 3 and 4.
    - Mistral, docs.mistral.ai "Prompt caching": read 0.1, no write fee; output 3.
    """
    kind = _kind(provider, model)
    match kind:
        case "anthropic":
            found = _ratio(read=0.1, write=1.25, output=5)
        case "openai":
            found = _openai(model.lower())
        case "google":
            found = _ratio(read=0.1, write=1, output=8)
        case "deepseek":
            found = _deepseek(model.lower())
        case "mistral":
            found = _ratio(read=0.1, write=1, output=3)
        case _:
            return Found(value=None, reason=f"no published cache prices are known for provider {provider!r}")
    return Found(value=found, reason=f"published ratios of {kind}")


def _kind(provider: str, model: str) -> str | None:
    """Whose rules apply: the provider's, or on a gateway those of the model's maker."""
    for text in (provider.lower(), model.lower()):
        for kind, names in (
            ("anthropic", ("anthropic", "claude")),
            ("google", ("google", "gemini", "vertex")),
            ("deepseek", ("deepseek",)),
            ("mistral", ("mistral",)),
            ("openai", ("openai", "azure", "gpt-")),
        ):
            if any(name in text for name in names):
                return kind
    return None


def _openai(model: str) -> Prices:
    version = re.search(r"gpt-(\d+)(?:\.(\d+))?", model)
    if version is not None and int(version[1]) >= 5:
        release = (int(version[1]), int(version[2] or 0))
        if release >= (5, 6):
            return _ratio(read=0.1, write=1.25, output=5)
        return _ratio(read=0.1, write=1, output=6 if release >= (5, 4) else 8)
    if re.search(r"gpt-4\.1|\bo3|\bo4-mini", model):
        return _ratio(read=0.25, write=1, output=4)
    return _ratio(read=0.5, write=1, output=4)


def _deepseek(model: str) -> Prices:
    if "pro" in model:
        return _ratio(read=1 / 30, write=1, output=3)
    if "flash" in model or "v4" in model:
        return _ratio(read=1 / 50, write=1, output=4)
    return _ratio(read=0.26, write=1, output=4)


def _ratio(*, read: float, write: float, output: float) -> Prices:
    return Prices(input=1, output=output, cache_read=read, cache_write=write, currency=RELATIVE, per=1)


def _look_up(model: str, provider: str | None, at: datetime | None) -> "Found[PriceCalculation]":
    try:
        import genai_prices
    except ImportError:
        return Found(value=None, reason="the package genai-prices is not installed (pip install 'refold[prices]')")
    source = f"genai-prices {genai_prices.__version__}"
    if not model:
        return Found(value=None, reason="the model has no name")
    named = _PROVIDERS.get(provider.lower(), provider) if provider else None
    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(), model, provider_id=named, genai_request_timestamp=at or datetime.now(UTC)
        )
    except LookupError as error:
        return Found(value=None, reason=f"{source}: {error.args[0] if error.args else error}")
    return Found(value=found, reason=source)


def _base(price: "ModelPrice", key: str) -> float | None:
    """The price of the smallest requests. The catalogue's classes make unknown prices None."""
    from genai_prices.types import TieredPrices

    value = getattr(price, key)  # declared by the catalogue's registry, not as a field
    if isinstance(value, TieredPrices):
        value = value.base
    return None if value is None else float(value)


def _first_tier(price: "ModelPrice") -> int | None:
    from genai_prices.types import TieredPrices

    value = getattr(price, "input_mtok")  # noqa: B009 - declared by the catalogue's registry, not as a field
    return value.tiers[0].start if isinstance(value, TieredPrices) and value.tiers else None
