"""`refold collect`: stored originals that no checkpoint points at any more, removed down to bounds."""

import re
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.database import HELP, existing, moment, say, serde_of_environment
from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from refold.checkpoint.migrate.databases import Database, Kind

_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)B?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("collect")(collect)


def collect(
    databases: Annotated[list[str], typer.Argument(help=f"{HELP} All whose threads keep originals in the files.")],
    files: Annotated[str, typer.Option("--files", help="Where the originals are: a directory or a URL.")],
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Remove what was last written this long ago (30d, 36h).")
    ] = None,
    most_bytes: Annotated[
        str | None, typer.Option("--most-bytes", help="Remove the oldest while there is more than this (2GB).")
    ] = None,
    most_files: Annotated[
        int | None, typer.Option("--most-files", min=0, help="Remove the oldest while there are more than this.")
    ] = None,
    grace: Annotated[str, typer.Option("--grace", help="Never remove what was written this short ago.")] = "1h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove stored originals that no checkpoint points at.

    Every thread, fork and namespace of the databases counts. Prune checkpoints first.
    """
    from refold.agent.retention import live_paths
    from refold.checkpoint.migrate.databases import open_target
    from refold.checkpoint.migrate.troubles import reading_all
    from refold.core.program import run
    from refold.files import DeleteFile, Retention, answer, open_files
    from refold.files.retention import collect_gen

    now = datetime.now(UTC)
    bounds = Retention(
        older_than=None if older_than is None else (now - moment(older_than, now=now)).total_seconds(),
        most_bytes=None if most_bytes is None else _bytes(most_bytes),
        most_files=most_files,
        grace=(now - moment(grace, now=now)).total_seconds(),
    )
    with ExitStack() as stack:
        found = [existing(url) for url in databases]
        savers = [
            stack.enter_context(open_target(database, kind, _serde_for(database, kind)))
            for database in found
            for kind in sorted(database.kinds)
        ]
        with reading_all(", ".join(database.name for database in found)):
            live = live_paths(savers)
    handle = partial(answer, open_files(files))
    done = run(
        collect_gen(live, bounds, now=now.timestamp()),
        (lambda effect: None if isinstance(effect, DeleteFile) else handle(effect)) if dry_run else handle,
    )
    rows = {
        "removed_files": len(done.removed),
        "removed_bytes": sum(info.size for info in done.removed),
        "kept_files": done.kept_files,
        "kept_bytes": done.kept_bytes,
        "live_paths": len(live),
    }
    say("would be collected" if dry_run else "collected", rows, as_json=as_json)


def _serde_for(database: "Database", kind: "Kind") -> "SerializerProtocol | None":
    """With the key of the environment, but for a database of refold's that was made without: it stays so."""
    from refold.checkpoint.migrate.keys import without_cipher

    serde = serde_of_environment()
    return without_cipher(serde) if kind == "refold" and not database.encrypted else serde


def _bytes(text: str) -> int:
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} is no size; write bytes, or kB, MB, GB, for example 2GB")
    return round(float(found[1]) * _UNITS[found[2]])
