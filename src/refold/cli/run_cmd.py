"""`refold run`: an agent at the terminal. Its thread is kept, its window fits, and it asks before it changes things.

Exit codes: 0 answered, 8 waits for a person who is not there, 9 a model or tool failed, 130 stopped by Ctrl-C; 2, 3 and
5 are refold's own (errors.py). In all of them the thread is kept, and the command that goes on with it is said.
"""

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer

from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from refold.agent.create import Agent
    from refold.cli.terminal.session import Ending, Session
    from refold.core.policy import Policy

WAITING: Final = 8
STOPPED: Final = 130
THREADS: Final = ".refold/threads.db"

_SYSTEM: Final = (
    "You are an agent at a user's terminal. The user's working directory is mounted at /work; your own notes go "
    "anywhere else. Read before you change, change only what the task needs, and say shortly what you did."
)
_HELP: Final = "Type a message; /continue goes on with a stopped run, /status shows the window, /quit or Ctrl-D leaves."


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What was asked for."""

    model: str
    base_url: str | None
    key_variable: str | None
    database: str
    files: str | None
    work: str
    window: str | None
    policy: Path | None
    system: str | None
    allow: Sequence[str]
    ask: Sequence[str]
    deny: Sequence[str]
    confirm: Sequence[str]
    tools: Sequence[str]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    task: Annotated[
        str | None, typer.Argument(help="What to do; - reads it from standard input. Without one there is a prompt.")
    ] = None,
    *,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="provider:name, the server's own name with --base-url, or module:attribute."
        ),
    ],
    base_url: Annotated[str | None, typer.Option("--base-url", help="An OpenAI-compatible server's URL.")] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", help="The environment variable with the key for --base-url.")
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", "-t", help="Go on with this thread, or begin it.")] = None,
    db: Annotated[str, typer.Option("--db", help="Where threads are: a SQLite file or a postgresql:// URL.")] = THREADS,
    files: Annotated[
        str | None, typer.Option("--files", help="The agent's own files: a directory or URL. Default: .refold/files.")
    ] = None,
    work: Annotated[str, typer.Option("--work", help="The directory at /work, or none.")] = ".",
    window: Annotated[str | None, typer.Option("--window", help="The model's input limit, such as 32k.")] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="Thresholds, in JSON or TOML.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="The system prompt, or @FILE.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", help="[OPERATIONS:]GLOB that needs no question.")
    ] = None,
    ask: Annotated[list[str] | None, typer.Option("--ask", help="[OPERATIONS:]GLOB that asks first.")] = None,
    deny: Annotated[list[str] | None, typer.Option("--deny", help="[OPERATIONS:]GLOB that is refused.")] = None,
    confirm: Annotated[list[str] | None, typer.Option("--confirm", help="A tool whose every call asks first.")] = None,
    tools: Annotated[list[str] | None, typer.Option("--tools", help="Your tools, as module:attribute.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Run an agent in the terminal. It reads the directory at /work, asks before it writes there, and has no shell."""
    job = _Job(
        model=model, base_url=base_url, key_variable=key_env, database=db, files=files, work=work, window=window,
        policy=policy, system=system, allow=allow or (), ask=ask or (), deny=deny or (), confirm=confirm or (),
        tools=tools or (),
    )  # fmt: skip
    if task == "-":
        task = sys.stdin.read()
    if task is not None and not task.strip():
        raise ConfigurationError("the task is empty; write what the agent is to do")
    name = thread or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"
    with _session(job, name, as_json=as_json) as session:
        code = _exit_code(_run(session, task))
        session.ctrl_c.leave()
    if code:
        raise typer.Exit(code)


def _run(session: "Session", task: str | None) -> "Ending":
    """What a thread waits for comes first, then the task, then, with a person there and no task, the prompt."""
    state = session.stand()
    session.say_where_it_stands(state)
    ending: Ending = "answered"
    if state.interrupts:
        if task is not None and session.human is None:
            session.screen.note("the new task is not given: the thread waits for an answer first", event="not_given")
        ending = session.answer_first(state.interrupts)
    elif state.tasks and task is None:  # not `next`, which leaves out tasks whose writes are stored already
        ending = session.play(None)
    elif task is None and session.human is None:
        raise ConfigurationError('nothing to do: give a task, such as refold run "..." --model NAME')
    if ending != "answered":
        return ending
    if task is not None:
        return session.say(task)
    if session.human is not None:
        _prompt(session)
    return "answered"


def _prompt(session: "Session") -> None:
    """Messages until the person leaves. A stopped run comes back here."""
    session.screen.note(_HELP)
    human = session.human
    while human is not None:
        try:
            typed = human.ask("> ").strip()
        except (EOFError, KeyboardInterrupt):
            break
        match typed:
            case "":
                continue
            case "/quit" | "/exit":
                break
            case "/status":
                session.say_occupancy()
            case "/continue":
                _go_on(session)
            case _ if typed.startswith("/"):
                session.screen.note(_HELP)
            case _:
                session.say(typed)
    session.screen.note(f"go on later with: {session.resume}", event="left", resume=session.resume)


