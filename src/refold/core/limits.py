"""Limits: how much a model takes, who said so, and what of it is left for messages.

Five sources may know a model's input limit. In order: what the user set, what a refusal taught in this process, the
model's LangChain profile, a catalogue of models, and a default. A later source never raises an earlier one. A refusal
may lower what the user set, since a limit that the server has refused cannot be used; nothing else may.

`max_tokens` of a model caps its answer and says nothing about its input. It enters only as the reserve of a budget,
and only where the provider counts prompt and answer in one window.

The core keeps no state: `LearnedLimits` is a value, and whoever holds it replaces it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from refold.core.overflow import Overflow
from refold.errors import ConfigurationError, ContextOverflowError

LimitSource: TypeAlias = Literal["explicit", "learned", "profile", "catalogue", "default"]

DEFAULT_INPUT: Final = 64_000
"""Tokens assumed of a model of which nothing is known.

Of 1,419 models whose window genai-prices 0.2.3 knows, 88 % take at least this, and 98.8 % of the models with tool calls
in the profiles of langchain-openai, -anthropic and -google-genai do. The usual 170,000 is too much for every model of
128,000 and less, where a request over it is refused, or cut silently. A guess never refuses work: see `budget`.
"""
LARGEST_RESERVE: Final = 16_384
"""The most that is kept for an answer whose cap is not known: longer answers than this are rare in agents."""
RESERVE_SHARE: Final = 8
"""The reserve of an unknown answer is at most one part in this many of the window."""
LEAST_MESSAGES_SHARE: Final = 64
"""A budget whose messages get less than one part in this many of the window cannot run an agent."""
BLIND_SHARE: Final = 0.75
"""What is tried next of a request that was refused without a number: three such refusals leave less than half."""
LARGEST_FACTOR: Final = 8.0
"""Real tokens per estimated one above which the two did not count the same request (hidden content, another model).

The largest that a tokenizer explains is about 4 (Chinese on Claude against four characters per token).
"""
_INPUT_ALONE: Final = ("google", "gemini", "vertex", "dashscope", "tongyi", "qwen")
"""Providers that declare the input limit beside the output limit: Google's model pages list "input token limit" and
"output token limit", DashScope refuses with a range of the input length alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a model takes, in its own tokens.

    `input` is the most of one request; with `shared`, prompt and answer together. `output` is the largest answer, None
    where it is not known. `source` is who said so.
    """

    input: int
    output: int | None = None
    shared: bool = True
    source: LimitSource


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelKey:
    """A model as it is served: the same name behind another address may have another window."""

    base_url: str | None = None
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """What refusals taught about one model.

    `limit` is in the provider's tokens; `exact` says that the provider named it. `shared` is True where the provider
    counted the answer in, `output` the answer that it counted. `factor` is real tokens per estimated one, at least.
    `body_limit` is in bytes.
    """

    limit: int | None = None
    exact: bool = False
    shared: bool | None = None
    output: int | None = None
    factor: float | None = None
    body_limit: int | None = None

    def ceiling(self, scale: float = 1.0) -> int | None:
        """The most that may be sent, as counted by a caller who multiplies estimates by `scale`.

        A caller whose count is still too low gets a ceiling that is lower by as much; once the scale is right, the
        ceiling is the limit.
        """
        if self.limit is None:
            return None
        if self.factor is None or self.factor <= scale:
            return self.limit
        return max(1, min(self.limit, int(self.limit * scale / self.factor)))


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedLimits:
    """What refusals taught, by model. A value: `learn` returns a new one."""

    models: Mapping[ModelKey, Learned] = field(default_factory=dict)

    def of(self, key: ModelKey) -> Learned | None:
        """What is known of a model, None when it never refused."""
        return self.models.get(key)

    def learn(
        self,
        key: ModelKey,
        overflow: Overflow,
        *,
        estimated: int,
        scale: float = 1.0,
        estimated_bytes: int | None = None,
    ) -> "LearnedLimits":
        """Take in one refusal of a request that the caller counted as `estimated` tokens (estimates times `scale`).

        The next request is then smaller: `ceiling(scale)`, less `output` where it is shared, is below `estimated`,
        whatever the refusal said. A number that the provider named is kept exactly, and the smallest named one wins;
        where it named none, `BLIND_SHARE` of what was sent is the bound. A refusal in bytes teaches the body limit
        alone.
        """
        known = self.models.get(key, Learned())
        sent = max(2, estimated)
        taught = (
            _bytes_taught(known, overflow, estimated_bytes)
            if overflow.unit == "bytes"
            else _tokens_taught(known, overflow, sent=sent, scale=scale if scale > 0 else 1.0)
        )
        return LearnedLimits(models={**self.models, key: taught})


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How a window is divided, in tokens: `limit` = `reserved` + `system` + `tools` + `messages`."""

    limit: int
    reserved: int
    system: int
    tools: int
    messages: int


