"""Checking a database: every hash derived again, every row decoded, every pointer followed. And counting it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from refold.checkpoint.blobs import Found, pull_gen
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Select, SelectIn, Transaction, as_bytes, one
from refold.checkpoint.header import Cell, InLog, Write, blobs_of
from refold.checkpoint.logs import unpack_segment
from refold.checkpoint.rows import header_of, read_templates_gen, unpack_task, write_page_gen, writes_of
from refold.checkpoint.seal import CODEC_MASK, COMPOSITE, ENCRYPTED, PACKED
from refold.checkpoint.spaces import AWAITED, HIDDEN, LISTED, CheckpointRow, unpack_id
from refold.core.program import Program
from refold.errors import CheckpointError

_PAGE: Final = 256
_HELD: Final = 4 * 1024 * 1024  # bytes of values that are kept for those that follow
_REPORTED: Final = 1000


@dataclass(frozen=True, kw_only=True)
class Stats:
    """What a database holds. `hidden` checkpoints serve delta channels of listed ones. Sizes in bytes."""

    threads: int
    namespaces: int
    checkpoints: int
    hidden: int
    writes: int
    blobs: int
    packs: int
    logs: int
    blob_bytes: int
    pack_bytes: int
    database_bytes: int


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was checked, and what is wrong, in words. At most 1,000 problems are listed."""

    blobs: int
    checkpoints: int
    writes: int
    logs: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(kw_only=True)
