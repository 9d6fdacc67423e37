"""What media cost a model: images by their size in pixels, PDF by pages, audio and video by seconds.

Never by the length of base64: a photo of 4 MB costs about a thousand tokens, its base64 as text would cost two million
(fault 89). Only the first and last bytes of a payload are decoded. Whatever cannot be read (damaged, an unknown format,
a reference) costs what a typical item of its kind costs; nothing here raises.
"""

import binascii
import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Final, Literal, TypeAlias

from refold.core.estimate import estimate_text
from refold.core.family import Family
from refold.core.media_spellings import Media

Provider: TypeAlias = Literal["openai", "anthropic", "anthropic_hd", "gemini", "qwen", "mistral", "other"]
Size: TypeAlias = tuple[int, int]
MediaClass: TypeAlias = Literal["image", "pdf", "text", "audio", "video", "other"]

TYPICAL_IMAGE: Final[Size] = (1_024, 1_024)
TYPICAL_SECONDS: Final = 60.0
TYPICAL_PAGES: Final = 10
MOST_PAGES: Final = 2_000
MOST_SECONDS: Final = 6 * 3_600.0
_HEAD: Final = 1 << 18
"""Base64 characters decoded from either end of a payload."""

_PROVIDERS: Final[Mapping[Family, Provider]] = {
    "o200k": "openai",
    "cl100k": "openai",
    "claude3": "anthropic",
    "claude48": "anthropic_hd",
    "gemma": "gemini",
    "qwen3": "qwen",
    "qwen35": "qwen",
    "mistral": "mistral",
    "llama3": "other",
    "deepseek": "other",
    "generic": "other",
}


def media_tokens(media: Media, *, family: Family = "generic", low_detail: bool = False) -> int:
    """The tokens of one image, sound, film or file for a provider of the family.

    `low_detail` is OpenAI's `detail: "low"`.
    """
    provider = _PROVIDERS[family]
    match media_class(media):
        case "image":
            size = (image_size(media.data) if media.data is not None else None) or TYPICAL_IMAGE
            return 85 if low_detail and provider == "openai" else _IMAGE[provider](size)
        case "pdf":
            return pdf_pages(media) * _PAGE[provider]
        case "text":
            return _text_tokens(media, family)
        case "audio":
            return ceil(audio_seconds(media) * _SOUND[provider])
        case "video":
            return ceil(video_seconds(media) * _FILM)
        case "other":
            return _unknown_tokens(media)


def media_class(media: Media) -> MediaClass:
    """What a medium is, by its declared type and, where that says nothing, by its first bytes."""
    mime = (media.mime or "").lower()
    for kind in ("image", "audio", "video"):
        if media.kind == kind or mime.startswith(f"{kind}/"):
            return kind
    if mime.startswith("text/") or mime in ("application/json", "application/xml", "application/x-ndjson"):
        return "text"
    head = decoded(media.data[:64]) if media.data is not None else b""
    if "pdf" in mime or head.startswith(b"%PDF") or (media.data is None and not mime):
        return "pdf"
    if media.data is not None and image_size(media.data) is not None:
        return "image"
    return "other"


# -- rules per provider -----------------------------------------------------------------------------------------------


def _openai_image(size: Size) -> int:
    """OpenAI's guide on vision, GPT-4o: fit in 2,048 x 2,048, shrink the short side to 768, 85 + 170 per 512 x 512."""
    width, height = _fit(size, longest=2_048)
    width, height = _fit((width, height), shortest=768)
    return 85 + 170 * ceil(width / 512) * ceil(height / 512)


def _anthropic_image(size: Size, *, longest: int, most: int) -> int:
    """Anthropic's guide on vision: width x height / 750, after shrinking to the longest side, at most 1,600 tokens.

    From Opus 4.7 on images of up to 2,576 pixels (3.75 megapixels) are read whole, about 5,000 tokens.
    """
    width, height = _fit(size, longest=longest)
    return min(most, ceil(width * height / 750) + 4)


def _gemini_image(size: Size) -> int:
    """Gemini API, "Understand and count tokens": 258 up to 384 x 384, else 258 per 768-pixel tile."""
    width, height = _fit(size, longest=3_072)
    return 258 if max(size) <= 384 else 258 * ceil(width / 768) * ceil(height / 768)


def _patches(size: Size, *, side: int, longest: int, most: int) -> int:
    """Qwen2-VL's and Mistral Small's model cards: one token per merged patch of 28 pixels, with a ceiling."""
    width, height = _fit(size, longest=longest)
    return max(4, min(most, ceil(width / side) * ceil(height / side)))


def _other_image(size: Size) -> int:
    """No rule known: the dearer of OpenAI's and Anthropic's."""
    return max(_openai_image(size), _anthropic_image(size, longest=1_568, most=1_600))


