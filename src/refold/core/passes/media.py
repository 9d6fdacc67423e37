"""`media`: inline images, audio, video and documents are shown as reference blocks. The bytes are stored once per
content.

A medium that the model cannot be shown (damaged, too large, of a kind that it does not take, refused by the provider)
is shown so too, with the reason; there the reference stands even where the bytes could not be stored, since the log
keeps them and a request with them would be refused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from langchain_core.messages import BaseMessage

from refold.core.artifacts import Artifact, media_artifact
from refold.core.canonical import Json
from refold.core.media_parts import Part, parts_of, with_parts
from refold.core.passes.base import Proposal, Scope, mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Withheld:
    """A medium that cannot be shown, and why, in words for the model."""

    part: Part
    why: str


def propose(message: BaseMessage, key: str, scope: Scope) -> Proposal | None:
    """Move every inline medium of a message to a file. A damaged payload stays: it is no file of its kind."""
    if scope.file_reader is None:
        return None
    return moved([part for part in parts_of(message) if part.inline and part.damage is None], scope.file_reader)


def moved(parts: Collection[Part], reader: str) -> Proposal | None:
    """Media that go to files, and what stands for them."""
    found = [(part, artifact) for part in parts if (artifact := media_artifact(part.media)) is not None]
    if not found:
        return None
    entries: list[Mapping[str, Json]] = [
        {"d": part.key, "path": artifact.path, **_described(part), "bytes": len(artifact.data)}
        for part, artifact in found
    ]
    return Proposal(data={"media": entries, "reader": reader}, artifacts=tuple(artifact for _, artifact in found))


def withheld(media: Collection[Withheld], stored: Mapping[str, Artifact], scope: Scope) -> Mapping[str, Json]:
    """The data of a fold for media that cannot be shown. `stored` are the artifacts that are safe, by part key."""
    entries: list[Mapping[str, Json]] = []
    for one in media:
        artifact = stored.get(one.part.key)
        place: Mapping[str, Json] = {"path": artifact.path} if artifact is not None else {}
        if not one.part.inline and (url := one.part.media.url or one.part.media.file_id):
            place = {"url": url[:500]}
        entries.append({"d": one.part.key, **place, **_described(one.part), "why": one.why})
    return {"media": entries, "reader": scope.file_reader or scope.log_reader or ""}


def show(message: BaseMessage, data: Mapping[str, Json]) -> BaseMessage:
    """The message with each moved medium replaced, in place, by a text block that says where it is."""
    entries = cast("Sequence[Mapping[str, Json]]", data["media"])
    known = {str(entry["d"]): entry for entry in entries}
    reader = str(data["reader"])
    return with_parts(
        message, {part.place: reference(known[part.key], reader) for part in parts_of(message) if part.key in known}
    )


def reference(entry: Mapping[str, Json], reader: str) -> str:
    """The text that stands for a medium."""
    names = ("path", "url", "mime", "bytes", "why")
    fields = {name: str(entry[name]) for name in names if name in entry}
    if "path" not in entry:
        return mark("media", **fields)
    return mark("media", **fields, read=reader)


def _described(part: Part) -> Mapping[str, Json]:
    return {"mime": part.media.mime or part.media.kind, "bytes": part.media.size}
