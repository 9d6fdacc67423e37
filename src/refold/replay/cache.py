"""A provider's prompt cache, simulated: which tokens of each request are read, written or paid in full.

The simulator is given requests as parts (`digest` of the part's bytes, its tokens) in the order of the wire: system,
tools, then each message. It knows nothing of what they say. Time is given with each request; nothing here has a clock.

Two kinds of cache exist. One keeps every prefix by itself, in steps of some tokens (OpenAI before GPT-5.6, Gemini,
DeepSeek): any shared prefix is read. The other keeps a prefix only where a breakpoint stood (Anthropic, OpenAI from
GPT-5.6 on): a prefix between two breakpoints is not found. A part that changed shares nothing, although real caches may
find its unchanged beginning; and no cache here is evicted early, although real ones may be. So the simulator shows what
an edit of the history costs at the least favourable step and the most favourable load.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from refold.errors import ConfigurationError
from refold.replay.prices import Prices, relative_prices

Part = tuple[str, int]
"""(digest of a part's bytes, its tokens)."""

_SYSTEM_AND_TOOLS: Final = 2
"""Parts before the first breakpoint that agents set: system prompt and tool schemas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheRules:
    """How a provider caches prompts. Tokens, seconds, and prices beside one fresh input token.

    A prefix shorter than `minimum` is never cached; what is cached ends at a multiple of `granularity`. An entry lives
    `ttl_seconds` after its last use. With `breakpoints` (the most of one request) only prefixes that end at one are
    kept, and a request looks back from each of its own over at most `lookback` parts (None: all) for one that is kept.
    """

    minimum: int
    granularity: int = 1
    ttl_seconds: float = 300.0
    read_price: float = 0.1
    write_price: float = 1.0
    output_price: float = 5.0
    breakpoints: int | None = None
    lookback: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 0 or self.granularity < 1 or self.ttl_seconds < 0:
            raise ConfigurationError(f"cache rules need minimum >= 0, granularity >= 1, ttl_seconds >= 0: {self}")
        if self.breakpoints is not None and self.breakpoints < 1:
            raise ConfigurationError(f"a cache with breakpoints allows at least one: {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Billed:
    """The tokens of one request, as a provider bills them. `uncached + written + read` is the whole prompt."""

    uncached: int
    written: int
    read: int
    output: int = 0

    @property
    def input(self) -> int:
        """The whole prompt."""
        return self.uncached + self.written + self.read

    @property
    def hit_rate(self) -> float:
        """The part of the prompt that was read from the cache; 0 for an empty prompt."""
        return self.read / self.input if self.input else 0.0


def anthropic_rules(model: str = "", *, ttl: Literal["5m", "1h"] = "5m") -> CacheRules:
    """Anthropic, by platform.claude.com "Prompt caching": four breakpoints, a look back of 20 blocks, five minutes or
    an hour since the last use, write 1.25 or 2, read 0.1.

    The least prefix is 512 tokens (Opus 5, Fable 5, Mythos 5), 1,024 (Opus 4.8, Sonnet 5, Sonnet 4 to 4.6, Opus 4 and
    4.1), 2,048 (Opus 4.7, Haiku 3 and 3.5) or 4,096 (Opus 4.5 and 4.6, Haiku 4.5); 1,024 where the name says nothing.
    One part counts as one block here, although a message may have several.
    """
    prices = _relative("anthropic", model)
    return CacheRules(
        minimum=_anthropic_minimum(model.lower().replace(".", "-")),
        ttl_seconds=300.0 if ttl == "5m" else 3600.0,
        read_price=prices.cache_read,
        write_price=prices.cache_write if ttl == "5m" else 2.0,
        output_price=prices.output,
        breakpoints=4,
        lookback=20,
    )


def openai_rules(model: str = "") -> CacheRules:
    """OpenAI, by developers.openai.com "Prompt caching": from 1,024 tokens on.

    Before GPT-5.6 every prefix is kept in steps of 128 tokens for five to ten minutes since the last use (five here),
    without a fee. From GPT-5.6 on a prefix is kept at breakpoints (one is set at the newest message), for at least 30
    minutes, and writing costs 1.25.
    """
    prices = _relative("openai", model)
    if prices.cache_write > 1:
        return CacheRules(
            minimum=1_024, ttl_seconds=1800.0, read_price=prices.cache_read, write_price=prices.cache_write,
            output_price=prices.output, breakpoints=4,
        )  # fmt: skip
    return CacheRules(minimum=1_024, granularity=128, read_price=prices.cache_read, output_price=prices.output)


def gemini_rules(model: str = "") -> CacheRules:
    """Gemini's implicit cache, by ai.google.dev "Context caching": from 2,048 tokens on (2.5) or 4,096 (3 and later),
    read 0.1, no fee for writing. How long and in what steps it keeps is not published: five minutes, any length."""
    prices = _relative("google", model)
    minimum = 2_048 if "2.5" in model or "2-5" in model else 4_096
    return CacheRules(minimum=minimum, read_price=prices.cache_read, output_price=prices.output)


def deepseek_rules(model: str = "") -> CacheRules:
    """DeepSeek's disk cache, by api-docs.deepseek.com "Context Caching": steps of 64 tokens, no fee for writing, kept
    for hours to days (six hours here).

    The V4 models keep prefixes at the ends of requests and at intervals; for a history that only grows it is the same.
    """
    prices = _relative("deepseek", model)
    return CacheRules(
        minimum=64, granularity=64, ttl_seconds=6 * 3600.0, read_price=prices.cache_read, output_price=prices.output
    )


def input_equivalents(billed: Billed, rules: CacheRules) -> float:
    """What a request costs, in fresh input tokens."""
    return (
        billed.uncached
        + billed.written * rules.write_price
        + billed.read * rules.read_price
        + billed.output * rules.output_price
    )


def cost(billed: Billed, prices: Prices) -> float:
    """What a request costs, in the currency of the prices."""
    total = (
        billed.uncached * prices.input
        + billed.written * prices.cache_write
        + billed.read * prices.cache_read
        + billed.output * prices.output
    )
    return total / prices.per


@dataclass(slots=True)
class _Prefix:
    """A prefix that was sent: what came after it, and when it was kept or read last (None: never kept)."""

    kept_at: float | None = None
    after: "dict[str, _Prefix]" = field(default_factory=dict)

    def live(self, at: float, ttl: float) -> bool:
        return self.kept_at is not None and at - self.kept_at <= ttl


class PrefixCache:
    """A provider's cache for one account. `observe` is given the requests in the order of time.

    cache = PrefixCache(anthropic_rules("claude-sonnet-5"))
    first = cache.observe([("system", 2_000), ("tools", 6_000), ("task", 500)], at=0)
    again = cache.observe([("system", 2_000), ("tools", 6_000), ("task", 500), ("reply", 300)], at=20)
    assert (first.written, again.read, again.written) == (8_500, 8_500, 300)
    """

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self._root = _Prefix()
        self._now = float("-inf")

    def observe(
        self, request: Sequence[Part], at: float, *, output: int = 0, breakpoints: Sequence[int] | None = None
    ) -> Billed:
        """Send a request and learn how it is billed.

        Args:
            request: The parts: system, tools, each message. An absent part is left out, or has 0 tokens.
            at: Seconds; never less than before.
            output: Tokens of the answer, passed on.
            breakpoints: Indexes of the parts that carry one, for a provider that has them. Without it: the second part
                (the end of system prompt and tools) and the last, as agents set them.

        Raises `ConfigurationError` for time that runs backwards, negative tokens, and breakpoints that are too many or
        point nowhere.
        """
        self._check(request, at, output)
        self._now = at
        path, sizes = self._walk(request)
        total = sizes[-1]
        if self.rules.breakpoints is None:
            read, kept = self._automatic(path, sizes, at)
        else:
            read, kept = self._at_breakpoints(path, sizes, at, self._marks(len(request), breakpoints))
        written = max(0, kept - read) if self.rules.write_price != 1.0 else 0
        return Billed(uncached=total - read - written, written=written, read=read, output=output)

    def _walk(self, request: Sequence[Part]) -> tuple[list[_Prefix], list[int]]:
        """The prefixes of a request, made where they are new, and their tokens; index 0 is the empty one."""
        path, sizes = [self._root], [0]
        for digest, tokens in request:
            path.append(path[-1].after.setdefault(digest, _Prefix()))
            sizes.append(sizes[-1] + tokens)
        return path, sizes

    def _automatic(self, path: list[_Prefix], sizes: list[int], at: float) -> tuple[int, int]:
        """(tokens read, tokens kept) of a cache that keeps every prefix."""
        shared = 0
        for index in range(1, len(path)):
            if not path[index].live(at, self.rules.ttl_seconds):
                break
            shared = sizes[index]
        if sizes[-1] < self.rules.minimum:
            return 0, 0
        for prefix in path[1:]:
            prefix.kept_at = at
        read = shared - shared % self.rules.granularity
        return read if read >= self.rules.minimum else 0, sizes[-1] - sizes[-1] % self.rules.granularity

    def _at_breakpoints(self, path: list[_Prefix], sizes: list[int], at: float, marks: list[int]) -> tuple[int, int]:
        """(tokens read, tokens kept) of a cache that keeps a prefix where a breakpoint stood."""
        found, least = 0, max(1, self.rules.minimum)
        for mark in marks:
            last = 0 if self.rules.lookback is None else max(0, mark - self.rules.lookback)
            live = (end for end in range(mark, last, -1) if path[end].live(at, self.rules.ttl_seconds))
            hit = next(live, 0)
            if sizes[hit] >= least:
                found = max(found, hit)
        kept = 0
        for mark in marks:
            if sizes[mark] >= least:
                path[mark].kept_at = at
                kept = max(kept, sizes[mark])
        if found:
            path[found].kept_at = at
        return sizes[found], kept

    def _marks(self, parts: int, breakpoints: Sequence[int] | None) -> list[int]:
        """The prefixes (their number of parts) that end at a breakpoint."""
        if breakpoints is None:
            return sorted({min(_SYSTEM_AND_TOOLS, parts), parts} - {0})
        if any(not 0 <= index < parts for index in breakpoints):
            raise ConfigurationError(f"breakpoints {list(breakpoints)} of a request with {parts} parts")
        marks = sorted({index + 1 for index in breakpoints})
        if self.rules.breakpoints is not None and len(marks) > self.rules.breakpoints:
            raise ConfigurationError(f"{len(marks)} breakpoints, but the provider takes {self.rules.breakpoints}")
        return marks

    def _check(self, request: Sequence[Part], at: float, output: int) -> None:
        if not at >= self._now:
            raise ConfigurationError(f"a request at {at} s after one at {self._now} s: give requests in order of time")
        if output < 0 or any(tokens < 0 for _, tokens in request):
            raise ConfigurationError("a part of a request has a negative number of tokens")


def _relative(provider: str, model: str) -> Prices:
    prices = relative_prices(provider, model).value
    if prices is None:  # the presets above name only providers whose ratios are published
        raise ConfigurationError(f"no cache prices are published for {provider}")
    return prices


def _anthropic_minimum(model: str) -> int:
    for minimum, names in (
        (4_096, ("opus-4-5", "opus-4-6", "haiku-4-5")),
        (2_048, ("opus-4-7", "haiku-3", "3-haiku", "3-5-haiku")),
        (512, ("opus-5", "fable-5", "mythos-5")),
    ):
        if any(name in model for name in names):
            return minimum
    return 1_024
