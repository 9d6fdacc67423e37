"""Counting what is left out, and reading fields of records that may hold anything."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

from refold.replay.transcript import Skipped

MAX_DEPTH: Final = 100
"""Deepest nesting that is read. Recorded sessions stay below 30; beyond this, ordinary recursive readers (ours,
pydantic's, a JSON writer's) would run into the interpreter's own limit."""


class Skips:
    """Counts of what did not become a message, by reason, in order of first appearance."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int | None]] = {}

    def add(self, reason: str, line: int | None = None, *, count: int = 1) -> None:
        before, first = self._found.get(reason, (0, line))
        self._found[reason] = (before + count, first)

    def take(self) -> tuple[Skipped, ...]:
        """Everything counted since the last `take`."""
        found = tuple(
            Skipped(reason=reason, count=count, first_line=line) for reason, (count, line) in self._found.items()
        )
        self._found.clear()
        return found


def parse(text: str) -> object:
    """JSON text as a value that is safe to handle.

    Its depth is bounded, NaN is the text "NaN", half characters are replaced. Raises `ValueError` when it is no JSON.
    """
    try:
        value: object = json.loads(text, parse_constant=str)
        if too_deep(value):
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH}") from None
    return whole_characters(value) if has_half_characters(text) else value


def has_half_characters(text: str) -> bool:
    """Whether JSON text may hold a lone surrogate: writers that cut text between UTF-16 units leave them behind."""
    return "\\ud" in text or "\\uD" in text


def whole_characters(value: object) -> object:
    """A copy in which every lone surrogate is U+FFFD, because text with one cannot be written as UTF-8."""
    match value:
        case str():
            return value if _encodable(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [whole_characters(item) for item in value]
        case dict():
            return {str(whole_characters(key)): whole_characters(item) for key, item in value.items()}
        case _:
            return value


def too_deep(value: object) -> bool:
    """Whether a value is nested deeper than `MAX_DEPTH`; itself without recursion."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is an object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[object]:
    """The value if it is an array, else an empty one."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def string(value: object) -> str | None:
    """The value if it is a text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def number(value: object) -> int | None:
    """The value as a count (a whole number, not negative), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)


def moment(value: object) -> datetime | None:
    """A point in time from ISO 8601 text or a Unix time in seconds or milliseconds; without a zone it is UTC."""
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        seconds = number(value)
        if seconds is None:
            return None
        return datetime.fromtimestamp(seconds / 1000 if seconds > 100_000_000_000 else seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _children(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return [item for item in value.values() if isinstance(item, dict | list)]
    return [item for item in value if isinstance(item, dict | list)] if isinstance(value, list) else ()


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
