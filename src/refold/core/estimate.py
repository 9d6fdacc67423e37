"""Tokens of a text, estimated: pure, without a vocabulary, the same on every machine.

A text is reduced to counts: how often each kind of character stands in it (lower case, digit, punctuation, space, each
script) and how often short patterns of kinds do (`" a"` is the start of a word, `"a0"` the edge inside an identifier).
Byte-pair tokenizers split text at such edges first, so tokens are close to linear in these counts, and one linear model
per family covers prose, code, JSON, logs, hex and every script without a switch between them. The weights are fitted on
real tokenizers (benchmarks/estimator); errors per class of text are in docs/estimator.md.

Three things are not linear and are handled apart. A run of one character (rules of dashes, blank lines) is cut to 16
before counting, and what was cut is weighed by its kind. A text longer than `SAMPLED_ABOVE` is read in evenly spaced
windows, so that its cost is constant. The upper bound adds a margin measured on held-out texts, and for sampled texts
the spread between the windows.

All counting is done by `bytes.translate` and `bytes.count`, which run at memory speed; a loop in Python would be too
slow for a history of megabytes.
"""

import re
from collections.abc import Iterable, Sequence
from math import sqrt
from operator import mul
from typing import Final, cast

from refold.core._coefficients import COEFFICIENTS, MARGINS
from refold.core.family import Family, family_of

__all__ = ["FEATURES", "SAMPLED_ABOVE", "Family", "estimate_text", "family_of", "features"]

SAMPLED_ABOVE: Final = 65_536
"""Characters of the longest text that is read whole."""

_WINDOWS: Final = 32
_WINDOW: Final = 1_024
_RUN: Final = 24
"""Equal characters in a row that make a run; `_KEPT` of them are counted as ordinary text."""
_KEPT: Final = 16


def _classes(default: str, *classes: tuple[Iterable[int], str]) -> bytes:
    table = bytearray(default.encode() * 256)
    for members, name in classes:
        for member in members:
            table[member] = ord(name)
    return bytes(table)


_ASCII: Final = (
    (range(97, 123), "a"),
    (range(65, 91), "A"),
    (range(48, 58), "0"),
    ((32,), " "),
    ((10, 13), "n"),
    ((9,), "t"),
    ((*range(9), 11, 12, *range(14, 32), 127), "c"),
)
_PURE: Final = _classes(".", *_ASCII)
_MIXED: Final = _classes(".", *_ASCII, ((63,), "u"))
"""For text with other scripts, where every character outside ASCII has become `?`, and `?` itself `!`."""

_SCRIPTS: Final = _classes(
    "X",  # Khmer, Ethiopic, Tibetan and others; all by the high byte of the UTF-16 unit
    ((0x00,), "l"),
    ((0x01, 0x02), "L"),
    ((0x1E,), "V"),
    ((0x03, 0x1F), "G"),
    ((0x04,), "C"),
    ((0x05,), "W"),
    (range(0x06, 0x09), "R"),
    ((0x09,), "D"),
    ((0x0A,), "5"),
    ((0x0B,), "6"),
    ((0x0C,), "7"),
    ((0x0D,), "8"),
    ((0x0E,), "T"),
    ((0x10,), "M"),
    ((0x11, *range(0xAC, 0xD8)), "K"),
    ((0x20,), "p"),
    ((0x21, 0x22, 0x23, 0x24, 0x2A), "m"),
    ((0x25,), "b"),
    (range(0x26, 0x29), "y"),
    (range(0x30, 0x34), "k"),
    (range(0x34, 0x4E), "J"),
    (range(0x4E, 0xA0), "H"),
    (range(0xD8, 0xDC), "S"),
    ((0xDC,), "1"),
    ((0xDD,), "2"),
    ((0xDE,), "3"),
    ((0xDF,), "4"),
    (range(0xF9, 0xFB), "J"),
    (range(0xFB, 0xFE), "R"),
    ((0xFE,), "e"),
    ((0xFF,), "f"),
)

