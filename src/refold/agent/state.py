"""The state that refold adds to an agent: its folds, private, append-only, as plain JSON."""

from collections.abc import Mapping
from typing import Annotated, NotRequired

from langchain.agents.middleware.types import AgentState, PrivateStateAttr

from refold.core.canonical import Json
from refold.core.folds import append_folds


class WindowState(AgentState[object]):
    """`folds` is private: it is neither input nor output of the graph, and no subagent is given it."""

    folds: NotRequired[Annotated[list[Mapping[str, Json]], append_folds, PrivateStateAttr]]
