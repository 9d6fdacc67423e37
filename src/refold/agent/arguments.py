"""What `create_agent` is given, looked at before anything is made of it.

A value that cannot work is an error that names its argument and says what to give, not a failure somewhere inside.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver

from refold.agent.offload import Thresholds
from refold.agent.subagents import CompiledSubagent, Subagent
from refold.agent.tools import Permissions
from refold.agent.window import WindowMiddleware
from refold.core.policy import Policy
from refold.errors import ConfigurationError
from refold.files import Files, Retention

_MODEL: Final = "a chat model, or a name such as 'openai:gpt-5'"
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "model": ((str, Runnable), _MODEL),
    "summary_model": ((str, Runnable, type(None)), f"{_MODEL}; None for the agent's own"),
    "fallback_model": ((str, Runnable, type(None)), f"{_MODEL}; None for no other one"),
    "files": ((Files, str, Path, type(None)), "a storage, a path or a URL; None for .refold/files"),
    "checkpointer": (
        (BaseCheckpointSaver, str, Path, type(None)),
        "a saver, the path of a SQLite file or a postgresql:// URL; None for .refold/threads.db, and for threads that "
        "are not kept langgraph's InMemorySaver()",
    ),
    "policy": ((Policy, type(None)), "a Policy, such as Policy(trigger=0.7)"),
    "offload": ((Thresholds, type(None)), "Thresholds(...); None to leave results as they are"),
    "permissions": ((Permissions, type(None)), "Permissions(Rule(...), ...)"),
    "interrupt_on": ((Mapping, type(None)), "a mapping from names of tools, such as {'search': True}"),
    "retention": ((Retention, type(None)), "a Retention, such as Retention(older_than=30 * 86_400)"),
}
"""What an argument may be, and how that is said."""


def check_arguments(given: Mapping[str, object]) -> None:
    """Raises `ConfigurationError` for a value of a kind that an argument does not take."""
    for name, (types, wanted) in _TYPES.items():
        if not isinstance(given[name], types):
            raise ConfigurationError(f"{name}={given[name]!r:.80} cannot be used: give {wanted}")
    for name, types, wanted in (
        ("tools", (BaseTool, Mapping), "tools, functions with a docstring, or schemas of a provider's own tools"),
        ("subagents", (Subagent, CompiledSubagent), "Subagent(...), CompiledSubagent(...) or GENERAL_PURPOSE"),
        ("middleware", (AgentMiddleware,), "middleware"),
    ):
        several = given[name]
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise ConfigurationError(f"{name}={several!r:.80} is no list: give a list of {wanted}; [] for none")
        for item in several:
            if not isinstance(item, types) and not (name == "tools" and callable(item)):
                raise ConfigurationError(f"{name} holds {item!r:.80}: give a list of {wanted}")
            if isinstance(item, WindowMiddleware):
                raise ConfigurationError(
                    "the middleware holds a window, and create_agent brings one: give create_agent what yours was "
                    "given, such as before_fold"
                )
