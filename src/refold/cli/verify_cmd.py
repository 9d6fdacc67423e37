"""`refold verify`: every stored value against its hash."""

from typing import Annotated

import typer

from refold.cli.database import HELP, fields_of, saver_of, say
from refold.errors import CorruptionError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(
    database: Annotated[str, typer.Argument(help=HELP)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Derive every hash again and follow every pointer. Exit code 5 if anything is damaged."""
    with saver_of(database) as saver:
        found = saver.verify()
    say("checked", fields_of(found), as_json=as_json)
    if not found.ok:
        raise CorruptionError(
            f"{len(found.problems)} problems, the first: {found.problems[0]}; restore the database from a backup"
        )
