"""`refold migrate`: checkpoints moved between LangGraph's savers and refold's, with a proof."""

import hashlib
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from refold.cli.database import HELP, existing, kind_of, saver_of, say, serde_of_environment
from refold.errors import ConfigurationError, MigrationError

if TYPE_CHECKING:
    from refold.checkpoint.migrate import Place, Report
    from refold.checkpoint.migrate.databases import Database, Kind


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
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="The file that remembers what is done. Beside the target if not given."),
    ] = None,
    passes: Annotated[int, typer.Option("--passes", min=1, help="Passes at most, while others write.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy the checkpoints of LangGraph's saver, or back.

    Into a database of refold's, or from one; each is proved by reading it again. The source is only read and may be in
    use. Run it again to copy what is new since, until nothing is. Exit code 5 if a checkpoint does not read back as
    the source has it.
    """
    from refold.checkpoint.migrate.databases import look_into

    found = existing(source)
    kind = kind_of(found, wanted=None if origin is None else origin.value)
    goal = look_into(target)
    if _is_same_file(found, goal):
        raise ConfigurationError("source and target are the same file; give the target another name")
    notes = ledger or _ledger_path(found, goal)
    if any(not known.is_postgres and _is_file(notes, known.url) for known in (found, goal)):
        raise ConfigurationError(f"{notes} is a database of this migration and no ledger; name another file")
    report, sizes = _run(found, kind, goal, notes, passes)
    say(f"migrated {found.name} to {goal.name}", _rows(report, sizes), as_json=as_json)
    if not report.caught_up and report.proved:
        Console(stderr=True).print(
            "the source is still being written to: run it again, last when the writers have stopped"
        )
    if report.mismatches:
        first = report.mismatches[0]
        raise MigrationError(
            f"{len(report.mismatches)} checkpoints do not read back as the source has them; the first: {first.place}: "
            f"{first.difference}; keep the source, and report this"
        )


def _run(
    source: "Database", kind: "Kind", target: "Database", ledger: Path, passes: int
) -> tuple["Report", tuple[int, int]]:
    from refold.checkpoint.migrate import Ledger
    from refold.checkpoint.migrate import migrate as run
    from refold.checkpoint.migrate.databases import open_source, open_target

    goal: Kind = "refold" if kind == "langgraph" else "langgraph"
    serde = serde_of_environment()
    console = Console(stderr=True)
    with ExitStack() as stack:
        reading = stack.enter_context(open_source(source, kind, serde))
        writing = stack.enter_context(open_target(target, goal, serde))
        proving = stack.enter_context(open_target(target, goal, serde))
        done = stack.enter_context(Ledger.open(ledger, source=source.name, target=target.name))
        status = stack.enter_context(console.status("reading the index"))
        copied = 0

        def progress(place: "Place") -> None:
            nonlocal copied
            copied += 1
            if copied % 20 == 0:
                status.update(f"{copied:,} checkpoints copied; at thread {place.thread_id}")

        report = run(
            reading,
            writing,
            reader=proving,
            ledger=done,
            to_langgraph=goal == "langgraph",
            passes=passes,
            progress=progress,
        )
        read = reading.size()
    if goal == "refold":
        with saver_of(target.url) as saver:
            return report, (read, saver.stats().database_bytes)
    with open_source(existing(target.url), goal, serde) as written:
        return report, (read, written.size())


def _is_same_file(one: "Database", other: "Database") -> bool:
    return not one.is_postgres and not other.is_postgres and _is_file(Path(one.url), other.url)


def _is_file(path: Path, name: str) -> bool:
    """Whether a path leads to a file, however the two are written; links count as what they lead to."""
    other = Path(name)
    return path.samefile(other) if path.exists() and other.exists() else path.resolve() == other.resolve()


def _ledger_path(source: "Database", target: "Database") -> Path:
    """Beside the target's file; for a target without one, in the working directory, named by both."""
    if not target.is_postgres:
        return Path(target.url + ".migration")
    name = hashlib.blake2b(f"{source.name}\n{target.name}".encode(), digest_size=6).hexdigest()
    return Path(f"refold-{name}.migration")


def _rows(report: "Report", sizes: tuple[int, int]) -> dict[str, object]:
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
        "caught_up": "yes" if report.caught_up else "no",
        "proved": _proved(report),
    }


def _proved(report: "Report") -> str:
    """Of what was read back in this run; of what an earlier one finished, only that it is there."""
    if not report.proved:
        return f"{len(report.mismatches):,} differ"
    before = f"{report.unchanged:,} of an earlier run are in the target" if report.unchanged else ""
    now = f"{report.copied:,} copied checkpoints read back equal" if report.copied else "nothing was copied"
    return "; ".join(filter(None, (now, before)))
