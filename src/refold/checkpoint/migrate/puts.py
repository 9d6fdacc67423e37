"""Writing a checkpoint into a target, by the methods that every saver has."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, CheckpointTuple

from refold.checkpoint.migrate.saved import Place, SavedWrite


def put(
    target: BaseCheckpointSaver[str],
    place: Place,
    saved: CheckpointTuple,
    writes: Sequence[SavedWrite],
    *,
    to_langgraph: bool,
) -> None:
    """A checkpoint after its parent, then its writes, task by task."""
    configurable: dict[str, str] = {"thread_id": place.thread_id, "checkpoint_ns": place.checkpoint_ns}
    if (parent := parent_id(saved)) is not None:
        configurable["checkpoint_id"] = parent
    # All versions count as new: LangGraph's SqliteSaver may hold a value that changed although its version did not, and
    # none where the parent, of the same version, has one. Its PostgresSaver would store "none" under the version.
    new: ChannelVersions = {
        channel: version
        for channel, version in saved.checkpoint["channel_versions"].items()
        if not to_langgraph or channel in saved.checkpoint["channel_values"]
    }
    config: RunnableConfig = {"configurable": configurable}
    target.put(config, saved.checkpoint, saved.metadata, new)
    for (task_path, task_id), own in groupby(writes, key=lambda write: (write.task_path, write.task_id)):
        for call in calls_of(list(own)):
            target.put_writes(place.config, call, task_id, task_path)


def calls_of(writes: Sequence[SavedWrite]) -> Iterator[list[tuple[str, object]]]:
    """The `put_writes` calls that give one task's writes the places that they have.

    A call numbers its ordinary writes by position and gives the special channels fixed negative numbers. So ordinary
    and special writes go in calls of their own, unless the special ones stood between the others and fill their gaps.
    """
    ordinary = sorted((write for write in writes if write.index >= 0), key=lambda write: write.index)
    special = [write for write in writes if write.index < 0]
    gaps = sorted(set(range(ordinary[-1].index + 1)) - {write.index for write in ordinary}) if ordinary else []
    if gaps and len(gaps) == len(special):
        by_place = {write.index: write for write in ordinary} | dict(zip(gaps, special, strict=True))
        yield [(by_place[at].channel, by_place[at].value) for at in sorted(by_place)]
        return
    if ordinary:
        yield [(write.channel, write.value) for write in ordinary]
    if special:
        yield [(write.channel, write.value) for write in special]


def parent_id(saved: CheckpointTuple) -> str | None:
    """The id of the checkpoint that it was made from."""
    return saved.parent_config["configurable"].get("checkpoint_id") if saved.parent_config else None
