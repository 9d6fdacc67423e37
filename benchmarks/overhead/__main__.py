"""Measures the time that a window middleware adds to one model call when no fold is due, at 200 and 2,000 messages.

    python -m benchmarks.overhead [--sizes 200 2000] [--calls 60]

The middleware's own hooks are called as an agent calls them, on a history that grows by a round per call, with a
handler that answers at once; nothing else is timed. Peers: LangChain's SummarizationMiddleware and deepagents'
summarization. The limit is far away, so no one folds. Median per call, in milliseconds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware as DeepSummarization
from langchain.agents.middleware import SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables.config import set_config_context
from langgraph.runtime import Runtime

from refold.agent.window import WindowMiddleware
from refold.core.policy import Policy
from refold.files import LocalFiles
from refold.replay.measure import Scale
from refold.replay.model import RecordedModel
from refold.replay.tape import Tape
from refold.replay.transcript import Transcript

MODEL = RecordedModel.playing(
    Tape(transcript=Transcript(name="none", format="none", messages=())), scale=Scale.strict(), limit=10**8,
    model_name="gpt-4o",
)  # fmt: skip


def round_of(number: int) -> list[AnyMessage]:
    """A call and its result of about 1.6 kB together."""
    call = {"id": f"c{number}", "name": "bash", "args": {"command": f"pytest tests/test_{number}.py -x"}}
    body = "\n".join(f"tests/test_{number}.py::test_{i} PASSED in {i * 0.01:.2f} s" for i in range(32))
    return [
        AIMessage(f"I run part {number}.", id=f"a{number}", tool_calls=[call]),
        ToolMessage(body, id=f"t{number}", tool_call_id=f"c{number}", name="bash"),
    ]


def history(size: int) -> list[AnyMessage]:
    messages: list[AnyMessage] = [HumanMessage("Run every test.", id="h0")]
    for number in range(size // 2):
        messages += round_of(number)
    return messages


def measured(step: Callable[[list[AnyMessage]], None], size: int, calls: int) -> float:
    """Median milliseconds of a step on a history that grows by one round between steps."""
    messages = history(size)
    step(messages)
    spent = []
    for number in range(calls):
        messages = [*messages, *round_of(size + number)]
        start = time.perf_counter()
        step(messages)
        spent.append((time.perf_counter() - start) * 1000)
    return statistics.median(spent)


def requested(messages: list[AnyMessage], tools: list[Any]) -> ModelRequest[None]:
    return ModelRequest(
        model=MODEL, messages=messages, tools=tools, state={"messages": messages}, runtime=Runtime(context=None)
    )


def handler(request: ModelRequest[None]) -> ModelResponse[object]:
    return ModelResponse(result=[AIMessage("ok")])


def refold_step(folder: Path) -> Callable[[list[AnyMessage]], None]:
    middleware = WindowMiddleware(files=LocalFiles(folder), policy=Policy(context_limit=10**8))
    return lambda messages: void(middleware.wrap_model_call(requested(messages, list(middleware.tools)), handler))


def langchain_step() -> Callable[[list[AnyMessage]], None]:
    middleware = SummarizationMiddleware(model=MODEL, trigger=("tokens", 10**8))
    runtime: Runtime[None] = Runtime(context=None)
    return lambda messages: void(middleware.before_model({"messages": messages}, runtime))


def deepagents_step() -> Callable[[list[AnyMessage]], None]:
    middleware = DeepSummarization(
        model=MODEL, backend=StateBackend(), trigger=("tokens", 10**8), keep=("messages", 20)
    )
    return lambda messages: void(middleware.wrap_model_call(requested(messages, []), handler))


def void(value: object) -> None:
    """The answer is not looked at."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs=2, default=[200, 2000])
    parser.add_argument("--calls", type=int, default=60)
    options = parser.parse_args()
    small, large = options.sizes
    print(f"| middleware | {small:,} messages, ms | {large:,} messages, ms | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, set_config_context({"configurable": {"thread_id": "t"}}) as context:
        steps: dict[str, Callable[[], Callable[[list[AnyMessage]], None]]] = {
            "refold": lambda: refold_step(Path(folder)),
            "LangChain summarization": langchain_step,
            "deepagents summarization": deepagents_step,
        }
        for name, make in steps.items():
            low = context.run(measured, make(), small, options.calls)
            high = context.run(measured, make(), large, options.calls)
            print(f"| {name} | {low:.2f} | {high:.2f} | {high / low:.1f} |", flush=True)


if __name__ == "__main__":
    main()
