"""`media`: inline images, audio, video and documents are shown as reference blocks. The bytes are stored once per
content."""

from collections.abc import Mapping, Sequence
from typing import cast

from langchain_core.messages import BaseMessage

from refold.core.artifacts import Artifact, media_artifact
from refold.core.canonical import Json, digest
from refold.core.messages import blocks_of, with_content
from refold.core.passes.base import Proposal, Scope, mark


def propose(message: BaseMessage, key: str, scope: Scope) -> Proposal | None:
    """Move every inline medium of a message to a file. A payload that is no base64 stays: it cannot be stored as what
    it claims to be."""
    if scope.file_reader is None or isinstance(message.content, str):
        return None
    moved: list[Mapping[str, Json]] = []
    artifacts: list[Artifact] = []
    for block in blocks_of(message):
        artifact = media_artifact(block.media) if block.media is not None else None
        if artifact is None or block.media is None:
            continue
        moved.append(
            {
                "d": digest(block.media.data or ""), "path": artifact.path,
                "mime": block.media.mime or block.media.kind, "bytes": len(artifact.data),
            }
        )  # fmt: skip
        artifacts.append(artifact)
    if not moved:
        return None
    return Proposal(data={"media": moved, "reader": scope.file_reader}, artifacts=tuple(artifacts))


def show(message: BaseMessage, data: Mapping[str, Json]) -> BaseMessage:
    """The message with each moved medium replaced, in place, by a text block that says where it is."""
    if isinstance(message.content, str):
        return message
    entries = cast("Sequence[Mapping[str, Json]]", data["media"])
    moved = {str(entry["d"]): entry for entry in entries}
    content: list[object] = list(message.content)
    for block in blocks_of(message):
        if block.media is None or block.media.data is None:
            continue
        entry = moved.get(digest(block.media.data))
        if entry is not None:
            content[block.index] = {"type": "text", "text": _reference(entry, str(data["reader"]))}
    return with_content(message, content)


def _reference(entry: Mapping[str, Json], reader: str) -> str:
    path = str(entry["path"])
    return mark("media", path=path, mime=str(entry["mime"]), bytes=str(entry["bytes"]), read=reader)
