"""A row's content as a template, which repeats from row to row, and the few bytes that do not.

Headers of successive checkpoints, and the writes of successive tasks, have the same channels, nodes and kinds of
values; what changes is numbers and ids. `split` puts the numbers, UUIDs and byte strings of a plain structure into a
row of its own and everything else into a template; a template is stored once as a blob, by hash. `join` puts them
together again. This is what makes a checkpoint row some tens of bytes, without a compressor and without a chain of
differences that one lost row would cut.

    0 None  1 True  2 False  3 int  4 version  5 text in the template  6 bytes  7 list  8 dict  9 float
    10 text in the row  11 UUID  12 early version  13 structure whose row begins without a newest version

A version (channel versions grow with every step) is stored as its distance from the newest version of the row, which
comes first: distances stay small however long the thread is. One that has stayed behind, such as the input's, is stored
as it is where that is shorter: an early version.
"""

import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from refold.checkpoint.varint import get_int, get_uint, put_int, put_uint
from refold.errors import CorruptionError

Shape: TypeAlias = "bool | int | float | str | bytes | Sequence[Shape] | Mapping[str, Shape] | None"
"""A plain structure. `Version` and `Changing` are its two annotated leaves."""

_NONE, _TRUE, _FALSE, _INT, _VERSION, _TEXT, _BYTES, _LIST, _DICT, _FLOAT, _CHANGING, _UUID, _EARLY, _TIMELESS = range(
    14
)
_FAR: Final = 64
"""The least distance that takes two bytes."""
_ONE_BYTE: Final = 128
"""Versions below it take one byte."""
_CANONICAL_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")


class Version(int):
    """A channel version that is an integer, or another count that grows with the versions."""


class Changing(str):
    """A text that differs from row to row."""

    __slots__ = ()


def is_canonical_uuid(text: str) -> bool:
    """Whether 16 bytes stand for the text exactly."""
    return len(text) == 36 and _CANONICAL_UUID.match(text) is not None


def is_plain(value: object) -> bool:
    """Whether `split` takes the value as it is: exact built-in types, text keys. Tuples come back as lists."""
    kind = type(value)
    if kind in (str, int, bool, float) or value is None:
        return True
    if kind is dict:
        assert isinstance(value, dict)
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if kind in (list, tuple):
        assert isinstance(value, list | tuple)
        return all(map(is_plain, value))
    return False


def plain_copy(value: object) -> Shape:
    """A plain value in containers of its own, tuples as the lists that they come back as."""
    if isinstance(value, dict):
        return {key: plain_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_copy(item) for item in value]
    return cast("Shape", value)


def split(shape: Shape, *, newest: int | None) -> tuple[bytes, bytes]:
    """(template, row) of a structure. `newest` is at least every `Version` in it; None where there can be none."""
    template, row = bytearray(), bytearray()
    if newest is None:
        template.append(_TIMELESS)
    else:
        put_int(row, newest)
    _split(shape, newest or 0, template, row)
    return bytes(template), bytes(row)


def _split(shape: object, newest: int, template: bytearray, row: bytearray) -> None:
    kind = type(shape)  # exact types: the callers build the structure, and this runs for every value of every row
    if kind is Version:
        _split_version(cast("int", shape), newest, template, row)
    elif kind is str or kind is Changing:
        _split_text(cast("str", shape), template, row)
    elif kind is dict:
        template.append(_DICT)
        put_uint(template, len(cast("dict[str, object]", shape)))
        for key, item in cast("dict[str, object]", shape).items():
            _split_key(key, template)
            _split(item, newest, template, row)
    elif kind is list or kind is tuple:
        template.append(_LIST)
        put_uint(template, len(cast("list[object]", shape)))
        for item in cast("list[object]", shape):
            _split(item, newest, template, row)
    elif kind is int:
        template.append(_INT)
        put_int(row, cast("int", shape))
    elif shape is None:
        template.append(_NONE)
    elif kind is bool:
        template.append(_TRUE if shape else _FALSE)
    elif kind is bytes:
        template.append(_BYTES)
        put_uint(row, len(cast("bytes", shape)))
        row += cast("bytes", shape)
    elif kind is float:
        template.append(_FLOAT)
        row += struct.pack("<d", shape)
    else:
        raise TypeError(f"a {kind.__name__} is no plain structure")


