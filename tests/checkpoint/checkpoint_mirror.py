"""A saver that hands everything to two savers and insists that they agree: the reference for differential tests.

Not a mock: LangGraph's own `InMemorySaver` is asked the same questions in the same run, and what it answers is what
ours must answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot


def shown(value: object) -> object:
    """A value in a form in which equal means the same: messages by class and fields, numbers with their type."""
    if isinstance(value, BaseMessage):
        return (type(value).__name__, shown(value.model_dump()))
    if isinstance(value, _DeltaSnapshot):
        return ("snapshot", shown(value.value))
    if isinstance(value, Mapping):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [shown(item) for item in value]
    return (type(value).__name__, repr(value))


def place(config: RunnableConfig | None) -> tuple[str, str, str] | None:
    if config is None:
        return None
    at = config["configurable"]
    return str(at["thread_id"]), at.get("checkpoint_ns", ""), at["checkpoint_id"]


def plain(found: CheckpointTuple | None, *, with_parent: bool = True) -> object:
    """A tuple in a comparable form."""
    if found is None:
        return None
    return {
        "place": place(found.config),
        "parent": place(found.parent_config) if with_parent else None,
        "checkpoint": shown({k: v for k, v in found.checkpoint.items() if k != "pending_sends"}),
        "metadata": shown(found.metadata),
        "writes": [(task, channel, shown(value)) for task, channel, value in found.pending_writes or ()],
    }


def history(found: Mapping[str, DeltaChannelHistory]) -> object:
    return {
        channel: {
            "writes": [(task, name, shown(value)) for task, name, value in entry["writes"]],
            "seed": shown(entry["seed"]) if "seed" in entry else "none",
        }
        for channel, entry in found.items()
    }


class MirrorSaver(BaseCheckpointSaver[Any]):
    """Writes to both, reads from both, and raises `AssertionError` where they differ. Runs see our answers."""

    def __init__(self, ours: BaseCheckpointSaver[Any], theirs: InMemorySaver) -> None:
        super().__init__(serde=theirs.serde)
        self.ours = ours
        self.theirs = theirs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.theirs.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = self.ours.get_tuple(config)
        assert plain(found) == plain(self.theirs.get_tuple(config))
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = [*self.ours.list(config, filter=filter, before=before, limit=limit)]
        expected = [*self.theirs.list(config, filter=filter, before=before, limit=limit)]
        assert [plain(item) for item in found] == [plain(item) for item in expected]
        yield from found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self.theirs.put(config, checkpoint, metadata, new_versions)
        return self.ours.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.theirs.put_writes(config, writes, task_id, task_path)
        self.ours.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        self.theirs.delete_thread(thread_id)
        self.ours.delete_thread(thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        found = self.ours.get_delta_channel_history(config=config, channels=channels)
        assert history(found) == history(self.theirs.get_delta_channel_history(config=config, channels=channels))
        assert history(found) == history(
            BaseCheckpointSaver.get_delta_channel_history(self.ours, config=config, channels=channels)
        )
        return found
