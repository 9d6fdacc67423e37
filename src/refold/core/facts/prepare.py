"""Texts made ready for scanning: escaped line ends read as line ends, full-width forms read as ASCII."""

import re
from typing import Final

# The full-width forms U+FF01 to U+FF5E stand 0xFEE0 above their ASCII twins; U+3000 is the wide blank.
_WIDE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_HAS_WIDE: Final = re.compile("[\uff01-\uff5e\u3000]")
# Dumped once or twice, an escape means the same. A Windows path keeps its backslashes: doubled ones inside dumped JSON,
# single ones in plain text.
_NAME: Final = r"[A-Za-z0-9_.@+~%$() \-]++"
_ESCAPE: Final = re.compile(
    rf"(?<![A-Za-z0-9])[A-Za-z]:(?:(?:\\\\{_NAME})++|(?:\\(?!\\|[nrt](?![a-z])){_NAME})++)"
    r"|\\{1,4}(?:([nrt])|([\"'/])|u([0-9a-fA-F]{4}))"
)
_DIFF: Final = re.compile(r"^(?:(---|\+\+\+) [ab]/|diff --git a/(\S{1,400}) b/)", re.MULTILINE)
_BLANKS: Final = {"n": "\n", "r": "\n", "t": "\t"}

CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\u3005\u3007"
"""Kana, Han and Hangul, for use inside a character class."""


def prepare(text: str) -> str:
    """The text as the patterns of this package expect it; linear, at most as long as the text.

    A text that holds JSON as text (a tool that returned a dumped object) shows its line ends as backslash and n; they
    are read as line ends, except inside Windows paths, where the same characters begin a folder.
    """
    if "\\" in text:
        text = _ESCAPE.sub(_unescape, text)
    if "\n+++ " in text or "diff --git" in text:
        text = _DIFF.sub(lambda m: f"{m[1]} " if m[1] else f"diff --git {m[2]} ", text)
    return text


def narrow(text: str) -> str:
    """The text with full-width forms as ASCII, character for character."""
    return text.translate(_WIDE) if _HAS_WIDE.search(text) else text


def squeeze(text: str) -> str:
    """The text with every run of white space as one blank, and shell line continuations joined."""
    return " ".join(text.replace("\\\n", " ").split())


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return _BLANKS[match[1]]
    if match[2]:
        return match[2]
    if not match[3]:
        return match[0]
    code = int(match[3], 16)
    return match[0] if 0xD800 <= code < 0xE000 else chr(code)
