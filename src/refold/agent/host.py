"""What a middleware remembers between calls, outside the graph's state: caches and lessons, nothing that is needed.

Losing all of it (a new process) costs time, and one refused request where a limit has to be learnt again. It never
changes what a window says.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from langchain.agents.structured_output import AutoStrategy, OutputToolBinding, ProviderStrategy, ToolStrategy
from langchain_core.tools import BaseTool

from refold.core.compaction import Veto
from refold.core.effects import LearnLimit
from refold.core.family import Family
from refold.core.gauge import Gauge
from refold.core.limits import LearnedLimits, ModelKey
from refold.core.meter import EstimatingMeter, Meter

_MOST_FORMATS: Final = 8
_MOST_THREADS: Final = 64
"""Threads whose last window is kept; each holds references to its messages."""
_MOST_OCCUPANCIES: Final = 4_096
"""Threads of which it is kept how full they were, two numbers each: a caller's must outlast all its children's."""


@dataclass(kw_only=True)
class Host:
    """Shared by all runs of one middleware; safe from many threads."""

    learned: LearnedLimits = field(default_factory=LearnedLimits)
    meters: dict[Family, Meter] = field(default_factory=dict)
    bounds: dict[Family, Meter] = field(default_factory=dict)
    gauges: "OrderedDict[str, tuple[Gauge, float]]" = field(default_factory=OrderedDict)
    occupancy: "OrderedDict[str, tuple[int, int]]" = field(default_factory=OrderedDict)
    vetoes: "OrderedDict[str, Veto]" = field(default_factory=OrderedDict)
    formats: list[tuple[object, tuple[Mapping[str, object], ...]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, thread: str) -> tuple[Gauge | None, float | None]:
        """The last gauge of a thread and the time of its call. Taken out, so that two runs never share one."""
        with self.lock:
            gauge, at = self.gauges.pop(thread, (None, None))
        return gauge, at

    def last(self, thread: str) -> Gauge | None:
        """The last gauge of a thread; it stays for the next call."""
        with self.lock:
            return self.gauges.get(thread, (None, 0.0))[0]

    def put(self, thread: str, gauge: Gauge, at: float, *, budget: int, vetoed: Veto | None) -> None:
        """Remember the gauge of a call for the next one, how full its window was, and what of it was vetoed."""
        with self.lock:
            self.vetoes.pop(thread, None)
            if vetoed is not None:
                self.vetoes[thread] = vetoed
            self.gauges[thread] = (gauge, at)
            self.occupancy[thread] = (gauge.used, budget)
            self.occupancy.move_to_end(thread)
            for remembered, most in (
                (self.gauges, _MOST_THREADS), (self.occupancy, _MOST_OCCUPANCIES), (self.vetoes, _MOST_THREADS)
            ):  # fmt: skip
                while len(remembered) > most:
                    remembered.popitem(last=False)

    def learn(self, key: ModelKey, effect: LearnLimit) -> None:
        """Take in a refusal."""
        with self.lock:
            self.learned = self.learned.learn(
                key, effect.overflow, estimated=effect.sent, scale=effect.scale, estimated_bytes=effect.size
            )

    def scale(self, key: ModelKey) -> float:
        """Real tokens per estimated one that refusals of a model showed; 1 where it never refused."""
        learned = self.learned.of(key)
        return 1.0 if learned is None or learned.factor is None else min(5.0, max(0.5, learned.factor))

    def schemas(self, response_format: object) -> tuple[Mapping[str, object], ...]:
        """The schemas that structured output adds to a request, as tools: the same objects for the same format, so that
        they are counted once."""
        if response_format is None:
            return ()
        with self.lock:
            for known, tools in self.formats:
                if known is response_format:
                    return tools
            self.formats.append((response_format, schema_tools(response_format)))
            del self.formats[:-_MOST_FORMATS]
            return self.formats[-1][1]

    def meter(self, family: Family) -> Meter:
        """The estimating meter of a tokenizer family: one, so that a message is counted once."""
        with self.lock:
            if family not in self.meters:
                self.meters[family] = EstimatingMeter(family=family)
            return self.meters[family]

    def bound(self, family: Family) -> Meter:
        """The meter that gives upper bounds for a family, for requests that must not be over a limit."""
        with self.lock:
            if family not in self.bounds:
                self.bounds[family] = EstimatingMeter(family=family, upper_bound=True)
            return self.bounds[family]


def output_tools(response_format: object, profile: Mapping[str, object]) -> list[BaseTool]:
    """The tools that LangChain binds for structured output, where it takes tools for it: they are part of the prefix
    that a request for a summary shares (fault 124)."""
    if response_format is None or isinstance(response_format, ProviderStrategy):
        return []
    if not isinstance(response_format, ToolStrategy):  # LangChain takes the provider's own way where there is one
        if profile.get("structured_output"):
            return []
        schema = response_format.schema if isinstance(response_format, AutoStrategy) else response_format
        response_format = ToolStrategy(schema=cast("type[object]", schema))
    return [OutputToolBinding.from_schema_spec(spec).tool for spec in response_format.schema_specs]


def schema_tools(response_format: object) -> tuple[Mapping[str, object], ...]:
    """The schemas of a response format in OpenAI's form of a tool, which is what they cost in either strategy."""
    if isinstance(response_format, ProviderStrategy):
        specs = [response_format.schema_spec]
    elif isinstance(response_format, ToolStrategy):
        specs = response_format.schema_specs
    elif isinstance(response_format, AutoStrategy):
        specs = ToolStrategy(schema=response_format.schema).schema_specs
    else:  # a plain schema, which LangChain takes for AutoStrategy
        specs = ToolStrategy(schema=cast("type[object]", response_format)).schema_specs
    return tuple(
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.json_schema},
        }
        for spec in specs
    )
