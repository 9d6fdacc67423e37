"""The guard against a runtime that lost a delta channel.

A thread whose messages are in a delta channel stores no list, only writes. A graph compiled with a plain channel in its
place (an older release of the application, say) reads that thread as empty and would go on from there; every later
checkpoint would hold the loss. LangGraph cannot tell, but the saver can: the plain graph puts a value for a channel
that has not moved since the parent, and the parent has none for it.
"""

from collections.abc import Mapping
from typing import Final, cast

from langgraph.checkpoint.base import ChannelVersions, Checkpoint
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from refold.checkpoint.drafts import Context
from refold.checkpoint.header import Header
from refold.checkpoint.read import stored_of
from refold.errors import CheckpointError

_COUNTERS: Final = "counters_since_delta_snapshot"


def refuse_lost_channels(
    ctx: Context, before: Header | None, checkpoint: Checkpoint, new_versions: ChannelVersions
) -> None:
    """Raise `CheckpointError` for a checkpoint that has a plain value where its parent has a delta channel."""
    if before is None:
        return
    suspects = [
        channel
        for channel, value in checkpoint["channel_values"].items()
        if channel not in before.cells
        and channel not in new_versions
        and before.versions.get(channel) == checkpoint["channel_versions"].get(channel) is not None
        and not isinstance(value, _DeltaSnapshot)
    ]
    if not suspects:
        return
    metadata = cast("Mapping[str, object]", stored_of(ctx, before.metadata))
    counters = metadata.get(_COUNTERS)
    lost = [channel for channel in suspects if isinstance(counters, Mapping) and channel in counters]
    if lost:
        raise CheckpointError(
            f"channel {lost[0]!r} of this thread is a delta channel, but the graph has a plain one in its place and "
            "reads it as empty; nothing was stored. Compile the graph with the delta channel again, or print the "
            "thread's messages (refold threads DATABASE --messages THREAD) and start a new thread with them"
        )
