"""The application that the commands join, and what happens when one fails.

An error of refold is one line on standard error, without secrets, and the exit code of its class (errors.py). Usage
errors are 2, an interrupt is 130, a reader that closed the pipe is 141; anything else is a bug and shows its traceback.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from refold.errors import RefoldError

INTERRUPTED = 130
BROKEN_PIPE = 141


def build() -> typer.Typer:
    """The application with every command."""
    from refold.cli import (
        collect_cmd,
        convert_cmd,
        gc_cmd,
        migrate_cmd,
        prune_cmd,
        replay_cmd,
        report_cmd,
        run_cmd,
        stats_cmd,
        threads_cmd,
        verify_cmd,
    )

    app = typer.Typer(
        name="refold",
        help="Keep long-running LangGraph agents inside their context window, without losing a byte.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in (
        run_cmd,
        replay_cmd,
        report_cmd,
        convert_cmd,
        threads_cmd,
        stats_cmd,
        verify_cmd,
        prune_cmd,
        gc_cmd,
        collect_cmd,
        migrate_cmd,
    ):
        command.register(app)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (by default the process's) and return the exit code."""
    try:
        build()(args=None if arguments is None else list(arguments), prog_name="refold")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except RefoldError as error:
        _say(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit; there must be something that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return 0


def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=lambda on: _version(on)),
    ] = False,
) -> None:
    """Keep long-running LangGraph agents inside their context window, without losing a byte."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"refold {version('refold')}")
        raise typer.Exit


def _say(error: RefoldError) -> None:
    from refold.cli.terminal.screen import visible
    from refold.replay.secrets import redact

    line = visible(" ".join(redact(str(error)).split()))
    Console(stderr=True, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), line), highlight=False)
