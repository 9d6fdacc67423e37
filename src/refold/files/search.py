"""Text search over any storage: one program, bounded in hits, time and memory.

A model writes the pattern, so a regular expression may be one that takes exponential time. Python's `re` cannot be
stopped and holds the interpreter lock meanwhile: the whole server would stand still. The `regex` module checks a
deadline inside a match and lets other threads run, so regular expressions go through it; literals are escaped and go
through `re`, where they are linear.

Files are read in pieces of 1 MiB and cut at line ends; a longer line is put together, up to 64 MiB. A call with a
deadline costs about ten times a plain one, so whole pieces, and then lines, are first sieved by a text that every match
must hold, where the pattern shows one.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from refold.core.paths import clean_folder
from refold.core.program import Effect, Program
from refold.errors import ConfigurationError, FileMissingError, FilesUnavailableError
from refold.files.effects import ListFiles, ReadRange
from refold.files.patterns import compile_glob
from refold.files.protocol import Ended, FileInfo, Hit, Query, SearchResult

PIECE_BYTES: Final = 1 << 20
LONGEST_LINE_BYTES: Final = 64 << 20
LONGEST_PATTERN: Final = 1_000
CLIP_CHARACTERS: Final = 400
_BINARY_PROBE_BYTES = 8_192
_LEAD_CHARACTERS = 120
_LINES_BETWEEN_CLOCKS = 2_000
_GIVES_UP = re.compile(r"\||\(\?(?!:)|\[\[|\[:|\\[^\W_dDwWsSbBAZnrt]|\\_|\\$")
_ESCAPE_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_OPTIONAL = re.compile(r".(?:[?*]|\{[^}]*\})", re.DOTALL)
_BRACES = re.compile(r"\{[^}]*\}")
_PLAIN = re.compile(r"[^\n.^$*+?{}()\[\]\\|]+")

Find = Callable[[str, float], "tuple[int, int] | None"]
"""Where a line matches, given the seconds that are left. Raises `TimeoutError`."""


@dataclass(frozen=True, kw_only=True)
class Scan(Effect[None]):
    """Work on the processor alone, which an event loop hands to a thread."""

    work: Callable[[], None]


def search_gen(query: Query, *, allowed: Callable[[str], bool] | None = None) -> Program[SearchResult]:
    """The program behind every `Files.search`: list, read pieces, scan. Files that are not `allowed` are left out."""
    find = _finder(query)
    sieve = sieve_of(query)
    chosen = None if query.glob is None else compile_glob(query.glob)
    _check(query)
    deadline = time.monotonic() + query.seconds
    hits: list[Hit] = []
    skipped: list[str] = []
    searched = 0
    ended: Ended = "all"
    for info in (yield from ListFiles(folder=clean_folder(query.under))):
        if not (chosen is None or chosen.matches(info.path)) or not (allowed is None or allowed(info.path)):
            continue
        room = query.max_hits - len(hits)
        scanner = _Scanner(query=query, path=info.path, find=find, sieve=sieve, deadline=deadline, room=room)
        try:
            readable = yield from _scan_file_gen(info, scanner)
        except TimeoutError:
            ended = "time"
        else:
            searched += readable
            if not readable:
                skipped.append(info.path)
        hits += scanner.finished()
        if ended == "time" or scanner.full:
            ended = "time" if ended == "time" else "hits"
            break
    return SearchResult(hits=tuple(hits), ended=ended, searched=searched, skipped=tuple(skipped))


def _scan_file_gen(info: FileInfo, scanner: "_Scanner") -> Program[bool]:
    """Scan one file to its end or until the scanner is full; False when it is not text that can be searched."""
    start = 0
    carry = b""
    while not scanner.full:
        try:
            piece = yield from ReadRange(path=info.path, start=start, length=PIECE_BYTES)
        except FileMissingError:
            return True  # deleted since the listing: it has no lines
        except FilesUnavailableError as error:
            if isinstance(error.__cause__, PermissionError):
                return False
            raise
        if start == 0 and b"\0" in piece[:_BINARY_PROBE_BYTES]:
            return False
        start += len(piece)
        last = len(piece) < PIECE_BYTES
        cut = len(piece) if last else piece.rfind(b"\n") + 1
        block, carry = (carry + piece[:cut], piece[cut:]) if cut else (b"", carry + piece)
        if len(carry) > LONGEST_LINE_BYTES:
            return False
        if block:
            yield from Scan(work=_feeding(scanner, block))
        if last:
            return True
    return True


def _feeding(scanner: "_Scanner", block: bytes) -> Callable[[], None]:
    return lambda: scanner.feed(block)


def _check(query: Query) -> None:
    if query.max_hits < 1 or query.context < 0 or query.seconds <= 0:
        raise ConfigurationError("a search needs max_hits of 1 or more, context of 0 or more, and seconds above 0")


def _finder(query: Query) -> Find:
    if not query.pattern or len(query.pattern) > LONGEST_PATTERN:
        raise ConfigurationError(f"a search pattern has 1 to {LONGEST_PATTERN} characters, not {len(query.pattern)}")
    if query.syntax == "literal":
        literal = re.compile(re.escape(query.pattern), re.IGNORECASE if query.ignore_case else 0)

        def find_literal(line: str, _seconds: float) -> tuple[int, int] | None:
            match = literal.search(line)
            return None if match is None else match.span()

        return find_literal
    return _regex_finder(query)


def _regex_finder(query: Query) -> Find:
    import regex  # only searches with regular expressions pay for loading it

    flags = regex.IGNORECASE if query.ignore_case else 0
    try:
        compiled = regex.compile(query.pattern, flags)
    except (regex.error, OverflowError, MemoryError, RecursionError) as error:
        raise ConfigurationError(
            f"{query.pattern!r} is no regular expression ({error}); escape it, or search for it as a literal"
        ) from error

    def find_regex(line: str, seconds: float) -> tuple[int, int] | None:
        match = compiled.search(line, timeout=max(seconds, 0.001), concurrent=True)
        return None if match is None else match.span()

    return find_regex


def sieve_of(query: Query) -> str:
    """A text that stands in every line that matches; empty when none is known.

    Of a regular expression only plain characters outside of groups and sets are taken, that no quantifier can drop.
    What can change their meaning from elsewhere (an alternative, an inline flag, a numeric escape) gives up.
    """
    if query.ignore_case:
        return ""
    if query.syntax == "literal":
        return query.pattern
    if _GIVES_UP.search(query.pattern):
        return ""
    plain = _without_groups(_ESCAPE_OR_SET.sub("\n", query.pattern))
    plain = _BRACES.sub("\n", _OPTIONAL.sub("\n", plain))
    return max(_PLAIN.findall(plain), key=len, default="")


def _without_groups(pattern: str) -> str:
    """A pattern with each outermost group, and what stands in it, as one line break."""
    depth, kept = 0, []
    for character in pattern:
        depth += character == "("
        if depth == 0:
            kept.append(character)
        elif character == ")":
            depth -= 1
            kept.append("\n" * (depth == 0))
    return "".join(kept)


@dataclass(kw_only=True)
class _Scanner:
    """The search in one file: lines in, hits out, with the context that crosses pieces."""

    query: Query
    path: str
    find: Find
    sieve: str
    deadline: float
    room: int
    full: bool = False
    _line: int = 0
    _hits: list[Hit] = field(default_factory=list)
    _after: list[list[str]] = field(default_factory=list)
    _before: deque[str] = field(default_factory=deque)

    def feed(self, block: bytes) -> None:
        """Scan whole lines. Raises `TimeoutError` when the time is over."""
        self._before = deque(self._before, maxlen=self.query.context)
        remaining = self._remaining()
        text = block.decode("utf-8", "replace")
        if self.sieve not in text and not self._waits():
            self._pass(text)
            return
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        for number, raw in enumerate(lines):
            if number % _LINES_BETWEEN_CLOCKS == 0:
                remaining = self._remaining()
            self._line += 1
            self._take(raw.removesuffix("\r"), remaining)
            if self.full:
                return

    def finished(self) -> list[Hit]:
        return [
            Hit(path=hit.path, line=hit.line, text=hit.text, before=hit.before, after=tuple(after))
            for hit, after in zip(self._hits, self._after, strict=True)
        ]

    def _waits(self) -> bool:
        """Whether the last hit still wants lines after it."""
        return bool(self._after) and len(self._after[-1]) < self.query.context

    def _pass(self, text: str) -> None:
        """Count lines that cannot match, and keep the last ones as context."""
        self._line += text.count("\n") + (not text.endswith("\n"))
        if self.query.context:
            last = text.removesuffix("\n").rsplit("\n", self.query.context)[-self.query.context :]
            self._before.extend(_clip(line.removesuffix("\r"), 0, 0) for line in last)

    def _take(self, line: str, seconds: float) -> None:
        context = self.query.context
        if context:
            shown = _clip(line, 0, 0)
            for after in self._after[-context:]:
                if len(after) < context:
                    after.append(shown)
        if len(self._hits) >= self.room:
            # Only the lines after the last hit were still wanted.
            self.full = not context or not self._after or len(self._after[-1]) >= context
            return
        span = self.find(line, seconds) if self.sieve in line else None
        if span is not None:
            self._hits.append(Hit(path=self.path, line=self._line, text=_clip(line, *span), before=tuple(self._before)))
            self._after.append([])
        if context:
            self._before.append(_clip(line, 0, 0))

    def _remaining(self) -> float:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining


def _clip(line: str, start: int, end: int) -> str:
    """A line of at most about 400 characters, around its match."""
    if len(line) <= CLIP_CHARACTERS:
        return line
    first = max(0, min(start - _LEAD_CHARACTERS, len(line) - CLIP_CHARACTERS))
    last = first + CLIP_CHARACTERS
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"