_IMAGE: Final[Mapping[Provider, Callable[[Size], int]]] = {
    "openai": _openai_image,
    "anthropic": lambda size: _anthropic_image(size, longest=1_568, most=1_600),
    "anthropic_hd": lambda size: _anthropic_image(size, longest=2_576, most=5_000),
    "gemini": _gemini_image,
    "qwen": lambda size: _patches(size, side=28, longest=4_096, most=2_560),
    "mistral": lambda size: _patches(size, side=28, longest=1_540, most=3_080),
    "other": _other_image,
}
_PAGE: Final[Mapping[Provider, int]] = {
    # Gemini: 258 per page. Anthropic's guide on PDF: 1,500 to 3,000 tokens of text per page, and its image (up to
    # 1,600). OpenAI: the text and an image of 765 tokens. Others extract the text only.
    "gemini": 258,
    "anthropic": 3_400,
    "anthropic_hd": 5_000,
    "openai": 1_500,
    "qwen": 1_500,
    "mistral": 1_500,
    "other": 1_500,
}
_SOUND: Final[Mapping[Provider, float]] = {
    # Tokens per second. OpenAI: one per 100 ms. Gemini: 32. Qwen-Omni: 25. Voxtral: 12.5.
    "openai": 10.0,
    "gemini": 32.0,
    "qwen": 25.0,
    "mistral": 12.5,
    "anthropic": 32.0,
    "anthropic_hd": 32.0,
    "other": 32.0,
}
_FILM: Final = 300.0
"""Tokens per second. Gemini API: about 300 with sound at the default resolution (258 per frame, one frame a second)."""


def _fit(size: Size, *, longest: int | None = None, shortest: int | None = None) -> Size:
    """Shrink, never grow, with the proportions kept."""
    width, height = size
    scale = 1.0
    if longest is not None:
        scale = min(1.0, longest / max(width, height))
    if shortest is not None:
        scale = min(1.0, shortest / min(width, height))
    return max(1, int(width * scale)), max(1, int(height * scale))


# -- reading headers --------------------------------------------------------------------------------------------------

_SOF: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_LARGEST_SIDE: Final = 1 << 20


def decoded(data: str) -> bytes:
    """The bytes of a piece of base64, in either alphabet; empty when it is none."""
    if not data.isascii():
        return b""
    text = data.translate(_ALPHABET)
    try:
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    except binascii.Error:
        return b""


_ALPHABET: Final = str.maketrans({"-": "+", "_": "/", "\n": None, "\r": None, " ": None, "=": None})


def image_size(data: str) -> Size | None:
    """Width and height from the header of a base64 PNG, JPEG, GIF, WebP or BMP; None when there is none to read."""
    head = decoded(data[:64])
    for magic, read in _HEADERS:
        if head.startswith(magic):
            raw = decoded(data[:_HEAD]) if read is _jpeg else head
            size = read(raw)
            valid = size is not None and all(0 < side <= _LARGEST_SIDE for side in size)
            return size if valid else None
    return None


def _png(raw: bytes) -> Size | None:
    return (_big(raw[16:20]), _big(raw[20:24])) if len(raw) >= 24 else None


def _gif(raw: bytes) -> Size | None:
    return (_little(raw[6:8]), _little(raw[8:10])) if len(raw) >= 10 else None


def _bmp(raw: bytes) -> Size | None:
    if len(raw) < 26:
        return None
    height = int.from_bytes(raw[22:26], "little", signed=True)  # negative: rows from the top
    return _little(raw[18:22]), abs(height)


