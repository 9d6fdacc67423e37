"""`refold replay`: a recorded session, run through a real agent inside a window; the table, the report, the JSON."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from refold.core.policy import Policy
    from refold.core.situation import Plan
    from refold.replay.managed import Progress as Step
    from refold.replay.result import Replay
    from refold.replay.transcript import Transcript

_DEFAULT_WINDOW = 32_000


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What was asked for."""

    transcript: "Transcript"
    policy: "Policy"
    limit: int
    model: str | None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    session: Annotated[Path, typer.Argument(help="A recorded session, in any known format.")],
    window: Annotated[str | None, typer.Option("--window", help="The input limit in tokens, such as 32k.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="The model whose limits and prices count.")] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="Thresholds, in JSON or TOML.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the HTML report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Print the plan for the whole log; change nothing.")] = False,
    index: Annotated[int | None, typer.Option("--index", help="Take this dialogue of the file, from 0.", min=0)] = None,
    join: Annotated[bool, typer.Option("--join", help="Make all dialogues of the file one long session.")] = False,
) -> None:
    """Replay a recorded session through a real agent, and report.

    The agent's window is kept inside a limit; no key and no network are needed.
    """
    job = _job(session, window=window, model=model, policy=policy, index=index, join=join)
    if dry:
        _dry(job, as_json=as_json)
        return
    result = _played(job)
    if out is not None:
        from refold.replay.report import write_report

        write_report(result, out)
    if as_json:
        from refold.replay.result import to_json

        typer.echo(_safe_json(to_json(result)))
    else:
        _show(result, out)
    if not result.holds:
        from refold.replay.result import EXIT_BROKEN

        raise typer.Exit(EXIT_BROKEN)


def _job(
    session: Path, *, window: str | None, model: str | None, policy: Path | None, index: int | None, join: bool
) -> _Job:
    from refold.cli.settings import load_policy, parse_tokens
    from refold.replay import read_transcript
    from refold.replay.prices import catalogue_limits

    if join and index is not None:
        raise ConfigurationError("--join and --index: the one takes all dialogues, the other one; use one of them")
    settings = load_policy(policy)
    limit = parse_tokens(window) if window is not None else settings.context_limit
    transcript = _only(session) if index is None and not join else read_transcript(session, index=index or 0, join=join)
    if limit is None:
        known = catalogue_limits(model or transcript.model or "")
        limit = known.value.input if known.value is not None else _DEFAULT_WINDOW
    return _Job(transcript=transcript, policy=settings, limit=limit, model=model)


def _only(session: Path) -> "Transcript":
    """The dialogue of a file; of a file with several the first, and a word that there are more."""
    from refold.replay.importers import read_transcripts

    first, *more = islice(read_transcripts(session), 2)
    if more:
        words = "the file holds several dialogues; this is the first. --index N takes another one, --join all of them"
        Console(stderr=True, soft_wrap=True).print(Text.assemble(("note: ", "bold"), words), highlight=False)
    return first


def _played(job: _Job) -> "Replay":
    from refold.replay.managed import replay as run
    from refold.replay.secrets import redact

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages, window {task.fields[tokens]} of {task.fields[limit]} tokens"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        on_progress = _follow(bar, job.limit, redact)
        return run(job.transcript, policy=job.policy, limit=job.limit, model=job.model, on_progress=on_progress)


def _follow(bar: Progress, limit: int, redact: Callable[[str], str]) -> "Callable[[Step], None]":
    """A bar per transcript: the session's, and those of its subagents."""
    from rich.markup import escape
    from rich.progress import TaskID

    tasks: dict[str, TaskID] = {}

    def follow(step: "Step") -> None:
        if step.session not in tasks:
            name = escape(redact(step.session))
            tasks[step.session] = bar.add_task(name, total=step.total, tokens="0", limit=f"{limit:,}")
        bar.update(tasks[step.session], completed=step.done, tokens=f"{step.request.tokens:,}")

    return follow


def _safe_json(value: object) -> str:
    """JSON without secrets: every text in it is redacted by itself, so that it stays JSON."""
    from refold.replay.secrets import redact

    def clean(item: object) -> object:
        match item:
            case str():
                return redact(item)
            case dict():
                return {key: clean(inner) for key, inner in item.items()}
            case list() | tuple():
                return [clean(inner) for inner in item]
            case _:
                return item

    return json.dumps(clean(value), ensure_ascii=False, indent=2)


def _dry(job: _Job, *, as_json: bool) -> None:
    from refold.replay.dry import dry_run, plan_json
    from refold.replay.managed import UNKNOWN_MODEL

    found = dry_run(
        job.transcript, policy=job.policy, limit=job.limit, model=job.model or job.transcript.model or UNKNOWN_MODEL
    )
    if as_json:
        typer.echo(_safe_json({"session": job.transcript.name, "limit": job.limit, **plan_json(found)}))
    else:
        _show_plan(found)


def _show_plan(found: "Plan") -> None:
    from refold.replay.dry import plan_json

    console = Console()
    steps = plan_json(found)["steps"]
    console.print(
        f"zone {found.zone}: {found.before:,} tokens of messages for a budget of {found.budget:,}; "
        f"after the plan {found.after:,}, which {'fits' if found.fits else 'does not fit'}"
    )
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("kind", "messages", "saved", "left"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for step in steps if isinstance(steps, list) else []:
        table.add_row(str(step["kind"]), *(f"{step[name]:,}" for name in ("messages", "saved", "left")))
    console.print(table)


def _show(result: "Replay", out: Path | None) -> None:
    from refold.replay.report import summary_rows
    from refold.replay.secrets import redact

    console = Console()
    table = Table(box=box.SIMPLE_HEAD, title=Text(redact(result.transcript.name)), title_justify="left")
    table.add_column("")
    table.add_column("without refold", justify="right")
    table.add_column("with refold", justify="right")
    for row in summary_rows(result):
        table.add_row(*map(Text, row))
    console.print(table)
    for problem in result.problems[:10]:
        console.print(Text(f"problem: {redact(problem)}", style="red"))
    for child in result.subagents:
        console.print(
            Text(redact(f"subagent {child.transcript.name}: {len(child.calls)} calls, peak {child.peak:,} tokens"))
        )
    if out is not None:
        console.print(Text(f"report: {out}"))
