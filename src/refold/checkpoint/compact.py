"""Compaction: messages that were stored one by one are packed, 64 to a frame, which compresses about a third better.

A pack is made outside any transaction and put in place in a short one, where every blob in it must still be as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from refold.checkpoint.blobs import pack_pack
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Select, SelectEach, SelectIn, Transaction, Vacuum, as_bytes
from refold.checkpoint.seal import CODEC_MASK, PACKED
from refold.core.program import Program

PACK: Final = 64  # blobs: frames of 64 come within 10 % of one frame for all
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
        args: Args = {"after": after, "count": PACK}
        rows = yield from Transaction(program=partial(_bodies_gen, args), write=False)
        if len(rows) < _LEAST:
            break
        after = rows[-1][0]
        plains = {blob: ctx.sealer.open(codec, as_bytes(data)) for blob, codec, _, data in rows}
        sealed = ctx.sealer.seal(pack_pack(plains), strong=True)
        codecs = {blob: codec for blob, codec, _, _ in rows}
        if (yield from Transaction(program=partial(_place_gen, codecs, sealed), write=True)):
            blobs, packs = blobs + len(rows), packs + 1
    yield from Vacuum()
    return Compacted(blobs=blobs, packs=packs)


def _bodies_gen(args: Args) -> Program[Sequence[tuple[int, int, int | None, bytes]]]:
    rows = yield from Select(statement="blob_scan_bodies", args=args)
    return cast("Sequence[tuple[int, int, int | None, bytes]]", rows)


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
