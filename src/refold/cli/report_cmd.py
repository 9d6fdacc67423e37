"""`refold report`: how a thread of a database stands: what fills its window, what was folded, what can be read back."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from refold.cli.database import HELP, existing, kind_to_read, say, serde_of_environment
from refold.cli.heads import head_of
from refold.cli.settings import parse_tokens
from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from refold.agent.report import SessionReport
    from refold.checkpoint.migrate.databases import Database, Kind
    from refold.core.canonical import Json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    database: Annotated[str, typer.Argument(help=HELP)],
    thread: Annotated[str, typer.Argument(help="The thread; refold threads lists them.")],
    files: Annotated[
        str | None, typer.Option("--files", help="Where the originals are: a directory or a URL. Makes sure of them.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", help="The model's input limit in tokens (32k), for the occupancy.")
    ] = None,
    channel: Annotated[str, typer.Option("--channel", help="The channel that holds the messages.")] = "messages",
    langgraph: Annotated[
        bool, typer.Option("--langgraph", help="Read LangGraph's tables where the database has both kinds.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write an HTML page here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report on a thread, from its newest checkpoint alone.

    What fills its window, what was folded, and what can be read back.
    """
    from refold.replay.session_page import write_session_page

    found = existing(database)
    kind = kind_to_read(found, langgraph=langgraph)
    result = _report(found, kind, thread, channel=channel, files=files, window=window)
    if out is not None:
        write_session_page(result, thread, out)
    if as_json:
        typer.echo(json.dumps({"thread": thread, **result.to_json()}, ensure_ascii=False))
        return
    say(f"thread {thread}", dict(result.rows()), as_json=False)
    if out is not None:
        typer.echo(f"report: {out}")


def _report(
    database: "Database", kind: "Kind", thread: str, *, channel: str, files: str | None, window: str | None
) -> "SessionReport":
    from refold.agent.report import SessionReport
    from refold.checkpoint.migrate.databases import open_source
    from refold.files import open_files

    with open_source(database, kind, serde_of_environment()) as source:
        head = head_of(source, thread)
        messages, folds = head.channel(channel), head.channel("folds")
    if not isinstance(messages, list):
        raise ConfigurationError(f"thread {thread!r} has no messages in channel {channel!r}; name it: --channel NAME")
    return SessionReport.of(
        cast("Sequence[BaseMessage]", messages),
        cast("Sequence[Mapping[str, Json]]", folds or ()),
        files=None if files is None else open_files(files),
        limit=None if window is None else parse_tokens(window),
    )
