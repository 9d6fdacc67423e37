"""Programs that store and fetch blobs inside a transaction, and `Found`, which opens what was fetched after it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import zstandard
from langchain_core.messages import BaseMessage

from refold.checkpoint.drafts import Context, Draft, every_draft
from refold.checkpoint.effects import Ahead, Args, Row, Select, SelectEach, SelectIn, as_bytes
from refold.checkpoint.lean import LEAF_BYTES, Given, Lean, is_lean, thaw
from refold.checkpoint.records import MSGPACK_LEAF, TEMPLATE_TAG, Record, unpack_record
from refold.checkpoint.seal import CODEC_MASK, COMPOSITE, PACKED, SETTLED, TEMPLATE, ZSTD_1
from refold.checkpoint.varint import get_uint, put_uint
from refold.core.program import Program
from refold.errors import CorruptionError

_SHORT = frozenset({ZSTD_1, ZSTD_1 | SETTLED})
_LEAF = bytes([MSGPACK_LEAF])
_RANGE = 256  # blobs in one range
BlobRow: TypeAlias = tuple[int, int, int | None, bytes | None]
"""(blob, codec, base, data)."""
_DENSE = 2  # at most this many rows are read for each that is wanted


def store_gen(ctx: Context, drafts: Iterable[Draft]) -> Program[Mapping[bytes, int]]:
    """The ids of drafts and of all their parts, by name; stores what is missing. Needs a write transaction.

    A blob that a collection is about to remove is taken off its list; if that comes too late it is stored again.
    """
    wanted = {draft.name: draft for draft in every_draft(drafts)}
    ids = yield from _find_gen(wanted)
    missing = [draft for name, draft in wanted.items() if name not in ids]
    while missing:
        ready = [d for d in missing if all(p.name in ids for p in d.parts) and (d.base is None or d.base.name in ids)]
        ids |= yield from _add_gen(ctx, ready, ids)
        missing = [draft for draft in missing if draft.name not in ids]
        if missing and not ready:
            raise CorruptionError("a value refers to itself")  # cannot be: parts are shorter than their whole
    return ids


def find_blobs(names: Iterable[bytes]) -> SelectIn:
    """The request for the ids of what is stored under some names."""
    return SelectIn(statement="blob_find", keys=list(dict.fromkeys(names)))


def _find_gen(names: Iterable[bytes]) -> Program[dict[bytes, int]]:
    rows = yield from find_blobs(names)
    ids = {cast("bytes", name): cast("int", blob) for name, blob, doomed in rows if doomed is None}
    doomed = [(cast("bytes", name), cast("int", blob)) for name, blob, doomed in rows if doomed is not None]
    if doomed:
        rescued = yield from _rescue_gen([blob for _, blob in doomed])
        ids |= {name: blob for name, blob in doomed if blob in rescued}
    return ids


def _rescue_gen(blobs: Sequence[int]) -> Program[set[int]]:
    """Take blobs, and all that they need, off the list of a collection; those for which it was not too late.

    A collection removes what needs others before what is needed, so what is rescued here still has all its parts.
    """
    answers = yield from SelectEach(statement="blob_rescue", rows=[{"blob": blob} for blob in blobs])
    rescued = {blob for blob, found in zip(blobs, answers, strict=True) if found}
    needed = yield from edges_gen(rescued)
    inner = sorted({target for targets in needed.values() for target in targets} - rescued)
    if inner:
        yield from _rescue_gen(inner)
    return rescued


def edges_gen(blobs: Iterable[int]) -> Program[Mapping[int, Sequence[int]]]:
    """The bases that blobs are compressed against. What composites refer to is looked up by name with them."""
    keys = sorted(blobs)
    if not keys:
        return {}
    rows = yield from SelectIn(statement="blob_bases", keys=keys)
    return {cast("int", blob): [cast("int", base)] for blob, base in rows}


def _add_gen(ctx: Context, drafts: Sequence[Draft], ids: Mapping[bytes, int]) -> Program[dict[bytes, int]]:
    rows: list[Args] = []
    for draft in sorted(drafts, key=lambda d: d.name) if len(drafts) > 8 else drafts:
        if draft.parts:
            codec, data = draft.seal_composite(ctx.sealer, [ids[part.name] for part in draft.parts])
        else:
            codec, data = draft.seal(ctx.sealer)
            codec |= TEMPLATE if draft.tag == TEMPLATE_TAG else 0
        base = None if draft.base is None or draft.parts else ids[draft.base.name]
        rows.append({"hash": draft.name, "codec": codec, "base": base, "data": data})
    added = yield from SelectEach(statement="blob_add", rows=rows)
    found = {cast("bytes", row[0][0]): cast("int", row[0][1]) for row in added if row}
    lost = [cast("bytes", row["hash"]) for row in rows if row["hash"] not in found]
    if lost:  # another writer stored the same value in the meantime
        found |= yield from _find_gen(lost)
    return found


class Found:
    """Blob rows that a transaction fetched. Opening them needs no transaction."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.rows: dict[int, BlobRow] = {}
        self.packs: dict[int, tuple[int, bytes]] = {}
        self.given = Given()
        self._opened: dict[int, Mapping[int, bytes]] = {}
        self._records: dict[int, Record] = {}

    def record(self, blob: int) -> Record:
        """A blob's record. Raises `CorruptionError` where it is missing or damaged."""
        record = self._records.get(blob)
        if record is None:
            codec = self._row(blob)[1]
            record = unpack_record(self._plain(blob), composite=bool(codec & COMPOSITE))
            self._records[blob] = record
        return record

    def full(self, blob: int) -> tuple[str, bytes]:
        """A value's tag and all its bytes."""
        record = self.record(blob)
        return record.tag, self.fill(record.pieces, record.refs)

    def fill(self, pieces: Sequence[bytes], refs: Sequence[int]) -> bytes:
        """Pieces with the bytes of the blobs that stand between them."""
        if not refs:
            return pieces[0]
        parts = [pieces[0]]
        for ref, piece in zip(refs, pieces[1:], strict=True):
            parts += (self.full(ref)[1], piece)
        return b"".join(parts)

    def messages(self, blobs: Iterable[int]) -> tuple[dict[int, Lean], dict[int, BaseMessage]]:
        """Those of some blobs that are messages without need of validation: as stored, and one new message of each.
        The rest is for the serializer."""
        fresh: dict[int, Lean] = {}
        built: dict[int, BaseMessage] = {}
        read, rows, given = self._ctx.sealer.leaf_reader(), self.rows, self.given
        for blob in dict.fromkeys(blobs):
            _, codec, _, data = rows.get(blob) or self._row(blob)
            if codec & COMPOSITE:
                continue
            if codec in _SHORT and data is not None:
                try:
                    plain = read(data)
                except zstandard.ZstdError:
                    continue  # opened again on the long way, which says what is wrong
            else:
                plain = self._plain(blob)
            if codec & SETTLED or (plain[:LEAF_BYTES] == _LEAF and is_lean(plain, LEAF_BYTES)):
                message = thaw(plain, given)
                if message is not None:
                    fresh[blob], built[blob] = plain, message
        self._ctx.caches.lean.put_many(fresh)
        return fresh, built

    def _row(self, blob: int) -> BlobRow:
        row = self.rows.get(blob)
        if row is None:
            raise CorruptionError(f"blob {blob} is missing; restore the database from a backup")
        return row

    def _plain(self, blob: int) -> bytes:
        _, codec, base, data = self._row(blob)
        if codec & CODEC_MASK == PACKED:
            plain = self._pack(cast("int", base)).get(blob)
            if plain is None:
                raise CorruptionError(f"blob {blob} is missing from its pack; restore the database from a backup")
            return plain
        if data is None:
            raise CorruptionError(f"blob {blob} has no data; restore the database from a backup")
        against = None if base is None else self.full(base)[1]
        return self._ctx.sealer.open(codec, data, base=against)

    def _pack(self, pack: int) -> Mapping[int, bytes]:
        opened = self._opened.get(pack)
        if opened is None:
            if pack not in self.packs:
                raise CorruptionError(f"pack {pack} is missing; restore the database from a backup")
            codec, data = self.packs[pack]
            opened = unpack_pack(self._ctx.sealer.open(codec, data))
            self._opened[pack] = opened
        return opened


