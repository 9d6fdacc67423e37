"""From a file to JSON values: compressed or not, any common encoding, damaged or not.

A file is either *lines* (one JSON value per line, read again from the start each time, one line in memory) or a
*document* (one JSON value over any number of lines, held whole). Which of the two is decided by trying, not by the
file's name. What cannot be read is counted, with its line, and the rest is read.

A document that breaks off or breaks in the middle is read up to the last complete element of its longest open array:
that is, all whole messages before the damage, and no half one.
"""

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from refold.errors import SessionFormatError
from refold.replay.fields import Skips, has_half_characters, parse
from refold.replay.transcript import Skipped

SAMPLE_LINES: Final = 300
"""Lines that detection looks at. Claude Code files can start with tens of snapshot records before the first message."""
_CHUNK: Final = 1 << 16
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_BREAKS: Final = b" \t\r\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One JSON value of a file, and the line that it stands on (None in a document)."""

    value: object
    line: int | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A readable file of JSON values. `values` is set for a document, None for lines."""

    path: Path
    values: tuple[object, ...] | None
    damage: tuple[Skipped, ...] = ()

    @property
    def name(self) -> str:
        return session_name(self.path)

    def records(self, skips: Skips) -> Iterator[Record]:
        """Every value, in order; what could not be read is counted in `skips`."""
        if self.values is None:
            yield from _line_records(self.path, skips)
            return
        for damage in self.damage:
            skips.add(damage.reason, damage.first_line, count=damage.count)
        yield from (Record(value=value, line=None) for value in self.values)

    def sample(self) -> list[object]:
        """The first values, for detection."""
        return [record.value for record in islice(self.records(Skips()), SAMPLE_LINES)]


def session_name(path: Path) -> str:
    """The name of a session: the file's name without its endings."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0] or path.name


def open_source(path: Path) -> Source:
    """Open a file and find out how it is laid out.

    Raises `SessionFormatError` when it cannot be opened, is empty, or holds no JSON at all.
    """
    texts = list(islice(_texts(path, Skips()), SAMPLE_LINES))
    if not texts:
        raise SessionFormatError(f"{path} is empty: there is no session in it")
    containers = sum(isinstance(_value(text), dict | list) for _, text, _ in texts)
    if containers > 1 and isinstance(_value(texts[0][1]), dict | list):
        return Source(path=path, values=None)
    skips = Skips()
    whole = "\n".join(text for _, text, _ in _texts(path, skips))
    try:
        value = parse(whole)
    except ValueError:
        if containers * 2 >= len(texts):
            return Source(path=path, values=None)
        return _damaged(path, whole, skips)
    return Source(path=path, values=(value,), damage=skips.take())


def _damaged(path: Path, whole: str, skips: Skips) -> Source:
    values, rest, at = _leading_values(whole)
    if rest:
        part = salvage(rest)
        line = whole.count("\n", 0, at + (len(rest) if part is None else part[1])) + 1
        skips.add("the rest of a document that breaks off or is damaged", line)
        if part is not None:
            values.append(part[0])
    if not values:
        raise SessionFormatError(f"{path} holds no JSON that can be read; {KNOWN}")
    return Source(path=path, values=tuple(values), damage=skips.take())


KNOWN: Final = (
    "known formats: refold session, Claude Code JSONL, Codex rollout JSONL, Gemini CLI JSON or JSONL, "
    "SWE-agent trajectory, LangChain or LangGraph message dump, OpenAI chat JSON or JSONL"
)
"""What every refusal ends with."""


@dataclass(kw_only=True, slots=True)
class _Open:
    """A container that is still open: what closes it, its complete values so far, and where the last one ends."""

    closer: str
    values: int = 0
    end: int = -1


def salvage(text: str) -> tuple[object, int] | None:
    """A broken JSON text cut after the last complete element of its longest open array, and where it was cut.

    Where no array with an element is open, after the last complete member of the outermost object. None when there is
    no complete value at all. Linear in the text.
    """
    open_: list[_Open] = []
    before = ""
    for token in _TOKEN.finditer(text, 0, _error_position(text)):
        match token[0]:
            case "{":
                open_.append(_Open(closer="}"))
            case "[":
                open_.append(_Open(closer="]"))
            case "}" | "]":
                if not open_ or open_.pop().closer != token[0]:
                    break
                _count(open_, token.end())
            case ":" | ",":
                pass
            case word if word[0] == '"' or token.end() < len(text):
                if open_ and (open_[-1].closer == "]" or before == ":"):
                    _count(open_, token.end())
        before = token[0]
    depth = max(range(len(open_)), key=lambda at: _worth(open_[at], at), default=None)
    if depth is None or open_[depth].values < 1:
        return None
    end = open_[depth].end
    try:
        return parse(text[:end] + "".join(part.closer for part in reversed(open_[: depth + 1]))), end
    except ValueError:
        return None


