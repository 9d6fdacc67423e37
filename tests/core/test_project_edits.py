"""A window made from any earlier one of its thread is the window that a fresh process makes.

Whatever was done between: the log grew, was edited, cut, reordered, put back, read again from a checkpoint; folds came,
were undone or forked away.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core import appended
from refold.core import log as logs
from refold.core.canonical import Json
from refold.core.gauge import measure
from refold.core.meter import Count
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.window import Window
from refold.errors import ContextOverflowError
from refold.testing.strategies import applied, edits, histories
from refold.testing.world import World

TIGHT = Policy(
    args_min=100, result_min=80, clear_min=20, human_min=120, preview=30, clear_keep=1, media_keep=1, keep=0.1,
    output_reserve=100, summary_backoff=0.0,
)  # fmt: skip

Raw = Mapping[str, Json]


def undo(fold: Raw, number: int) -> Raw:
    return {**fold, "id": f"undo-{number}", "kind": "undo", "data": {"folds": [fold["id"]]}}


def seen(window: Window) -> object:
    """Everything that a window says. Where a message of the repair stands in the log is left out: that goes by which of
    the messages before it were repaired together."""
    return (
        [json.dumps(message.model_dump(), sort_keys=True, default=str) for message in window.messages],
        [(e.kind, e.folds, *((e.start, e.stop) if e.kind != "repair" else ())) for e in window.entries],
        [(segment.fold.id, segment.start, segment.stop) for segment in window.segments],
        {at: [(fold.id, item.anchor) for fold, item in acting] for at, acting in window.items.items()},
        (window.void, window.boundary, window.hidden(), window.floats, window.growth.awaited, window.growth.unanswered),
        (list(window.log.messages), list(window.log.keys), dict(window.log.positions)),
        (window.folds, window.unreadable),
    )  # fmt: skip


@dataclass(kw_only=True)
class Story:
    """What happens to a thread, step by step."""

    data: st.DataObject
    ahead: list[BaseMessage]
    world: World = field(default_factory=lambda: World(limit=2_000, policy=TIGHT))
    log: list[BaseMessage] = field(default_factory=list)
    folds: list[Raw] = field(default_factory=list)
    gone: list[BaseMessage] = field(default_factory=list)
    states: list[tuple[list[BaseMessage], list[Raw]]] = field(default_factory=list)

    def step(self) -> None:
        """One of them; its messages and folds are lists of their own, as a channel's are."""
        steps: list[Callable[[], None]] = [
            self.grow, self.grow, self.grow, self.call, self.call, self.edit, self.fork, self.cut, self.read_again,
            self.copy_one, self.put_back, self.undo, self.swap, self.double,
        ]  # fmt: skip
        self.log, self.folds = list(self.log), list(self.folds)
        self.data.draw(st.sampled_from(steps))()
        self.states.append((list(self.log), list(self.folds)))

    def grow(self) -> None:
        count = self.at(6)
        self.log += self.ahead[: count + 1]
        del self.ahead[: count + 1]

    def call(self) -> None:
        try:
            self.folds += self.world.call(self.log, self.folds).folds if self.log else ()
        except ContextOverflowError:
            return
        self.log.append(AIMessage("done", id=f"answer-{len(self.states)}"))

    def edit(self) -> None:
        after = applied(self.log, self.data.draw(edits(self.log)))
        self.gone += [message for message in self.log if not any(message is other for other in after)]
        self.log = after

    def fork(self) -> None:
        if self.states:
            log, folds = self.states[self.at(len(self.states))]
            self.log, self.folds = list(log), list(folds)

    def cut(self) -> None:
        kept = self.at(len(self.log) + 1)
        self.gone += self.log[kept:]
        del self.log[kept:]

    def read_again(self) -> None:
        self.log = [message.model_copy(deep=True) for message in self.log]

    def copy_one(self) -> None:
        if self.log:
            at = self.at(len(self.log))
            self.log[at] = self.log[at].model_copy(deep=True)

    def put_back(self) -> None:
        if self.data.draw(st.booleans()):
            self.log += self.gone
            self.gone = []
        elif self.gone:
            self.log.insert(self.at(len(self.log) + 1), self.gone[self.at(len(self.gone))])

    def undo(self) -> None:
        if self.folds:
            self.folds.append(undo(self.folds[self.at(len(self.folds))], len(self.states)))

    def swap(self) -> None:
        if len(self.log) > 1:
            at = self.at(len(self.log) - 1)
            self.log[at], self.log[at + 1] = self.log[at + 1], self.log[at]

    def double(self) -> None:
        if self.log:
            self.log.append(self.log[self.at(len(self.log))])

    def at(self, stop: int) -> int:
        return self.data.draw(st.integers(0, stop - 1))


@settings(max_examples=40)
@given(histories(min_turns=2, max_turns=4), st.data())
def test_what_came_before_changes_the_cost_alone(history: list[BaseMessage], data: st.DataObject) -> None:
    """From the window before, from any other of the thread, or from none; also what is measured of it."""
    check(Story(data=data, ahead=list(history)))


@settings(max_examples=40)
@given(histories(min_turns=2, max_turns=4), st.data())
def test_also_where_a_log_has_many_parts(history: list[BaseMessage], data: st.DataObject) -> None:
    """The same with parts of three messages, which a log of a test would not get to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appended, "_LONGEST_REST", 3)
        patch.setattr(logs, "_MANY", 3)
        check(Story(data=data, ahead=list(history)))


def check(story: Story) -> None:
    windows: list[Window] = []
    none = Count(tokens=0, bytes=0)
    for _ in range(story.data.draw(st.integers(3, 25))):
        story.step()
        before = windows[-1 - story.at(len(windows))] if windows and story.data.draw(st.booleans()) else None
        window, fresh = project(story.log, story.folds, previous=before), project(story.log, story.folds)
        assert seen(window) == seen(fresh)
        if before is not None:
            old = measure(before, story.world.meter, system=none, tools=none, scale=1.0)
            known = old if window.grown_from is before.entries else None
            gauge = measure(window, story.world.meter, system=none, tools=none, scale=1.0, previous=known)
            anew = measure(fresh, story.world.meter, system=none, tools=none, scale=1.0)
            assert (gauge.sums, gauge.sizes, gauge.media) == (anew.sums, anew.sizes, anew.media)
        windows.append(window)


def test_a_fork_to_before_an_undo_shows_the_fold_again() -> None:
    """The log is the same and the undo is gone, as where the step that would have committed it failed."""
    log: Sequence[BaseMessage] = [
        HumanMessage("Go.", id="h"),
        *(
            message
            for n in range(8)
            for message in (
                AIMessage("", id=f"a{n}", tool_calls=[{"id": f"c{n}", "name": "run", "args": {"n": n}}]),
                ToolMessage(f"line {n}\n" * 200, tool_call_id=f"c{n}", name="run", id=f"t{n}"),
            )
        ),
    ]
    folds = list(World(limit=4_000, policy=TIGHT).call(log).folds)
    folds = [fold for fold in folds if fold["kind"] in ("args", "result", "clear")]
    assert folds
    undone = project(log, [*folds, *(undo(fold, n) for n, fold in enumerate(folds))])
    assert not undone.items
    assert seen(project(log, folds, previous=undone)) == seen(project(log, folds))
