"""Subagents: agents that an agent hands work to, each with a log, window and limits of its own.

`specs` says what a subagent is, `building` makes one from a declaration, `delegate` is one call as a program, `room`
sizes its answer by the caller's window, `history` is the grant to look into a run, `words` and `levels` are what the
models are told, `middleware` binds it all to LangChain.
"""

from refold.agent.subagents.building import SubagentDefaults
from refold.agent.subagents.levels import LEVELS, Level, LevelName
from refold.agent.subagents.middleware import SubagentMiddleware
from refold.agent.subagents.specs import GENERAL_PURPOSE, AnySubagent, CompiledSubagent, Subagent

__all__ = [
    "GENERAL_PURPOSE",
    "LEVELS",
    "AnySubagent",
    "CompiledSubagent",
    "Level",
    "LevelName",
    "Subagent",
    "SubagentDefaults",
    "SubagentMiddleware",
]
