"""`refold threads`: the threads of a database of refold's savers or LangGraph's, and the messages of one."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.cli.database import HELP, existing, kind_to_read, serde_of_environment
from refold.cli.heads import Thread, head_of, read, threads_of
from refold.errors import ConfigurationError, CorruptionError

if TYPE_CHECKING:
    from refold.checkpoint.migrate.saved import Source


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("threads")(threads)


def threads(
    database: Annotated[str, typer.Argument(help=HELP)],
    thread: Annotated[
        str | None, typer.Option("--messages", help="Print the messages of this thread, one JSON object a line.")
    ] = None,
    channel: Annotated[str, typer.Option("--channel", help="The channel that holds the messages.")] = "messages",
    langgraph: Annotated[
        bool, typer.Option("--langgraph", help="Read LangGraph's tables where the database has both kinds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """List the threads of a database, or print the messages of one.

    Whatever kind of channel and saver it was written with.
    """
    from refold.checkpoint.migrate.databases import open_source

    found = existing(database)
    kind = kind_to_read(found, langgraph=langgraph)
    with open_source(found, kind, serde_of_environment()) as source:
        if thread is not None:
            for line in _messages(source, thread, channel):
                typer.echo(json.dumps(line, ensure_ascii=False))
        else:
            _show(source, threads_of(source), as_json=as_json)


def _show(source: "Source", found: dict[str, Thread], *, as_json: bool) -> None:
    """All threads, those too whose newest checkpoint cannot be read: the first of them is the error in the end."""
    rows: list[dict[str, object]] = []
    damaged: CorruptionError | None = None
    for name, known in found.items():
        newest = ""
        try:
            saved = None if known.head is None else read(source, known.head)
            newest = "" if saved is None else str(saved.tuple.checkpoint.get("ts", ""))
        except CorruptionError as error:
            damaged = damaged or error
        counts = {"checkpoints": known.checkpoints, "namespaces": known.namespaces}
        rows.append({"thread": name, **counts, "newest": newest[:19]})
    _print(rows, as_json=as_json)
    if damaged is not None:
        raise damaged


def _print(rows: Sequence[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("thread", overflow="fold")
    for name in ("checkpoints", "namespaces", "newest"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row.values()))
    console = Console()
    console.print(table)
    console.print(f"{len(rows)} thread{'s' * (len(rows) != 1)}")


def _messages(source: "Source", thread: str, channel: str) -> Sequence[object]:
    from refold.cli.as_json import in_json

    held = head_of(source, thread).channel(channel)
    if held is None:
        raise ConfigurationError(f"thread {thread!r} has no channel {channel!r}; name it: --channel NAME")
    return [in_json(item) for item in (held if isinstance(held, list) else [held])]
