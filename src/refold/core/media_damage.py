"""What is wrong with a medium's payload, whatever the provider: empty, no base64, cut off, not what it says it is.

A provider refuses each of these with an error, at every turn for as long as the medium is in the window (fault 116).
Only what is sure is called damage: a format whose first bytes are not known here is left to the provider.
"""

import binascii
import re
from typing import Final

from refold.core.media_spellings import Media

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_WEB_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
)
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "application/x-pdf": "application/pdf",
}
_CERTAIN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
"""Types whose every file begins with bytes that are known here."""
_TAIL: Final = 1 << 16
_PDF_HEAD: Final = 1_024
"""Readers of PDF look for the header in the first 1,024 bytes (ISO 32000-1, Annex H)."""


def damage_of(media: Media) -> str | None:
    """Why no provider can read an inline payload; None where nothing is wrong, or only a reference is there."""
    if media.data is None:
        return "its data URL is not base64" if (media.url or "").startswith("data:") else None
    if not media.data.strip():
        return "it is empty"
    raw = payload_of(media)
    if raw is None:
        return "its payload is not base64"
    declared, found = declared_type(media), sniffed(raw)
    if declared in _CERTAIN and found != declared:
        return f"its bytes are {found or 'no such picture or document'}, not {declared}"
    if found is not None and declared.startswith("image/") and not found.startswith("image/"):
        return f"its bytes are {found}, not {declared}"
    return "it is cut off" if found is not None and not _is_whole(raw, found) else None


def payload_of(media: Media) -> bytes | None:
    """The decoded payload of an inline medium; None where it is no base64, in either alphabet.

    Whitespace and missing padding are what line wrapping and careless encoders leave: they are read.
    """
    text = "".join((media.data or "").split())
    if _BASE64.fullmatch(text) is None and _WEB_BASE64.fullmatch(text) is None:
        return None
    bare = text.rstrip("=")
    if len(bare) % 4 == 1 or not bare:
        return None
    try:
        return binascii.a2b_base64(bare.translate(_STANDARD) + "=" * (-len(bare) % 4))
    except binascii.Error:
        return None


_STANDARD: Final = str.maketrans("-_", "+/")


def declared_type(media: Media) -> str:
    """The declared media type, in its usual name and without parameters; empty where there is none."""
    mime = (media.mime or "").lower().partition(";")[0].strip()
    return _ALIASES.get(mime, mime)


def sniffed(raw: bytes) -> str | None:
    """The media type that the first bytes of a file say, None for one that is not known here."""
    if raw[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(raw[8:12])
    if raw[4:8] == b"ftyp":
        return "image/heic" if raw[8:12] in (b"heic", b"heix", b"mif1", b"avif") else "video/mp4"
    known = next((mime for magic, mime in _MAGIC if raw.startswith(magic)), None)
    return known or ("application/pdf" if b"%PDF-" in raw[:_PDF_HEAD] else None)


def _is_whole(raw: bytes, mime: str) -> bool:
    """Whether a file has the end that its format asks for; other bytes after it do no harm."""
    match mime:
        case "image/png":
            return b"IEND" in raw
        case "image/jpeg":
            return b"\xff\xd9" in raw[2:]
        case "image/gif":
            return b";" in raw[-_TAIL:]
        case "image/webp":
            return len(raw) >= 8 + int.from_bytes(raw[4:8], "little")
        case "application/pdf":
            return b"%%EOF" in raw[-_TAIL:] or b"startxref" in raw[-_TAIL:]
        case _:
            return True