def _go_on(session: "Session") -> None:
    state = session.stand()
    if state.interrupts:
        session.answer_first(state.interrupts)
    elif state.tasks:
        session.play(None)
    else:
        session.screen.note("nothing was stopped; type what to do next")


@contextmanager
def _session(job: _Job, thread: str, *, as_json: bool) -> "Iterator[Session]":
    from refold.checkpoint.migrate.databases import is_postgres
    from refold.checkpoint.migrate.ours import open_saver
    from refold.cli.database import serde_of_environment
    from refold.cli.terminal.ctrl_c import CtrlC
    from refold.cli.terminal.human import Human
    from refold.cli.terminal.screen import JsonLines, Terminal
    from refold.cli.terminal.session import Session

    screen = JsonLines() if as_json else Terminal()
    human = None
    if sys.stdin.isatty() and sys.stderr.isatty():
        human = Human(screen=screen, ask=screen.ask)
    make_agent = _agent_of(job)
    if not is_postgres(job.database):
        _make_folder_of(job.database)
    with (
        open_saver(job.database, serde_of_environment(), exclusive=True) as saver,
        CtrlC() as ctrl_c,
        asyncio.Runner() as runner,
    ):
        yield Session(
            agent=make_agent(saver), thread=thread, screen=screen, human=human, resume=_resume(job, thread),
            runner=runner, ctrl_c=ctrl_c,
        )  # fmt: skip


def _make_folder_of(database: str) -> None:
    if "://" in database:
        raise ConfigurationError(f"--db: no database answers to {database.partition('://')[0]}://; give a SQLite file")
    folder = Path(database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--db: the folder {folder} cannot be made ({error.strerror})") from error


def _agent_of(job: _Job) -> "Callable[[BaseCheckpointSaver[str]], Agent]":
    """Looks at every option before a database is made, so that one that cannot work leaves nothing behind."""
    from refold.agent.create import create_agent
    from refold.cli.settings import load_policy, parse_tokens
    from refold.cli.terminal.loading import load_model, load_tools
    from refold.cli.terminal.workspace import open_place, rules_of

    policy = load_policy(job.policy)
    if job.window is not None:
        policy = replace(policy, context_limit=parse_tokens(job.window))
    tools = load_tools(job.tools)
    _check_names(job.confirm, tools, policy)
    model = load_model(job.model, base_url=job.base_url, key_variable=job.key_variable)
    system, files = _system(job), open_place(job.files, job.work)
    permissions = rules_of(allow=job.allow, ask=job.ask, deny=job.deny)

    def make(saver: "BaseCheckpointSaver[str]") -> "Agent":
        return create_agent(
            model, tools, system_prompt=system, files=files, checkpointer=saver, policy=policy,
            permissions=permissions, interrupt_on=dict.fromkeys(job.confirm, True) or None,
        )  # fmt: skip

    return make


def _check_names(confirm: Sequence[str], own: "Sequence[BaseTool]", policy: "Policy") -> None:
    """A name that no tool has would be a question that is never asked."""
    from refold.agent.control import COMPACT, CONTEXT_USAGE, PIN, UNPIN
    from refold.agent.recall import READ_HISTORY
    from refold.agent.search import SEARCH_HISTORY
    from refold.agent.tools import FILE_TOOLS

    names = {
        *FILE_TOOLS,
        READ_HISTORY,
        SEARCH_HISTORY,
        COMPACT,
        PIN,
        UNPIN,
        *((CONTEXT_USAGE,) if policy.budget_line else ()),
        *(tool.name for tool in own),
    }
    unknown = [name for name in confirm if name not in names]
    if unknown:
        raise ConfigurationError(f"--confirm {unknown[0]}: no tool is called so; there are {', '.join(sorted(names))}")


def _system(job: _Job) -> str:
    if job.system is None:
        return _SYSTEM
    if not job.system.startswith("@"):
        return job.system
    try:
        return Path(job.system[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--system {job.system}: cannot be read ({error})") from error


def _resume(job: _Job, thread: str) -> str:
    """The command that goes on with the thread, with what it needs to be the same agent. No URL with a password."""
    from refold.replay.secrets import redact

    words = ["refold", "run", "--thread", thread, "--model", job.model]
    single: Mapping[str, tuple[str | None, str | None]] = {  # what was given, and what is usual
        "--base-url": (job.base_url, None),
        "--key-env": (job.key_variable, None),
        "--db": (job.database, THREADS),
        "--files": (job.files, None),
        "--work": (job.work, "."),
        "--window": (job.window, None),
        "--policy": (str(job.policy) if job.policy is not None else None, None),
        "--system": (job.system, None),
    }
    for option, (value, usual) in single.items():
        if value is not None and value != usual:
            words += [option, redact(value)]
    many = {
        "--allow": job.allow, "--ask": job.ask, "--deny": job.deny, "--confirm": job.confirm, "--tools": job.tools,
    }  # fmt: skip
    for option, values in many.items():
        words += [word for value in values for word in (option, value)]
    return shlex.join(words)


def _exit_code(ending: "Ending") -> int:
    return {"answered": 0, "waiting": WAITING, "stopped": STOPPED}[ending]
