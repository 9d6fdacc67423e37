"""Compaction: messages that were stored one by one are packed, 64 to a frame, which compresses about a third better.

A pack is made outside any transaction and put in place in a short one, where every blob in it must still be as it was.
To read one value its whole pack is decompressed, so packs are small, and large values, which gain nothing, stay alone
(but for those from before the database was encrypted).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast

from refold.checkpoint.blobs import get_blobs, pack_pack
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Row, Select, SelectEach, SelectIn, Transaction, Vacuum, as_bytes
from refold.checkpoint.seal import CODEC_MASK, ENCRYPTED, PACKED
from refold.core.program import Program

PACK: Final = 64  # blobs: frames of 64 come within 10 % of one frame for all
LARGE: Final = 64 * 1024
"""Bytes: a value that takes more, as stored or as it is, stays alone."""
PACK_BYTES: Final = 512 * 1024
_LEAST: Final = 8


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """How many blobs went into how many packs."""

    blobs: int
    packs: int


def compact_gen(ctx: Context) -> Program[Compacted]:
    """Pack all values that are not packed yet, then give free space back to the file system."""
    blobs = packs = after = 0
    while True:
        args: Args = {"after": after, "count": PACK, "largest": LARGE}
        rows = yield from Transaction(program=partial(_bodies_gen, args), write=False)
        if not rows:
            break
        after = rows[-1].blob
        if len(rows) < _LEAST:
            rows = [body for body in rows if _must_be_sealed(ctx, body)]
        for group in _groups(ctx, rows):
            plains: dict[int, bytes] = {}
            for body, plain in group:
                plains[body.blob] = (yield from _plain_gen(ctx, body.blob)) if plain is None else plain
            sealed = ctx.sealer.seal(pack_pack(plains), strong=True)
            codecs = {body.blob: body.codec for body, _ in group}
            if (yield from Transaction(program=partial(_place_gen, codecs, sealed), write=True)):
                blobs, packs = blobs + len(group), packs + 1
    yield from Vacuum()
    return Compacted(blobs=blobs, packs=packs)


class _Body(NamedTuple):
    """A blob that may be packed; without data where it is large."""

    blob: int
    codec: int
    base: int | None
    data: bytes | None


def _bodies_gen(args: Args) -> Program[Sequence[_Body]]:
    rows = yield from Select(statement="blob_scan_bodies", args=args)
    return [_Body(*cast("tuple[int, int, int | None, bytes | None]", row)) for row in rows]


def _groups(ctx: Context, bodies: Sequence[_Body]) -> Iterator[Sequence[tuple[_Body, bytes | None]]]:
    """What goes into one pack each, opened; what is not opened is large."""
    group: list[tuple[_Body, bytes | None]] = []
    size = 0
    for body in bodies:
        plain = None if body.data is None else ctx.sealer.open(body.codec, as_bytes(body.data))
        if plain is None or len(plain) > LARGE:
            if _must_be_sealed(ctx, body):
                yield [(body, plain)]
            continue
        if group and size + len(plain) > PACK_BYTES:
            yield group
            group, size = [], 0
        group.append((body, plain))
        size += len(plain)
    if len(group) > 1 or (group and _must_be_sealed(ctx, group[0][0])):
        yield group


def _must_be_sealed(ctx: Context, body: _Body) -> bool:
    """Whether a value is from before the database was encrypted."""
    return ctx.sealer.encrypts and not body.codec & ENCRYPTED


def _plain_gen(ctx: Context, blob: int) -> Program[bytes]:
    [row] = yield from Transaction(program=partial(_blob_gen, blob), write=False)
    return ctx.sealer.open(cast("int", row[1]), as_bytes(row[3]))


def _blob_gen(blob: int) -> Program[Sequence[Row]]:
    return (yield from get_blobs([blob]))


def _place_gen(codecs: Mapping[int, int], sealed: tuple[int, bytes]) -> Program[bool]:
    rows = yield from SelectIn(statement="blob_hold", keys=list(codecs))
    if {cast("int", blob): cast("int", codec) for blob, _, codec, _ in rows} != codecs:
        return False  # some were removed or packed by another meanwhile: the next compaction sees what is left
    codec, data = sealed
    added = yield from Select(statement="pack_add", args={"codec": codec, "data": data})
    moves: list[Args] = [
        {"id": blob, "codec": (old & ~CODEC_MASK) | PACKED, "base": added[0][0]} for blob, old in codecs.items()
    ]
    yield from SelectEach(statement="blob_repack", rows=moves)
    return True
