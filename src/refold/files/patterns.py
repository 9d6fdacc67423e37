"""Globs over virtual paths, matched in polynomial time whatever the pattern.

`*` and `?` stay within a segment, `**` as a whole segment spans any number of them (none too: `/a/**` matches `/a`),
`[a-c]` and `[!a-c]` are sets, `{a,b}` are alternatives (nested too, at most 256 in all). A pattern without a leading
`/` matches at any depth: `*.py` is `/**/*.py`. Names that start with a dot are matched like any other.

Patterns come from models, so no regular expression is made of them: a segment of n characters is matched against a
pattern of m in O(n·m), and segments against segments in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from refold.errors import PathError

MAX_ALTERNATIVES = 256
MAX_PATTERN_CHARACTERS = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Glob:
    """A compiled glob: any of its alternatives, each a tuple of segment patterns (`**` spans segments)."""

    pattern: str
    alternatives: tuple[tuple[str, ...], ...]

    def matches(self, path: str, *, fold_case: bool = False) -> bool:
        """Whether an absolute path matches as a whole; with `fold_case` as case-insensitive storage would see it."""
        segments = tuple((path.casefold() if fold_case else path).split("/")[1:])
        return any(
            _match_segments(tuple(part.casefold() for part in alternative) if fold_case else alternative, segments)
            for alternative in self.alternatives
        )

    def folder(self) -> str:
        """The deepest folder that holds every match."""
        common: tuple[str, ...] | None = None
        for alternative in self.alternatives:
            fixed = _fixed_start(alternative)
            common = fixed if common is None else _common(common, fixed)
        return "/" + "/".join(common or ())


@lru_cache(maxsize=512)  # a pure cache: permissions match the same few patterns against every path
def compile_glob(pattern: str) -> Glob:
    """Compile a glob. Raises `PathError` for a pattern that is empty, over-long, unbalanced or has a `..` segment."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PathError(f"a glob has 1 to {MAX_PATTERN_CHARACTERS} characters, this one {len(pattern)}")
    alternatives = []
    for expanded in _expand(pattern):
        rooted = expanded if expanded.startswith("/") else f"/**/{expanded}"
        segments = tuple(segment for segment in rooted.split("/") if segment)
        if ".." in segments or "." in segments or not segments:
            raise PathError(f"glob {pattern!r} must name files, without . or .. segments, as in /notes/**/*.md")
        for segment in segments:
            _tokens(segment)
        alternatives.append(segments)
    return Glob(pattern=pattern, alternatives=tuple(dict.fromkeys(alternatives)))


def _fixed_start(segments: tuple[str, ...]) -> tuple[str, ...]:
    """The leading segments without a wildcard, the last segment (a file name) excluded."""
    count = 0
    while count < len(segments) - 1 and not any(mark in segments[count] for mark in "*?["):
        count += 1
    return segments[:count]


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return left[:count]


def _expand(pattern: str) -> list[str]:
    """Every alternative of the braces of a pattern, in order."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop(0)
        group = _first_group(current)
        if group is None:
            done.append(current)
        else:
            start, end, options = group
            waiting = [current[:start] + option + current[end:] for option in options] + waiting
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise PathError(f"glob {pattern!r} has over {MAX_ALTERNATIVES} alternatives: use * or fewer braces")
    return done


def _first_group(pattern: str) -> tuple[int, int, list[str]] | None:
    start = pattern.find("{")
    if start < 0:
        return None
    depth, mark, options = 0, start + 1, []
    for index in range(start, len(pattern)):
        character = pattern[index]
        if character == "{":
            depth += 1
        elif character == "," and depth == 1:
            options.append(pattern[mark:index])
            mark = index + 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return start, index + 1, [*options, pattern[mark:index]]
    raise PathError(f"glob {pattern!r} has a {{ without its }}")


def _match_segments(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    return _match(pattern, segments, wildcard="**", one=match_segment)


def match_segment(pattern: str, name: str) -> bool:
    """Whether one name matches one segment pattern."""
    return _match(_tokens(pattern), name, wildcard="*", one=_match_character)


def _match(pattern: Sequence[str], items: Sequence[str], *, wildcard: str, one: Callable[[str, str], bool]) -> bool:
    """Two-pointer match of items against parts: on failure, the latest wildcard takes one item more."""
    at = where = 0
    star = -1
    resume = 0
    while where < len(items):
        if at < len(pattern) and pattern[at] == wildcard:
            star, resume = at, where
            at += 1
        elif at < len(pattern) and one(pattern[at], items[where]):
            at, where = at + 1, where + 1
        elif star >= 0:
            resume += 1
            at, where = star + 1, resume
        else:
            return False
    return all(part == wildcard for part in pattern[at:])


@lru_cache(maxsize=2_048)  # a pure cache: the same segment patterns meet every name of a listing
def _tokens(pattern: str) -> tuple[str, ...]:
    """Single characters, `*`, `?` and whole sets such as `[!a-c]`. A `[` without its `]` is itself."""
    tokens: list[str] = []
    index = 0
    while index < len(pattern):
        if pattern[index] == "[":
            end = pattern.find("]", index + (3 if pattern[index + 1 : index + 2] in {"!", "^"} else 2))
            if end > 0:
                tokens.append(pattern[index : end + 1])
                index = end + 1
                continue
            tokens.append("[")
        elif not (pattern[index] == "*" and tokens and tokens[-1] == "*"):
            tokens.append(pattern[index])
        index += 1
    return tuple(tokens)


def _match_character(token: str, character: str) -> bool:
    if token == "?":
        return True
    if len(token) == 1:
        return token == character
    body = token[1:-1]
    negated = body[0] in "!^"
    body = body[1:] if negated else body
    index, found = 0, False
    while index < len(body):
        if body[index + 1 : index + 2] == "-" and index + 2 < len(body):
            found = found or body[index] <= character <= body[index + 2]
            index += 3
        else:
            found = found or body[index] == character
            index += 1
    return found is not negated
