"""Programs over logs, the stored form of lists: append-only runs of elements that share prefixes.

A segment holds up to `SEGMENT` elements; the last one of a log is written again as it fills. A list that went another
way than its log (an edit, a removal, a fork) opens a child log from the last common element.

    segment  elements, then four bytes of checksum
    element  uint e: even, an id, as the zigzag difference e/2 to the id before it; odd, e/2 bytes of msgpack follow
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, TypeAlias, cast

from refold.checkpoint.caches import Entry, ListState
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Select, SelectEach, SelectIn, as_bytes, one
from refold.checkpoint.header import InLog, with_checksum, without_checksum
from refold.checkpoint.seal import RAW, Sealer
from refold.checkpoint.varint import get_uint, put_uint, unzigzag, zigzag
from refold.core.program import Program
from refold.errors import CorruptionError

SEGMENT: Final = 64
_SHARE: Final = 16  # elements: a shorter common prefix is written again rather than shared
SegmentRow: TypeAlias = tuple[int, int, int, int, bytes]
"""(log, start, the length up to which it counts, codec, data)."""

_NEAR: Final = bytes(range(0, 0x80, 2))
_STEPS: Final = [unzigzag(byte >> 1) for byte in range(0x80)]
_DEPTH: Final = 8  # logs in a chain: a deeper one would make reading slow


def pack_segment(sealer: Sealer, log: int, start: int, entries: Sequence[Entry]) -> tuple[int, bytes]:
    out = bytearray()
    before = 0
    for entry in entries:
        if isinstance(entry, bytes):
            put_uint(out, len(entry) * 2 + 1)
            out += entry
        else:
            put_uint(out, zigzag(entry - before) * 2)
            before = entry
    return sealer.protect(RAW, with_checksum(bytes(out), f"log {log} segment {start}"))


def unpack_segment(sealer: Sealer, log: int, start: int, codec: int, data: bytes) -> Sequence[Entry]:
    plain = without_checksum(sealer.reveal(codec, data), f"log {log} segment {start}")
    first, at = get_uint(plain, 0) if plain else (1, 0)
    near = plain[at:]
    if not first & 1 and not near.translate(None, _NEAR):  # ids alone and steps of one byte, as mostly
        return list(accumulate(map(_STEPS.__getitem__, near), initial=unzigzag(first >> 1)))
    entries: list[Entry] = []
    at = before = 0
    while at < len(plain):
        value, at = get_uint(plain, at)
        if value & 1:
            entries.append(plain[at : at + value // 2])
            at += value // 2
        else:
            before += unzigzag(value >> 1)
            entries.append(before)
    return entries


def extend_log_gen(
    ctx: Context,
    base: InLog | None,
    keep: int,
    tail: Sequence[Entry],
    *,
    head: Callable[[int], Sequence[Entry]],
    snapshot: bool,
) -> Program[InLog]:
    """Where a list is stored that has `keep` elements in common with `base` (`head` gives them) and goes on with
    `tail`. Needs a write transaction."""
    if base is not None and not tail and keep == base.length:
        return InLog(log=base.log, length=keep, snapshot=snapshot)
    if base is not None:
        grown = yield from _grow_gen(ctx, base.log, keep, tail)
        if grown:
            return InLog(log=base.log, length=keep + len(tail), snapshot=snapshot)
    parent, prefix, depth = (yield from _parent_gen(base, keep)) if base is not None else (None, 0, 0)
    if parent is None:
        tail, prefix = [*head(keep), *tail], 0
    rows = yield from Select(statement="log_add", args={"parent": parent, "prefix": prefix, "depth": depth})
    log = cast("int", rows[0][0])
    yield from _write_segments_gen(ctx, log, prefix, tail)
    return InLog(log=log, length=prefix + len(tail), snapshot=snapshot)


def hold_log(log: int) -> tuple[Select, Select]:
    """The requests to hold a log and to find its last segment."""
    return Select(statement="log_lock", args={"log": log}), Select(statement="segment_tail", args={"log": log})


def _grow_gen(ctx: Context, log: int, keep: int, tail: Sequence[Entry]) -> Program[bool]:
    """Append to a log if it ends where the list left it, or goes on in the same way."""
    lock, tail_of = hold_log(log)
    row = one((yield from lock))
    if row is None:
        raise CorruptionError(f"log {log} is missing; restore the database from a backup")
    prefix = cast("int", row[1])
    if keep < prefix:
        return False
    last = one((yield from tail_of))
    start, held = prefix, cast("Sequence[Entry]", [])
    if last is not None:
        start = cast("int", last[0])
        held = unpack_segment(ctx.sealer, log, start, cast("int", last[1]), as_bytes(last[2]))
    beyond = start + len(held) - keep
    if beyond < 0:
        raise CorruptionError(f"log {log} is shorter than a checkpoint says; restore the database from a backup")
    if beyond > len(held):
        return False
    if beyond and list(held[len(held) - beyond :][: len(tail)]) != list(tail[:beyond]):
        return False
    if beyond < len(tail):
        yield from _write_segments_gen(ctx, log, start, [*held, *tail[beyond:]])
    return True


def _parent_gen(base: InLog, keep: int) -> Program[tuple[int | None, int, int]]:
    """The log to share a prefix with: (log, prefix, depth of the child), or (None, 0, 0) to write all elements."""
    log = base.log
    while keep >= _SHARE:
        row = one((yield from Select(statement="log_get", args={"log": log})))
        if row is None:
            break
        parent, prefix, depth = cast("tuple[int | None, int, int]", row)
        if keep > prefix or parent is None:
            return (log, keep, depth + 1) if depth + 1 < _DEPTH else (None, 0, 0)
        log = parent
    return None, 0, 0


def _write_segments_gen(ctx: Context, log: int, start: int, entries: Sequence[Entry]) -> Program[None]:
    rows: list[Args] = []
    for at in range(0, len(entries), SEGMENT):
        codec, data = pack_segment(ctx.sealer, log, start + at, entries[at : at + SEGMENT])
        rows.append({"log": log, "start": start + at, "codec": codec, "data": data})
    yield from SelectEach(statement="segment_put", rows=rows, later=True)


def read_logs_gen(ctx: Context, logs: Mapping[int, int]) -> Program[Mapping[int, Sequence[Entry]]]:
    """The elements of logs up to the given lengths. Remembered ones are not read again."""
    found: dict[int, Sequence[Entry]] = {}
    missing: dict[int, list[SegmentRow]] = {}
    for log, length in logs.items():
        state = _remembered(ctx, log, length)
        if state is None:
            missing[log] = []
        else:
            found[log] = state.entries(length)
    if missing:
        for asked, *row in (yield from _get_segments(missing)):
            missing[cast("int", asked)].append(cast("SegmentRow", tuple(row)))
        for log, segments in missing.items():
            found[log] = _assemble(ctx, log, logs[log], segments)
    return found


def get_logs(ctx: Context, logs: Mapping[int, int]) -> SelectIn:
    """The request for the logs that are not remembered up to the given lengths; without keys where all are."""
    return _get_segments(log for log, length in logs.items() if _remembered(ctx, log, length) is None)


def _get_segments(logs: Iterable[int]) -> SelectIn:
    return SelectIn(statement="log_segments", keys=sorted(logs))


def _remembered(ctx: Context, log: int, length: int) -> ListState | None:
    state = ctx.caches.lists.get(log)
    return state if state is not None and state.length >= length else None


def _assemble(ctx: Context, log: int, length: int, rows: Sequence[SegmentRow]) -> Sequence[Entry]:
    entries: list[Entry] = []
    for source, start, upto, codec, data in rows:
        part = unpack_segment(ctx.sealer, source, start, codec, as_bytes(data))
        if start != len(entries):
            break
        entries.extend(islice(part, min(upto, length) - start))
        if len(entries) == length:
            break
    if len(entries) != length:
        raise CorruptionError(f"log {log} lacks elements that a checkpoint names; restore the database from a backup")
    return entries
