"""Meters: the tokens and bytes of messages, each counted once.

Two kinds exist, with the same rules (refold.core.cost) for everything that is not text: one estimates text, one counts
it with a tokenizer. Counts are kept by content hash, which is itself computed once per message object: a model call
costs O(new messages), and a copy of a message counted before (read back from a checkpoint) is not counted again. A
meter scaled by a learned factor shares those counts, since what is kept is unscaled.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, Protocol, Self

from langchain_core.messages import BaseMessage

from refold.core.cost import Cost, Count, Tool, reported_reasoning
from refold.core.estimate import estimate_text
from refold.core.family import Family, family_of
from refold.core.messages import content_hash
from refold.errors import ConfigurationError

__all__ = [
    "LEAST_FACTOR",
    "MOST_FACTOR",
    "Count",
    "EstimatingMeter",
    "ExactMeter",
    "Meter",
    "Tool",
    "learned_factor",
    "tokenizer_meter",
]

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 5.0


class Meter(Protocol):
    """Counts the tokens and bytes of messages, tools and text.

    Counting is deterministic and does not fail, whatever is in a message. A message that was counted before costs two
    dictionary look-ups; see `content_hash` for what it takes for the same message. `count_calls` says how many messages
    were really counted, by this meter and all that were scaled from it.
    """

    @property
    def count_calls(self) -> int: ...

    def count(self, message: BaseMessage) -> Count:
        """One message with its frame."""
        ...

    def count_tools(self, tools: Sequence[Tool]) -> Count:
        """The schemas of a tool set, counted once per set. Raises `ConfigurationError` for what is no tool."""
        ...

    def count_text(self, text: str) -> int:
        """The tokens of a bare text. Not kept."""
        ...

    def scaled(self, factor: float) -> Self:
        """The same meter with tokens times `factor` (0.5 to 5), in place of any factor before. Nothing is recounted."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolSet:
    tools: tuple[Tool, ...]
    count: Count


@dataclass(eq=False, slots=True)
class _Counts:
    """What a meter has counted. A cache: losing it changes nothing but time."""

    messages: dict[tuple[str, int], Count] = field(default_factory=dict)
    tool_sets: list[_ToolSet] = field(default_factory=list)
    calls: int = 0


_MOST_MESSAGES: Final = 50_000
_MOST_TOOL_SETS: Final = 8


@dataclass(frozen=True, kw_only=True)
class _TextMeter(ABC):
    """Everything but the counting of text."""

    family: Family = "generic"
    factor: float = 1.0
    _counts: _Counts = field(default_factory=_Counts, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not LEAST_FACTOR <= self.factor <= MOST_FACTOR:
            raise ConfigurationError(f"factor is {self.factor}; a factor is between {LEAST_FACTOR} and {MOST_FACTOR}")

    @abstractmethod
    def _text(self, text: str) -> int:
        """The tokens of a text, unscaled."""

    @property
    def count_calls(self) -> int:
        return self._counts.calls

    def count(self, message: BaseMessage) -> Count:
        key = (content_hash(message), reported_reasoning(message))
        kept = self._counts.messages
        if (count := kept.get(key)) is None:
            self._counts.calls += 1
            if len(kept) >= _MOST_MESSAGES:
                kept.clear()  # all at once: a meter is shared between threads
            count = kept[key] = Cost(family=self.family, text=self._text).message(message)
        return self._scale(count)

    def count_tools(self, tools: Sequence[Tool]) -> Count:
        sets = self._counts.tool_sets
        for known in sets:
            if len(known.tools) == len(tools) and all(a is b for a, b in zip(known.tools, tools, strict=True)):
                return self._scale(known.count)
        count = Cost(family=self.family, text=self._text).tools(tools)
        sets.append(_ToolSet(tools=tuple(tools), count=count))
        del sets[:-_MOST_TOOL_SETS]
        return self._scale(count)

    def count_text(self, text: str) -> int:
        return ceil(self._text(text) * self.factor)

    def scaled(self, factor: float) -> Self:
        return replace(self, factor=factor)

    def _scale(self, count: Count) -> Count:
        if self.factor == 1.0:
            return count
        return Count(tokens=ceil(count.tokens * self.factor), bytes=count.bytes)


@dataclass(frozen=True, kw_only=True)
class EstimatingMeter(_TextMeter):
    """A meter that estimates text (`estimate_text`). `upper_bound` is for hard limits: every text at its upper bound.

    >>> EstimatingMeter(family="claude3").count(HumanMessage("Read the file.")).tokens
    8
    """

    upper_bound: bool = False

    def _text(self, text: str) -> int:
        return estimate_text(text, family=self.family, upper_bound=self.upper_bound)


@dataclass(frozen=True, kw_only=True)
class ExactMeter(_TextMeter):
    """A meter that counts text with a tokenizer. `encode` returns a number of tokens; `family` decides all the rest.

    `encode` gets at most `longest` characters at a time, since some tokenizers refuse long inputs or are quadratic in
    them. Texts are cut where a word starts, so that a cut costs no token in prose and at most one elsewhere.
    """

    encode: Callable[[str], int]
    longest: int = 50_000

    def _text(self, text: str) -> int:
        if len(text) <= self.longest:
            return self.encode(text)
        return sum(self.encode(piece) for piece in _pieces(text, self.longest))


def tokenizer_meter(model_name: str) -> Meter:
    """The best meter for a model by its name.

    Exact for OpenAI's models when `bpe-openai` is installed (the extra `tokenizers`), else estimating.
    """
    family = family_of(model_name)
    if family not in ("o200k", "cl100k"):
        return EstimatingMeter(family=family)
    try:
        with warnings.catch_warnings():  # the package reads its data by a function that Python 3.11 deprecates
            warnings.simplefilter("ignore", DeprecationWarning)
            import bpe_openai  # type: ignore[import-untyped]

            encoding = bpe_openai.get_encoding(f"{family}_base")
            encoding.encode_ordinary("")
    except ImportError:
        return EstimatingMeter(family=family)
    return ExactMeter(family=family, encode=lambda text: len(encoding.encode_ordinary(text)))


def learned_factor(reported: int, estimated: int) -> float:
    """What an estimate must be multiplied by to give what the provider reported, kept within 0.5 and 5.

    1 when either number is not positive: nothing was learned.
    """
    if reported <= 0 or estimated <= 0:
        return 1.0
    return min(MOST_FACTOR, max(LEAST_FACTOR, reported / estimated))


def _pieces(text: str, longest: int) -> list[str]:
    pieces: list[str] = []
    start = 0
    while len(text) - start > longest:
        half = start + longest // 2
        stop = max(text.rfind(" ", half, start + longest), text.rfind("\n", half, start + longest))
        stop = stop if stop > start else start + longest
        pieces.append(text[start:stop])
        start = stop
    return [*pieces, text[start:]]
