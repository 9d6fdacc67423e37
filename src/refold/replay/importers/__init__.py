"""Importers of recorded sessions: one module per format, found by content, never by a file's ending.

Each module has `NAME`, `detect(sample)` (whether the first values of a file look like its format) and
`read(source, skips)` (its transcripts, as a stream). Formats are asked in the order below, most particular first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refold.errors import ConfigurationError, SessionFormatError
from refold.replay.fields import Skips
from refold.replay.importers import chat, claude_code, codex, gemini_cli, langchain_dump, own, swe_agent
from refold.replay.importers.source import KNOWN, Source, open_source, session_name
from refold.replay.transcript import Transcript, join_transcripts, united


@dataclass(frozen=True, kw_only=True)
class Importer:
    """A format: its name, how to recognise it, how to read it."""

    name: str
    detect: Callable[[Sequence[object]], bool]
    read: Callable[[Source, Skips], Iterator[Transcript]]


def importers() -> tuple[Importer, ...]:
    """Every format, most particular first."""
    modules = (own, claude_code, codex, gemini_cli, swe_agent, langchain_dump, chat)
    return tuple(Importer(name=module.NAME, detect=module.detect, read=module.read) for module in modules)


def detect_format(path: str | Path) -> str:
    """The name of a file's format. Raises `SessionFormatError` when no importer recognises it."""
    return _importer(open_source(Path(path))).name


def read_transcripts(path: str | Path) -> Iterator[Transcript]:
    """Every dialogue of a recorded session, one at a time, in the order of the file.

    Files are recognised by content; gzip and UTF-16 are read too. Damage is skipped and counted in `skipped` of the
    dialogue that it stands before (after the last one: of the last one). The dialogues of a file with several are named
    after it and their number (`session#0`). Raises `SessionFormatError` when the file
    cannot be read, has no known format, or holds no message at all.
    """
    source = open_source(Path(path))
    importer = _importer(source)
    skips = Skips()
    held: Transcript | None = None
    count = 0
    for transcript in importer.read(source, skips):
        if not transcript.messages:
            continue
        if held is not None:
            yield _numbered(held, source, count - 1)
        held = replace(transcript, skipped=united((*transcript.skipped, *skips.take())))
        count += 1
    if held is None:
        raise SessionFormatError(f"{path} looks like {importer.name}, but no message in it can be read")
    last = replace(held, skipped=united((*held.skipped, *skips.take())))
    yield last if count == 1 else _numbered(last, source, count - 1)


def read_transcript(path: str | Path, *, index: int = 0, join: bool = False) -> Transcript:
    """One dialogue of a recorded session: number `index`, or with `join` all of them as one long session.

    Raises `SessionFormatError` as `read_transcripts` does, and `ConfigurationError` for an index that the file lacks.
    """
    if join:
        return join_transcripts(read_transcripts(path), name=session_name(Path(path)))
    count = 0
    for count, transcript in enumerate(read_transcripts(path), 1):
        if count == index + 1:
            return transcript
    raise ConfigurationError(f"index {index}: {path} holds {count} dialogues, numbered from 0 to {count - 1}")


def _numbered(transcript: Transcript, source: Source, number: int) -> Transcript:
    """A dialogue that has only the file's name gets a number too; one with a name of its own keeps it."""
    return replace(transcript, name=f"{source.name}#{number}") if transcript.name == source.name else transcript


def _importer(source: Source) -> Importer:
    sample = source.sample()
    for importer in importers():
        if importer.detect(sample):
            return importer
    raise SessionFormatError(f"{source.path} is no recorded session of a known format; {KNOWN}")
