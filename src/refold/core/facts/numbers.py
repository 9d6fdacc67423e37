"""Numbers that say what they count: quantities with units, amounts of money, versions, dates and times of day.

A bare integer is no fact (an index full of them tells nothing). A machine's timestamp counts as its date in a tool's
output, where every line of a log may carry another one.
"""

import re
from collections.abc import Iterator
from typing import Final

from refold.core.facts.model import FactClass, Hit, Origin
from refold.core.facts.prepare import CJK

_UNITS: Final = (
    # sizes and rates
    "[KMGTP]i?B/s|[KMG]bps|[kKMGTP]i?[Bb]|bytes?|bits?|bps|fps|rpm|qps|rps|tps"
    # durations
    "|ns|us|µs|μs|ms|msec|milliseconds?|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?|weeks?|months?|years?"
    # counts that agents meet
    "|tokens?|lines?|chars?|characters?|words?|files?|tests?|rows?|columns?|items?|errors?|warnings?|requests?|users?"
    "|commits?|records?|messages?|issues?|pages?|steps?|calls?|times|threads?|workers?|retries|epochs?|samples?"
    "|passed|failed|skipped|insertions?|deletions?|points?|pts|cores?|nodes?|bags?|passengers?|percent"
    # measures
    "|[kMG]Hz|Hz|px|pt|rem|em|dpi|km/h|mph|km|cm|mm|kg|mg|lbs?|[kMG]Wh?|m[AVW]h?|°[CF]|℃|℉"
    # large numbers and money
    "|million|billion|trillion|thousand|dollars?|euros?|yuan|yen|won|USD|EUR|GBP|CNY|RMB|JPY|KRW|BTC"
)
_CJK_UNITS: Final = (
    "万亿|千万|百万|亿|億|万|만|억|千|元|円|圆|块|원|美元|日元|欧元|달러|个月|ヶ月|か月|개월|小时|時間|시간|分钟|分間|分|분|秒钟|秒|초"
    "|天|日間|일|年|년|周|週間|주|个|個|개|件|건|名|명|人|次|回|번|页|頁|ページ|페이지|行|줄|条|本|枚|台|대|篇|張|张|位|票|度|岁|歳|살|倍"
    "|公里|千米|米|公斤|千克|克|字|文字|자|パーセント|퍼센트|つ|点"
)
_AMOUNT: Final = r"(?:\d{1,3}(?:,\d{3})++|\d{1,18}+)(?:\.\d{1,12}+)?+"
_START: Final = r"(?<![A-Za-z0-9_.#/])(?<!\d,)(?<![A-Za-z]-)"
_QUANTITY: Final = re.compile(
    rf"{_START}(?:(?:US|HK|NT|A|C)?[$¥€£₩₹￥]\s?{_AMOUNT}(?:\s?(?:[KMBkmb](?![A-Za-z])|million|billion|万|亿|億))?"
    rf"|[+\-±~≈<>]?{_AMOUNT}(?:\s?%|(?<!\d{{5}})[KMBksmhdxG](?![A-Za-z0-9_(])"
    rf"|[ \u00a0]?-?(?:{_UNITS})(?![A-Za-z0-9_(])|[ \u00a0]?(?:{_CJK_UNITS})))"
)
_VERSION: Final = re.compile(
    r"(?<![A-Za-z0-9_./\-])(?:[~^]|[<>=!~]=?\s?|==\s?)?+(?:v\d{1,5}(?:\.\d{1,6}){1,3}|\d{1,5}(?:\.\d{1,6}){2,3})"
    r"(?:(?:-|\.)?(?:alpha|beta|rc|dev|post|preview|pre|a|b)[.\-]?\d{0,6})?(?![A-Za-z0-9_/]|\.\d)"
    r"|[<>~=!]=\s?\d{1,4}\.\d{1,4}(?![A-Za-z0-9_.])"
    r"|(?<![A-Za-z0-9_./])(?i:python|node(?:js|\.js)?|java|go|ruby|php|rust|cuda|postgres(?:ql)?|sqlite|ubuntu|debian|version|版本"
    r"|バージョン|버전)[ =@]{1,2}v?\d{1,4}(?:\.\d{1,4}){0,3}(?![A-Za-z0-9_:,]|\.\d)"
)
_MONTHS: Final = (
    "Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?"
)
_DATE: Final = re.compile(
    r"(?<![A-Za-z0-9_.\-/])(?P<iso>\d{4}-\d{2}-\d{2})"
    r"(?P<time>[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?![A-Za-z0-9_]|-\d)"
    r"|(?<![A-Za-z0-9_.\-/])(?:\d{4}/\d{1,2}/\d{1,2}|\d{1,2}/\d{1,2}/\d{4})(?![A-Za-z0-9_/])"
    rf"|(?<![A-Za-z])(?:{_MONTHS})\.? {{1,2}}(?:[12]\d|3[01]|[1-9])(?:st|nd|rd|th)?(?:,? \d{{4}})?"
    r"(?P<listed> \d{2}:\d{2})?(?![0-9A-Za-z:])"
    rf"|(?<![A-Za-z0-9_.])(?:[12]?\d|3[01])(?:st|nd|rd|th)? (?:{_MONTHS})(?:,? \d{{4}})?(?![0-9A-Za-z:])"
    r"|(?<!\d)\d{4}\s?[年년]\s?\d{1,2}\s?[月월](?:\s?\d{1,2}\s?[日일号])?|(?<!\d)\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일号]"
)
_CLOCK: Final = re.compile(
    r"(?<![A-Za-z0-9_.:,/\-])(?:[01]?\d|2[0-3]):[0-5]\d(?P<seconds>:[0-5]\d(?:[.,]\d{1,9})?)?"
    r"(?:\s?[AaPp]\.?[Mm](?![A-Za-z])\.?)?(?![0-9A-Za-z_:])"
    r"|(?<![A-Za-z0-9_.:])(?:1[0-2]|[1-9])\s?[ap]m(?![A-Za-z0-9_])"
)
_CONTEXT: Final = re.compile(rf"[A-Za-z0-9_{CJK}][^\n\"'`|;{{}}<>.,!?()\[\]/。！？、]{{0,19}}$")
_LOG_PREFIX: Final = re.compile(r"[\[(]?$")
_KEY_NOISE: Final = re.compile(r"[\s,~≈±+]|(?<=\d)-(?=[A-Za-z])|(?<=[A-Za-z])s$")


