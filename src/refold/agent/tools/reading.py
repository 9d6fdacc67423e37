"""`read_file`: lines or characters of any file, a bounded page at a time.

Content is read in pieces and decoded as it comes, so memory is bounded by the page, whatever the size of the file; a
page always makes progress, also in the middle of a line of 10 MB. Pages are bounded in tokens; the middleware never
offloads them, since a reader's answer that is moved away cannot be read either (fault 99).
"""

import base64
import codecs
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydantic import BaseModel, Field

from refold.agent.tools.permissions import Permissions, Permit
from refold.agent.tools.words import model_path
from refold.core.estimate import estimate_text
from refold.core.paths import is_under
from refold.core.program import Program
from refold.errors import FileMissingError
from refold.files import FileInfo, ListFolder, ReadRange, StatFile
from refold.files.retention import ARTIFACT_FOLDERS

Answer: TypeAlias = str | list[str | dict[str, object]]

MOST_MEDIA_BYTES: Final = 5 * 1024 * 1024 * 3 // 4
"""Largest medium that is shown: Anthropic's API, the strictest of the large ones, takes 5 MB of base64 per image."""

_PIECE_BYTES = 1 << 20
_PROBE_BYTES = 8_192
_MOST_CHARACTERS_PER_TOKEN = 6
_MAGIC: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}
_BOMS: Final = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class ReadFileArguments(BaseModel):
    """Arguments of `read_file`."""

    path: str = Field(description="Absolute path, e.g. /notes/plan.md")
    offset: int = Field(default=1, ge=1, description="First line, from 1")
    limit: int = Field(default=2000, ge=1, description="Most lines")
    char_offset: int | None = Field(
        default=None, ge=0, description="Read from this character instead of by lines, for files with very long lines"
    )


