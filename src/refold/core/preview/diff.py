"""Diffs: which files change by how much, then the first changes."""

import re
from typing import Final

from refold.core.preview.model import SCANNED, Render, clip, head_lines, left_out, number_of_lines

_START: Final = re.compile(
    r"(?:^|\n)(?:diff --git |Index: |--- [^\n]*\n\+\+\+ |\*\*\* (?:Begin Patch|Update File|Add File))"
)
_HUNK: Final = re.compile(r"(?:^|\n)(?:@@|\+\+\+ |\*\*\* (?:Update|Add|Delete) File)")


def looks_like_diff(sample: str) -> bool:
    """Whether the text begins as a unified diff or a patch."""
    return _START.search(sample[:4_000]) is not None and _HUNK.search(sample) is not None


def diff_preview(text: str) -> Render:
    """Half of the room at most for the list of files, the rest for the first lines of the diff."""
    files = _files(text)
    scanned = f" (of the first {SCANNED:,} characters)" if len(text) > SCANNED else ""
    added, removed = sum(file[1] for file in files), sum(file[2] for file in files)
    title = (
        f"[diff: {len(files):,} files, {added:,} lines added, {removed:,} removed{scanned}; "
        f"{number_of_lines(text):,} lines, {len(text):,} characters]"
    )

    def render(characters: int) -> str:
        room = characters - len(title) - 70
        if room < 30:
            return title
        listed: list[str] = []
        left = room // 2
        for name, plus, minus in files:
            line = f"{clip(name, 200)} [+{plus:,} -{minus:,}]"
            left -= len(line) + 1
            if left < 0:
                break
            listed.append(line)
        if len(listed) < len(files):
            listed.append(f"[… {len(files) - len(listed):,} more files]")
        head, stop = head_lines(text, room - sum(len(line) + 1 for line in listed), max(60, room // 4))
        gap = [left_out(text, stop, len(text))] if stop < len(text) else []
        return "\n".join([title, *listed, *(["[it begins:]", *head] if head else []), *gap])

    return render


def _files(text: str) -> list[tuple[str, int, int]]:
    """(path, lines added, lines removed) of each file, in order."""
    files: list[tuple[str, int, int]] = []
    name, plus, minus = "", 0, 0
    before = ""
    for line in text[:SCANNED].split("\n"):
        if line.startswith("+++ ") and before.startswith("--- "):
            if name:
                files.append((name, plus, minus - (1 if before else 0)))
            name, plus, minus = _name(line[4:], before[4:]), 0, 0
        elif line.startswith(("*** Update File: ", "*** Add File: ", "*** Delete File: ")):
            if name:
                files.append((name, plus, minus))
            name, plus, minus = line.split(": ", 1)[1].strip(), 0, 0
        elif line.startswith("+"):
            plus += 1
        elif line.startswith("-"):
            minus += 1
        before = line
    return [*files, (name, plus, minus)] if name else files


def _name(new: str, old: str) -> str:
    """The path of a file header, without the prefix and time stamp; a deleted file keeps its old one."""
    path = (old if new.startswith("/dev/null") else new).split("\t", 1)[0].strip()
    return path[2:] if path.startswith(("a/", "b/")) else path