def _worth(container: _Open, depth: int) -> tuple[bool, int, int]:
    """The order of places to cut at: arrays that hold something, the longest; then objects, the outermost."""
    is_array = container.closer == "]" and container.values > 0
    return (is_array, container.values if is_array else int(container.values > 0), -depth)


def _count(open_: list[_Open], end: int) -> None:
    if open_:
        open_[-1].values += 1
        open_[-1].end = end


def _error_position(text: str) -> int:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos
    except (ValueError, RecursionError):
        return 0
    return len(text)


def _leading_values(text: str) -> tuple[list[object], str, int]:
    """The complete JSON values at the start of a text, what follows them, and where that starts."""
    decoder = json.JSONDecoder(parse_constant=str)
    values: list[object] = []
    at = 0
    while True:
        at = next((i for i in range(at, len(text)) if not text[i].isspace()), len(text))
        try:
            value, end = decoder.raw_decode(text, at)
            if not isinstance(value, dict | list):
                return values, text[at:], at
            values.append(parse(text[at:end]))
        except (ValueError, RecursionError):
            return values, text[at:], at
        at = end


def _line_records(path: Path, skips: Skips) -> Iterator[Record]:
    for line, text, ended in _texts(path, skips):
        try:
            value = parse(text)
        except ValueError:
            skips.add("line that is not JSON" if ended else "last line, cut off", line)
            continue
        if has_half_characters(text) and _value_differs(text, value):
            skips.add("text with half a character, replaced", line)
        yield Record(value=value, line=line)


def _value_differs(text: str, value: object) -> bool:
    return bool(json.loads(text, parse_constant=str) != value)


def _value(text: str) -> object:
    try:
        return parse(text)
    except ValueError:
        return None


def _texts(path: Path, skips: Skips) -> Iterator[tuple[int, str, bool]]:
    """(line number, text, whether a line end follows) of every line that is not blank."""
    try:
        with path.open("rb") as stream:
            yield from _decoded(_lines(_plain(iter(lambda: stream.read(_CHUNK), b""), skips)), skips)
    except OSError as error:
        raise SessionFormatError(f"cannot read {path}: {error.strerror or error}") from error


def _decoded(lines: Iterator[tuple[int, bytes, bool]], skips: Skips) -> Iterator[tuple[int, str, bool]]:
    for line, raw, ended in lines:
        if b"\0" in raw:
            raw = raw.replace(b"\0", b"")
            skips.add("NUL bytes, removed", line)
        if not raw.strip(_BREAKS):
            continue
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            text = raw.decode("utf-8", "replace")
            skips.add("bytes that are not UTF-8, replaced", line)
        yield line, text.strip(" \t\r\n"), ended


def _lines(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """Split at LF only: JSON text may hold other line separators. A huge line costs its own length, once."""
    line, parts = 1, list[bytes]()
    for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            parts.append(piece)
            yield line, b"".join(parts), True
            line, parts = line + 1, []
        parts.append(rest)
    if any(parts):
        yield line, b"".join(parts), False


def _plain(chunks: Iterator[bytes], skips: Skips) -> Iterator[bytes]:
    """Chunks of UTF-8, whatever compression and byte order mark the file has."""
    first = next(chunks, b"")
    if first.startswith(b"\x1f\x8b"):
        chunks = _unzipped(first, chunks, skips)
        first = next((chunk for chunk in chunks if chunk), b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        yield decoder.decode(first).encode("utf-8", "replace")
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "replace")
        return
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from chunks


def _unzipped(first: bytes, chunks: Iterator[bytes], skips: Skips) -> Iterator[bytes]:
    """Decompress as far as the data goes: `gzip` itself would give up what it has when a file breaks off."""
    inflate, pending = zlib.decompressobj(wbits=31), first
    while pending or (pending := next(chunks, b"")):
        try:
            yield inflate.decompress(pending)
        except zlib.error:
            skips.add("damaged compressed data")
            return
        pending = inflate.unused_data
        if inflate.eof:
            inflate, pending = zlib.decompressobj(wbits=31), pending.lstrip(b"\0")
            if not pending and not (pending := next(chunks, b"")):
                return
    skips.add("compressed data that breaks off")
