"""Plain text: its beginning and its end, cut where a line or sentence ends, in any script."""

import re
from typing import Final

from refold.core.preview.model import Render, left_out, number_of_lines

_BOUNDARY: Final = re.compile(r"\n|[.!?](?=\s)|[。！？…；](?=[^」』”’）)])|[」』”’）)](?<=[。！？].)|(?<=[,;:、，])")
_SENTENCE_START: Final = re.compile(r"\n|(?<=[.!?])\s|(?<=[。！？；」』])")


def prose_preview(text: str, *, note: str = "text") -> Render:
    """Two thirds of the room for the beginning, one third for the end."""
    lines = number_of_lines(text)
    counted = f"{lines:,} lines, " if lines > 1 else ""
    title = f"[{note}: {counted}{len(text):,} characters]"

    def render(characters: int) -> str:
        room = characters - len(title)
        if room < 20:
            return title
        head = _head(text, room * 2 // 3)
        tail = _tail(text, room - len(head) - 40, not_before=len(head))
        if len(head) + len(tail) >= len(text):
            return f"{title}\n{text}"
        middle = _gap(text, len(head), len(text) - len(tail))
        return "\n".join(part for part in (title, head.rstrip("\n"), middle, tail.lstrip("\n")) if part)

    return render


def _gap(text: str, start: int, stop: int) -> str:
    """Says which part is missing; inside one long line, that it is one."""
    if "\n" not in text[max(0, start - 1) : start + 1] and text.find("\n", start, stop) < 0:
        return f"[… {stop - start:,} more characters on this line …]"
    return left_out(text, start, stop)


def _head(text: str, characters: int) -> str:
    """At most so many characters, ending at the last boundary of their last third if there is one."""
    if characters >= len(text):
        return text
    cut = text[:characters]
    floor = characters * 2 // 3
    if (line := cut.rfind("\n")) >= floor:
        return cut[: line + 1]
    ends = [match.end() for match in _BOUNDARY.finditer(cut, floor)]
    if ends:
        return cut[: ends[-1]]
    blank = cut.rfind(" ", floor)
    return cut[: blank + 1] if blank > 0 else cut


def _tail(text: str, characters: int, *, not_before: int) -> str:
    """At most so many characters, beginning at the first boundary of their first third if there is one."""
    if characters <= 0:
        return ""
    start = max(len(text) - characters, not_before)
    cut = text[start:]
    limit = len(cut) // 3
    if 0 <= (line := cut.find("\n", 0, limit)) < limit:
        return cut[line + 1 :]
    match = _SENTENCE_START.search(cut, 0, limit)
    if match is not None:
        return cut[match.end() :]
    blank = cut.find(" ", 0, limit)
    return cut[blank + 1 :] if blank >= 0 else cut
