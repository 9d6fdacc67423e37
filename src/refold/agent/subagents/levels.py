"""The three levels of a delegated task: how far a subagent should go.

A level changes two things: the line that the subagent gets after the description (how much to look at, how long an
answer), and a bound on its steps, which stops one that went astray. It changes no policy, model or tool: windows fold
by what is in them, not by what was asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

LevelName: TypeAlias = Literal["quick", "standard", "deep"]


@dataclass(frozen=True, kw_only=True)
class Level:
    """`when` is told to the parent, `guidance` to the subagent; `steps` are supersteps of its graph, about two for each
    model call with tools, None for no bound but the `recursion_limit` of the caller's run, which holds at every
    level."""

    when: str
    guidance: str
    steps: int | None


LEVELS: Final[Mapping[LevelName, Level]] = {
    "quick": Level(
        when="one question, a few tool calls, an answer of some lines",
        guidance=(
            "Level quick: take the shortest way to an answer, about ten tool calls at most. If it takes more, stop and "
            "say what is missing. Answer in a few lines."
        ),
        steps=60,
    ),
    "standard": Level(
        when="a piece of work with a clear end, an answer of about a page",
        guidance=(
            "Level standard: do the whole task and check the result once. Answer in at most a page: what was done or "
            "found, paths and values that matter, what is open."
        ),
        steps=400,
    ),
    "deep": Level(
        when="long work over many files or sources, where being complete matters more than time",
        guidance=(
            "Level deep: be complete. Plan, look at everything that may matter, check each finding against its source, "
            "and keep notes in files as you go. Answer with the conclusions, how sure each is, and the paths of what "
            "you wrote."
        ),
        steps=None,
    ),
}


def step_bound(level: LevelName, *bounds: int | None) -> int | None:
    """The most supersteps of a run: the lowest of the level's and the other bounds; None where nothing bounds it."""
    return min((bound for bound in (LEVELS[level].steps, *bounds) if bound is not None), default=None)