_CLASSES: Final = b"A0. ntcu"
"""Every class of an ASCII character but lower case, which is what remains."""
_EDGES: Final = tuple(b"00| a|   |a0| 0|A0|...|.a.|.n|nn|aaaa|Aaaaaa|Aa|aaaaaaaaaaaaaaaa|AAAAAAAA".split(b"|"))
_TABS: Final = b"tt"
_MIXED_EDGES: Final = (b" u", b"uu")
_MARKS: Final[tuple[tuple[bytes, tuple[bytes, ...]], ...]] = (
    # Characters of markup and escapes, and patterns that are looked for only where the character stands.
    (b'"', ()),
    (b"\\", (b"\\u",)),
    (b"<", (b"</",)),
    (b"\x1b", ()),
)
_RARE_LETTERS: Final = b"jkqvwxzJKQVWXZ"
_SCRIPT_PATTERNS: Final[tuple[tuple[bytes, tuple[bytes, ...]], ...]] = (
    (b"L", ()),
    (b"V", ()),
    (b"G", (b"GG", b"GGG", b"lG")),
    (b"C", (b"CC", b"CCC", b"CCCC", b"CCCCCC", b"lC")),
    (b"W", (b"WW", b"lW")),
    (b"R", (b"RR", b"RRR", b"RRRR", b"lR")),
    (b"D", (b"DD", b"DDDD", b"lD")),
    (b"5", (b"55", b"5555")),
    (b"6", (b"66", b"6666")),
    (b"7", (b"77", b"7777")),
    (b"8", ()),
    (b"T", (b"TT", b"TTTT")),
    (b"X", (b"XX",)),
    (b"M", (b"MM",)),
    (b"K", (b"KK", b"KKK", b"lK")),
    (b"p", ()),
    (b"m", (b"mm",)),
    (b"b", (b"bb", b"bbbb")),
    (b"y", ()),
    (b"k", (b"kk", b"Hk", b"kH", b"kkkk")),
    (b"J", ()),
    (b"H", (b"HH", b"HHH", b"lH")),
    (b"S", (b"1", b"2", b"3", b"4")),
    (b"e", ()),
    (b"f", ()),
)
_WITNESSES: Final = (
    # Letters that tell apart the languages of one script, which tokenizers treat very unequally.
    ("traditional", b"H", re.compile("[這個們對說會來國學發與還麼檔號變應體點當數為無電腦話書車門問間關開]")),
    ("not Russian", b"C", re.compile("[іїєґўјљњћђџІЇЄҐЈЉЊЋЂЏәңғүұқөһ]")),
    ("not Arabic", b"R", re.compile("[یکپچگژٹڈےں]")),
    ("Bengali", b"D", re.compile("[\u0980-\u09ff]")),
    ("Georgian", b"M", re.compile("[\u10a0-\u10ff]")),
    ("Armenian", b"W", re.compile("[\u0530-\u058f]")),
    ("replacement", b"f", re.compile("\ufffd")),
)
_RUN_KINDS: Final = (
    "punctuation",
    "space",
    "tab",
    "newline",
    "lower",
    "upper",
    "control",
    "box",
    "ideograph",
    "Latin",
    "other",
)
_ZEROS: Final = re.compile(rb"\0+")

FEATURES: Final = (
    *map(chr, _CLASSES),
    "a",
    *(p.decode() for p in (*_EDGES, _TABS, *_MIXED_EDGES)),
    *(p.decode() for mark, patterns in _MARKS for p in (mark, *patterns)),
    "rare letters",
    *(p.decode() for script, patterns in _SCRIPT_PATTERNS for p in (script, *patterns)),
    *(name for name, _, _ in _WITNESSES),
    "\r\n",
    *(f"{kind} {what}" for kind in _RUN_KINDS for what in ("runs", "cut")),
)
"""The names of what is counted, in the order of the coefficients. Names may repeat."""


def estimate_text(text: str, *, family: Family = "generic", upper_bound: bool = False) -> int:
    """The tokens of a text, without the frame of a message.

    The bias is under 10 % for each main class of text in docs/estimator.md. With `upper_bound`, at least 99 % of
    held-out texts (of 60 to 20,000 characters) are not undercounted; the margin shrinks with length. The cost is
    constant above `SAMPLED_ABOVE` characters. An empty text has 0 tokens, any other at least 1.
    """
    if not text:
        return 0
    weights = COEFFICIENTS[family]
    if len(text) <= SAMPLED_ABOVE:
        estimate = _tokens(text, weights)
    else:
        estimate = _sampled(text, weights, upper_bound=upper_bound)
    if upper_bound:
        share, spread = MARGINS[family]
        estimate += share * estimate + spread * sqrt(estimate)
    return max(1, round(estimate))


