"""A small day of an agent, and what a model call costs in a long thread, counted in operations, not in time.

The whole day is `python -m benchmarks.endurance`.
"""

import copy
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from benchmarks.endurance.day import Day, Row
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables.config import set_config_context
from langgraph.runtime import Runtime

from refold.agent.window import WindowMiddleware
from refold.core.policy import Policy
from refold.files import MemoryFiles
from refold.testing import StrictModel

ROUNDS = 150


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Row]:
    """150 rounds of the benchmark's day, in a window of 12k tokens."""
    made = Day(folder=tmp_path_factory.mktemp("day"), window=12_000, managed=True)
    return list(made.rows(ROUNDS, tell=lambda row: None, parts=3))


class TestADay:
    """Mixed tools, errors, pictures, subagents, Chinese and English, on a real file."""

    def test_every_request_is_valid_and_fits(self, day: Sequence[Row]) -> None:
        """By the strict model's own counter and rules."""
        assert (day[-1].invalid, day[-1].over_limit) == (0, 0)
        assert day[-1].requests > ROUNDS

    def test_the_window_was_folded_again_and_again(self, day: Sequence[Row]) -> None:
        """In each part of the day."""
        folds = [row.folds for row in day]
        assert 0 < folds[0] < folds[1] < folds[2]

    def test_the_database_grows_by_what_is_new(self, day: Sequence[Row]) -> None:
        """A later part of the day adds no more than twice what an earlier one added, per byte of its messages."""
        rates = [(b.database - a.database) / (b.raw - a.raw) for a, b in itertools.pairwise(day)]
        assert rates[1] < 2 * rates[0]


def history(rounds: int) -> list[AnyMessage]:
    made: list[AnyMessage] = [HumanMessage("Run every test.", id="h0")]
    for number in range(rounds):
        call = {"type": "tool_call", "id": f"c{number}", "name": "run", "args": {"number": number}}
        made.append(AIMessage(f"Part {number}.", id=f"a{number}", tool_calls=[call]))
        made.append(
            ToolMessage(
                f"tests/test_{number}.py passed in {number} ms. " * 8, id=f"t{number}", tool_call_id=f"c{number}"
            )
        )
    return made


class Caller:
    """Calls a middleware as an agent does, with state as it is read from a checkpoint: every object new."""

    def __init__(self) -> None:
        self.middleware = WindowMiddleware(
            files=MemoryFiles(), policy=Policy(context_limit=20_000, output_reserve=500, clear_keep=1)
        )
        self.model = StrictModel(script=lambda messages: "The tests pass one after the other.", limit=None)
        self.folds: list[Any] = []

    def __call__(self, messages: list[AnyMessage]) -> None:
        request: ModelRequest[None] = ModelRequest(
            model=self.model, messages=messages, tools=list(self.middleware.tools),
            state={"messages": messages, "folds": self.folds},  # type: ignore[typeddict-unknown-key]
            runtime=Runtime(context=None),
        )  # fmt: skip
        answered = self.middleware.wrap_model_call(request, lambda sent: ModelResponse(result=[AIMessage("ok")]))
        if isinstance(answered, ExtendedModelResponse) and answered.command is not None:
            self.folds = [*self.folds, *answered.command.update["folds"]]  # type: ignore[index]


def operations(work: Callable[[], None]) -> int:
    """How many functions of Python were called in it."""
    called = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal called
        called += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


def cost_of_a_call(rounds: int) -> int:
    """Operations of a call in a thread that is folded, was read again from its checkpoint, and went on since."""
    caller, messages = Caller(), history(rounds)
    with set_config_context({"configurable": {"thread_id": "t"}}) as context:
        context.run(caller, messages)
        assert caller.folds
        read, caller.folds = copy.deepcopy(messages), copy.deepcopy(caller.folds)
        context.run(caller, read)
        grown = [*read, *history(rounds + 1)[-2:]]
        return context.run(operations, lambda: caller(grown))


def test_a_call_costs_what_is_new_however_long_the_log() -> None:
    """Five times the log, read again from its checkpoint: no more operations, give or take the window's own."""
    short, long = cost_of_a_call(200), cost_of_a_call(1_000)
    assert long < 1.3 * short, (short, long)