def resolve_limits(
    *,
    explicit: int | None = None,
    learned: Learned | None = None,
    profile: Mapping[str, object] | None = None,
    catalogue: Limits | None = None,
    counts_output: bool | None = None,
    scale: float = 1.0,
) -> Limits:
    """A model's limits by the best source that knows them. A refusal only ever lowers what another source says.

    Args:
        explicit: The input limit that the user set, in tokens.
        learned: What refusals taught about this model.
        profile: LangChain's `model.profile` (`max_input_tokens`, `max_output_tokens`). Values that are no positive
            whole number are ignored; an output that is not smaller than the input means one shared window.
        catalogue: Limits of a model catalogue.
        counts_output: Whether the provider counts prompt and answer together, where the caller knows
            (`counts_output_of`). Else what a refusal showed, else True, which is the safe reading.
        scale: What the caller multiplies its estimates by, for `Learned.ceiling`.

    Raises `ConfigurationError` for an explicit limit that is not positive.
    """
    if explicit is not None and (isinstance(explicit, bool) or explicit <= 0):
        raise ConfigurationError(f"the context limit is {explicit}; set a positive number of tokens, such as 128000")
    declared = _whole(profile, "max_input_tokens")
    output = _whole(profile, "max_output_tokens")
    if output is None and catalogue is not None:
        output = catalogue.output
    limit, source = _first_known(explicit, declared, catalogue)
    ceiling = learned.ceiling(scale) if learned is not None else None
    if ceiling is not None and (source == "default" or ceiling < limit):
        limit, source = ceiling, "learned"
    shared = counts_output
    if learned is not None and learned.shared:
        shared = True
    if shared is None or (output is not None and output >= limit):
        shared = True
    return Limits(input=limit, output=output, shared=shared, source=source)


def counts_output_of(provider: str | None) -> bool | None:
    """Whether a provider counts prompt and answer in one window: False where it documents that it does not, else None.

    `provider` is a name as LangChain gives it (`google_genai`, `anthropic`, ...).
    """
    name = (provider or "").lower()
    return False if any(part in name for part in _INPUT_ALONE) else None


