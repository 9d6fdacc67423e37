"""`refold prune`: old checkpoints removed, by one of three rules."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.database import HELP, moment, saver_of, say
from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from refold.checkpoint.saver import SyncSaver


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("prune")(prune)


def prune(
    database: Annotated[str, typer.Argument(help=HELP)],
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Keep the newest N checkpoints of each namespace.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="Remove checkpoints older than this (30d, 36h); the newest one stays."),
    ] = None,
    idle: Annotated[
        str | None, typer.Option("--idle", help="Remove whole threads that were idle for this long (30d, 36h).")
    ] = None,
    thread: Annotated[
        list[str] | None, typer.Option("--thread", help="Only this thread; may be given again. All, if not given.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Threads to go through at a time.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove old checkpoints. What stays reads as before, pending interrupts and delta channels included."""
    if sum(option is not None for option in (keep, older_than, idle)) != 1:
        raise ConfigurationError("prune needs one rule: --keep N, --older-than AGE or --idle AGE")
    strategy = "keep_last" if keep is not None else "older_than" if older_than is not None else "delete"
    age = older_than or idle
    before = None if age is None else moment(age)
    with saver_of(database) as saver:
        _check_threads(saver, thread or ())
        held = saver.stats()
        saver.prune(thread or None, strategy=strategy, keep=keep or 1, before=before, batch_size=batch)
        saver.gc()
        left = saver.stats()
    rows = {
        "removed_threads": held.threads - left.threads,
        "removed_checkpoints": held.checkpoints - left.checkpoints,
        "threads": left.threads,
        "checkpoints": left.checkpoints,
        "bytes": held.database_bytes,
        "now_bytes": left.database_bytes,
    }
    say("pruned", rows, as_json=as_json)


def _check_threads(saver: "SyncSaver", threads: Sequence[str]) -> None:
    """A name that no thread has is a slip of the pen, and nothing is removed."""
    for name in threads:
        if next(saver.list({"configurable": {"thread_id": name}}, limit=1), None) is None:
            raise ConfigurationError(f"--thread {name}: there is no such thread; `refold threads` lists them")
