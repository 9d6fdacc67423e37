"""`refold migrate`: checkpoints moved between LangGraph's savers and refold's, with a proof."""

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from refold.cli.database import HELP, TARGET_KEY_VARIABLE, existing, kind_of, say, serde_of_environment
from refold.cli.terminal.screen import visible
from refold.errors import ConfigurationError, MigrationError

if TYPE_CHECKING:
    from refold.checkpoint.migrate import Mismatch, Place, Report
    from refold.checkpoint.migrate.databases import Database, Kind

_SHOWN: Final = 20


class Savers(StrEnum):
    """Whose tables."""

    LANGGRAPH = "langgraph"
    REFOLD = "refold"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate")(migrate)


def migrate(
    source: Annotated[str, typer.Argument(help=f"Where the checkpoints are. {HELP}")],
    target: Annotated[str, typer.Argument(help=f"Where they shall be; made if it is not there. {HELP}")],
    origin: Annotated[
        Savers | None, typer.Option("--from", help="Whose tables to read, where the source has both kinds.")
    ] = None,
    goal: Annotated[
        Savers | None,
        typer.Option("--to", help="Whose tables to write. If not given: those the target has, else the other kind."),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="The file that remembers what is done. Beside the target if not given."),
    ] = None,
    passes: Annotated[int, typer.Option("--passes", min=1, help="Passes at most, while others write.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy the checkpoints of LangGraph's saver into refold's, back, or from one database of refold's into another.

    Each is proved by reading it again. The source is only read and may be in use. Run it again to copy what is new
    since, until nothing is. Exit code 5 if a checkpoint could not be copied or does not read back as the source has it.
    """
    from refold.checkpoint.migrate.databases import is_file, is_same, look_into

    found, place = existing(source), look_into(target)
    kind = kind_of(found, wanted=None if origin is None else origin.value)
    written = _kind_to_write(found, kind, place, None if goal is None else goal.value)
    if is_same(found, place) and (kind == written or not found.is_postgres):
        what = "database" if found.is_postgres else "file"
        raise ConfigurationError(f"source and target are the same {what}; give the target another name")
    notes = ledger or _ledger_path(found, place)
    if any(not known.is_postgres and is_file(notes, known.url) for known in (found, place)):
        raise ConfigurationError(f"{notes} is a database of this migration and no ledger; name another file")
    report, sizes = _run(_Move(source=found, kind=kind, target=place, goal=written, ledger=notes, passes=passes))
    say(f"migrated {found.name} to {place.name}", _rows(report, sizes, as_json=as_json), as_json=as_json)
    _say_what_is_left(report, place.name, as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class _Move:
    source: "Database"
    kind: "Kind"
    target: "Database"
    goal: "Kind"
    ledger: Path
    passes: int


def _kind_to_write(source: "Database", kind: "Kind", target: "Database", wanted: "Kind | None") -> "Kind":
    """The wanted kind; else the only one that the target has, so that no tables are put beside others; else the other
    than the source's."""
    other: Kind = "refold" if kind == "langgraph" else "langgraph"
    only = next(iter(target.kinds)) if len(target.kinds) == 1 else None
    goal = wanted or only or other
    if kind == goal == "langgraph":
        hint = (
            f"{target.name} holds LangGraph's checkpoints; to put refold's tables beside them, say --to refold"
            if wanted is None
            else "to copy such a database, use a backup of it"
        )
        raise ConfigurationError(f"checkpoints are not moved from LangGraph's saver to LangGraph's: {hint}")
    return goal


def _run(move: _Move) -> tuple["Report", tuple[int, int]]:
    from refold.checkpoint.migrate import Ledger
    from refold.checkpoint.migrate import migrate as run
    from refold.checkpoint.migrate.databases import open_source, open_target
    from refold.checkpoint.migrate.troubles import database_errors

    serde = serde_of_environment()
    key_of_target = serde_of_environment(TARGET_KEY_VARIABLE) or serde
    console = Console(stderr=True)
    with ExitStack() as stack:
        reading = stack.enter_context(open_source(move.source, move.kind, serde))  # first: a wrong key makes no target
        writing = stack.enter_context(open_target(move.target, move.goal, key_of_target))
        proving = stack.enter_context(open_target(move.target, move.goal, key_of_target))
        done = stack.enter_context(Ledger.open(move.ledger, source=move.source.name, target=move.target.name))
        status = stack.enter_context(console.status("reading the index"))
        copied = 0

        def progress(place: "Place") -> None:
            nonlocal copied
            copied += 1
            if copied % 20 == 0:
                status.update(Text(f"{copied:,} checkpoints copied; at thread {place.thread_id}"))

        report = run(
            reading,
            writing,
            reader=proving,
            ledger=done,
            to_langgraph=move.goal == "langgraph",
            passes=move.passes,
            progress=progress,
        )
        with database_errors("source"):
            read = reading.size()
    with open_source(existing(move.target.url), move.goal, key_of_target) as made:
        return report, (read, made.size())


def _say_what_is_left(report: "Report", target: str, *, as_json: bool) -> None:
    """What there is to do, on standard error. Raises `MigrationError` where a checkpoint is not as it should be."""
    console = Console(stderr=True, soft_wrap=True)
    if report.left:
        count = f"{sum(report.left.values()):,} checkpoints of {len(report.left):,} threads"
        text = f"{count} were deleted from the source since they were copied, and are still in {target}"
        console.print(Text(f"{text}; delete them there if they shall go"))
    if not report.caught_up and report.proved:
        console.print("the source is still being written to: run it again, last when the writers have stopped")
    if not report.mismatches:
        return
    if not as_json:
        for mismatch in report.mismatches[:_SHOWN]:
            console.print(Text(visible(f"{mismatch.place}: {mismatch.difference}")))
    first = report.mismatches[0]
    raise MigrationError(
        f"{len(report.mismatches)} checkpoints are not in the target as the source has them; the first: {first.place}: "
        f"{first.difference}; the others are; keep the source, mend what is said and run it again (--json lists all)"
    )


def _ledger_path(source: "Database", target: "Database") -> Path:
    """Beside the target's file; for a target without one, in the working directory, named by both."""
    if not target.is_postgres:
        return Path(target.url + ".migration")
    name = hashlib.blake2b(f"{source.name}\n{target.name}".encode(), digest_size=6).hexdigest()
    return Path(f"refold-{name}.migration")


def _rows(report: "Report", sizes: tuple[int, int], *, as_json: bool) -> dict[str, object]:
    read, written = sizes
    return {
        "threads": report.threads,
        "checkpoints": report.found,
        "copied": report.copied,
        "done_before": report.unchanged,
        "lacked_in_target": report.lacked,
        "pruned_in_target": report.pruned,
        "deleted_meanwhile": report.gone,
        "deleted_in_source": sum(report.left.values()),
        "threads_deleted_in_source": list(report.left),
        "writes": report.writes,
        "delta_histories_compared": report.histories,
        "source_bytes": read,
        "target_bytes": written,
        "smaller_by": f"{read / written:,.1f} times" if written else "",
        "metadata_writes_left_out": report.without_writes,
        "caught_up": "yes" if report.caught_up else "no",
        "proved": _proved(report),
        **({"differing": [_shown(mismatch) for mismatch in report.mismatches]} if as_json else {}),
    }


def _shown(mismatch: "Mismatch") -> dict[str, str]:
    place = mismatch.place
    return {
        "thread": place.thread_id,
        "namespace": place.checkpoint_ns,
        "checkpoint": place.checkpoint_id,
        "difference": mismatch.difference,
    }


def _proved(report: "Report") -> str:
    """Of what was read back in this run; of what an earlier one finished, only that it is there."""
    if not report.proved:
        return f"no: {len(report.mismatches):,} differ"
    before = f"{report.unchanged:,} of an earlier run are in the target" if report.unchanged else ""
    now = f"{report.copied:,} copied checkpoints read back equal" if report.copied else "nothing was copied"
    return "; ".join(filter(None, (now, before)))
