"""What a checkpoint row and a writes row hold, and how they are packed.

A *cell* is where a value is: inline in the row, in a blob, or in a log of list elements. A header has the checkpoint
without its values, its metadata, and one cell per channel that has a value.
"""

import re
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, cast

from refold.checkpoint.shape import Changing, Shape, Version, join, outline, split
from refold.errors import CorruptionError

Versions: TypeAlias = Mapping[str, str | int | float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inline:
    """A small value in the row itself: its tag and bytes, with references between the pieces (see `records`)."""

    tag: str
    pieces: Sequence[bytes]
    refs: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class InBlob:
    """A value that is a blob."""

    blob: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InLog:
    """A list: the first `length` elements of a log. `snapshot` marks a delta channel's snapshot of it."""

    log: int
    length: int
    snapshot: bool = False


Cell: TypeAlias = Inline | InBlob | InLog


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Something that LangGraph's serializer made: metadata, or fields of a checkpoint that this version does not
    know."""

    tag: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Header:
    """A checkpoint without its values. `trails` are logs that a channel without a value had before."""

    ts: str
    versions: Versions
    seen: Mapping[str, Versions]
    cells: Mapping[str, Cell]
    trails: Mapping[str, InLog] = field(default_factory=dict)
    metadata: Mapping[str, Shape] | Stored
    rest: Mapping[str, Shape] | Stored


@dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """One pending write of a task. `path` is the task's path at that time."""

    idx: int
    channel: str
    cell: Cell
    path: str


# --- headers ---


def pack_header(header: Header, checkpoint_id: str) -> tuple[bytes, bytes]:
    """(template, row) of a header."""
    newest = max((v for v in header.versions.values() if type(v) is int), default=0)
    for seen in header.seen.values():
        newest = max((newest, *(v for v in seen.values() if type(v) is int)))
    shape: Shape = [
        _pack_time(header.ts, checkpoint_id),
        _pack_versions(header.versions),
        {node: _pack_versions(seen) for node, seen in header.seen.items()},
        {channel: pack_cell(cell) for channel, cell in header.cells.items()},
        {channel: [trail.log, trail.length, trail.snapshot] for channel, trail in header.trails.items()},
        _pack_metadata(header.metadata),
        _pack_stored(header.rest),
    ]
    return split(shape, newest=newest)


def unpack_header(template: bytes, row: bytes, checkpoint_id: str) -> Header:
    shape = cast("list[Shape]", join(template, row))
    try:
        ts, versions, seen, cells, trails, metadata, rest = shape
        return Header(
            ts=_unpack_time(ts, checkpoint_id),
            versions=cast("Versions", versions),
            seen=cast("Mapping[str, Versions]", seen),
            cells={channel: unpack_cell(cell) for channel, cell in cast("dict[str, Shape]", cells).items()},
            trails={
                channel: InLog(log=log, length=length, snapshot=snapshot)
                for channel, (log, length, snapshot) in cast("dict[str, tuple[int, int, bool]]", trails).items()
            },
            metadata=_unpack_stored(metadata),
            rest=_unpack_stored(rest),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise CorruptionError("a checkpoint row does not decode; restore it from a backup") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Channels:
    """What a template says about the channels of its checkpoints: which have a version, which have a value, and which
    are delta channels, by LangGraph's counters in the metadata."""

    versions: frozenset[str]
    values: frozenset[str]
    delta: frozenset[str]


def channels_of(template: bytes) -> Channels:
    """The channels of every checkpoint of a template."""
    shape = cast("list[Shape]", outline(template))
    metadata = shape[5] if isinstance(shape[5], dict) else {}
    counters = metadata.get("counters_since_delta_snapshot")
    return Channels(
        versions=frozenset(cast("dict[str, Shape]", shape[1])),
        values=frozenset(cast("dict[str, Shape]", shape[3])),
        delta=frozenset(counters) if isinstance(counters, dict) else frozenset(),
    )


def channels_written(template: bytes) -> frozenset[str]:
    """The channels that every row of writes of a template writes."""
    shape = cast("list[dict[str, Shape]]", outline(template))
    return frozenset(channel for write in shape for channel in write)


def _pack_versions(versions: Versions) -> Shape:
    packed: dict[str, Shape] = {}
    for channel, version in versions.items():
        if isinstance(version, str):
            packed[channel] = Changing(version)
        else:
            packed[channel] = Version(version) if type(version) is int else version
    return packed


def _pack_metadata(metadata: Mapping[str, Shape] | Stored) -> Shape:
    if isinstance(metadata, Mapping) and type(step := metadata.get("step")) is int:
        return {**metadata, "step": Version(step)}
    return _pack_stored(metadata)


def _pack_stored(value: Mapping[str, Shape] | Stored) -> Shape:
    return [value.tag, value.data] if isinstance(value, Stored) else value


def _unpack_stored(shape: Shape) -> Mapping[str, Shape] | Stored:
    if isinstance(shape, list):
        tag, data = cast("tuple[str, bytes]", shape)
        return Stored(tag=tag, data=data)
    return cast("Mapping[str, Shape]", shape)


# --- cells ---


def pack_cell(cell: Cell) -> Shape:
    match cell:
        case Inline(tag=tag, pieces=pieces, refs=refs):
            if not refs:
                return ["i", tag, pieces[0]]
            return ["c", tag, list(map(len, pieces)), b"".join(pieces), list(refs)]
        case InBlob(blob=blob):
            return ["b", blob]
        case InLog(log=log, length=length, snapshot=snapshot):
            return ["s" if snapshot else "l", log, Version(length)]


def unpack_cell(shape: Shape) -> Cell:
    match shape:
        case ["b", int(blob)]:
            return InBlob(blob=blob)
        case ["i", str(tag), bytes(data)]:
            return Inline(tag=tag, pieces=(data,))
        case ["l" | "s" as kind, int(log), int(length)]:
            return InLog(log=log, length=length, snapshot=kind == "s")
        case ["c", str(tag), list(sizes), bytes(data), list(refs)]:
            pieces: list[bytes] = []
            at = 0
            for size in cast("list[int]", sizes):
                pieces.append(data[at : at + size])
                at += size
            return Inline(tag=tag, pieces=pieces, refs=cast("list[int]", refs))
        case _:
            raise CorruptionError("a stored row points at a value in an unknown way; restore it from a backup")


def blobs_of(cell: Cell) -> Sequence[int]:
    """The blobs that a cell names itself; a log's elements are not among them."""
    match cell:
        case Inline(refs=refs):
            return refs
        case InBlob(blob=blob):
            return (blob,)
        case InLog():
            return ()


# --- writes ---


def pack_writes(writes: Sequence[Write]) -> tuple[bytes, bytes]:
    """(template, row) of a task's writes, in the order given. Indexes repeat from task to task: they are text there."""
    shape: Shape = [{w.channel: [str(w.idx), w.path, pack_cell(w.cell)]} for w in writes]
    return split(shape, newest=None)


def unpack_writes(template: bytes, row: bytes) -> Sequence[Write]:
    shape = cast("list[dict[str, tuple[str, str, Shape]]]", join(template, row))
    try:
        return [
            Write(idx=int(idx), channel=channel, path=path, cell=unpack_cell(cell))
            for write in shape
            for channel, (idx, path, cell) in write.items()
        ]
    except (TypeError, ValueError) as error:
        raise CorruptionError("a row of pending writes does not decode; restore it from a backup") from error


# --- times ---

_UUID_EPOCH: Final = datetime(1582, 10, 15, tzinfo=UTC)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00\Z")


def _pack_time(ts: str, checkpoint_id: str) -> Shape:
    """LangGraph stamps a checkpoint and makes its time-ordered id in the same breath: the difference is small."""
    if _ISO.match(ts) is None:
        return Changing(ts)
    try:
        made = datetime.fromisoformat(ts)
    except ValueError:  # written like a time that there is not
        return Changing(ts)
    return (made - id_time(checkpoint_id)) // timedelta(microseconds=1)


def _unpack_time(shape: Shape, checkpoint_id: str) -> str:
    if isinstance(shape, int):
        return (id_time(checkpoint_id) + timedelta(microseconds=shape)).isoformat(timespec="microseconds")
    return str(shape)


def id_time(checkpoint_id: str) -> datetime:
    """The time in a version 6 UUID, to the microsecond; a fixed time for any other id."""
    try:
        value = uuid.UUID(checkpoint_id)
    except ValueError:
        return datetime(2026, 1, 1, tzinfo=UTC)
    if value.version != 6:
        return datetime(2026, 1, 1, tzinfo=UTC)
    ticks = (value.time_low << 28) | (value.time_mid << 12) | (value.time_hi_version & 0x0FFF)
    return _UUID_EPOCH + timedelta(microseconds=ticks // 10)


# --- checksums ---


def with_checksum(row: bytes, key: str) -> bytes:
    """A row with four bytes that belong to it and to its place: a swapped or damaged row does not pass."""
    return row + _checksum(row, key)


def without_checksum(data: bytes, key: str) -> bytes:
    """The row without its checksum. Raises `CorruptionError` when it does not match."""
    row, check = data[:-4], data[-4:]
    if len(data) < 4 or _checksum(row, key) != check:
        raise CorruptionError(f"the row of {key} is damaged; restore it from a backup")
    return row


def _checksum(row: bytes, key: str) -> bytes:
    return zlib.crc32(row, zlib.crc32(key.encode("utf-8", "surrogatepass"))).to_bytes(4, "big")
