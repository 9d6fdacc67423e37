"""Reading what a model wrote as a path, and small texts that the tools share."""

import unicodedata
from collections.abc import Sequence

from refold.core.paths import clean_folder, clean_path


def model_path(text: str) -> str:
    """A file's path as a model writes it: spaces around it, a missing first slash, `./` and another Unicode form are
    put right; everything else that is not a clean path is a `PathError`."""
    return clean_path(_absolute(text))


def model_folder(text: str) -> str:
    """A folder's path as a model writes it; empty and `.` are the root."""
    stripped = text.strip()
    return "/" if stripped in {"", ".", "./"} else clean_folder(_absolute(text))


def capped(lines: Sequence[str], *, most: int, hint: str) -> str:
    """Lines, at most so many, and how many more there are."""
    if len(lines) <= most:
        return "\n".join(lines)
    return "\n".join([*lines[:most], f"[{len(lines) - most} more; {hint}]"])


def times(count: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _absolute(text: str) -> str:
    path = unicodedata.normalize("NFC", text.strip())
    if path.startswith("/"):
        return path
    while path.startswith("./"):
        path = path[2:]
    return f"/{path}"