def _webp(raw: bytes) -> Size | None:
    if len(raw) < 30 or raw[8:12] != b"WEBP":
        return None
    match raw[12:16]:
        case b"VP8X":
            return _little(raw[24:27]) + 1, _little(raw[27:30]) + 1
        case b"VP8L":
            bits = _little(raw[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(raw[26:28]) & 0x3FFF, _little(raw[28:30]) & 0x3FFF
        case _:
            return None


def _jpeg(raw: bytes) -> Size | None:
    at = 2
    while at + 9 <= len(raw):
        if raw[at] != 0xFF:
            return None
        marker = raw[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _SOF:
            return _big(raw[at + 7 : at + 9]), _big(raw[at + 5 : at + 7])
        else:
            at += 2 + max(2, _big(raw[at + 2 : at + 4]))
    return None


_HEADERS: Final[tuple[tuple[bytes, Callable[[bytes], Size | None]], ...]] = (
    (b"\x89PNG", _png),
    (b"\xff\xd8", _jpeg),
    (b"GIF8", _gif),
    (b"RIFF", _webp),
    (b"BM", _bmp),
)


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


# -- pages and seconds ------------------------------------------------------------------------------------------------

_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_PDF_COUNT = re.compile(rb"/Count\s+(\d{1,6})")
_PDF_LINEAR = re.compile(rb"/Linearized\b[^>]{0,200}?/N\s+(\d{1,6})")


def pdf_pages(media: Media) -> int:
    """The pages of a PDF, from its page tree where that is not compressed, else by size (one page per 50 kB).

    Between 1 and `MOST_PAGES`; of what a file claims, never more than one page per 100 bytes is believed.
    """
    if media.data is None:
        return TYPICAL_PAGES
    ends = _ends(media.data)
    claims = [int(match[1]) for match in (*_PDF_LINEAR.finditer(ends), *_PDF_COUNT.finditer(ends))]
    claimed = min(max(claims, default=0), media.size // 100)
    seen = len(_PDF_PAGE.findall(ends))
    return max(1, min(MOST_PAGES, max(seen, claimed) or ceil(media.size / 50_000)))


def audio_seconds(media: Media) -> float:
    """The length of a sound, from its WAV or MP3 header, else from its size at the usual bit rate of its format."""
    if media.data is None:
        return TYPICAL_SECONDS
    head = decoded(media.data[:_HEAD])
    rate = _wav_rate(head) or _mp3_rate(head) or _usual_rate(media.mime or "")
    return min(MOST_SECONDS, max(0.1, media.size / rate))


def video_seconds(media: Media) -> float:
    """The length of a film, from an MP4's or MOV's header, else from its size at 1 Mbit/s."""
    if media.data is None:
        return TYPICAL_SECONDS
    ends = _ends(media.data)
    at = ends.find(b"mvhd")
    if at >= 0 and len(ends) >= at + 36:
        wide = ends[at + 4] == 1
        scale, length = (
            (ends[at + 24 : at + 28], ends[at + 28 : at + 36])
            if wide
            else (ends[at + 16 : at + 20], ends[at + 20 : at + 24])
        )
        if 0 < (seconds := _big(length) / max(1, _big(scale))) <= MOST_SECONDS:
            return seconds
    return min(MOST_SECONDS, max(1.0, media.size / 125_000))


def _ends(data: str) -> bytes:
    """The first and the last bytes of a payload."""
    if len(data) <= 2 * _HEAD:
        return decoded(data)
    start = (len(data) - _HEAD) // 4 * 4
    return decoded(data[:_HEAD]) + b"\n" + decoded(data[start:])


def _wav_rate(head: bytes) -> float | None:
    at = head.find(b"fmt ", 0, 256) if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else -1
    rate = _little(head[at + 16 : at + 20]) if at >= 0 else 0
    return float(rate) if 1_000 <= rate <= 10_000_000 else None


_MP3_KBIT: Final = {
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),  # MPEG 1, layer III
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),  # MPEG 2
    0: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),  # MPEG 2.5
}


def _mp3_rate(head: bytes) -> float | None:
    """Bytes per second by the first frame (ISO 11172-3); an ID3 tag before it is skipped."""
    at = 0
    if head[:3] == b"ID3" and len(head) >= 10:
        at = 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])
    if len(head) < at + 4 or head[at] != 0xFF or head[at + 1] & 0xE6 != 0xE2:
        return None
    kbit = _MP3_KBIT.get(head[at + 1] >> 3 & 3, (0,) * 16)[head[at + 2] >> 4]
    return kbit * 125.0 if kbit else None


def _usual_rate(mime: str) -> float:
    """Bytes per second: telephone-quality PCM, CD-quality FLAC, and 64 kbit/s for the compressed rest."""
    if "wav" in mime or "pcm" in mime or "l16" in mime:
        return 32_000.0
    return 90_000.0 if "flac" in mime else 8_000.0


# -- other files ------------------------------------------------------------------------------------------------------


_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]*={0,2}\s*")


def _text_tokens(media: Media, family: Family) -> int:
    """A text file costs what its text costs, a long one judged by its beginning. Anthropic sends it without base64."""
    if not media.data:
        return 1_000
    head = media.data[:_HEAD]
    encoded = _BASE64.fullmatch(head[:4_096]) is not None
    text = decoded(head).decode("utf-8", "replace") if encoded else head
    return max(1, ceil(estimate_text(text, family=family) * len(media.data) / len(head)))


def _unknown_tokens(media: Media) -> int:
    """An office document or archive: providers extract its text, about one token per 6 bytes of what is compressed."""
    return 1_000 if media.data is None else min(50_000, max(1, media.size // 6))


def encoded_bytes(media: Media) -> int:
    """What the media adds to a request body: its base64 or its reference, and the block around it."""
    return (
        96 + len(media.data or "") + len((media.url or "").encode("utf-8", "surrogatepass")) + len(media.file_id or "")
    )
