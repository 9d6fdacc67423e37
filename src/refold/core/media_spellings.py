"""One medium, read from a content part in any spelling: what it is, and where its payload or its address stands.

What a medium costs is said by `refold.core.media`, where media stand in a message by `refold.core.media_parts`.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from refold.core.spellings import MEDIA, MediaKind, spelling_of, string_of

_DATA_URL: Final = re.compile(r"data:(?P<mime>[\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*?;base64,", re.IGNORECASE)
_PAYLOADS: Final = ("base64", "data", "file_data")
_CONVERSE_TEXT: Final = {"txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """Inline or referenced media. `data` is base64 text; exactly one of data, url, file_id is usually set."""

    kind: MediaKind
    mime: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the decoded payload; 0 for a reference."""
        return 0 if self.data is None else len(self.data) * 3 // 4 - self.data[-2:].count("=")


def medium_of(part: object) -> Media | None:
    """The medium that one part of a content is, in any spelling; None for anything else.

    Unlike `blocks_of` it also knows a medium whose payload is missing: its `data` is empty then.
    """
    if not isinstance(part, Mapping):
        return None
    raw = cast("Mapping[str, object]", part)
    spelling = spelling_of(raw)
    raw = _flat(spelling, raw)
    source = raw.get("source")
    fields = {**raw, **source} if isinstance(source, Mapping) else raw
    if spelling not in MEDIA or fields.get("type") in ("text", "content"):
        return None  # Anthropic's documents of plain text and of blocks
    if (media := read_medium(spelling, raw)) is not None:
        return media
    names = (*_PAYLOADS, "url", spelling)
    empty = any(name in fields and not fields[name] for name in names) or any(
        isinstance(inner := raw.get(name), Mapping) and any(key in inner and not inner[key] for key in names)
        for name in ("image_url", "input_audio", "file", "video_url", "inline_data", "inlineData")
    )
    mime = string_of(fields.get("mime_type") or fields.get("media_type")) or None
    return Media(kind=_media_kind(spelling, mime), mime=mime, data="") if empty else None


def read_medium(spelling: str, raw: Mapping[str, object]) -> Media | None:
    """The medium in a part with a spelling of `MEDIA`; None where it has neither payload nor address."""
    raw = _flat(spelling, raw)
    mime = string_of(raw.get("mime_type") or raw.get("media_type") or raw.get("mimeType")) or None
    nested = raw.get("image_url") or raw.get("source") or raw.get("input_audio") or raw.get("file")
    nested = nested or raw.get("video_url") or raw.get("inline_data") or raw.get("inlineData") or raw.get("file_data")
    fields: dict[str, object] = {**raw}
    if isinstance(nested, Mapping):
        fields = {**fields, **nested}
    elif isinstance(nested, str):
        fields["url"] = nested
    mime = mime or string_of(fields.get("mime_type") or fields.get("media_type") or fields.get("mimeType")) or None
    data = next((payload for k in _PAYLOADS if (payload := _payload(fields.get(k)))), None)
    url = next((v for k in ("url", "file_url", "file_uri") if isinstance(v := fields.get(k), str) and v), None)
    file_id = string_of(fields.get("file_id")) or None
    for value in (data, url):
        if value is not None and (match := _DATA_URL.match(value)) is not None:
            mime, data, url = match["mime"] or mime, value[match.end() :], None
            break
    if data is None and url is None and file_id is None:
        return None
    if mime is None and isinstance(audio := fields.get("format"), str):
        mime = f"audio/{audio}"
    return Media(kind=_media_kind(spelling, mime), mime=mime, data=data, url=url, file_id=file_id)


def _flat(spelling: str, raw: Mapping[str, object]) -> Mapping[str, object]:
    """A part of Bedrock's Converse as the others spell it; any other part as it is.

    `{"image": {"format": "png", "source": {"bytes": ...}}}`, where a source in S3 has a `uri` of its own.
    """
    inner = raw.get(spelling)
    source = inner.get("source") if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(source, Mapping):
        return raw
    form = string_of(inner.get("format"))
    family = "application" if spelling == "document" else spelling
    mime = _CONVERSE_TEXT.get(form) or (f"{family}/{form}" if form else None)
    flat: dict[str, object] = {"type": spelling, "mime_type": mime}
    if "bytes" in source:
        flat["data"] = source["bytes"]
    if isinstance(stored := source.get("s3Location"), Mapping):
        flat["url"] = stored.get("uri")
    return flat


def _payload(value: object) -> str:
    """A payload as base64 text; langchain-google-genai takes it as bytes too."""
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else string_of(value)


def _media_kind(spelling: str, mime: str | None) -> MediaKind:
    declared = MEDIA[spelling]
    if declared == "file" and mime is not None:
        families: tuple[MediaKind, ...] = ("image", "audio", "video")
        for family in families:
            if mime.startswith(f"{family}/"):
                return family
    return declared
