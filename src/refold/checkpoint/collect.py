"""Collection: freeing what no checkpoint leads to any more, while others read and write.

1. *Mark* in one read snapshot: from checkpoints and writes to templates, values, logs and what these need.
2. List what was not marked as *doomed*, and commit. From now on a writer that finds a doomed blob by its hash takes it
   off the list before it relies on it.
3. Wait until every writer that began before has ended; mark again. Whatever is reachable now comes off the list.
4. Remove the rest in small transactions, what needs others before what it needs. A blob is removed only if it is still
   on the list in the same transaction.

A checkpoint that points at what its parent points at needs no care: its parent was marked. Killed at any point, a
collection leaves a valid database and some names on a list, which the next one takes up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, cast

from refold.checkpoint.blobs import Found, pack_pack, pull_gen, unpack_pack
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Barrier, Select, SelectEach, SelectIn, Transaction, as_bytes, one
from refold.checkpoint.header import Cell, InBlob, Inline, InLog, id_time
from refold.checkpoint.logs import read_logs_gen
from refold.checkpoint.meta import read_meta_gen
from refold.checkpoint.rows import header_of, read_templates_gen, unpack_task, write_page_gen, writes_of
from refold.checkpoint.seal import CODEC_MASK, COMPOSITE, PACKED
from refold.checkpoint.spaces import DELETED, CheckpointRow, unpack_id
from refold.core.program import Program

_PAGE: Final = 512
_BATCH: Final = 256  # blobs removed in one transaction: others wait for milliseconds only
_REMEMBER: Final = timedelta(days=30)
_SHARE: Final = 4  # collect by itself once a quarter as many checkpoints are gone as are left


@dataclass(kw_only=True)
class Marks:
    """What is reachable. `logs` has the length that is reachable of each; `seen_blobs` is all there was."""

    blobs: set[int] = field(default_factory=set)
    logs: dict[int, int] = field(default_factory=dict)
    all_blobs: set[int] = field(default_factory=set)
    all_logs: set[int] = field(default_factory=set)
    edges: dict[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a collection removed."""

    blobs: int
    logs: int
    packs: int


def collect_gen(ctx: Context, now: datetime) -> Program[Collected]:
    """Free what is unreachable. Several transactions; safe beside readers, writers and other collections."""
    marks = yield from Transaction(program=partial(mark_gen, ctx), write=False)
    candidates = sorted(marks.all_blobs - marks.blobs)
    removed_blobs = removed_packs = 0
    if candidates:
        for at in range(0, len(candidates), _PAGE):
            part = candidates[at : at + _PAGE]
            yield from Transaction(program=partial(_each_gen, "doom", part), write=True)
        yield from Barrier()
        marks = yield from Transaction(program=partial(mark_gen, ctx), write=False)
        yield from _pardon_gen(candidates, marks)
        dead = _in_order([blob for blob in candidates if blob not in marks.blobs], marks.edges)
        for at in range(0, len(dead), _BATCH):
            batch = dead[at : at + _BATCH]
            blobs, packs = yield from Transaction(program=partial(_remove_gen, ctx, batch), write=True)
            removed_blobs, removed_packs = removed_blobs + blobs, removed_packs + packs
    logs = sorted(marks.all_logs - marks.logs.keys())
    for at in range(0, len(logs), _BATCH):
        gone = logs[at : at + _BATCH]
        yield from Transaction(program=partial(_remove_logs_gen, gone), write=True)
    yield from Transaction(program=partial(_tidy_gen, now), write=True)
    return Collected(blobs=removed_blobs, logs=len(logs), packs=removed_packs)


def collect_if_due_gen(ctx: Context, removed: int, now: datetime) -> Program[Collected | None]:
    """After a removal of checkpoints: collect once enough have gone, so that its cost stays in proportion."""
    if removed and (yield from Transaction(program=partial(_is_due_gen, removed), write=True)):
        return (yield from collect_gen(ctx, now))
    return None


def _is_due_gen(removed: int) -> Program[bool]:
    before = yield from read_meta_gen("freed")
    freed = removed + (0 if before is None else int(before))
    yield from Select(statement="meta_set", args={"key": "freed", "value": str(freed).encode()})
    row = one((yield from Select(statement="checkpoint_count")))
    return freed * _SHARE >= (0 if row is None else cast("int", row[0]))