def pull_gen(found: Found, blobs: Iterable[int], *, parts: bool = True) -> Program[None]:
    """Fetch blobs with everything that is needed to open them: bases, packs and, unless told otherwise, parts."""
    wanted = set(blobs) - found.rows.keys()
    while wanted:
        rows = yield from _fetch_gen(sorted(wanted))
        packs = {cast("int", base) for _, codec, base, _ in rows if cast("int", codec) & CODEC_MASK == PACKED}
        yield from _pull_packs_gen(found, packs - found.packs.keys())
        more = _note_rows(found, rows, parts=parts)
        missing = wanted - found.rows.keys()
        if missing:
            raise CorruptionError(f"blob {min(missing)} is missing; restore the database from a backup")
        wanted = more - found.rows.keys()


def _fetch_gen(keys: Sequence[int]) -> Program[Sequence[Row]]:
    """Rows of blobs. Where they lie close together, as those of one thread mostly do, they are read as ranges: half the
    time of looking up each."""
    scattered: list[int] = []
    ranges: list[Select] = []
    for at in range(0, len(keys), _RANGE):
        part = keys[at : at + _RANGE]
        if len(part) >= _RANGE // 4 and part[-1] - part[0] < _DENSE * len(part):
            ranges.append(Select(statement="blob_range", args={"first": part[0], "last": part[-1]}))
        else:
            scattered += part
    if ranges:
        yield from Ahead(selects=[get_blobs(scattered), *ranges])
    rows = yield from get_blobs(scattered)
    wanted = set(keys)
    for found in ranges:
        rows += [row for row in (yield from found) if row[0] in wanted]
    return rows


