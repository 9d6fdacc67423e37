"""What refold tells the outside: one logger, custom stream events, and OpenTelemetry where it is installed.

Telling never fails a run and never prints. The custom stream gets `{"refold": {"event": ..., ...}}`.
"""

import importlib.util
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refold.core.canonical import Json
from refold.core.gauge import Gauge
from refold.core.limits import Budget

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Tracer

logger = logging.getLogger("refold")

_LEVELS: Mapping[str, int] = {
    "fold": logging.INFO,
    "overflow": logging.WARNING,
    "summary_failed": logging.WARNING,
    "summary_strike": logging.WARNING,
    "artifact_failed": logging.ERROR,
    "fold_ignored": logging.WARNING,
    "repaired": logging.WARNING,
    "fold_void": logging.WARNING,
}


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """Where events go. Made by `open_telemetry`."""

    tracer: "Tracer | None" = None
    counters: "Mapping[str, Counter]" = field(default_factory=dict)
    occupancy: "Histogram | None" = None

    def event(self, name: str, data: Mapping[str, Json], *, stream: Callable[[object], object]) -> None:
        """Log an event, count it, and put it on the run's custom stream."""
        logger.log(_LEVELS.get(name, logging.DEBUG), "%s %s", name, dict(data))
        if (counter := self.counters.get(name)) is not None:
            counter.add(1)
        if name == "fold" and (saved := self.counters.get("saved")) is not None:
            saved.add(max(0, int(str(data["before"])) - int(str(data["after"]))))
        stream({"refold": {"event": name, **data}})

    def window(self, gauge: Gauge, budget: Budget, *, limit: int, stream: Callable[[object], object]) -> None:
        """Record how full a window was when it was sent, and put it on the run's custom stream: the event `window` with
        the tokens of messages (`used`), what messages may use (`budget`), system prompt and tools (`fixed`), and the
        model's input limit (`limit`)."""
        if self.occupancy is not None and limit > 0:
            self.occupancy.record((gauge.used + gauge.fixed) / limit)
        numbers = {"used": gauge.used, "budget": budget.messages, "fixed": gauge.fixed, "limit": limit}
        stream({"refold": {"event": "window", **numbers}})

    def span(self, name: str) -> AbstractContextManager[object]:
        """A span around a piece of work, or nothing where OpenTelemetry is absent."""
        return self.tracer.start_as_current_span(name) if self.tracer is not None else nullcontext()


def open_telemetry() -> Telemetry:
    """Telemetry with OpenTelemetry's global tracer and meter where `opentelemetry` is installed."""
    if importlib.util.find_spec("opentelemetry") is None:
        return Telemetry()
    from opentelemetry import metrics, trace

    meter = metrics.get_meter("refold")
    names = {
        "fold": "refold.passes",
        "saved": "refold.tokens_saved",
        "overflow": "refold.overflows",
        "summary_failed": "refold.summary_failures",
        "artifact_failed": "refold.artifact_failures",
        "ingested": "refold.results_ingested",
    }
    return Telemetry(
        tracer=trace.get_tracer("refold"),
        counters={event: meter.create_counter(name) for event, name in names.items()},
        occupancy=meter.create_histogram("refold.window_occupancy", unit="1"),
    )
