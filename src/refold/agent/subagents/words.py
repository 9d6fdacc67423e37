"""What the parent's model is told about delegating, and what a subagent is told about answering."""

from collections.abc import Sequence
from typing import Final

from refold.agent.subagents.levels import LEVELS, LevelName
from refold.agent.subagents.specs import AnySubagent

_WHEN: Final = """\
Hand a piece of work to a subagent. It works alone, in a window of its own, and answers once; its steps do not fill \
your window.

Delegate what takes minutes: many steps, many files, a search whose way you will not need, only its result. Do not \
delegate what a few tool calls do: call the tools yourself, and several that do not depend on each other in parallel, \
in one message. Tasks that do not depend on each other can be delegated in parallel too: several calls of this tool in \
one message.

A subagent knows nothing of this conversation. Write into the description all that it needs: the aim, paths, \
constraints, what was tried, and what to answer. Files are shared: it reads what you wrote, and can leave long results \
in files. Its answer comes to you, not to the user. A long answer comes as a preview with a path."""

ANSWERING: Final = """\
You were handed this task by another agent, which sees none of your steps: your last message is your whole answer to \
it. Say there all that was asked for, with the paths, values and reasons that matter. Ask nothing: where something is \
unclear, decide, and say how. Put long material into files and name their paths. If you could not do something, say \
so."""


def task_description(specs: Sequence[AnySubagent]) -> str:
    """The description of the `task` tool."""
    agents = "\n".join(f"- {spec.name}: {' '.join(spec.description.split())}{_granted(spec)}" for spec in specs)
    levels = "\n".join(f"- {name}: {level.when}" for name, level in LEVELS.items())
    return f"{_WHEN}\n\nSubagents:\n{agents}\n\nLevels:\n{levels}"


def child_prompt(prompt: str) -> str:
    """The system prompt of a declared subagent."""
    return f"{prompt.strip()}\n\n{ANSWERING}" if prompt.strip() else ANSWERING


def child_message(description: str, level: LevelName) -> str:
    """What a declared subagent is asked: the description, and how far to go."""
    return f"{description}\n\n[{LEVELS[level].guidance}]"


def unknown_subagent(name: str, known: Sequence[str]) -> str:
    """The error result of a call that names a subagent that does not exist."""
    return f"Not run: no subagent is called {name!r}. There are: {', '.join(known)}."


def not_delegated(unknown: Sequence[str]) -> str:
    """The error result of a call with arguments that no subagent would see."""
    return (
        f"Not run: this tool has no argument {', '.join(unknown)}. Put everything that the subagent needs into "
        "`description`."
    )


def unfinished(name: str, steps: int | None, said: str) -> str:
    """The error result of a run that met its bound on steps."""
    after = f"after {steps} steps, the most that it may take" if steps is not None else "at its own bound on steps"
    last = f" What it said last:\n\n{said}" if said else " It said nothing until then."
    return f"Not finished: subagent {name!r} stopped {after}. Ask for less, or at a higher level.{last}"


def no_answer(name: str) -> str:
    """The error result of a run that ended without words."""
    return f"Subagent {name!r} ended without an answer. Whatever it did to files is done; ask again, or do it yourself."


def _granted(spec: AnySubagent) -> str:
    return " (you may search and read the history of its runs)" if spec.grant_history else ""
