"""`refold gc`: the space of values that no checkpoint leads to."""

from typing import Annotated

import typer

from refold.cli.database import HELP, saver_of, say


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gc")(gc)


def gc(
    database: Annotated[str, typer.Argument(help=HELP)],
    compact: Annotated[
        bool, typer.Option("--compact", help="Then pack the values that stay, and shrink the file.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Free every value that no checkpoint leads to any more. Readers and writers go on meanwhile."""
    with saver_of(database) as saver:
        before = saver.stats().database_bytes
        freed = saver.gc()
        rows: dict[str, object] = {"freed_values": freed.blobs, "freed_lists": freed.logs, "freed_packs": freed.packs}
        if compact:
            packed = saver.compact()
            rows |= {"packed_values": packed.blobs, "new_packs": packed.packs}
        say("collected", rows | {"bytes": before, "now_bytes": saver.stats().database_bytes}, as_json=as_json)
