"""Media cost tokens by pixels, pages and seconds, never by base64 (fault 89)."""

import base64
import struct
import zlib
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.family import Family
from refold.core.media import (
    MOST_PAGES,
    audio_seconds,
    encoded_bytes,
    image_size,
    media_tokens,
    pdf_pages,
    video_seconds,
)
from refold.core.media_spellings import Media
from refold.core.spellings import MediaKind

FAMILIES: tuple[Family, ...] = get_args(Family)
KINDS: tuple[MediaKind, ...] = get_args(MediaKind)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def png(width: int, height: int, padding: int = 0) -> str:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return b64(b"\x89PNG\r\n\x1a\n" + chunk + bytes(padding))


def jpeg(width: int, height: int, before: int = 0) -> str:
    exif = b"\xff\xe1" + struct.pack(">H", before + 2) + bytes(before) if before else b""
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b64(b"\xff\xd8" + exif + b"\xff\xdb\x00\x04\x00\x00" + frame)


def webp(kind: bytes, body: bytes) -> str:
    return b64(b"RIFF\x00\x00\x00\x00WEBP" + kind + b"\x00\x00\x00\x00" + body)


IMAGES = {
    "PNG": png(640, 480),
    "JPEG": jpeg(640, 480),
    "JPEG after 40 kB of EXIF": jpeg(640, 480, before=40_000),
    "GIF": b64(b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(10)),
    "BMP": b64(b"BM" + bytes(16) + struct.pack("<ii", 640, -480) + bytes(8)),
    "WebP extended": webp(b"VP8X", bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little") + bytes(8)),
    "WebP lossless": webp(b"VP8L", b"\x2f" + (639 | 479 << 14).to_bytes(4, "little") + bytes(8)),
    "WebP lossy": webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 640, 480) + bytes(8)),
}


def image(data: str, mime: str = "image/png") -> Media:
    return Media(kind="image", mime=mime, data=data)


class TestHeadersAreRead:
    @pytest.mark.parametrize("data", IMAGES.values(), ids=IMAGES.keys())
    def test_dimensions(self, data: str) -> None:
        """Width and height come from the header of every common format."""
        assert image_size(data) == (640, 480)

    def test_url_safe_and_wrapped_base64(self) -> None:
        """The url-safe alphabet and line breaks are read like plain base64."""
        data = IMAGES["WebP lossless"]
        wrapped = "\n".join(data[i : i + 20] for i in range(0, len(data), 20))
        assert image_size(wrapped.replace("+", "-").replace("/", "_")) == (640, 480)

    @pytest.mark.parametrize(
        "data", ["", "AAAA", "not base64 at all!", "图片", png(0, 10), b64(b"\xff\xd8\xff"), b64(b"RIFF")]
    )
    def test_no_image(self, data: str) -> None:
        """What is no image, or claims no size, has none."""
        assert image_size(data) is None

    @pytest.mark.parametrize("version", [0, 1])
    def test_mp4(self, version: int) -> None:
        """The length of a film comes from its movie header, also at the end of the file."""
        times = struct.pack(">QQIQ", 0, 0, 600, 54_000) if version else struct.pack(">IIII", 0, 0, 600, 54_000)
        header = b"mvhd" + bytes([version, 0, 0, 0]) + times + bytes(80)
        film = Media(kind="video", mime="video/mp4", data=b64(b"....ftypisom" + bytes(1_000_000) + header))
        assert video_seconds(film) == 90.0

    def test_wav(self) -> None:
        """Seconds of a WAV are its size over the byte rate in its header."""
        head = b"RIFF\x00\x00\x00\x00WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
        sound = Media(kind="audio", mime="audio/wav", data=b64(head + bytes(320_000)))
        assert audio_seconds(sound) == pytest.approx(10, rel=0.01)

    @pytest.mark.parametrize("tag", [b"", b"ID3\x04\x00\x00\x00\x00\x07\x76" + bytes(1_014)])
    def test_mp3(self, tag: bytes) -> None:
        """Seconds of an MP3 follow from the bit rate of its first frame, behind an ID3 tag too."""
        sound = Media(kind="audio", mime="audio/mpeg", data=b64(tag + b"\xff\xfb\x90\x00" + bytes(160_000)))
        assert audio_seconds(sound) == pytest.approx(10, rel=0.02)

    def test_pdf(self) -> None:
        """Pages are counted where the page tree can be read, and never taken for the page tree itself."""
        pages = b"".join(b"%d 0 obj <</Type /Page /Parent 1 0 R>> endobj " % n for n in range(7))
        tree = b"%PDF-1.4 1 0 obj <</Type /Pages /Kids [] >> endobj " + pages
        assert pdf_pages(Media(kind="file", mime="application/pdf", data=b64(tree))) == 7
        counted = b"%PDF-1.4 1 0 obj <</Type/Pages/Count 12>> endobj " + bytes(3_000)
        assert pdf_pages(Media(kind="file", mime="application/pdf", data=b64(counted))) == 12

    def test_pdf_that_lies(self) -> None:
        """A page count is bounded by what the file can hold."""
        small = Media(kind="file", mime="application/pdf", data=b64(b"%PDF-1.4 /Count 999999 " + bytes(1_000)))
        assert pdf_pages(small) == 10
        large = Media(kind="file", mime="application/pdf", data=b64(b"%PDF-1.4 /Count 999999 " + bytes(2_000_000)))
        assert pdf_pages(large) == MOST_PAGES

    def test_pdf_with_compressed_tree(self) -> None:
        """Where the page tree is compressed, pages are judged by size."""
        opaque = Media(kind="file", mime="application/pdf", data=b64(b"%PDF-1.7 " + bytes(500_000)))
        assert pdf_pages(opaque) == 11


