"""`refold convert`: a recorded session of any known format, written in refold's own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.errors import ConfigurationError
from refold.replay import (
    Transcript,
    read_transcript,
    read_transcripts,
    redact,
    redact_transcript,
    write_jsonl,
)
from refold.replay.transcript import Skipped, united

_ROWS = 20
"""Dialogues that the table shows; a file can hold thousands."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What the tables say of one dialogue."""

    name: str
    counts: tuple[int, ...]
    skipped: tuple[Skipped, ...]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("convert")(convert)


def convert(
    source: Annotated[Path, typer.Argument(help="A recorded session, in any known format, also gzipped.")],
    target: Annotated[Path, typer.Argument(help="The file to write, in refold's own format.")],
    join: Annotated[bool, typer.Option("--join", help="Make all dialogues of the file one long session.")] = False,
    index: Annotated[int | None, typer.Option("--index", help="Take only this dialogue, from 0.", min=0)] = None,
    hide: Annotated[bool, typer.Option("--redact", help="Replace what looks like a secret.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a target that exists.")] = False,
) -> None:
    """Write a recorded session in refold's own format.

    Shows what was read and what was skipped.
    """
    if join and index is not None:
        raise ConfigurationError(
            "--join and --index: the one takes all dialogues, the other takes one; use one of them"
        )
    if target.exists() and source.resolve() == target.resolve():
        raise ConfigurationError(f"target {target}: it is the source; give another name")
    if target.exists() and not force:
        raise ConfigurationError(f"target {target}: it exists; give another name, or --force to replace it")
    rows: list[_Row] = []
    chosen = _chosen(source, join=join, index=index)
    count = write_jsonl(target, _noted(map(redact_transcript, chosen) if hide else chosen, rows))
    console = Console()
    console.print(Text(f"{count} messages of {len(rows)} dialogue{'s' * (len(rows) != 1)} in {target}"), soft_wrap=True)
    _show(console, rows)


def _chosen(source: Path, *, join: bool, index: int | None) -> Iterable[Transcript]:
    if join:
        return [read_transcript(source, join=True)]
    if index is not None:
        return [read_transcript(source, index=index)]
    transcripts = read_transcripts(source)
    first = next(transcripts)  # a file that cannot be read fails before the target is touched
    return chain([first], transcripts)


def _noted(transcripts: Iterable[Transcript], rows: list[_Row]) -> Iterator[Transcript]:
    """The same transcripts; what the tables say of each is kept, the messages are not."""
    for transcript in transcripts:
        pairing = transcript.pairing()
        counts = (
            len(transcript.messages),
            len(pairing.calls),
            len(pairing.unanswered()),
            len(pairing.orphans),
            len(transcript.subagents),
            len(transcript.compactions),
        )
        name = f"{transcript.name} ({transcript.format})"
        rows.append(_Row(name=redact(name), counts=counts, skipped=transcript.skipped))
        yield transcript


def _show(console: Console, rows: list[_Row]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("read", overflow="fold")
    for name in ("messages", "calls", "no\nresult", "no\ncall", "sub-\nagents", "com-\npactions"):
        table.add_column(name, justify="right")
    for row in rows[:_ROWS]:
        table.add_row(Text(row.name), *map(str, row.counts))
    if len(rows) > _ROWS:
        table.add_row(f"... and {len(rows) - _ROWS} more")
    console.print(table)
    skips = united(skip for row in rows for skip in row.skipped)
    if skips:
        skipped = Table(box=box.SIMPLE_HEAD)
        skipped.add_column("skipped", justify="right")
        skipped.add_column("what", overflow="fold")
        skipped.add_column("first line", justify="right")
        for skip in skips:
            line = "" if skip.first_line is None else str(skip.first_line)
            skipped.add_row(str(skip.count), Text(redact(skip.reason)), line)
        console.print(skipped)
