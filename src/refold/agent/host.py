"""What a middleware remembers between calls, outside the graph's state: caches and lessons, nothing that is needed.

Losing all of it (a new process) costs time, and one refused request where a limit has to be learnt again. It never
changes what a window says.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from refold.core.gauge import Gauge
from refold.core.limits import LearnedLimits
from refold.core.meter import EstimatingMeter, Meter

_MOST_THREADS: Final = 64
"""Threads whose last window is kept; each holds references to its messages."""


@dataclass(kw_only=True)
class Host:
    """Shared by all runs of one middleware; safe from many threads."""

    learned: LearnedLimits = field(default_factory=LearnedLimits)
    bodies: dict[tuple[str, str], int] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    gauges: "OrderedDict[str, tuple[Gauge, float]]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, thread: str) -> tuple[Gauge | None, float | None]:
        """The last gauge of a thread and the time of its call. Taken out, so that two runs never share one."""
        with self.lock:
            gauge, at = self.gauges.pop(thread, (None, None))
        return gauge, at

    def put(self, thread: str, gauge: Gauge, at: float) -> None:
        """Remember the gauge of a call for the next one."""
        with self.lock:
            self.gauges[thread] = (gauge, at)
            while len(self.gauges) > _MOST_THREADS:
                self.gauges.popitem(last=False)

    def meter(self, family: str) -> Meter:
        """The estimating meter of a tokenizer family: one, so that a message is counted once."""
        with self.lock:
            if family not in self.meters:
                self.meters[family] = EstimatingMeter(family=family)
            return self.meters[family]
