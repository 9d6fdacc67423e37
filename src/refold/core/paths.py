"""Virtual paths: which names every storage can hold, and names made from ids.

A path is absolute and POSIX (`/results/t1/call-7`). It is the same name on every backend, so the rules are the sum of
what ext4, APFS, NTFS, S3 keys and JSON hold without changing it. A path that breaks one is refused, never rewritten: a
path that a storage quietly changes no longer names what was stored under it.

Pure, so that the planner can make paths from content.
"""

import re
import unicodedata
from typing import Final

from refold.core.canonical import digest_of
from refold.errors import PathError

MAX_SEGMENT_BYTES: Final = 255
"""Bytes of UTF-8 in one segment: NAME_MAX of ext4, APFS and NTFS."""

MAX_PATH_BYTES: Final = 900
"""Bytes of UTF-8 in a whole path. An S3 key holds 1,024 including the prefix that a bucket is opened with."""

TEMPORARY_PREFIX: Final = ".refold-tmp-"
"""Names of unfinished writes in a directory. No path may use them."""

_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
)
_JOINERS = frozenset("\u200c\u200d")  # needed to spell Persian, Indic scripts and emoji
_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_CHARACTERS = 40
_NAME_DIGITS = 20


def clean_path(path: str) -> str:
    """The path itself, when every storage can hold it.

    Raises `PathError` that names the rule and what to write instead: a path must be absolute with `/` between
    segments; no empty, `.` or `..` segment; no NUL, control, bidirectional or surrogate character; no backslash;
    Unicode NFC; no segment that ends in a dot or space or starts with a space; no Windows device name; at most 255
    bytes of UTF-8 per segment and 900 in all. `/` alone is no file, and is refused; see `clean_folder`.
    """
    if not path.startswith("/"):
        raise PathError(f"path {_shown(path)} is not absolute: start it with /, as in /notes/plan.md")
    if path == "/":
        raise PathError("path / is the root folder: name a file in it, as in /notes.md")
    _check_characters(path)
    for segment in path[1:].split("/"):
        _check_segment(path, segment)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise PathError(f"path {_shown(path)} has over {MAX_PATH_BYTES} bytes: use shorter names or fewer folders")
    return path


def clean_folder(path: str) -> str:
    """A folder's path: as `clean_path`, but `/` is the root, and one `/` at the end is taken away."""
    return path if path == "/" else clean_path(path.removesuffix("/") if len(path) > 1 else path)


def safe_name(*parts: str) -> str:
    """One path segment from any ids: a readable start and a digest of all parts, at most 61 ASCII bytes.

    The same parts give the same name; other parts (also those that differ only in case, or are split otherwise) give
    another, on case-insensitive storage too. Any text is allowed: empty, 1,400 characters, hostile.
    """
    plain = unicodedata.normalize("NFKD", "-".join(parts)[: _SLUG_CHARACTERS * 4]).casefold()
    slug = _SLUG.sub("-", plain)[:_SLUG_CHARACTERS].strip("-")
    return f"{slug or 'x'}-{digest_of(list(parts))[:_NAME_DIGITS]}"


def is_under(path: str, folder: str) -> bool:
    """Whether a path is the folder itself or lies in it, by whole segments: `/a/b` is under `/a`, `/ab` is not."""
    return folder == "/" or path == folder or path.startswith(f"{folder}/")


def _check_characters(path: str) -> None:
    for character in path:
        if character == "\\":
            raise PathError(f"path {_shown(path)} has a backslash: separate folders with /")
        if character.isascii() and character >= " " and character != "\x7f":
            continue
        category = unicodedata.category(character)
        if category in {"Cc", "Cs", "Zl", "Zp"} or (category == "Cf" and character not in _JOINERS):
            raise PathError(
                f"path {_shown(path)} holds the control character U+{ord(character):04X}: leave it out of the name"
            )
    if not unicodedata.is_normalized("NFC", path):
        raise PathError(f"path {_shown(path)} is not in Unicode NFC: write it composed (unicodedata.normalize)")


def _check_segment(path: str, segment: str) -> None:
    if not segment:
        raise PathError(f"path {_shown(path)} has an empty segment: write one / between names and none at the end")
    if segment in {".", ".."}:
        raise PathError(f"path {_shown(path)} has the segment {segment!r}: write the whole path without it")
    if segment[-1] in ". " or segment[0] == " ":
        raise PathError(f"path {_shown(path)}: a name may not end in a dot or space, or start with a space")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise PathError(f"path {_shown(path)} has a name of over {MAX_SEGMENT_BYTES} bytes: use a shorter one")
    if segment.casefold().split(".", 1)[0].rstrip(" ") in _DEVICES:
        raise PathError(f"path {_shown(path)}: {segment!r} is a device name on Windows; use another name")
    if segment.casefold().startswith(TEMPORARY_PREFIX):
        raise PathError(f"path {_shown(path)}: names that start with {TEMPORARY_PREFIX} are for unfinished writes")


def _shown(path: str) -> str:
    return repr(path if len(path) <= 120 else f"{path[:100]}... ({len(path)} characters)")
