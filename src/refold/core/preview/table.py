"""Tables: comma, tab, semicolon or pipe separated, Markdown, columns aligned with blanks. The heading always stays."""

import re
from typing import Final

from refold.core.preview.model import Render, clip, head_lines, left_out, number_of_lines, tail_lines

_NAMES: Final = {",": "comma-separated", "\t": "tab-separated", ";": "semicolon-separated", "|": "pipe-separated"}
_COLUMN: Final = re.compile(r"\S+(?: \S+)*")
_QUOTED: Final = re.compile(r'"[^"]*+"')
_RULE: Final = re.compile(r"\s*\|?[\s:|+=-]+\|?\s*")


def table_form(sample: str) -> str | None:
    """What a text's first lines are separated by, in words; None when they are no table."""
    lines = [line.rstrip("\r") for line in sample.split("\n")[:30]]
    lines = [line for line in lines if line.strip()][:24]
    if len(lines) < 3 or any(len(line) > 4_000 for line in lines):
        return None
    if lines[0].lstrip().startswith("|") and _RULE.fullmatch(lines[1]) and "-" in lines[1]:
        return "Markdown"
    for delimiter, name in _NAMES.items():
        counts = [_QUOTED.sub("", line).count(delimiter) for line in lines]
        usual = counts[0]
        needed = 1 if delimiter in "\t|" else 2
        if usual >= needed and sum(count == usual for count in counts) * 10 >= len(counts) * 9:
            return name
    return "aligned" if _aligned(lines) else None


def table_preview(text: str, form: str) -> Render:
    """The heading, three quarters of the remaining room for the first rows, a quarter for the last."""
    end = text.find("\n")
    heading = text[: end if end >= 0 else len(text)].rstrip("\r")
    title = f"[{form} table: {number_of_lines(text):,} lines with the heading, {len(text):,} characters]"

    def render(characters: int) -> str:
        room = characters - len(title) - 50
        if room < 30:
            return title
        width = max(40, room // 3)
        first = clip(heading, width)
        room -= len(first)
        head, start = head_lines(text, room * 3 // 4, width, start=min(len(heading) + 1, len(text)))
        tail, stop = tail_lines(text, room // 4, width, stop=start)
        gap = [left_out(text, start, stop)] if stop > start else []
        return "\n".join([title, first, *head, *gap, *tail])

    return render


def _aligned(lines: list[str]) -> bool:
    """Whether at least three columns begin under the words of the first line in most lines."""
    starts = {match.start() for match in _COLUMN.finditer(lines[0][:400]) if match.start() > 0}
    if len(starts) < 2 or "  " not in lines[0].strip():
        return False
    fitting = 0
    for line in lines[1:]:
        columns = {match.start() for match in _COLUMN.finditer(line[:400])}
        fitting += len(columns & starts) >= max(2, len(starts) // 2)
    return fitting * 10 >= (len(lines) - 1) * 8
