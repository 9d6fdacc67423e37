"""Collection: freeing what no checkpoint leads to any more, while others read and write.

1. *Mark* in one read snapshot: from checkpoints and writes to templates, values, logs and what these need.
2. List what was not marked as *doomed*, and commit. From now on a writer that finds a doomed blob by its hash takes it
   off the list before it relies on it.
3. Wait until every writer that began before has ended; mark again. Whatever is reachable now comes off the list.
4. Remove the rest in small transactions, what needs others before what it needs. A blob is removed only if it is still
   on the list in the same transaction.

Only one collection lists and removes: the one that began last. To begin is to take the next number; a transaction of
one with an older number does nothing. Otherwise what one collection lists by an old mark, another would remove although
a writer had taken it off the list in between.

A checkpoint that points at what its parent points at needs no care: its parent was marked. Killed at any point, a
collection leaves a valid database and some names on a list, which the next one takes up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeVar, cast

from refold.checkpoint.blobs import Found, pull_gen
from refold.checkpoint.deletions import forget_old_gen
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Barrier, Select, SelectEach, Transaction, as_bytes, one
from refold.checkpoint.header import Cell, InBlob, Inline, InLog
from refold.checkpoint.logs import read_logs_gen
from refold.checkpoint.meta import number_of
from refold.checkpoint.removal import sweep_runs_gen
from refold.checkpoint.rows import header_of, read_templates_gen, unpack_task, write_page_gen, writes_of
from refold.checkpoint.seal import CODEC_MASK, COMPOSITE, PACKED
from refold.checkpoint.shrink import batches, remove_gen, smaller_gen
from refold.checkpoint.spaces import CheckpointRow, unpack_id
from refold.core.program import Program

T = TypeVar("T")

_PAGE: Final = 512
_BATCH: Final = 256  # logs removed in one transaction: others wait for milliseconds only
_TURN: Final = "collection"
_FREED: Final = "freed"
_DOOM: Final = "doom"
_PARDON: Final = "blob_rescue"
_SHARE: Final = 4  # collect by itself once a quarter as many checkpoints are gone as are left


@dataclass(kw_only=True)
class Marks:
    """What is reachable. `logs` has the length that is reachable of each; `all_blobs` and `all_logs` are all there was,
    `packs` the blobs of each pack."""

    blobs: set[int] = field(default_factory=set)
    logs: dict[int, int] = field(default_factory=dict)
    all_blobs: set[int] = field(default_factory=set)
    all_logs: set[int] = field(default_factory=set)
    edges: dict[int, Sequence[int]] = field(default_factory=dict)
    packs: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a collection removed."""

    blobs: int = 0
    logs: int = 0
    packs: int = 0


def collect_gen(ctx: Context, now: datetime) -> Program[Collected]:
    """Free what is unreachable. Several transactions; safe beside readers, writers and other collections. One that
    another overtakes ends, and tells what it removed until then."""
    turn = yield from Transaction(program=_take_turn_gen, write=True)
    marks = yield from Transaction(program=partial(mark_gen, ctx), write=False, long=True)
    candidates = sorted(marks.all_blobs - marks.blobs)
    blobs = packs = 0
    if candidates:
        if not (yield from _each_in_turn_gen(turn, _DOOM, candidates)):
            return Collected()
        yield from Barrier()
        marks = yield from Transaction(program=partial(mark_gen, ctx), write=False, long=True)
        if not (yield from _each_in_turn_gen(turn, _PARDON, [blob for blob in candidates if blob in marks.blobs])):
            return Collected()
        dead = _in_order([blob for blob in candidates if blob not in marks.blobs], marks.edges)
        for batch in batches(dead, marks.packs):
            smaller = yield from smaller_gen(ctx, batch, marks.packs.get(batch.shrinks or 0, ()))
            removed = yield from _in_turn_gen(turn, partial(remove_gen, ctx, batch.blobs, marks.packs, smaller))
            if removed is None:
                return Collected(blobs=blobs, packs=packs)
            blobs, packs = blobs + removed[0], packs + removed[1]
    logs = sorted(marks.all_logs - marks.logs.keys())
    for at in range(0, len(logs), _BATCH):
        if (yield from _in_turn_gen(turn, partial(_remove_logs_gen, logs[at : at + _BATCH]))) is None:
            return Collected(blobs=blobs, packs=packs, logs=at)
    yield from sweep_runs_gen()
    swept = yield from _in_turn_gen(turn, partial(_tidy_gen, now))
    return Collected(blobs=blobs, logs=len(logs), packs=packs + (swept or 0))


