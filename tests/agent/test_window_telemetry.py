"""What the outside is told: one logger, OpenTelemetry where it is installed, and nothing printed."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from refold.agent.window import WindowMiddleware
from refold.core.meter import EstimatingMeter
from refold.core.repair import repair
from refold.files import MemoryFiles

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemoryMetricReader, InMemorySpanExporter]]:
    """In-memory exporters behind OpenTelemetry's global providers, for one test."""
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    meters = MeterProvider(metric_readers=[reader])
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    yield reader, spans
    meters.shutdown()
    tracers.shutdown()


def run(rounds: int = 14, **options: Any) -> Any:
    model, _ = worker_model(rounds, **options)
    window = WindowMiddleware(files=MemoryFiles(), policy=QUICK)
    graph = create_agent(model, TOOLS, middleware=[window], checkpointer=InMemorySaver())
    graph.invoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, CONFIG)
    return graph


def numbers(reader: InMemoryMetricReader) -> dict[str, float]:
    """The sum of each counter, and the count of each histogram."""
    data = reader.get_metrics_data()
    found: dict[str, float] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.data.data_points
                found[metric.name] = sum(getattr(p, "value", getattr(p, "count", 0)) for p in points)
    return found


class TestOpenTelemetry:
    def test_metrics_say_what_happened(self, exported: tuple[InMemoryMetricReader, InMemorySpanExporter]) -> None:
        """Passes, tokens saved, and the occupancy of every request that was answered."""
        graph = run()
        reader, spans = exported
        told = numbers(reader)
        passes = {fold["pass"] for fold in graph.get_state(CONFIG).values["folds"]}
        assert told["refold.passes"] == len(passes)
        assert told["refold.tokens_saved"] > 1_000
        assert told["refold.window_occupancy"] == 15
        assert "refold.summary" in {span.name for span in spans.get_finished_spans()}

    def test_failures_are_counted(self, exported: tuple[InMemoryMetricReader, InMemorySpanExporter]) -> None:
        """Summaries that failed, and refusals."""
        run(summary=RuntimeError("down"))
        assert numbers(exported[0])["refold.summary_failures"] >= 1
        run(profile={}, limit=3_000)
        assert numbers(exported[0])["refold.overflows"] >= 1


class TestOneLogger:
    def test_its_name_is_refold_and_nothing_is_printed(
        self, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Each pass is one INFO record of the logger `refold`; no text of the user is in it."""
        with caplog.at_level(logging.DEBUG):
            run()
        records = [record for record in caplog.records if record.name.startswith("refold")]
        assert {record.name for record in records} == {"refold"}
        assert any(record.levelno == logging.INFO and record.getMessage().startswith("fold ") for record in records)
        assert "Do all the steps" not in "".join(record.getMessage() for record in records)
        assert capsys.readouterr() == ("", "")

    def test_failures_are_warnings(self, caplog: pytest.LogCaptureFixture) -> None:
        """What an operator should look at is louder than what is routine."""
        run(summary=RuntimeError("down"))
        assert any(r.levelno == logging.WARNING and "summary_failed" in r.getMessage() for r in caplog.records)


def test_a_clean_log_is_neither_copied_nor_repaired() -> None:
    """Faults 81, 97 in an agent: the no-op path sends the log's own messages and counts each once."""
    model, _ = worker_model(3, limit=60_000)
    meter = EstimatingMeter()
    window = WindowMiddleware(files=MemoryFiles(), policy=QUICK, meter=meter)
    graph = create_agent(model, TOOLS, middleware=[window], checkpointer=InMemorySaver())
    result = graph.invoke({"messages": [HumanMessage("Go.", id="h")]}, CONFIG)
    assert repair(result["messages"]).repairs == ()
    assert meter.count_calls == len(result["messages"]) - 1
