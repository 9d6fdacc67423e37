"""JSON: the shape first. Keys, lengths, the first items of lists, the beginning of long strings.

Numbers keep their spelling and objects their duplicate keys; what is left out is counted in brackets.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from refold.core.preview.model import Render, clip, head_lines, left_out, number_of_lines, tail_lines

PARSED: Final = 20_000_000
"""Characters of the longest text that is parsed; a longer one is shown as text."""


class _Number(str):
    """A number in the spelling of the source."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Object:
    pairs: list[tuple[str, "Value"]]


Value: TypeAlias = "_Object | list[Value] | _Number | str | bool | None"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Level:
    """How much of a value is shown."""

    items: int
    keys: int
    width: int
    depth: int


# From everything to nearly nothing; each level shows less than the one before it.
_LEVELS: Final = tuple(
    _Level(items=items, keys=keys, width=width, depth=depth)
    for items, keys, width, depth in (
        (1000, 2000, 100_000, 12), (200, 500, 20_000, 10), (100, 300, 8_000, 9), (50, 200, 4_000, 8),
        (30, 150, 2_000, 8),
        (20, 100, 1_000, 7), (12, 80, 600, 6), (8, 60, 400, 6), (5, 50, 250, 5), (4, 40, 160, 5), (3, 40, 120, 4),
        (3, 30, 80, 4), (2, 30, 60, 3), (2, 25, 50, 3), (1, 20, 40, 3), (1, 15, 30, 2), (1, 12, 24, 2), (0, 10, 20, 1),
        (0, 5, 16, 1),
    )
)  # fmt: skip


def parse_json(text: str) -> "tuple[Value] | None":
    """The value of a text that is one JSON object or list, wrapped in a tuple; None when it is none."""
    start = text[:64].lstrip()[:1]
    if start not in ("{", "[") or len(text) > PARSED or text[-64:].rstrip()[-1:] not in ("}", "]"):
        return None
    try:
        value: Value = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Object
        )
    except (ValueError, RecursionError):
        return None
    return (value,)


def json_preview(text: str, value: Value) -> Render:
    """The value at the richest level that fits the room."""
    title = f"[JSON {_shape(value)}, {len(text):,} characters]"
    rendered: dict[int, str | None] = {}

    def at(level: int, limit: int) -> str | None:
        if level not in rendered or (rendered[level] is None):
            rendered[level] = _write(value, _LEVELS[level], limit)
        found = rendered[level]
        return found if found is not None and len(found) <= limit else None

    def render(characters: int) -> str:
        limit = characters - len(title) - 1
        if limit <= 0:
            return title
        low, high = 0, len(_LEVELS)
        while low < high:  # the first level that fits
            middle = (low + high) // 2
            if at(middle, limit) is None:
                low = middle + 1
            else:
                high = middle
        body = at(low, limit) if low < len(_LEVELS) else None
        return f"{title}\n{body}" if body is not None else title

    return render


def is_json_lines(text: str) -> bool:
    """Whether the first lines are each one JSON object or list."""
    sample = [line for line in text[:200_000].split("\n")[:6] if line.strip()]
    if len(text) > 200_000 and len(sample) > 1:
        sample.pop()  # it may be cut
    return len(sample) > 1 and all(parse_json(line) is not None for line in sample)


def json_lines_preview(text: str) -> Render:
    """The keys of the first record, then the first and last records, clipped."""
    first = parse_json(text[: text.find("\n")])
    keys = ""
    if first is not None and isinstance(first[0], _Object):
        keys = ", keys " + ", ".join(clip(key, 60) for key, _ in first[0].pairs[:30])
    title = f"[JSON lines: {number_of_lines(text):,} records, {len(text):,} characters{keys}]"

    def render(characters: int) -> str:
        room = characters - len(title) - 45
        if room < 40:
            return title if len(title) < 200 else clip(title, 100)
        width = max(30, room // 4)
        head, start = head_lines(text, room * 2 // 3, width)
        tail, stop = tail_lines(text, room // 3, width, stop=start)
        gap = [left_out(text, start, stop)] if stop > start else []
        return "\n".join([title, *head, *gap, *tail])

    return render


def _write(value: Value, level: _Level, limit: int) -> str | None:
    parts: list[str] = []
    left = limit
    for part in _pieces(value, level, 0):
        left -= len(part)
        if left < 0:
            return None
        parts.append(part)
    return "".join(parts)


def _pieces(value: Value, level: _Level, depth: int) -> Iterator[str]:
    match value:
        case _Object(pairs):
            yield from _object(pairs, level, depth)
        case list():
            yield from _list(value, level, depth)
        case _Number():
            yield clip(value, level.width)
        case str():
            yield _string(value, level.width)
        case _:
            yield json.dumps(value)


def _object(pairs: "list[tuple[str, Value]]", level: _Level, depth: int) -> Iterator[str]:
    if not pairs:
        yield "{}"
        return
    if depth >= level.depth:
        yield f"{{… {len(pairs):,} keys}}"
        return
    pad = "  " * (depth + 1)
    yield "{"
    for index, (key, item) in enumerate(pairs[: level.keys]):
        yield f"{',' if index else ''}\n{pad}{_string(key, max(level.width, 40))}: "
        yield from _pieces(item, level, depth + 1)
    if len(pairs) > level.keys:
        yield f",\n{pad}[… {len(pairs) - level.keys:,} more keys]"
    yield "\n" + "  " * depth + "}"


def _list(items: "list[Value]", level: _Level, depth: int) -> Iterator[str]:
    if not items:
        yield "[]"
        return
    if depth >= level.depth or level.items == 0:
        yield f"[… {len(items):,} items]"
        return
    scalars = all(not isinstance(item, list | _Object) for item in items[: level.items])
    gap = " " if scalars else "\n" + "  " * (depth + 1)
    yield "["
    for index, item in enumerate(items[: level.items]):
        yield ("," if index else "") + (gap if index or not scalars else "")
        yield from _pieces(item, level, depth + 1)
    if len(items) > level.items:
        yield f",{gap}[… {len(items) - level.items:,} more items]"
    yield "]" if scalars else "\n" + "  " * depth + "]"


def _string(value: str, width: int) -> str:
    if len(value) <= width + 30:
        return json.dumps(value, ensure_ascii=False)
    return f"{json.dumps(value[:width], ensure_ascii=False)} [… {len(value) - width:,} more characters]"


def _shape(value: Value) -> str:
    match value:
        case _Object(pairs):
            return f"object with {len(pairs):,} keys"
        case list():
            return f"list of {len(value):,} items"
        case _:
            return "value"
