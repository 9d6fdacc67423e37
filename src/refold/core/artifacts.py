"""Names of artifacts: where content that leaves the window is stored.

Every path is derived from content, so that storing the same thing twice names the same file, and two different things
never share one. Path components made from ids that somebody else chose go through `refold.core.paths.safe_name`.
"""

from dataclasses import dataclass

from refold.core.canonical import digest
from refold.core.media_damage import payload_of
from refold.core.media_spellings import Media
from refold.core.paths import safe_name

_SHORT = 12

_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/bmp": "bmp",
    "image/svg+xml": "svg",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/ogg": "ogg",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "application/pdf": "pdf",
    "application/json": "json",
    "text/plain": "txt",
    "text/csv": "csv",
    "text/markdown": "md",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """Content that is to be stored before anything in the window may point at it."""

    path: str
    data: bytes

    @property
    def digest(self) -> str:
        return digest(self.data)


def text_artifact(path: str, text: str) -> Artifact:
    """A text as an artifact. Half characters, which JSON can bring in, are kept."""
    return Artifact(path=path, data=text.encode("utf-8", "surrogatepass"))


def result_path(thread: str, call_id: str, text: str) -> str:
    """Where a large tool result is stored."""
    return f"/results/{safe_name(thread)}/{safe_name(call_id)}-{digest(text)[:_SHORT]}"


def input_path(thread: str, message_key: str, text: str) -> str:
    """Where an over-long human message is stored."""
    return f"/inputs/{safe_name(thread)}/{safe_name(message_key)}-{digest(text)[:_SHORT]}.md"


def media_path(data: bytes, mime: str | None) -> str:
    """Where inline media is stored: once per content."""
    return f"/media/{digest(data)}.{_EXTENSIONS.get((mime or '').lower(), 'bin')}"


def media_artifact(media: Media) -> Artifact | None:
    """The artifact of an inline medium; None for a reference, and for a payload that is no base64: it cannot be stored
    as what it claims to be."""
    data = payload_of(media) if media.data else None
    return None if data is None else Artifact(path=media_path(data, media.mime), data=data)


def payload_artifact(media: Media) -> Artifact | None:
    """The artifact of a medium that may be damaged: its bytes, or its payload as the text that it is; None for a
    reference and for nothing."""
    if not media.data:
        return None
    raw = media.data.encode("utf-8", "surrogatepass")
    return media_artifact(media) or Artifact(path=media_path(raw, "text/plain"), data=raw)


def history_path(thread: str, sequence: int, span_digest: str) -> str:
    """Where the messages that a summary covers are stored, one file per fold."""
    return f"/history/{safe_name(thread)}/{sequence:04d}-{span_digest[:_SHORT]}.md"


def summary_path(key: str) -> str:
    """Where a summary is stored under the key of the span that it covers."""
    return f"/summaries/{key}.json"
