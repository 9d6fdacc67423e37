"""The format: what is packed unpacks, names depend on content alone, schema and migrations meet, backends match."""

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from checkpoint_mirror import plain as shown_tuple
from hypothesis import given
from hypothesis import strategies as st

import refold.checkpoint
from refold.checkpoint import SqliteSaver
from refold.checkpoint.header import (
    Header,
    InBlob,
    Inline,
    InLog,
    Write,
    channels_of,
    channels_written,
    pack_header,
    pack_writes,
    unpack_header,
    unpack_writes,
    with_checksum,
    without_checksum,
)
from refold.checkpoint.logs import pack_segment, unpack_segment
from refold.checkpoint.records import Record, pack_record, unpack_record
from refold.checkpoint.rows import pack_task, unpack_task
from refold.checkpoint.seal import Compressor, Sealer
from refold.checkpoint.shape import Changing, Version, join, outline, split
from refold.checkpoint.spaces import pack_id, unpack_id
from refold.checkpoint.sql import migrations, named_blocks, parameters_of, read_sql, script
from refold.checkpoint.varint import get_int, get_uint, pack_ids, put_int, put_uint, unpack_ids
from refold.errors import CorruptionError

GOLDEN = Path(__file__).parent / "golden"
SEALER = Sealer(Compressor(), cipher=None, hash_key=b"")
ids = st.integers(0, 2**50)
texts = st.text(max_size=20)
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | texts | st.binary(max_size=20) | st.uuids().map(str)
shapes = st.recursive(
    leaves | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
cells = st.one_of(
    st.builds(InBlob, blob=ids),
    st.builds(InLog, log=ids, length=ids, snapshot=st.booleans()),
    st.builds(Inline, tag=texts, pieces=st.tuples(st.binary(max_size=9))),
    st.builds(
        lambda tag, pieces, refs: Inline(tag=tag, pieces=[*pieces, b"z"][: len(refs) + 1], refs=refs[: len(pieces)]),
        tag=texts,
        pieces=st.lists(st.binary(max_size=5), min_size=3, max_size=3),
        refs=st.lists(ids, min_size=1, max_size=3),
    ),
)
versions = st.dictionaries(texts, st.integers(0, 2**40) | texts, max_size=4)
TIMES = (
    "2026-01-02T03:04:05.123456+00:00",
    "2026-01-02T03:04:05+00:00",
    "yesterday",
    "2026-01-02T03:04:05.120000+02:00",
)
IDS = ("1f1ed0fc-a8b7-6635-bfff-ebe8008ed064", "7", "9f1ed0fc-a8b7-4635-bfff-ebe8008ed064")


class TestWhatIsPackedUnpacks:
    @given(value=st.integers(0, 2**80), signed=st.integers(-(2**80), 2**80), run=st.lists(ids))
    def test_integers(self, value: int, signed: int, run: list[int]) -> None:
        """Varints and runs of ids of any size."""
        out = bytearray()
        put_uint(out, value)
        put_int(out, signed)
        found, at = get_uint(bytes(out), 0)
        assert (found, get_int(bytes(out), at)[0]) == (value, signed)
        assert list(unpack_ids(pack_ids(run), 0, len(run))[0]) == run

    @given(shape=shapes)
    def test_shapes(self, shape: Any) -> None:
        """A template and a row give the structure again; the template alone shows it without what is in the row."""
        template, row = split(shape, newest=7)
        assert join(template, row) == shape
        outline(template)

    def test_versions_keep_their_distance(self) -> None:
        """Rows of successive checkpoints have the same template and, for what moved together, the same bytes."""
        first = split({"a": Version(100), "b": Version(99), "t": Changing("x")}, newest=100)
        later = split({"a": Version(5000), "b": Version(4999), "t": Changing("y")}, newest=5000)
        assert first[0] == later[0]
        assert join(*later) == {"a": 5000, "b": 4999, "t": "y"}

    @given(
        cells=st.dictionaries(texts, cells, max_size=4),
        versions=versions,
        seen=st.dictionaries(texts, versions, max_size=3),
        ts=st.sampled_from(TIMES),
        checkpoint_id=st.sampled_from(IDS),
        metadata=st.dictionaries(texts, shapes, max_size=3),
    )
    def test_headers(self, cells: Any, versions: Any, seen: Any, ts: str, checkpoint_id: str, metadata: Any) -> None:
        """Any header, with any cell, time, id and metadata."""
        header = Header(ts=ts, versions=versions, seen=seen, cells=cells, metadata=metadata, rest={"v": 4})
        template, row = pack_header(header, checkpoint_id)
        found = unpack_header(template, row, checkpoint_id)
        assert (found.ts, found.versions, found.seen, found.metadata) == (ts, versions, seen, metadata)
        assert {name: repr(as_lists(cell)) for name, cell in found.cells.items()} == {
            name: repr(as_lists(cell)) for name, cell in cells.items()
        }
        assert channels_of(template).values == frozenset(cells)
        assert channels_of(template).versions == frozenset(versions)

    @given(items=st.lists(st.builds(Write, idx=st.integers(-4, 9), channel=texts, cell=cells, path=texts), max_size=4))
    def test_writes(self, items: list[Write]) -> None:
        """Any task's writes, and which channels they write."""
        template, row = pack_writes(items)
        found = unpack_writes(template, row)
        assert [(w.idx, w.channel, w.path, repr(as_lists(w.cell))) for w in found] == [
            (w.idx, w.channel, w.path, repr(as_lists(w.cell))) for w in items
        ]
        assert channels_written(template) == frozenset(w.channel for w in items)

    @given(tag=texts | st.just("msgpack"), pieces=st.lists(st.binary(max_size=9), min_size=1, max_size=5), base=ids)
    def test_records(self, tag: str, pieces: list[bytes], base: int) -> None:
        """Leaves and composites, with any type tag."""
        record = Record(tag=tag, pieces=tuple(pieces), refs=tuple(base + n for n in range(len(pieces) - 1)))
        found = unpack_record(pack_record(record), composite=bool(record.refs))
        assert (found.tag, tuple(found.pieces), tuple(found.refs)) == (tag, tuple(pieces), record.refs)

    @given(entries=st.lists(ids | st.binary(max_size=95)))
    def test_segments(self, entries: list[int | bytes]) -> None:
        """Elements in order, ids and inline bytes mixed."""
        codec, data = pack_segment(SEALER, 3, 64, entries)
        assert unpack_segment(SEALER, 3, 64, codec, data) == entries
        with pytest.raises(CorruptionError):
            unpack_segment(SEALER, 3, 128, codec, data)

    @given(task=st.text(min_size=1, max_size=40) | st.uuids().map(str))
    def test_task_ids(self, task: str) -> None:
        """Any text comes back, 16 bytes for a UUID."""
        assert unpack_task(pack_task(task)) == task

    @given(first=st.uuids().map(str), second=st.uuids().map(str))
    def test_ids_keep_their_order(self, first: str, second: str) -> None:
        """Packed ids are ordered as their texts are, in both forms."""
        for wide in (False, True):
            packed = [pack_id(text, wide=wide) for text in (first, second)]
            assert (packed[0] < packed[1]) == (first < second)
            assert unpack_id(packed[0], wide=wide) == first

    @given(data=st.binary(max_size=200), base=st.binary(max_size=100))
    def test_sealed_data_opens(self, data: bytes, base: bytes) -> None:
        """With the dictionary, with a base, and as a pack."""
        for options in ({}, {"base": base}, {"strong": True}):
            codec, sealed = SEALER.seal(data, **options)  # type: ignore[arg-type]
            assert SEALER.open(codec, sealed, base=options.get("base")) == data  # type: ignore[arg-type]

    def test_a_checksum_belongs_to_its_place(self) -> None:
        """A row that was damaged, or moved to another key, does not pass."""
        row = with_checksum(b"abc", "checkpoint 1")
        assert without_checksum(row, "checkpoint 1") == b"abc"
        for data, key in ((row, "checkpoint 2"), (row[:-1] + b"\xff", "checkpoint 1"), (b"", "checkpoint 1")):
            with pytest.raises(CorruptionError):
                without_checksum(data, key)


def as_lists(cell: Any) -> Any:
    return (cell.tag, list(cell.pieces), list(cell.refs)) if isinstance(cell, Inline) else cell


class TestNames:
    def test_names_are_golden(self) -> None:
        """The name of a value is BLAKE2b-128 of tag, zero byte and bytes, for ever."""
        assert SEALER.name("msgpack", b"\xa1a").hex() == "a4da9b31c5aa8a56c721965b6243f677"

    def test_a_name_does_not_depend_on_the_codec(self) -> None:
        """Compressed or not, the name is of the plain bytes; the tag belongs to it."""
        assert SEALER.name("msgpack", b"x" * 100) == Sealer(Compressor(), cipher=None, hash_key=b"k").name(
            "msgpack", b"x" * 100
        )
        assert SEALER.name("msgpack", b"x") != SEALER.name("bytes", b"x")


class TestSchema:
    def test_migrations_lead_to_the_schema(self) -> None:
        """All migrations, one after the other, make what `schema.sql` makes."""
        made = []
        for texts in ([read_sql("sqlite", "schema.sql")], migrations("sqlite").values()):
            db = sqlite3.connect(":memory:")
            for text in texts:
                for statement in script(text):
                    db.execute(statement)
            made.append(sorted(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall(), key=repr))
            db.close()
        assert made[0] == made[1]

    @pytest.mark.postgres
    def test_postgres_migrations_lead_to_the_schema(self, postgres_url: str) -> None:
        """The same for Postgres: columns, types, storage and indexes."""
        import psycopg

        made = []
        for name, texts in (("one", [read_sql("postgres", "schema.sql")]), ("two", migrations("postgres").values())):
            with psycopg.connect(postgres_url, autocommit=True) as db:
                db.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
                db.execute(f"SET search_path TO {name}")  # type: ignore[arg-type]
                for text in texts:
                    for statement in script(text):
                        db.execute(statement)  # type: ignore[arg-type]
                columns = db.execute(
                    "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage, "
                    "a.attidentity FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
                    "WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 "
                    "ORDER BY 1, 2"
                ).fetchall()
                indexes = db.execute(
                    "SELECT indexname, replace(indexdef, schemaname, '') FROM pg_indexes "
                    "WHERE schemaname = current_schema() ORDER BY 1"
                ).fetchall()
                made.append((columns, indexes))
        assert made[0] == made[1]
        assert made[0][0]

    def test_backends_have_the_same_statements(self) -> None:
        """Every statement exists for both, with the same parameters; every name that programs use is there."""
        sqlite, postgres = (named_blocks(read_sql(name, "queries.sql")) for name in ("sqlite", "postgres"))
        assert {name: parameters_of(text) for name, text in sqlite.items()} == {
            name: parameters_of(text) for name, text in postgres.items()
        }
        used: set[str] = set()
        for path in Path(refold.checkpoint.__file__).parent.rglob("*.py"):
            used |= set(re.findall(r'statement="(\w+)"', path.read_text(encoding="utf-8")))
        assert used - sqlite.keys() == set()


class TestGoldenFiles:
    @pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.db")), ids=lambda file: file.stem)
    def test_a_released_file_opens_for_ever(self, file: Path, tmp_path: Path) -> None:
        """A database of every format ever released verifies and reads as it did when it was written."""
        copy = tmp_path / file.name
        shutil.copy(file, copy)
        expected = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        with SqliteSaver.from_conn_string(str(copy)) as saver:
            assert saver.verify().problems == ()
            found = [shown_tuple(item) for item in saver.list(None)]
            assert json.loads(json.dumps(found)) == expected

    def test_there_is_one_for_each_format(self) -> None:
        """No format without a file."""
        from refold.checkpoint.meta import FORMAT

        assert {int(file.stem.split("-")[1]) for file in GOLDEN.glob("format-*.db")} == set(range(1, FORMAT + 1))