def _tidy_gen(now: datetime) -> Program[None]:
    """Forget what is counted, and deletions so old that no late write can come any more."""
    yield from Select(statement="meta_set", args={"key": "freed", "value": b"0"})
    rows = yield from Select(statement="meta_from", args={"start": DELETED, "stop": DELETED + "~", "count": 100_000})
    old = [key for key, newest in rows if now - id_time(as_bytes(newest).decode()) > _REMEMBER]
    yield from SelectEach(statement="meta_delete", rows=[{"key": key} for key in old])


def _each_gen(statement: str, blobs: Sequence[int]) -> Program[None]:
    yield from SelectEach(statement=statement, rows=[{"blob": blob} for blob in blobs])


# --- marking ---


def mark_gen(ctx: Context) -> Program[Marks]:
    """Everything reachable, in one snapshot."""
    marks = Marks()
    yield from _mark_checkpoints_gen(ctx, marks)
    yield from _mark_writes_gen(ctx, marks)
    yield from _mark_logs_gen(ctx, marks)
    yield from _mark_edges_gen(ctx, marks)
    return marks


def _mark_cell(marks: Marks, cell: Cell) -> None:
    match cell:
        case InLog(log=log, length=length):
            marks.logs[log] = max(length, marks.logs.get(log, 0))
        case InBlob(blob=blob):
            marks.blobs.add(blob)
        case Inline(refs=refs):
            marks.blobs.update(refs)


def _mark_checkpoints_gen(ctx: Context, marks: Marks) -> Program[None]:
    wide = yield from _wide_gen()
    after = 0
    while True:
        rows = yield from Select(statement="checkpoint_scan", args={"after": after, "count": _PAGE})
        if not rows:
            return
        after = cast("int", rows[-1][0])
        full = [row for row in rows if row[3] is not None]
        templates = yield from read_templates_gen(ctx, {cast("int", row[3]) for row in full})
        for seq, space, raw, template, data in cast("list[tuple[int, int, bytes, int, bytes]]", full):
            row = CheckpointRow(
                seq=seq, checkpoint_id=unpack_id(raw, wide=space in wide), state=0, parent=None, run=None,
                template=template, data=as_bytes(data), parent_id=None,
            )  # fmt: skip
            header = header_of(ctx, row, templates)
            marks.blobs.add(template)
            for cell in (*header.cells.values(), *header.trails.values()):
                _mark_cell(marks, cell)


def _wide_gen() -> Program[frozenset[int]]:
    rows = yield from Select(statement="spaces_all")
    return frozenset(cast("int", row[0]) for row in rows if row[3])


def _mark_writes_gen(ctx: Context, marks: Marks) -> Program[None]:
    wide = yield from _wide_gen()
    after = 0
    while (page := (yield from write_page_gen(after, _PAGE))) is not None:
        after, rows = page
        templates = yield from read_templates_gen(ctx, {row[2] for row in rows})
        for _, task, template, data, raw, space in rows:
            checkpoint_id = unpack_id(raw, wide=space in wide)
            marks.blobs.add(template)
            for write in writes_of(ctx, templates[template], data, checkpoint_id, unpack_task(task)):
                _mark_cell(marks, write.cell)


def _mark_logs_gen(ctx: Context, marks: Marks) -> Program[None]:
    """The elements of reachable logs, up to the length that is reachable, and the logs whose prefixes they share."""
    parents: dict[int, tuple[int, int]] = {}
    after = 0
    while rows := (yield from Select(statement="log_scan", args={"after": after, "count": _PAGE})):
        for log, parent, prefix in cast("list[tuple[int, int | None, int]]", rows):
            marks.all_logs.add(log)
            if parent is not None:
                parents[log] = (parent, prefix)
        after = cast("int", rows[-1][0])
    for log in sorted(marks.logs, reverse=True):  # a child is younger than its parent
        child = log
        while child in parents:
            parent, prefix = parents[child]
            reached = min(prefix, marks.logs[child])
            if marks.logs.get(parent, -1) >= reached:
                break
            marks.logs[parent] = reached
            child = parent
    lengths = list(marks.logs.items())
    for at in range(0, len(lengths), _PAGE):
        part = dict(lengths[at : at + _PAGE])
        entries = yield from read_logs_gen(ctx, part)
        for log, length in part.items():
            marks.blobs.update(entry for entry in entries[log][:length] if isinstance(entry, int))


