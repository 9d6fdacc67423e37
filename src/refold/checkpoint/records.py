"""The plain bytes of blobs: a type tag, then the value's own bytes, whole or as pieces and references.

A value's bytes are exactly what LangGraph's serializer makes of it. Where a message or another large part stands inside
them, it stands there as an unbroken run of bytes; a *composite* blob leaves such runs out and refers to the blob that
holds them. Putting the runs back gives the original bytes, whatever the nesting, and no knowledge of their format is
needed for it.

    leaf       tag, bytes
    composite  tag, uint count, count + 1 uint piece lengths, count ids (differences), pieces
    tag        one byte for a common one, or 0, uint length, UTF-8
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from refold.checkpoint.varint import get_uint, pack_ids, put_uint, unpack_ids
from refold.errors import CorruptionError

TEMPLATE_TAG: Final = "refold/template"

_TAGS = ("", "msgpack", "null", "bytes", "bytearray", "json", "pickle", TEMPLATE_TAG)
_TAG_BYTES: Mapping[str, int] = {tag: number for number, tag in enumerate(_TAGS) if tag}


MSGPACK_LEAF: Final = _TAG_BYTES["msgpack"]
"""The first of the plain bytes of a leaf when LangGraph's serializer made msgpack of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A blob as stored: `refs` stand between `pieces` (one more than refs). A leaf has one piece and no refs."""

    tag: str
    pieces: Sequence[bytes]
    refs: Sequence[int] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def pack_tag(out: bytearray, tag: str) -> None:
    number = _TAG_BYTES.get(tag)
    if number is not None:
        out.append(number)
        return
    label = tag.encode()
    out.append(0)
    put_uint(out, len(label))
    out += label


def unpack_tag(data: bytes, at: int) -> tuple[str, int]:
    if at >= len(data) or data[at] >= len(_TAGS):
        raise CorruptionError("a stored value has an unknown type tag; restore it from a backup")
    if data[at]:
        return _TAGS[data[at]], at + 1
    size, at = get_uint(data, at + 1)
    return data[at : at + size].decode("utf-8", "replace"), at + size


def pack_record(record: Record) -> bytes:
    out = bytearray()
    pack_tag(out, record.tag)
    if record.refs:
        put_uint(out, len(record.refs))
        for piece in record.pieces:
            put_uint(out, len(piece))
        out += pack_ids(record.refs)
    for piece in record.pieces:
        out += piece
    return bytes(out)


def unpack_record(data: bytes, *, composite: bool) -> Record:
    tag, at = unpack_tag(data, 0)
    if not composite:
        return Record(tag=tag, pieces=(data[at:],))
    count, at = get_uint(data, at)
    sizes: list[int] = []
    for _ in range(count + 1):
        size, at = get_uint(data, at)
        sizes.append(size)
    refs, at = unpack_ids(data, at, count)
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    if at != len(data):
        raise CorruptionError("a stored composite value has the wrong length; restore it from a backup")
    return Record(tag=tag, pieces=pieces, refs=refs)