class TestProviderRules:
    @pytest.mark.parametrize(
        ("family", "size", "tokens"),
        [
            # OpenAI's own examples: 1024 x 1024 is 765 tokens, 2048 x 4096 is 1105.
            ("o200k", (1_024, 1_024), 765),
            ("o200k", (2_048, 4_096), 1_105),
            ("o200k", (64, 64), 255),
            # Anthropic's own examples: 200 x 200 is about 54 tokens, 1000 x 1000 about 1334, 1092 x 1092 about 1590.
            ("claude3", (200, 200), 54),
            ("claude3", (1_000, 1_000), 1_334),
            ("claude3", (1_092, 1_092), 1_590),
            ("claude3", (8_000, 8_000), 1_600),
            # Gemini: 258 up to 384 pixels, else 258 per tile of 768.
            ("gemma", (384, 384), 258),
            ("gemma", (960, 540), 516),
            ("gemma", (1_536, 1_536), 1_032),
        ],
    )
    def test_images(self, family: Family, size: tuple[int, int], tokens: int) -> None:
        """The documented example of a provider costs what the provider says, within 2 %."""
        assert media_tokens(image(png(*size)), family=family) == pytest.approx(tokens, rel=0.02, abs=5)

    def test_low_detail(self) -> None:
        """OpenAI's low detail is 85 tokens whatever the size; other providers have no such thing."""
        large = image(png(2_000, 2_000))
        assert media_tokens(large, family="o200k", low_detail=True) == 85
        assert media_tokens(large, family="claude3", low_detail=True) > 85

    @pytest.mark.parametrize("family", FAMILIES)
    def test_more_pixels_cost_no_less(self, family: Family) -> None:
        """The cost grows with the picture, up to a ceiling of a few thousand tokens."""
        costs = [media_tokens(image(png(side, side)), family=family) for side in (50, 300, 700, 1_400, 3_000, 20_000)]
        assert costs == sorted(costs)
        assert costs[-1] <= 6_700

    def test_audio_and_video_by_seconds(self) -> None:
        """Gemini: 32 tokens per second of sound; a film costs more than its sound."""
        minute = b64(b"\xff\xfb\x90\x00" + bytes(960_000))
        assert media_tokens(Media(kind="audio", mime="audio/mpeg", data=minute), family="gemma") == pytest.approx(
            1_920, rel=0.01
        )
        film = Media(kind="video", mime="video/mp4", data=minute)
        assert media_tokens(film, family="gemma") > 1_920

    def test_text_files_cost_their_text(self) -> None:
        """A text file in base64, or as Anthropic's plain text source, costs what its text costs."""
        text = "The report says that most of the work was finished before the end of the year. " * 235
        encoded = Media(kind="file", mime="text/plain", data=b64(text.encode()))
        plain = Media(kind="file", mime="text/plain", data=text)
        assert media_tokens(encoded, family="o200k") == pytest.approx(4_000, rel=0.15)
        assert media_tokens(plain, family="o200k") == pytest.approx(4_000, rel=0.15)


class TestNeverByBase64:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("kind", KINDS)
    def test_ten_thousand_characters(self, kind: MediaKind, family: Family) -> None:
        """10,000 characters of base64 as an image, sound, film or file cost far less than as text (fault 89)."""
        data = b64(bytes(range(256)) * 30)[:10_000]
        assert 1 <= media_tokens(Media(kind=kind, data=data), family=family) <= 1_700

    def test_image_cost_does_not_grow_with_bytes(self) -> None:
        """The same picture in 4 MB costs the same tokens, and the bytes are reported apart (fault 96)."""
        small, large = image(png(800, 600)), image(png(800, 600, padding=3_000_000))
        assert media_tokens(small, family="claude3") == media_tokens(large, family="claude3")
        assert encoded_bytes(large) > 4_000_000


class TestNothingRaises:
    @given(
        st.sampled_from(KINDS),
        st.none()
        | st.sampled_from(["image/png", "application/pdf", "text/plain", "audio/wav", "video/mp4", "x/y", ""]),
        st.none() | st.text(max_size=200) | st.binary(max_size=300).map(b64),
        st.sampled_from(FAMILIES),
    )
    def test_garbage(self, kind: MediaKind, mime: str | None, data: str | None, family: Family) -> None:
        """Any payload under any label costs something sane."""
        media = Media(kind=kind, mime=mime, data=data, url=None if data else "https://example.org/x")
        assert 1 <= media_tokens(media, family=family) <= 60_000
        assert encoded_bytes(media) > 0

    @given(
        st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"GIF89a", b"RIFF0000WEBPVP8 ", b"BM", b"%PDF-1.7"]),
        st.binary(max_size=200),
    )
    def test_damaged_files(self, magic: bytes, rest: bytes) -> None:
        """A file that starts like a format and goes on as anything costs something sane."""
        for kind in KINDS:
            assert 1 <= media_tokens(Media(kind=kind, data=b64(magic + rest))) <= 60_000

    @pytest.mark.parametrize("kind", KINDS)
    def test_references(self, kind: MediaKind) -> None:
        """A reference costs what a typical item of its kind costs."""
        assert 500 <= media_tokens(Media(kind=kind, file_id="file-1")) <= 20_000
