"""Bytes as JSON: content cut into pieces that every JSON store holds.

A piece is text where its bytes are UTF-8 and hold no NUL (Postgres refuses NUL in JSON), else base64. Pieces are small,
because stores have limits per item (DynamoDB 400 KB) and so that an append writes only the last one again.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from refold.errors import IntegrityError

PIECE_BYTES: Final = 128 * 1024
"""Content bytes per piece; base64 makes at most 175 KB of it."""


def cut(data: bytes) -> Iterator[bytes]:
    """The pieces of some content, cut between characters where it is UTF-8; none for empty content."""
    start = 0
    while start < len(data):
        end = min(start + PIECE_BYTES, len(data))
        back = 0
        while end < len(data) and back < 3 and data[end - back] & 0xC0 == 0x80:
            back += 1
        if end < len(data) and data[end - back] & 0xC0 == 0xC0:
            end -= back
        yield data[start:end]
        start = end


def pack(piece: bytes) -> dict[str, str]:
    """A piece as JSON."""
    if b"\0" not in piece:
        try:
            return {"encoding": "utf-8", "data": piece.decode()}
        except UnicodeDecodeError:
            pass
    return {"encoding": "base64", "data": base64.b64encode(piece).decode("ascii")}


def unpack(value: Mapping[str, object], *, path: str) -> bytes:
    """The piece again. Raises `IntegrityError` when the value is none that `pack` makes."""
    match value.get("encoding"), value.get("data"):
        case "utf-8", str(text):
            return text.encode()
        case "base64", str(text):
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise IntegrityError(f"{path}: a stored piece is no base64; restore it from a backup") from error
        case _:
            raise IntegrityError(f"{path}: a stored piece has another form than refold writes; was it written by hand?")
