"""Channel versions for savers that need them to be unique texts.

LangGraph's savers number the versions of a channel by texts with a random end, since PostgresSaver keys values by
version and two forks of one checkpoint would both make "the next" one. refold's savers need no such thing and count in
integers. On the way back each integer becomes a text: the number, padded so that texts sort as the numbers do, and an
end derived from the checkpoint that introduced it. A version that a checkpoint has from its parent keeps its text.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointTuple

Parent = Callable[[str], "Versions | None"]
"""Finds the versions of a checkpoint by its id, before and after."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions of one checkpoint, as it has them and as texts."""

    channels: ChannelVersions
    channel_texts: ChannelVersions
    seen: Mapping[str, ChannelVersions]
    seen_texts: Mapping[str, ChannelVersions]

    @classmethod
    def of(cls, before: Checkpoint, after: Checkpoint) -> "Versions":
        return cls(
            channels=before["channel_versions"],
            channel_texts=after["channel_versions"],
            seen=before["versions_seen"],
            seen_texts=after["versions_seen"],
        )


def with_text_versions(saved: CheckpointTuple, parent: Versions | None) -> CheckpointTuple:
    """The same checkpoint with texts for integer versions; versions that are texts already stay."""
    checkpoint = saved.checkpoint
    texts: ChannelVersions = {
        channel: _channel_text(channel, version, checkpoint["id"], parent)
        for channel, version in checkpoint["channel_versions"].items()
    }
    seen: dict[str, ChannelVersions] = {
        node: {key: _seen_text(node, key, version, checkpoint, texts, parent) for key, version in versions.items()}
        for node, versions in checkpoint["versions_seen"].items()
    }
    changed = cast("Checkpoint", {**checkpoint, "channel_versions": texts, "versions_seen": seen})
    return saved._replace(checkpoint=changed)


def _channel_text(channel: str, version: object, checkpoint_id: str, parent: Versions | None) -> str:
    if isinstance(version, str):
        return version
    if parent is not None and parent.channels.get(channel) == version:
        return str(parent.channel_texts[channel])
    return _text(version, f"{checkpoint_id}/{channel}")


def _seen_text(
    node: str, key: str, version: object, checkpoint: Checkpoint, texts: ChannelVersions, parent: Versions | None
) -> str:
    """A node saw its channel's version in the parent, or earlier (then the parent knows it too), or in a bump, here."""
    if isinstance(version, str):
        return version
    channel = _channel_of(key, checkpoint["channel_versions"])
    if parent is not None:
        if parent.seen.get(node, {}).get(key) == version:
            return str(parent.seen_texts[node][key])
        if parent.channels.get(channel) == version:
            return str(parent.channel_texts[channel])
    if checkpoint["channel_versions"].get(channel) == version:
        return str(texts[channel])
    return _text(version, key)  # of a checkpoint that was pruned: only its order matters


def _channel_of(key: str, channels: ChannelVersions) -> str:
    """The channel of a `versions_seen` key; LangGraph's marks of snapshots name the node first."""
    if key in channels:
        return key
    for separator in ("|", ":"):
        _, found, channel = key.partition(separator)
        if found and channel in channels:
            return channel
    return key


def _text(version: object, origin: str) -> str:
    number = int(cast("int", version))
    end = int.from_bytes(hashlib.blake2b(origin.encode(), digest_size=7).digest(), "big") % 10**16
    return f"{number:032}.0.{end:016}"
