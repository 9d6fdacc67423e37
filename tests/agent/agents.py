"""Scripted agents for the tests of the window: a strict model that works through rounds of tool calls, then answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import BaseTool, tool

from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.testing import Step, StrictModel

SUMMARY = "SUMMARY of what was done: steps ran one after the other, each printed its lines, the work goes on."

THOUGHT = " ".join(
    f"The module number {n} was built before, so its neighbour comes next and is checked against it." for n in range(6)
)

QUICK = Policy(
    args_min=100, result_min=120, clear_min=40, human_min=400, preview=60, clear_keep=1, output_reserve=200,
    summary_backoff=0.0, summary_timeout=5.0,
)  # fmt: skip
"""A policy for small windows that never waits."""


@tool
def work(step: int) -> str:
    """Do one step of the work."""
    return "\n".join(f"line {n} of step {step}: built /srv/app/module_{step}_{n}.py in {n}.5 s" for n in range(20))


def is_summary_request(messages: Sequence[BaseMessage]) -> bool:
    """Whether a request asks for a summary, in the live prefix or on its own."""
    if messages and isinstance(messages[0], SystemMessage) and "records of agent transcripts" in str(messages[0].text):
        return True
    return text_of(messages[-1]).startswith("Stop here for a moment")


@dataclass
class Worker:
    """A script: `rounds` tool calls, then an answer. Summaries are answered with `summary`, and counted."""

    rounds: int
    answer: str = "All steps are done."
    summary: Step | Callable[[Sequence[BaseMessage]], Step] = SUMMARY
    calls: int = 0
    summaries: int = 0
    seen: list[str] = field(default_factory=list)

    def __call__(self, messages: Sequence[BaseMessage]) -> Step:
        if is_summary_request(messages):
            self.summaries += 1
            return self.summary(messages) if callable(self.summary) else self.summary
        self.calls += 1
        if self.calls > self.rounds:
            return self.answer
        call = {"type": "tool_call", "id": f"call-{self.calls}", "name": "work", "args": {"step": self.calls}}
        return AIMessage(f"Step {self.calls}. {THOUGHT}", tool_calls=[call])


def worker_model(rounds: int, **options: object) -> tuple[StrictModel, Worker]:
    """A strict model with a worker's script."""
    worker = Worker(rounds=rounds, summary=options.pop("summary", SUMMARY))  # type: ignore[arg-type]
    return StrictModel(script=worker, **{"limit": 4_000, "allow_prefill": False, **options}), worker  # type: ignore[arg-type]


TOOLS: list[BaseTool] = [work]