# --- one collection at a time ---


def _take_turn_gen() -> Program[int]:
    """Begin: the number of this collection."""
    before = yield from _hold_number_gen(_TURN)
    yield from Select(statement="meta_set", args={"key": _TURN, "value": str(before + 1).encode()})
    return before + 1


def _hold_number_gen(key: str) -> Program[int]:
    """A number that the database keeps, held until the transaction ends."""
    yield from Select(statement="meta_put", args={"key": key, "value": b"0"})
    row = one((yield from Select(statement="meta_hold", args={"key": key})))
    return 0 if row is None else number_of(key, as_bytes(row[0]))


def _in_turn_gen(turn: int, program: Callable[[], Program[T]]) -> Program[T | None]:
    """Run a program in a transaction; None where another collection began since."""
    return (yield from Transaction(program=partial(_if_last_gen, turn, program), write=True))


def _if_last_gen(turn: int, program: Callable[[], Program[T]]) -> Program[T | None]:
    return (yield from program()) if (yield from _hold_number_gen(_TURN)) == turn else None


def _each_in_turn_gen(turn: int, statement: str, blobs: Sequence[int]) -> Program[bool]:
    for at in range(0, len(blobs), _PAGE):
        if (yield from _in_turn_gen(turn, partial(_each_gen, statement, blobs[at : at + _PAGE]))) is None:
            return False
    return True


def collect_if_due_gen(ctx: Context, removed: int, now: datetime) -> Program[Collected | None]:
    """After a removal of checkpoints: collect once enough have gone, so that its cost stays in proportion."""
    if removed and (yield from Transaction(program=partial(_is_due_gen, removed), write=True)):
        return (yield from collect_gen(ctx, now))
    return None


def _is_due_gen(removed: int) -> Program[bool]:
    freed = removed + (yield from _hold_number_gen(_FREED))
    row = one((yield from Select(statement="checkpoint_count")))
    is_due = freed * _SHARE >= (0 if row is None else cast("int", row[0]))
    value = "0" if is_due else str(freed)  # who finds that it is due does it: the next one begins to count
    yield from Select(statement="meta_set", args={"key": _FREED, "value": value.encode()})
    return is_due


def _tidy_gen(now: datetime) -> Program[int]:
    """Forget what is counted, and removals so old that no late step can come any more. Remove rows that nothing leads
    to, which there are only by a fault; how many packs."""
    yield from Select(statement="meta_set", args={"key": _FREED, "value": b"0"})
    yield from Select(statement="writes_sweep")
    swept = yield from Select(statement="packs_sweep")
    yield from forget_old_gen(now)
    return len(swept)


def _each_gen(statement: str, blobs: Sequence[int]) -> Program[bool]:
    yield from SelectEach(statement=statement, rows=[{"blob": blob} for blob in blobs])
    return True


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
            if base is not None and codec & CODEC_MASK == PACKED:
                marks.packs.setdefault(base, []).append(blob)
            elif base is not None:
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


def _remove_logs_gen(logs: Sequence[int]) -> Program[bool]:
    yield from SelectEach(statement="segments_delete", rows=[{"log": log} for log in logs])
    yield from SelectEach(statement="log_delete", rows=[{"log": log} for log in logs])
    return True