def budget(
    limits: Limits, *, reserve: int | None, system: int, tools: int, learned_output: int | None = None
) -> Budget:
    """What of a window is left for messages.

    Args:
        limits: The model's limits. A limit whose source is `default` is a guess and never refuses work: where system
            prompt, tools and reserve would fill more than half of it, it counts as twice their size.
        reserve: The model's own `max_tokens`, None where it has none.
        system: Tokens of the system prompt.
        tools: Tokens of the tool schemas.
        learned_output: The answer that a refusal counted, for a server that adds its own cap.

    The reserve is `reserve` if given, else `learned_output`, else the smallest of the model's largest answer, an eighth
    of the window and 16,384 tokens, and never more than half of what system prompt and tools leave. Where the provider
    counts input alone, nothing is reserved.

    Raises:
        ContextOverflowError: System prompt and tool schemas alone fill the window; nothing that is folded helps.
        ConfigurationError: The reserve that was asked for leaves no room for messages.
    """
    for name, value in (("reserve", reserve or 0), ("system", system), ("tools", tools)):
        if value < 0:
            raise ConfigurationError(f"{name} is {value} tokens; it cannot be negative")
    fixed, limit = system + tools, limits.input
    asked = reserve if reserve is not None else learned_output
    if limits.source == "default":
        limit = max(limit, 2 * (fixed + (asked or 0 if limits.shared else 0)))
    least = max(1, limit // LEAST_MESSAGES_SHARE)
    reserved = _reserve(limits, limit, asked=asked, free=limit - fixed)
    messages = limit - reserved - fixed
    if messages >= least:
        return Budget(limit=limit, reserved=reserved, system=system, tools=tools, messages=messages)
    if limit - fixed >= 2 * least:
        raise ConfigurationError(
            f"max_tokens={reserved} leaves {max(0, messages)} of the {limit} tokens of the window for messages, beside "
            f"a system prompt of {system} and tool schemas of {tools}: set max_tokens to at most "
            f"{(limit - fixed) // 2}, or use a model with a larger window"
        )
    raise ContextOverflowError(
        "the system prompt and the tool schemas fill the window before the first message: use fewer tools, a shorter "
        "system prompt or a model with a larger window",
        limit=limit,
        reserved=reserved,
        system=system,
        tools=tools,
        messages=0,
    )


def _reserve(limits: Limits, limit: int, *, asked: int | None, free: int) -> int:
    if not limits.shared:
        return 0
    if asked is not None:
        return asked
    share = min(max(1, limit // RESERVE_SHARE), LARGEST_RESERVE, limits.output or LARGEST_RESERVE)
    return min(share, max(0, free // 2))


def _first_known(explicit: int | None, declared: int | None, catalogue: Limits | None) -> tuple[int, LimitSource]:
    if explicit is not None:
        return explicit, "explicit"
    if declared is not None:
        return declared, "profile"
    if catalogue is not None and catalogue.input > 0:
        return catalogue.input, "catalogue"
    return DEFAULT_INPUT, "default"


def _whole(profile: Mapping[str, object] | None, key: str) -> int | None:
    """A positive whole number of a profile. Profiles are generated data: 0, text and None stand in them."""
    value = (profile or {}).get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _bytes_taught(known: Learned, overflow: Overflow, size: int | None) -> Learned:
    """A body limit below what was sent, or the one that the server named."""
    bounds = [bound for bound in (known.body_limit, overflow.limit) if bound is not None]
    if size is not None and size > 0 and (overflow.limit is None or overflow.limit >= size):
        bounds.append(int(size * BLIND_SHARE))
    return replace(known, body_limit=min(bounds)) if bounds else known


def _tokens_taught(known: Learned, overflow: Overflow, *, sent: int, scale: float) -> Learned:
    raw = sent / scale
    shared = True if overflow.counts_output else known.shared
    output = overflow.output if overflow.counts_output and overflow.output else known.output
    factor = _factor(overflow, raw)
    if overflow.limit is None or factor is None or factor > LARGEST_FACTOR:
        named = overflow.limit if overflow.limit is not None else sent
        by_excess = sent - overflow.over if overflow.over is not None and overflow.over < sent else sent
        blind = max(1, min(int(sent * BLIND_SHARE) if by_excess == sent else by_excess, named))
        return replace(
            known,
            limit=min(blind, known.limit) if known.limit is not None else blind,
            exact=False,
            shared=shared,
            output=output,
        )
    limit = min(overflow.limit, known.limit) if known.exact and known.limit is not None else overflow.limit
    if overflow.prompt is None or overflow.prompt_at_least:
        factor = max(factor, known.factor or 0.0)
    return Learned(limit=limit, exact=True, shared=shared, output=output, factor=factor, body_limit=known.body_limit)


def _factor(overflow: Overflow, raw: float) -> float | None:
    """Real tokens per estimated one: what the provider counted, or at least what its refusal implies."""
    if overflow.limit is None:
        return None
    if overflow.prompt is not None:
        return overflow.prompt / raw
    if overflow.requested is not None:
        return overflow.requested / raw
    return (overflow.limit + 1) / raw
