"""refold keeps long LangGraph agents inside their context window, and their checkpoints linear, losing nothing.

Names are loaded when they are first used, so that importing the package alone costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.agent.control import ControlMiddleware
    from refold.agent.create import create_agent
    from refold.agent.edge import FoldCommitted, FoldProposal
    from refold.agent.offload import OffloadMiddleware
    from refold.agent.report import SessionReport
    from refold.agent.retention import RetentionMiddleware, acollect_artifacts, collect_artifacts
    from refold.agent.setup import Binding
    from refold.agent.stack import middleware
    from refold.agent.subagents import (
        GENERAL_PURPOSE,
        CompiledSubagent,
        Subagent,
        SubagentDefaults,
        SubagentMiddleware,
    )
    from refold.agent.undo import Undone, aundo_summary, undo_summary
    from refold.agent.window import WindowMiddleware
    from refold.checkpoint.reducer import reduce_messages
    from refold.checkpoint.state import GrowingState, LogState
    from refold.core.plan import plan
    from refold.core.policy import Policy
    from refold.core.situation import Plan
    from refold.errors import ContextOverflowError, RefoldError
    from refold.files import Files, LocalFiles, MemoryFiles, open_files

__all__ = [
    "GENERAL_PURPOSE",
    "Binding",
    "CompiledSubagent",
    "ContextOverflowError",
    "ControlMiddleware",
    "Files",
    "FoldCommitted",
    "FoldProposal",
    "GrowingState",
    "LocalFiles",
    "LogState",
    "MemoryFiles",
    "OffloadMiddleware",
    "Plan",
    "Policy",
    "RefoldError",
    "RetentionMiddleware",
    "SessionReport",
    "Subagent",
    "SubagentDefaults",
    "SubagentMiddleware",
    "Undone",
    "WindowMiddleware",
    "acollect_artifacts",
    "aundo_summary",
    "collect_artifacts",
    "create_agent",
    "middleware",
    "open_files",
    "plan",
    "reduce_messages",
    "undo_summary",
]

_HOMES = {
    "GENERAL_PURPOSE": "refold.agent.subagents",
    "Binding": "refold.agent.setup",
    "CompiledSubagent": "refold.agent.subagents",
    "ContextOverflowError": "refold.errors",
    "ControlMiddleware": "refold.agent.control",
    "Files": "refold.files",
    "FoldCommitted": "refold.agent.edge",
    "FoldProposal": "refold.agent.edge",
    "LocalFiles": "refold.files",
    "GrowingState": "refold.checkpoint.state",
    "LogState": "refold.checkpoint.state",
    "MemoryFiles": "refold.files",
    "OffloadMiddleware": "refold.agent.offload",
    "Plan": "refold.core.situation",
    "Policy": "refold.core.policy",
    "RefoldError": "refold.errors",
    "RetentionMiddleware": "refold.agent.retention",
    "SessionReport": "refold.agent.report",
    "Subagent": "refold.agent.subagents",
    "SubagentDefaults": "refold.agent.subagents",
    "SubagentMiddleware": "refold.agent.subagents",
    "Undone": "refold.agent.undo",
    "WindowMiddleware": "refold.agent.window",
    "acollect_artifacts": "refold.agent.retention",
    "aundo_summary": "refold.agent.undo",
    "collect_artifacts": "refold.agent.retention",
    "create_agent": "refold.agent.create",
    "middleware": "refold.agent.stack",
    "open_files": "refold.files",
    "plan": "refold.core.plan",
    "reduce_messages": "refold.checkpoint.reducer",
    "undo_summary": "refold.agent.undo",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