def numbers_in(text: str, origin: Origin) -> Iterator[Hit]:
    """The numbers of a prepared text, with what stands before them."""
    if not any(char.isdigit() for char in text[:400]) and not re.search(r"\d", text):
        return
    masked = text
    for pattern in (_DATE, _CLOCK, _VERSION, _QUANTITY):
        spans: list[tuple[int, int]] = []
        for match in pattern.finditer(masked):
            spans.append(match.span())
            if (found := _spelling(match, origin)) is not None:
                yield Hit(cls=FactClass.NUMBER, text=found, context=_context(text, match.start()))
        if pattern is not _QUANTITY:
            masked = _blank(masked, spans)


def number_key(text: str) -> str:
    """The spelling under which a number is known: `1,200 ms`, `1200ms` and `~1200 ms` are one."""
    key = _KEY_NOISE.sub("", text)
    return key.replace("￥", "¥").casefold() if len(key) > 3 or key[-1:].isalpha() is False else key


def _spelling(match: re.Match[str], origin: Origin) -> str | None:
    groups = match.groupdict()
    if groups.get("iso"):
        stamp = groups.get("time")
        return match["iso"] if origin == "tool" or (stamp and ("." in stamp or "Z" in stamp)) else match[0]
    if groups.get("listed"):
        return match[0] if origin != "tool" else match[0].removesuffix(match["listed"])  # as `ls -l` prints them
    if groups.get("seconds") and origin == "tool":
        line_start = match.string.rfind("\n", 0, match.start()) + 1
        if match.start() - line_start <= 1:
            return None  # the stamp at the start of a log line
    return match[0].strip()


def _context(text: str, start: int) -> str:
    match = _CONTEXT.search(text[max(0, start - 20) : start])
    if match is None:
        return ""
    words = match[0]
    if start > 20 and len(words) == 20 and " " in words.strip():
        words = words[words.index(" ") + 1 :]  # the first word may be cut
    return words.strip(" \t-*:=(,.[")


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    if not spans:
        return text
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        parts += (text[end:start], " " * (stop - start))
        end = stop
    return "".join(parts) + text[end:]
