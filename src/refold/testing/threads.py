"""A thread in a small world: a log that grows, call by call, with the folds that its calls commit.

    thread = Thread(world=World(limit=3_000))
    for request in thread.play(history):
        ...

`play` makes a model call wherever the history has an answer of the model, and commits what a graph would commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.canonical import Json
from refold.core.gauge import Gauge
from refold.core.turn import Outcome
from refold.testing.world import World


@dataclass(frozen=True, kw_only=True)
class Call:
    """One model call: the log and folds before it, what came of it, and the request that was answered."""

    log: tuple[BaseMessage, ...]
    folds: tuple[Mapping[str, Json], ...]
    outcome: Outcome
    sent: tuple[BaseMessage, ...]


@dataclass(kw_only=True)
class Thread:
    """A thread under way. `remembers=False` plays every call in a new process: nothing but log, folds and files is
    left of the one before."""

    world: World
    remembers: bool = True
    folds: list[Mapping[str, Json]] = field(default_factory=list)
    gauge: Gauge | None = None

    def call(self, log: Sequence[BaseMessage]) -> Call:
        """One call over a log. Nothing is committed when it raises."""
        if not self.remembers:
            self.world, self.gauge = self.world.renewed(), None
        before = tuple(self.folds)
        outcome = self.world.call(log, list(self.folds), previous=self.gauge)
        self.folds = [*self.folds, *outcome.folds]
        self.gauge = outcome.gauge
        return Call(log=tuple(log), folds=before, outcome=outcome, sent=self.world.sent[-1])

    def play(self, history: Sequence[BaseMessage]) -> Iterator[Call]:
        """A call at each place of a history where the model answered, and one at its end."""
        for index in call_points(history):
            yield self.call(history[:index])


def call_points(history: Sequence[BaseMessage]) -> list[int]:
    """The lengths at which a history was sent to the model: before each answer, and whole."""
    return [
        index
        for index in range(1, len(history) + 1)
        if not isinstance(history[index - 1], AIMessage)
        and (index == len(history) or isinstance(history[index], AIMessage))
    ]
