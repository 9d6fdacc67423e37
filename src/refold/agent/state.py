"""The state that refold adds to an agent: its folds, private, append-only, as plain JSON."""

from typing import Annotated, NotRequired, cast

from langchain.agents.middleware.types import AgentState, PrivateStateAttr

from refold.core.folds import append_folds
from refold.files import FilesState


def reduce_folds(
    left: list[dict[str, object]] | None, right: list[dict[str, object]] | None
) -> list[dict[str, object]]:
    """`append_folds` with types that LangChain can resolve at run time, which the recursive `Json` is not."""
    return cast("list[dict[str, object]]", append_folds(left, right))  # type: ignore[arg-type]


class WindowState(AgentState[object]):
    """`folds` is private: it is neither input nor output of the graph, and no subagent is given it.

    LangGraph takes a reducer only from the end of the annotations.
    """

    folds: NotRequired[Annotated[list[dict[str, object]], PrivateStateAttr, reduce_folds]]


class FilesWindowState(WindowState, FilesState):
    """With the channel of files that live in the state (`StateFiles`)."""