def read_file_gen(arguments: ReadFileArguments, permissions: Permissions, *, page_tokens: int) -> Program[Answer]:
    """One page: numbered lines, raw characters, or a medium as a block that the model sees."""
    path = model_path(arguments.path)
    yield from Permit(operations=("read",), paths=(path,))
    info = yield from StatFile(path=path)
    if info is None:
        raise (yield from _missing_gen(path, permissions))
    probe = yield from ReadRange(path=path, start=0, length=_PROBE_BYTES)
    stored = _is_stored_text(path)
    mime = None if stored else _medium_type(path, probe)
    if mime is not None:
        return (yield from _medium_gen(info, mime))
    marks = {} if stored else _BOMS
    encoding = next((name for mark, name in marks.items() if probe.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in probe and not stored:
        kind = mimetypes.guess_type(path)[0] or "unknown type"
        return f"[{path} is binary ({kind}, {info.size} bytes) and is not shown; it begins with {probe[:32].hex(' ')}]"
    if not info.size:
        return f"[{path} is empty]"
    reader = _Reader(path=path, encoding=encoding, most=page_tokens * _MOST_CHARACTERS_PER_TOKEN)
    if arguments.char_offset is not None:
        return (yield from _characters_gen(reader, arguments.char_offset, page_tokens))
    return (yield from _lines_gen(reader, arguments.offset, arguments.limit, page_tokens))


@dataclass(kw_only=True)
class _Reader:
    """The text of a file, piece by piece. `ended` once the last piece was taken."""

    path: str
    encoding: str
    most: int
    ended: bool = False
    _at: int = 0
    _decoder: codecs.IncrementalDecoder | None = None

    def next_gen(self) -> Program[str]:
        """The next piece of text; empty at the end."""
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        while not self.ended:
            data = yield from ReadRange(path=self.path, start=self._at, length=_PIECE_BYTES)
            self._at += len(data)
            self.ended = len(data) < _PIECE_BYTES
            text = self._decoder.decode(data, self.ended)
            if text:
                return text
        return ""


def _characters_gen(reader: _Reader, offset: int, page_tokens: int) -> Program[str]:
    """Characters from an offset on."""
    passed, wanted = 0, ""
    while len(wanted) <= reader.most:
        text = yield from reader.next_gen()
        if not text:
            break
        wanted += text[max(0, offset - passed) :]
        passed += len(text)
    if not wanted:
        return f"[{reader.path} has {passed} characters; char_offset={offset} is past its end]"
    page = fit(wanted, page_tokens)
    end = offset + len(page)
    more = len(page) < len(wanted) or not reader.ended
    tail = f"go on with char_offset={end}" if more else "the end"
    return f"{page}\n[characters {offset} to {end} of {reader.path}; {tail}]"


def _lines_gen(reader: _Reader, offset: int, limit: int, page_tokens: int) -> Program[str]:
    """Numbered lines from an offset on; a line that alone fills the page is shown in part."""
    page = _Page(first=offset, limit=limit, most=reader.most)
    while not page.full:
        text = yield from reader.next_gen()
        if not text:
            break
        page.feed(text)
    if reader.ended and not page.full:
        page.finish()
    if not page.lines:
        return f"[{reader.path} has {page.line} lines; offset={offset} is past its end]"
    shown = page.fitting(page_tokens)
    if not shown:
        part = fit(page.lines[0], page_tokens)
        return (
            f"{part}\n[line {offset} of {reader.path} does not fit on a page: this is its start; "
            f"go on with char_offset={page.start + len(part)}]"
        )
    last = offset + len(shown) - 1
    numbered = "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(shown, offset))
    if len(shown) < len(page.lines) or page.full:
        return f"{numbered}\n[lines {offset} to {last} of {reader.path}; go on with offset={last + 1}]"
    return numbered if offset == 1 else f"{numbered}\n[lines {offset} to {last} of {reader.path}, the end]"


@dataclass(kw_only=True)
class _Page:
    """Collects lines from `first` on, until there are `limit` of them or `most` characters."""

    first: int
    limit: int
    most: int
    lines: list[str] = field(default_factory=list)
    line: int = 0
    start: int = 0
    """Characters before the first collected line."""
    full: bool = False
    cut: bool = False
    """Whether the last collected line goes on."""
    _rest: str = ""
    _rest_length: int = 0
    _size: int = 0

    def feed(self, text: str) -> None:
        """Take the next text. Characters of skipped lines are counted and forgotten."""
        parts = text.split("\n")
        for part in parts[:-1]:
            self._end_line(part, newline=1)
            if self.full:
                return
        self._add(parts[-1])
        if self.line + 1 >= self.first and len(self._rest) > self.most:
            self._end_line("", newline=0)
            self.full = self.cut = True

    def finish(self) -> None:
        """The file is over: what is left is its last line, unless it ended with a newline."""
        if self._rest_length:
            self._end_line("", newline=0)

    def fitting(self, tokens: int) -> list[str]:
        """The lines that fit into so many tokens, from the first on."""
        kept = characters = 0
        room = tokens
        while kept < len(self.lines) - self.cut:
            room -= estimate_text(self.lines[kept]) + 4  # its number, tab and newline
            characters += len(self.lines[kept])
            if room < 0 or characters > self.most:
                break
            kept += 1
        return self.lines[:kept]

    def _add(self, part: str) -> None:
        self._rest_length += len(part)
        if self.line + 1 >= self.first:
            self._rest += part

    def _end_line(self, part: str, *, newline: int) -> None:
        self._add(part)
        self.line += 1
        if self.line < self.first:
            self.start += self._rest_length + newline
        elif len(self.lines) >= self.limit or self._size > self.most:
            self.full = True
            self.line -= 1
            return
        else:
            self.lines.append(self._rest.removesuffix("\r"))
            self._size += len(self._rest)
        self._rest, self._rest_length = "", 0


def fit(text: str, tokens: int) -> str:
    """The longest start of a text that is estimated at no more than so many tokens, at least one character."""
    length = min(len(text), tokens * _MOST_CHARACTERS_PER_TOKEN)
    while length > 1 and estimate_text(text[:length]) > tokens:
        length = length * 7 // 8
    return text[:length]


def _is_stored_text(path: str) -> bool:
    """Whether a file is text that left a conversation, whatever it begins with: a result may hold NUL, or be the text
    of a PDF, and what its stub names must give it back. Media are under `/media`, or have a name that says so."""
    stored = any(is_under(path, folder) for folder in ARTIFACT_FOLDERS if folder != "/media")
    return stored and (mimetypes.guess_type(path)[0] or "text").startswith("text")


def _medium_type(path: str, probe: bytes) -> str | None:
    """The type of a medium that models can be shown, by its first bytes; by its name for audio and video."""
    for magic, mime in _MAGIC.items():
        if probe.startswith(magic):
            return mime
    if probe[:4] == b"RIFF" and probe[8:12] == b"WEBP":
        return "image/webp"
    named = mimetypes.guess_type(path)[0] or ""
    return named if named.startswith(("audio/", "video/")) and b"\0" in probe else None


def _medium_gen(info: FileInfo, mime: str) -> Program[Answer]:
    if info.size > MOST_MEDIA_BYTES:
        return f"[{info.path} is {mime} of {info.size} bytes: over {MOST_MEDIA_BYTES}, too large to be shown]"
    data = yield from ReadRange(path=info.path)
    kind = "file" if mime == "application/pdf" else mime.split("/")[0]
    return [
        {"type": "text", "text": f"[{info.path}, {mime}, {len(data)} bytes]"},
        {"type": kind, "base64": base64.b64encode(data).decode("ascii"), "mime_type": mime},
    ]


def _missing_gen(path: str, permissions: Permissions) -> Program[FileMissingError]:
    """What to tell about a path with nothing there: whether it is a folder, else names like it nearby."""
    folder = yield from ListFolder(path=path)
    if folder.files or folder.folders:
        return FileMissingError(f"{path} is a folder: list it with ls")
    beside = yield from ListFolder(path=path.rpartition("/")[0] or "/")
    names = [name for name in (*(info.path for info in beside.files), *beside.folders) if permissions.shows(name)]
    near = list(_like(path, names))[:5]
    hint = f"; near it: {', '.join(near)}" if near else ""
    return FileMissingError(f"nothing is stored at {path}{hint}")


def _like(path: str, candidates: list[str]) -> Iterator[str]:
    name = path.rpartition("/")[2].casefold()
    stem = name.split(".", 1)[0]
    for candidate in candidates:
        other = candidate.rpartition("/")[2].casefold()
        if other == name or stem in other or other.split(".", 1)[0] in name:
            yield candidate
