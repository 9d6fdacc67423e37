"""`refold stats`: what a checkpoint database holds."""

from typing import Annotated

import typer

from refold.cli.database import HELP, fields_of, saver_of, say


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("stats")(stats)


def stats(
    database: Annotated[str, typer.Argument(help=HELP)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count threads, checkpoints, values and bytes of a database."""
    with saver_of(database) as saver:
        say("stored", fields_of(saver.stats()), as_json=as_json)
