"""What a hook or tool did to files in graph state, as part of the update that it returns anyway."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from refold.files.state import CHANNEL

Result = TypeVar("Result")


def with_files(result: Result, update: Mapping[str, object]) -> Result:
    """The result of a tool call with the changes of a session (`FilesSession.update()`); itself where there are none.

    A message becomes a command, a command keeps every other field, a list gets one command more; so does a command that
    is for another graph.
    """
    if not update:
        return result
    changed: object = result
    match result:
        case ToolMessage():
            changed = Command(update={"messages": [result], **update})
        case Command(graph=None):
            changed = replace(result, update=_merged(result.update, update))
        case Command():  # it is for another graph, whose files are its own
            changed = [result, Command(update=dict(update))]
        case list():
            changed = [*result, Command(update=dict(update))]
    return cast("Result", changed)


def _merged(there: object, update: Mapping[str, object]) -> object:
    """Both updates; changes of files come one after the other."""
    if there is None:
        return dict(update)
    if isinstance(there, Mapping):
        before = cast("Sequence[object]", there.get(CHANNEL) or ())
        return {**there, **update, CHANNEL: [*before, *cast("Sequence[object]", update[CHANNEL])]}
    return [*cast("Sequence[object]", there), *update.items()]
