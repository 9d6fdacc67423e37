"""What a preview is, and the arithmetic that all kinds share: notes, clipped lines, heads, tails, fitting a budget."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

CountText: TypeAlias = Callable[[str], int]
"""Tokens of a text."""

Kind: TypeAlias = Literal["json", "jsonl", "table", "log", "code", "diff", "text"]

Render: TypeAlias = Callable[[int], str]
"""A preview in about as many characters as given; with more characters it shows more, never less."""

SCANNED: Final = 2_000_000
"""Characters in which lines are looked at one by one; beyond them only fast searches run."""

_CHARACTERS_PER_TOKEN: Final = 8
"""More than any tokenizer averages on prose, code or data; bounds the search for the longest preview that fits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """A shorter text that stands for a longer one, and what the longer one was taken for.

    Everything in `text` is verbatim from the source but for notes in square brackets, which say what was left out.
    """

    text: str
    kind: Kind


def fit(render: Render, *, size: int, budget: int, count: CountText) -> str:
    """The longest rendering that counts at most `budget`, by bisection; else a note of the size, `…` or nothing."""
    low, high = 0, min(max(budget, 0) * _CHARACTERS_PER_TOKEN, 2 * size + 400)
    best = render(0)
    if count(best) > budget:
        return next((note for note in (f"[{size:,} characters]", "…") if count(note) <= budget), "")
    while high - low > max(4, high // 50):
        middle = (low + high + 1) // 2
        text = render(middle)
        if count(text) <= budget:
            low, best = middle, text
        else:
            high = middle
    return best


def left_out(text: str, start: int, stop: int) -> str:
    """The note for a part of a text that is not shown."""
    lines = text.count("\n", start, stop)
    characters = f"{stop - start:,} characters"
    return f"[… {lines:,} lines, {characters} left out …]" if lines > 1 else f"[… {characters} left out …]"


def clip(line: str, width: int) -> str:
    """A line in at most about `width` characters; what is cut is said."""
    if len(line) <= width + 40:  # a note is no shorter
        return line
    return f"{line[:width]} [… {len(line) - width:,} more characters on this line]"


def head_lines(text: str, characters: int, width: int, *, start: int = 0) -> tuple[list[str], int]:
    """Lines from `start` on, clipped to `width`, in at most `characters`; and where the next line begins."""
    lines: list[str] = []
    while characters > 0 and start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = _clipped(text, start, end, width)
        if len(line) > characters:
            break
        lines.append(line)
        characters -= len(line) + 1
        start = min(end + 1, len(text))
    return lines, start


def tail_lines(text: str, characters: int, width: int, *, stop: int = 0) -> tuple[list[str], int]:
    """Lines from the end back, but not before `stop`, clipped to `width`; and where the first of them begins."""
    lines: list[str] = []
    end = len(text) - 1 if text.endswith("\n") else len(text)
    first = len(text)
    while characters > 0 and end > stop:
        start = max(text.rfind("\n", stop, end) + 1, stop)
        line = _clipped(text, start, end, width)
        if len(line) > characters:
            break
        lines.append(line)
        characters -= len(line) + 1
        first = start
        end = start - 1
    return lines[::-1], first


def number_of_lines(text: str) -> int:
    """Lines of a text; a last line without an end counts."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def _clipped(text: str, start: int, end: int, width: int) -> str:
    line = text[start : min(end, start + width + 41)]
    if end - start <= width + 40:
        return line
    return f"{line[:width]} [… {end - start - width:,} more characters on this line]"