def _mark_edges_gen(ctx: Context, marks: Marks) -> Program[None]:
    """What reachable blobs need: bases, and the parts of composites."""
    after = 0
    while rows := (yield from Select(statement="blob_scan", args={"after": after, "count": _PAGE * 8})):
        found = Found(ctx)
        composites = {cast("int", row[0]) for row in rows if cast("int", row[2]) & COMPOSITE}
        yield from pull_gen(found, composites, parts=False)
        for blob, _, codec, base in cast("list[tuple[int, bytes, int, int | None]]", rows):
            marks.all_blobs.add(blob)
            targets = list(found.record(blob).refs) if codec & COMPOSITE else []
            if base is not None and codec & CODEC_MASK != PACKED:
                targets.append(base)
            if targets:
                marks.edges[blob] = targets
        after = cast("int", rows[-1][0])
    waiting = [blob for blob in marks.edges if blob in marks.blobs]
    while waiting:
        for target in marks.edges[waiting.pop()]:
            if target not in marks.blobs:
                marks.blobs.add(target)
                if target in marks.edges:
                    waiting.append(target)


# --- removing ---


def _pardon_gen(candidates: Sequence[int], marks: Marks) -> Program[None]:
    reachable = [blob for blob in candidates if blob in marks.blobs]
    if reachable:
        yield from Transaction(program=partial(_each_gen, "blob_rescue", reachable), write=True)


def _in_order(dead: Sequence[int], edges: Mapping[int, Sequence[int]]) -> Sequence[int]:
    """Dead blobs, each before those that it needs."""
    order: list[int] = []
    done: set[int] = set()
    doomed = set(dead)
    for start in dead:
        stack: list[tuple[int, bool]] = [(start, False)]
        while stack:
            blob, finished = stack.pop()
            if finished:
                order.append(blob)
            elif blob not in done:
                done.add(blob)
                stack.append((blob, True))
                stack += [(target, False) for target in edges.get(blob, ()) if target in doomed and target not in done]
    order.reverse()
    return order


def _remove_gen(ctx: Context, blobs: Sequence[int]) -> Program[tuple[int, int]]:
    answers = yield from SelectEach(statement="blob_rescue", rows=[{"blob": blob} for blob in blobs])
    going = [blob for blob, found in zip(blobs, answers, strict=True) if found]
    if not going:
        return 0, 0
    rows = yield from SelectIn(statement="blob_hashes", keys=going)
    packs = sorted({cast("int", base) for _, _, codec, base in rows if cast("int", codec) & CODEC_MASK == PACKED})
    yield from _each_gen("blob_delete", going)
    removed = 0
    for pack in packs:
        removed += yield from _shrink_pack_gen(ctx, pack)
    return len(going), removed


def _shrink_pack_gen(ctx: Context, pack: int) -> Program[int]:
    """Write a pack again without the blobs that went: deleted content does not stay behind. 1 if nothing was left."""
    members = yield from Select(statement="blob_packed_in", args={"pack": pack})
    left = {cast("int", blob): cast("int", codec) for blob, codec in members}
    if left:
        rows = yield from SelectIn(statement="pack_get", keys=[pack])
        _, codec, data = cast("tuple[int, int, bytes]", rows[0])
        plains = unpack_pack(ctx.sealer.open(codec, as_bytes(data)))
        new_codec, new_data = ctx.sealer.seal(pack_pack({blob: plains[blob] for blob in left}), strong=True)
        added = yield from Select(statement="pack_add", args={"codec": new_codec, "data": new_data})
        moves: list[Args] = [{"id": blob, "codec": flags, "base": added[0][0]} for blob, flags in left.items()]
        yield from SelectEach(statement="blob_repack", rows=moves)
    yield from Select(statement="pack_delete", args={"pack": pack})
    return 0 if left else 1


def _remove_logs_gen(logs: Sequence[int]) -> Program[None]:
    yield from SelectEach(statement="segments_delete", rows=[{"log": log} for log in logs])
    yield from SelectEach(statement="log_delete", rows=[{"log": log} for log in logs])