def get_blobs(keys: Sequence[int]) -> SelectIn:
    """The request for some blobs, one by one."""
    return SelectIn(statement="blob_get", keys=keys)


def _note_rows(found: Found, rows: Sequence[Row], *, parts: bool) -> set[int]:
    """Keep rows; the blobs that they lead to."""
    more: set[int] = set()
    composites: list[int] = []
    for row in cast("Sequence[BlobRow]", rows):
        blob, codec, base, _ = row
        found.rows[blob] = row
        if base is not None and codec & CODEC_MASK != PACKED:
            more.add(base)
        if codec & COMPOSITE and parts:
            composites.append(blob)
    for blob in composites:
        more.update(found.record(blob).refs)
    return more


def _pull_packs_gen(found: Found, packs: Iterable[int]) -> Program[None]:
    keys = sorted(packs)
    if keys:
        rows = yield from SelectIn(statement="pack_get", keys=keys)
        for pack, codec, data in rows:
            found.packs[cast("int", pack)] = (cast("int", codec), as_bytes(data))


def pack_pack(plains: Mapping[int, bytes]) -> bytes:
    """The plain bytes of a pack: ids and sizes, then the records one after the other."""
    out = bytearray()
    put_uint(out, len(plains))
    for blob, plain in plains.items():
        put_uint(out, blob)
        put_uint(out, len(plain))
    return bytes(out) + b"".join(plains.values())


def unpack_pack(data: bytes) -> Mapping[int, bytes]:
    count, at = get_uint(data, 0)
    sizes: list[tuple[int, int]] = []
    for _ in range(count):
        blob, at = get_uint(data, at)
        size, at = get_uint(data, at)
        sizes.append((blob, size))
    found: dict[int, bytes] = {}
    for blob, size in sizes:
        found[blob] = data[at : at + size]
        at += size
    if at != len(data):
        raise CorruptionError("a pack has the wrong length; restore the database from a backup")
    return found
