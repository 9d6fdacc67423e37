"""Removing blobs, and the packs that they were in.

A pack of which some blobs go is written again without them: deleted content does not stay behind. The smaller pack is
made before the transaction that puts it in place, in which it must still hold exactly what is left; otherwise, for
example because a writer wanted one of the blobs again, it is made anew there. Blobs leave packs but never join one, so
what was once seen in a pack is all that can be in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from refold.checkpoint.blobs import pack_pack, unpack_pack
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Row, Select, SelectEach, SelectIn, Transaction, as_bytes
from refold.checkpoint.seal import CODEC_MASK, PACKED
from refold.core.program import Program
from refold.errors import CorruptionError

_BATCH: Final = 256  # blobs removed in one transaction: others wait for milliseconds only


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Blobs to be removed in one transaction. `shrinks`: the pack that some of them leave to others."""

    blobs: Sequence[int]
    shrinks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Smaller:
    """A pack without the blobs that go, sealed: what stays, and (codec, data)."""

    blobs: frozenset[int]
    sealed: tuple[int, bytes]


def batches(dead: Sequence[int], packs: Mapping[int, Sequence[int]]) -> Iterator[Batch]:
    """Dead blobs, each before those that it needs as in `dead`, given the blobs of each pack.

    Blobs of packs come last, since they need none. Packs that are not divided go together.
    """
    going = set(dead)
    leaving = {pack: [blob for blob in blobs if blob in going] for pack, blobs in packs.items()}
    packed = {blob for blobs in leaving.values() for blob in blobs}
    loose = [blob for blob in dead if blob not in packed]
    for at in range(0, len(loose), _BATCH):
        yield Batch(blobs=loose[at : at + _BATCH])
    together: list[int] = []
    for pack, blobs in leaving.items():
        if 0 < len(blobs) < len(packs[pack]):
            yield Batch(blobs=blobs, shrinks=pack)
            continue
        together += blobs
        if len(together) >= _BATCH:
            yield Batch(blobs=together)
            together = []
    if together:
        yield Batch(blobs=together)


def smaller_gen(ctx: Context, batch: Batch, members: Iterable[int]) -> Program[Smaller | None]:
    """The pack that a batch divides, without the batch's blobs. No transaction is open while it is made. None where
    there is no such pack any more."""
    if batch.shrinks is None:
        return None
    row = yield from Transaction(program=partial(_pack_gen, batch.shrinks), write=False)
    if row is None:
        return None
    blobs = frozenset(members) - frozenset(batch.blobs)
    return Smaller(blobs=blobs, sealed=_sealed(ctx, _open(ctx, row), blobs))


def remove_gen(
    ctx: Context, blobs: Sequence[int], packs: Mapping[int, Sequence[int]], smaller: Smaller | None
) -> Program[tuple[int, int]]:
    """Remove those of some blobs that are still on the list of a collection; how many blobs and packs went. `packs` are
    the known members of packs."""
    answers = yield from SelectEach(statement="blob_rescue", rows=[{"blob": blob} for blob in blobs])
    going = [blob for blob, found in zip(blobs, answers, strict=True) if found]
    if not going:
        return 0, 0
    rows = yield from SelectIn(statement="blob_hold", keys=going)  # a compaction may just have packed them
    touched = sorted({cast("int", base) for _, _, codec, base in rows if cast("int", codec) & CODEC_MASK == PACKED})
    yield from SelectEach(statement="blob_delete", rows=[{"blob": blob} for blob in going])
    removed = 0
    for pack in touched:
        removed += yield from _shrink_gen(ctx, pack, packs.get(pack), smaller)
    return len(going), removed


def _shrink_gen(ctx: Context, pack: int, members: Sequence[int] | None, smaller: Smaller | None) -> Program[int]:
    """Put a pack without the blobs that went in the place of one. 1 if nothing was left."""
    if members is None:
        members = [*(yield from _plains_gen(ctx, pack))]
    rows = yield from SelectIn(statement="blob_hold", keys=members)
    left = {
        cast("int", blob): cast("int", codec)
        for blob, _, codec, base in rows
        if cast("int", codec) & CODEC_MASK == PACKED and base == pack
    }
    if left:
        if smaller is not None and smaller.blobs == left.keys():
            codec, data = smaller.sealed
        else:
            codec, data = _sealed(ctx, (yield from _plains_gen(ctx, pack)), left)
        added = yield from Select(statement="pack_add", args={"codec": codec, "data": data})
        moves: list[Args] = [{"id": blob, "codec": flags, "base": added[0][0]} for blob, flags in left.items()]
        yield from SelectEach(statement="blob_repack", rows=moves)
    yield from Select(statement="pack_delete", args={"pack": pack})
    return 0 if left else 1


def _sealed(ctx: Context, plains: Mapping[int, bytes], blobs: Iterable[int]) -> tuple[int, bytes]:
    stays = sorted(blobs)
    for blob in stays:
        if blob not in plains:
            raise CorruptionError(f"blob {blob} is missing from its pack; restore the database from a backup")
    return ctx.sealer.seal(pack_pack({blob: plains[blob] for blob in stays}), strong=True)


def _pack_gen(pack: int) -> Program[Row | None]:
    rows = yield from SelectIn(statement="pack_get", keys=[pack])
    return rows[0] if rows else None


def _plains_gen(ctx: Context, pack: int) -> Program[Mapping[int, bytes]]:
    row = yield from _pack_gen(pack)
    return {} if row is None else _open(ctx, row)


def _open(ctx: Context, row: Row) -> Mapping[int, bytes]:
    _, codec, data = row
    return unpack_pack(ctx.sealer.open(cast("int", codec), as_bytes(data)))