class _Findings:
    blobs: set[int] = field(default_factory=set)
    lengths: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    checkpoints: int = 0
    writes: int = 0

    def say(self, problem: str) -> None:
        if len(self.problems) < _REPORTED:
            self.problems.append(problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """Where a checkpoint is. `name` is its id, where that can be read."""

    name: str
    space: int
    parent: int | None


def stats_gen() -> Program[Stats]:
    """Count what is there."""
    return (yield from Transaction(program=_stats_gen, write=False, long=True))


def _stats_gen() -> Program[Stats]:
    counts = one((yield from Select(statement="counts")))
    size = one((yield from Select(statement="size")))
    assert counts is not None, "aggregates give a row"
    assert size is not None, "aggregates give a row"
    numbers = [int(cast("int", value)) for value in (*counts, *size)]
    names = Stats.__dataclass_fields__
    return Stats(**dict(zip(names, numbers, strict=True)))


def verify_gen(ctx: Context) -> Program[Verification]:
    """Check everything, in one snapshot. Reads the whole database; writers go on beside it."""
    return (yield from Transaction(program=partial(_verify_gen, ctx), write=False, long=True))


def _verify_gen(ctx: Context) -> Program[Verification]:
    found = _Findings()
    yield from _verify_blobs_gen(ctx, found)
    seqs = yield from _verify_checkpoints_gen(ctx, found)
    yield from _verify_writes_gen(ctx, found, seqs)
    logs = yield from _verify_logs_gen(ctx, found)
    yield from _verify_leftovers_gen(found)
    return Verification(
        blobs=len(found.blobs), checkpoints=found.checkpoints, writes=found.writes, logs=logs,
        problems=tuple(found.problems),
    )  # fmt: skip


def _verify_leftovers_gen(findings: _Findings) -> Program[None]:
    """Rows that nothing leads to any more and no collection would find by itself."""
    for statement, what in (
        ("writes_lost", "writes of checkpoints that are gone"),
        ("packs_lost", "packs of no value"),
    ):
        row = one((yield from Select(statement=statement)))
        count = 0 if row is None else cast("int", row[0])
        if count:
            findings.say(f"{count} {what} are left: run gc")


def _verify_blobs_gen(ctx: Context, findings: _Findings) -> Program[None]:
    """Every blob's name from its content. Each pack is opened once, and little is held at a time."""
    shared, spent, after = Found(ctx), 0, 0
    packs: dict[int, list[int]] = {}
    while rows := (yield from Select(statement="blob_scan", args={"after": after, "count": _PAGE})):
        for blob, name, codec, base in cast("list[tuple[int, bytes, int, int | None]]", rows):
            findings.blobs.add(blob)
            if base is not None and codec & CODEC_MASK == PACKED:
                packs.setdefault(base, []).append(blob)
            elif base is None and not codec & COMPOSITE:
                yield from _verify_blob_gen(ctx, findings, Found(ctx), blob, name, codec)
            else:  # what values are made of, they often have in common
                spent += yield from _verify_blob_gen(ctx, findings, shared, blob, name, codec)
                if spent + sum(len(data) for _, data in shared.packs.values()) > _HELD:
                    shared, spent = Found(ctx), 0
        after = cast("int", rows[-1][0])
    for blobs in packs.values():
        rows = yield from SelectIn(statement="blob_hashes", keys=blobs)
        opened = Found(ctx)
        for blob, name, codec, _ in cast("list[tuple[int, bytes, int, int | None]]", rows):
            yield from _verify_blob_gen(ctx, findings, opened, blob, name, codec)


def _verify_blob_gen(
    ctx: Context, findings: _Findings, opened: Found, blob: int, name: bytes, codec: int
) -> Program[int]:
    """One blob; how long its value is."""
    try:
        yield from pull_gen(opened, [blob])
        tag, data = opened.full(blob)
        if ctx.sealer.name(tag, data, keyed=bool(codec & ENCRYPTED)) != as_bytes(name):
            findings.say(f"blob {blob}: the content does not match its hash")
    except CheckpointError as error:
        findings.say(f"blob {blob}: {error}")
        return 0
    return len(data)


def _verify_checkpoints_gen(ctx: Context, findings: _Findings) -> Program[Mapping[int, str]]:
    """Every checkpoint row; ids by seq."""
    spaces = yield from Select(statement="spaces_all")
    rows: dict[int, _Row] = {}
    for number, _, _, wide in cast("list[tuple[int, str, str, int]]", spaces):
        runs = yield from Select(statement="runs_of_space", args={"space": number})
        known = frozenset(run for run, _ in runs)
        found = yield from Select(statement="checkpoint_scan_space", args={"space": number})
        for seq, raw, state, parent, run, template, data in cast(
            "list[tuple[int, bytes, int, int | None, int | None, int | None, bytes | None]]", found
        ):
            row = _Row(name=_name_of(findings, seq, raw, wide=bool(wide)), space=number, parent=parent)
            rows[seq] = row
            _check_state(findings, row.name, state, stored=template is not None)
            if run is not None and run not in known:
                findings.say(f"checkpoint {row.name}: its run's row is missing, delete_for_runs does not find it")
            if state != AWAITED or template is not None:
                yield from _verify_checkpoint_gen(ctx, findings, row.name, template, data)
    _check_parents(findings, rows)
    total = one((yield from Select(statement="checkpoint_count")))
    lost = (0 if total is None else cast("int", total[0])) - len(rows)
    if lost:
        findings.say(f"{lost} checkpoints are in namespaces whose rows are missing")
    return {seq: row.name for seq, row in rows.items()}


def _name_of(findings: _Findings, seq: int, raw: bytes, *, wide: bool) -> str:
    try:
        return unpack_id(raw, wide=wide)
    except CheckpointError as error:
        findings.say(f"checkpoint row {seq}: {error}")
        return f"of row {seq}"


def _check_state(findings: _Findings, name: str, state: int, *, stored: bool) -> None:
    if state not in (LISTED, HIDDEN, AWAITED):
        findings.say(f"checkpoint {name}: its state, {state}, is unknown")
    elif state == AWAITED and stored:
        findings.say(f"checkpoint {name}: it is stored, but marked as one that is still awaited")


def _check_parents(findings: _Findings, rows: Mapping[int, _Row]) -> None:
    """Whether parents are there, in the same namespace, and not their own ancestors."""
    done: set[int] = set()
    for seq, row in rows.items():
        if row.parent is not None and row.parent not in rows:
            findings.say(f"checkpoint {row.name}: its parent's row is missing")
        elif row.parent is not None and rows[row.parent].space != row.space:
            findings.say(f"checkpoint {row.name}: its parent is in another namespace")
        path: set[int] = set()
        at: int | None = seq
        while at is not None and at in rows and at not in done and at not in path:
            path.add(at)
            at = rows[at].parent
        if at is not None and at in path:
            findings.say(f"checkpoint {rows[at].name}: its parents lead back to it")
        done |= path


def _verify_checkpoint_gen(
    ctx: Context, findings: _Findings, checkpoint_id: str, template: int | None, data: bytes | None
) -> Program[None]:
    findings.checkpoints += 1
    try:
        templates = yield from read_templates_gen(ctx, [] if template is None else [template])
        row = CheckpointRow(
            seq=0, checkpoint_id=checkpoint_id, state=0, parent=None, run=None, template=template,
            data=None if data is None else as_bytes(data), parent_id=None,
        )  # fmt: skip
        header = header_of(ctx, row, templates)
    except CheckpointError as error:
        findings.say(f"checkpoint {checkpoint_id}: {error}")
        return
    for channel, cell in {**header.trails, **header.cells}.items():
        _check_cell(findings, cell, f"checkpoint {checkpoint_id}, channel {channel}")


def _check_cell(findings: _Findings, cell: Cell, place: str) -> None:
    for blob in blobs_of(cell):
        if blob not in findings.blobs:
            findings.say(f"{place}: blob {blob} is missing")
    if isinstance(cell, InLog):
        findings.lengths[cell.log] = max(cell.length, findings.lengths.get(cell.log, 0))


def _verify_writes_gen(ctx: Context, findings: _Findings, ids: Mapping[int, str]) -> Program[None]:
    after = 0
    while (page := (yield from write_page_gen(after, _PAGE))) is not None:
        after, rows = page
        for checkpoint, raw_task, template, data, *_ in rows:
            findings.writes += 1
            items: list[Write] = []
            place = f"writes at checkpoint {ids.get(checkpoint)}"
            try:
                task = unpack_task(raw_task)
                place = f"writes of task {task} at checkpoint {ids.get(checkpoint)}"
                templates = yield from read_templates_gen(ctx, [template])
                items = list(writes_of(ctx, templates[template], data, ids.get(checkpoint, ""), task))
            except CheckpointError as error:
                findings.say(f"{place}: {error}")
            for item in items:
                _check_cell(findings, item.cell, f"{place}, channel {item.channel}")


def _verify_logs_gen(ctx: Context, findings: _Findings) -> Program[int]:
    """Every reachable log: its segments, their order, and the blobs that they name."""
    for log, length in findings.lengths.items():
        rows = yield from SelectIn(statement="log_segments", keys=[log])
        count = 0
        try:
            for _, source, start, upto, codec, data in cast("list[tuple[int, int, int, int, int, bytes]]", rows):
                if start != count or count == length:
                    break
                entries = unpack_segment(ctx.sealer, source, start, codec, as_bytes(data))[: min(upto, length) - start]
                count += len(entries)
                for entry in entries:
                    if isinstance(entry, int) and entry not in findings.blobs:
                        findings.say(f"log {log}: blob {entry} is missing")
        except CheckpointError as error:
            findings.say(f"log {log}: {error}")
            continue
        if count != length:
            findings.say(f"log {log}: {length} elements are named, {count} are there")
    return len(findings.lengths)
