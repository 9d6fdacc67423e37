"""Policy: every threshold of the window, in one frozen value, validated when it is made.

Fractions are of the *budget*: the part of the model's input limit that messages may use once output, system prompt and
tool schemas are reserved. Where a default comes from is said beside it; docs/policy.md carries the derivations.
"""

from dataclasses import dataclass, fields

from refold.errors import ConfigurationError

READERS = frozenset({
    "read_file", "read_history", "search_history", "read_subagent_history", "search_subagent_history", "grep", "glob",
    "ls", "context_usage",
})  # fmt: skip
"""Tools whose results are never offloaded: they read what was offloaded, or answer in one line (faults 99, 101)."""

FOLDABLE = frozenset({"args", "media", "result", "clear", "human", "summary", "merge"})
"""The fold kinds that a policy may allow."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When the window folds, how deep, and what is never touched.

    Raises `ConfigurationError` for a combination that cannot work.
    """

    # zones, as fractions of the budget
    soft: float = 0.5
    """Below this nothing is folded, unless the provider's cache has lapsed anyway."""
    trigger: float = 0.8
    """At this a fold pass runs."""
    target: float = 0.3
    """A pass folds down to this. Deep and rare is cheaper: each pass rewrites what is left at full price."""
    keep: float = 0.15
    """The newest part of the window that a pass leaves alone (and at least the last round)."""
    min_gain: float = 0.10
    """A pass that frees less is not taken, or escalates."""

    # limits
    context_limit: int | None = None
    """The model's input limit in tokens, where the caller knows better than any profile."""
    output_reserve: int | None = None
    """Tokens kept free for the answer; None takes the model's own output cap where input and output share a window."""
    body_limit: int | None = 24 * 1024 * 1024
    """Bytes of one request body; images are cheap in tokens and dear in bytes. None switches the guard off."""

    # what is folded, in tokens
    args_min: int = 200
    """Argument strings shorter than this stay."""
    result_min: int = 600
    """Tool results smaller than this are never previewed (they may still be cleared)."""
    clear_min: int = 80
    """Tool results smaller than this are never cleared: a stub would be as long."""
    human_min: int = 2000
    """Human messages shorter than this stay whole; a tenth of it counts where nothing else makes a request fit."""
    preview: int = 300
    """Size of the preview that stands for a large result or human message."""
    clear_keep: int = 3
    """The newest tool results that `clear` leaves (Anthropic's clear_tool_uses keeps 3)."""
    exclude_tools: frozenset[str] = READERS
    """Tools whose results are never previewed or cleared."""
    exclude_args: frozenset[str] = frozenset({"pin"})
    """Tools whose arguments are never withheld: a pinned note stands in its call until STATE shows it."""
    media_keep: int = 2
    """The newest messages with media that keep it in view."""
    media_count: int = 20
    """The most inline media in view; over it the older half goes. Anthropic halves the size that it takes of each image
    where a request holds more than 20 (2,000 pixels a side instead of 8,000; "Vision")."""
    media_share: float = 0.25
    """The media in view take at most this part of the budget in tokens; over it the older half goes."""
    media_bytes: int | None = 16 * 1024 * 1024
    """The media in view have at most this many bytes as base64, two thirds of `body_limit`; None is no limit."""
    kinds: frozenset[str] = FOLDABLE
    """The fold kinds that may be used."""

    # summaries
    summary_share: float = 0.05
    """A summary's own text is at most this part of the budget, and of `summary_tokens`."""
    summary_tokens: int = 4000
    quote_share: float = 0.04
    """User words inside a folded span are quoted verbatim up to this part of the budget, newest first."""
    facts_share: float = 0.04
    """The facts index of a segment is at most this part of the budget."""
    state_share: float = 0.05
    """STATE is at most this part of the budget."""
    segment_share: float = 0.25
    """Segments are merged when together they pass this part of the budget."""
    summary_spacing: float = 0.10
    """At most one summary per this part of the budget of new tokens."""
    summary_retries: int = 2
    """Further attempts after a failed summary, with back-off."""
    summary_backoff: float = 0.5
    """Seconds before the first retry; doubled each time."""
    summary_timeout: float = 120.0
    """Seconds that one summary request may take."""
    strikes: int = 2
    """Failing passes in a row after which automatic summaries pause for `summary_spacing` of new tokens."""
    overflow_retries: int = 3
    """How often a request that the provider refused as too long is made smaller and sent again."""

    undo: bool = False
    """Whether fold passes with a summary are undone, the newest first, where the window stays under `soft` without
    them: for threads that move on to a larger model."""

    # cost
    cache_ttl: float = 300.0
    """Seconds after which the provider's prompt cache has surely lapsed (Anthropic: 5 minutes by default)."""
    read_price: float = 0.1
    """Price of a cached input token, in input tokens."""
    write_price: float = 1.25
    """Price of an input token that is written to the cache, in input tokens."""
    expected_calls: int = 20
    """Model calls that a fold in the soft zone is expected to pay for."""

    budget_line: bool = False
    """Whether the model is told how full its window is: by a line at the end of each request, and by the control tools'
    `context_usage`."""
    read_page: int = 2000
    """Tokens of one page that a reading tool hands back."""

    def __post_init__(self) -> None:
        for name in _SETS:
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise ConfigurationError(f"policy {name}={value!r} must be a set of names")
            object.__setattr__(self, name, frozenset(value))  # a list, as JSON and people write it
        for name in _FRACTIONS:
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ConfigurationError(f"policy {name}={value} must lie between 0 and 1 (exclusive)")
        if not self.soft <= self.trigger:
            raise ConfigurationError(
                f"policy soft={self.soft} must not be above trigger={self.trigger}; lower soft or raise trigger"
            )
        if not self.target < self.trigger:
            raise ConfigurationError(
                f"policy target={self.target} must be below trigger={self.trigger}, or every call would fold again; "
                f"try target={self.trigger / 2:.2f}"
            )
        if not self.keep < self.trigger - self.min_gain:
            raise ConfigurationError(
                f"policy keep={self.keep} leaves nothing to fold below trigger={self.trigger} with "
                f"min_gain={self.min_gain}; try keep={max(0.01, (self.trigger - self.min_gain) / 2):.2f}"
            )
        for name in _COUNTS:
            value = getattr(self, name)
            if value < 0:
                raise ConfigurationError(f"policy {name}={value} must not be negative")
        for name in ("context_limit", "output_reserve", "body_limit", "media_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigurationError(f"policy {name}={value} must be positive, or None")
        if unknown := self.kinds - FOLDABLE:
            raise ConfigurationError(f"policy kinds has unknown {sorted(unknown)}; known are {sorted(FOLDABLE)}")


_FRACTIONS = (
    "soft", "trigger", "target", "keep", "min_gain", "summary_share", "quote_share", "facts_share", "state_share",
    "segment_share", "summary_spacing", "media_share",
)  # fmt: skip
_SETS = ("kinds", "exclude_tools", "exclude_args")
_COUNTS = tuple(
    item.name for item in fields(Policy) if item.type in (int, float, "int", "float") and item.name not in _FRACTIONS
)