def _split_version(version: int, newest: int, template: bytearray, row: bytearray) -> None:
    if 0 <= version < _ONE_BYTE and newest - version >= _FAR:
        template.append(_EARLY)
        put_uint(row, version)
    else:
        template.append(_VERSION)
        put_int(row, newest - version)


def _split_key(key: str, template: bytearray) -> None:
    """Keys are always in the template: `outline` shows them without a row."""
    data = key.encode("utf-8", "surrogatepass")
    put_uint(template, len(data))
    template += data


def _split_text(text: str, template: bytearray, row: bytearray) -> None:
    if is_canonical_uuid(text):
        template.append(_UUID)
        row += uuid.UUID(text).bytes
        return
    data = text.encode("utf-8", "surrogatepass")
    out = row if isinstance(text, Changing) else template
    template.append(_CHANGING if isinstance(text, Changing) else _TEXT)
    put_uint(out, len(data))
    out += data


def join(template: bytes, row: bytes) -> Shape:
    """The structure again. Raises `CorruptionError` when the two do not belong together."""
    try:
        start = _start(template)
        newest, at = (0, 0) if start else get_int(row, 0)
        shape, end, row_end = _join(template, start, row, at, newest)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise CorruptionError("a stored row and its template do not fit; restore it from a backup") from error
    if end != len(template) or row_end != len(row):
        raise CorruptionError("a stored row and its template do not fit; restore it from a backup")
    return shape


def _start(template: bytes) -> int:
    """Where the structure begins; not at 0 where its rows have no newest version."""
    return int(template[0] == _TIMELESS)


def _join(template: bytes, at: int, row: bytes, here: int, newest: int) -> tuple[Shape, int, int]:
    kind = template[at]
    at += 1
    if kind == _DICT:
        count, at = get_uint(template, at)
        found: dict[str, Shape] = {}
        for _ in range(count):
            size, at = get_uint(template, at)
            key, at = template[at : at + size].decode("utf-8", "surrogatepass"), at + size
            found[key], at, here = _join(template, at, row, here, newest)
        return found, at, here
    if kind == _LIST:
        count, at = get_uint(template, at)
        items: list[Shape] = []
        for _ in range(count):
            item, at, here = _join(template, at, row, here, newest)
            items.append(item)
        return items, at, here
    if kind == _TEXT:
        size, at = get_uint(template, at)
        return template[at : at + size].decode("utf-8", "surrogatepass"), at + size, here
    value, here = _join_leaf(kind, row, here, newest)
    return value, at, here


def _join_leaf(kind: int, row: bytes, here: int, newest: int) -> tuple[Shape, int]:
    if kind == _NONE:
        return None, here
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, here
    if kind in (_INT, _VERSION):
        value, here = get_int(row, here)
        return (value if kind == _INT else newest - value), here
    if kind == _EARLY:
        return get_uint(row, here)
    if kind == _FLOAT:
        return struct.unpack_from("<d", row, here)[0], here + 8
    if kind == _UUID:
        return str(uuid.UUID(bytes=row[here : here + 16])), here + 16
    size, here = get_uint(row, here)
    data = row[here : here + size]
    if len(data) != size or kind not in (_BYTES, _CHANGING):
        raise CorruptionError("a stored row and its template do not fit; restore it from a backup")
    return (data if kind == _BYTES else data.decode("utf-8", "surrogatepass")), here + size


def outline(template: bytes) -> Shape:
    """The structure of a template alone: None stands for whatever is in the row."""
    return _outline(template, _start(template))[0]


def _outline(template: bytes, at: int) -> tuple[Shape, int]:
    kind = template[at]
    at += 1
    if kind == _DICT:
        count, at = get_uint(template, at)
        found: dict[str, Shape] = {}
        for _ in range(count):
            size, at = get_uint(template, at)
            key, at = template[at : at + size].decode("utf-8", "surrogatepass"), at + size
            found[key], at = _outline(template, at)
        return found, at
    if kind == _LIST:
        count, at = get_uint(template, at)
        items: list[Shape] = []
        for _ in range(count):
            item, at = _outline(template, at)
            items.append(item)
        return items, at
    if kind == _TEXT:
        size, at = get_uint(template, at)
        return template[at : at + size].decode("utf-8", "surrogatepass"), at + size
    return (kind == _TRUE if kind in (_TRUE, _FALSE) else None), at