def features(text: str) -> list[int]:
    """The counts that the model weighs, in the order of `FEATURES`."""
    lines = text.count("\r\n") if "\r" in text else 0
    if lines:  # one line break, also to tokenizers; some add a token for the first half
        text = text.replace("\r\n", "\n")
    wide = not text.isascii()
    units = text.encode("utf-16-le", "surrogatepass") if wide else text.encode("ascii")
    units, runs = _collapse(units, width=2 if wide else 1)
    if wide:
        text = units.decode("utf-16-le", "surrogatepass") if any(runs) else text
        raw = text.replace("?", "!").encode("ascii", "replace")
        scripts = units[1::2].translate(_SCRIPTS)
    else:
        raw, scripts = units, b""
    classes = raw.translate(_MIXED if wide else _PURE)
    counts = [*map(classes.count, _CLASSES)]
    counts.append(len(classes) - sum(counts))
    counts += map(classes.count, _EDGES)
    counts.append(classes.count(_TABS) if b"\t" in raw else 0)
    counts += map(classes.count, _MIXED_EDGES) if wide else [0] * len(_MIXED_EDGES)
    for mark, patterns in _MARKS:
        counts += _counted(raw, mark, patterns)
    counts.append(len(raw) - len(raw.translate(None, _RARE_LETTERS)))
    for script, patterns in _SCRIPT_PATTERNS:
        counts += _counted(scripts, script, patterns)
    for _, script, letters in _WITNESSES:
        counts.append(len(letters.findall(text)) if script in scripts else 0)
    return [*counts, lines, *runs]


def _counted(data: bytes, first: bytes, patterns: Sequence[bytes]) -> list[int]:
    """The counts of one character and of the patterns that contain it."""
    found = data.count(first)
    return [found, *map(data.count, patterns)] if found else [0] * (1 + len(patterns))


def _tokens(text: str, weights: Sequence[float]) -> float:
    """The estimate for a text that is read whole: at least a token for every 16 characters, apart from runs."""
    counts = features(text)
    cut = sum(counts[1 - 2 * len(_RUN_KINDS) :: 2])
    weighed: float = sum(map(mul, weights, counts))
    return max(weighed, (len(text) - cut) / 16)


def _sampled(text: str, weights: Sequence[float], *, upper_bound: bool) -> float:
    step = (len(text) - _WINDOW) / (_WINDOWS - 1)
    starts = [round(step * number) for number in range(_WINDOWS)]
    windows = [text[start : start + _WINDOW] for start in starts]
    scale = len(text) / (_WINDOWS * _WINDOW)
    if not upper_bound:
        return _tokens("".join(windows), weights) * scale
    sizes = [_tokens(window, weights) for window in windows]
    mean = sum(sizes) / _WINDOWS
    variance = sum((size - mean) ** 2 for size in sizes) / (_WINDOWS - 1)
    return (mean + 3 * sqrt(variance / _WINDOWS)) * _WINDOWS * scale


def _collapse(units: bytes, *, width: int) -> tuple[bytes, list[int]]:
    """Cut long runs of one character; `width` is bytes per character.

    A text xored with itself, shifted by one character, is zero wherever a character repeats; as one big integer that
    costs two nanoseconds per byte. Digits are left alone: their runs are split like any other number.
    """
    runs = [0] * (2 * len(_RUN_KINDS))
    number = int.from_bytes(units, "little")
    equal = (number ^ (number >> (8 * width))).to_bytes(len(units), "little")
    long = bytes(width * (_RUN - 1))
    kept: list[bytes] = []
    last, at = 0, equal.find(long)
    while at >= 0:
        zeros = cast("re.Match[bytes]", _ZEROS.match(equal, at)).end()
        start, stop = -(-at // width), min(zeros // width + 1, len(units) // width)
        character = int.from_bytes(units[start * width : (start + 1) * width], "little")
        if stop - start >= _RUN and not 48 <= character < 58:
            kept.append(units[last * width : (start + _KEPT) * width])
            kind = 2 * _run_kind(character)
            runs[kind] += 1
            runs[kind + 1] += stop - start - _KEPT
            last = stop
        at = equal.find(long, zeros)
    return (b"".join([*kept, units[last * width :]]) if last else units), runs


def _run_kind(character: int) -> int:
    match character:
        case 32:
            return 1
        case 9:
            return 2
        case 10 | 13:
            return 3
        case _ if character < 128:
            return {"a": 4, "A": 5, "c": 6}.get(chr(_PURE[character]), 0)
        case _ if 0x2500 <= character < 0x2600:
            return 7
        case _ if 0x3000 <= character < 0xFE00:
            return 8
        case _:
            return 9 if character < 0x0250 else 10
