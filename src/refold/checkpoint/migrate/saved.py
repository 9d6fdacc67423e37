"""What a migration moves: a checkpoint as LangGraph reads it, and its writes with their places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

Mark: TypeAlias = str
"""Changes whenever a checkpoint or its writes change; says nothing else."""


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """Where a checkpoint is: places sort by thread, namespace, then age."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    @property
    def config(self) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.checkpoint_ns,
                "checkpoint_id": self.checkpoint_id,
            }
        }

    def __str__(self) -> str:
        namespace = f" namespace {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        return f"thread {self.thread_id!r}{namespace} checkpoint {self.checkpoint_id}"


@dataclass(frozen=True, kw_only=True)
class SavedWrite:
    """One write of a task. `index` is its position among the task's writes, negative for a special channel."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: object


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint and its writes, both from one moment; `writes` in the order that LangGraph applies them."""

    tuple: CheckpointTuple
    writes: Sequence[SavedWrite]


class Source(Protocol):
    """A database that checkpoints are read from, while others may write to it."""

    def index(self) -> Iterator[tuple[Place, Mark]]:
        """Every checkpoint that there is now, in the order of places."""

    def read(self, place: Place) -> Saved | None:
        """One checkpoint; None when it is gone by now."""

    def history(self, place: Place, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        """What its delta channels are made of."""

    def size(self) -> int:
        """Bytes stored."""
