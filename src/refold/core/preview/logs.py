"""Logs and command output: how they begin, how they end, and the lines that look like errors, each kind once."""

import re
from typing import Final

from refold.core.preview.model import Render, clip, head_lines, left_out, number_of_lines, tail_lines

MAX_ERRORS: Final = 10_000
"""Lines with a word of trouble that are looked at; a text with more is said to have at least so many."""

_LOG_LINE: Final = re.compile(
    r"^\s{0,4}(?:\[?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|\[?\d{2}:\d{2}:\d{2}|[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}"
    r"|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|SEVERE)\b"
    r"|\d{10,13}[ .]|level=|time=|[IWEF]\d{4} )"
)
_ERROR: Final = re.compile(
    r"\b(?:error|errors|exception|traceback|failed|failure|fatal|panic|critical|severe|denied|refused|timed out"
    r"|segfault|cannot|undefined|unresolved|not found)\b|(?:Error|Exception)\b"
    r"|错误|失败|异常|エラー|失敗|例外|오류|실패",
    re.IGNORECASE,
)
_TROUBLE: Final = (
    "error", "exception", "traceback", "fail", "fatal", "panic", "critical", "severe", "denied", "refused", "timed out",
    "segfault", "cannot", "undefined", "unresolved", "not found", "错误", "失败", "异常", "エラー", "失敗", "例外",
    "오류", "실패",
)  # fmt: skip
_VERDICT: Final = re.compile(
    r"^\s{0,8}(?:E  |ERROR\b|FAILED\b|FAIL\b|error(?:\[|:)|Error:|Traceback \(|panic:|fatal:"
    r"|[\w.]{1,80}(?:Error|Exception):|npm ERR!"
    r"|\S{1,200}:\d{1,7}:(?:\d{1,5}:)? (?:fatal )?error)",
    re.MULTILINE,
)
_NO_ERROR: Final = re.compile(r"\b(?:0|no|without) (?:errors?|failures?|failed|warnings?)\b", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{7,}|\d+")


def looks_like_log(sample: str) -> bool:
    """Whether a text's first lines carry time stamps or levels, or a compiler's or test runner's verdicts."""
    lines = [line for line in sample.split("\n")[:60] if line.strip()]
    if len(lines) < 3:
        return False
    stamped = sum(1 for line in lines if _LOG_LINE.match(line))
    return stamped * 10 >= len(lines) * 4 or _VERDICT.search(sample) is not None


def log_preview(text: str) -> Render:
    """A fifth of the room for the beginning, a third for the end, the rest for lines that look like errors."""
    errors, total = _error_lines(text)
    least = "at least " if total >= MAX_ERRORS // 2 else ""
    found = f", {least}{total:,} look like errors ({len(errors):,} kinds)" if total else ""
    title = f"[log: {number_of_lines(text):,} lines, {len(text):,} characters{found}]"

    def render(characters: int) -> str:
        room = characters - len(title) - 80
        if room < 60:
            return title
        width = max(60, min(400, room // 5))
        share = room // 5 if errors else room // 2
        head, start = head_lines(text, share, width)
        tail, stop = tail_lines(text, room // 3 if errors else room // 2, width, stop=start)
        shown = _show(errors, room - sum(len(line) + 1 for line in (*head, *tail)), width, start=start, stop=stop)
        gap = [left_out(text, start, stop), *shown] if stop > start else []
        return "\n".join([title, *head, *gap, *tail])

    return render


def _show(errors: list[tuple[int, int, str, int]], room: int, width: int, *, start: int, stop: int) -> list[str]:
    """The first line of each kind of error between two offsets, with its number; the last kinds first to stay."""
    hidden = [error for error in errors if start <= error[0] < stop]
    lines: list[tuple[int, str]] = []
    for offset, number, line, times in sorted(hidden, key=lambda error: (error[3], -error[0])):
        shown = f"{number}: {clip(line, width)}" + (f" [× {times:,}]" if times > 1 else "")
        room -= len(shown) + 1
        if room < 0:
            break
        lines.append((offset, shown))
    return ["[lines that look like errors:]", *(line for _, line in sorted(lines))] if lines else []


def _error_lines(text: str) -> tuple[list[tuple[int, int, str, int]], int]:
    """(offset, line number, line, how many of its kind) of the first line of each kind, and the number of all."""
    kinds: dict[str, tuple[int, int, str, int]] = {}
    total, number, counted = 0, 1, 0
    for start in _candidates(text)[:MAX_ERRORS]:
        end = text.find("\n", start)
        line = text[start : min(end if end >= 0 else len(text), start + 2_000)]
        if not _ERROR.search(line) or (_NO_ERROR.search(line) and not _VERDICT.match(line)):
            continue
        total += 1
        number += text.count("\n", counted, start)
        counted = start
        kind = _VARIABLE.sub("#", line[:300])
        first = kinds.get(kind)
        kinds[kind] = (start, number, line, 1) if first is None else (*first[:3], first[3] + 1)
    return list(kinds.values()), total


def _candidates(text: str) -> list[int]:
    """The beginnings of the lines that hold a word of trouble: plain searches, many times faster than a pattern."""
    starts: set[int] = set()
    for word in {spelling for stem in _TROUBLE for spelling in (stem, stem.capitalize(), stem.upper())}:
        position = text.find(word)
        while position >= 0:
            starts.add(text.rfind("\n", 0, position) + 1)
            end = text.find("\n", position)
            position = text.find(word, end) if end >= 0 else -1
    return sorted(starts)
