"""refold keeps long LangGraph agents inside their context window, and their checkpoints linear, losing nothing."""

from refold.agent.control import ControlMiddleware
from refold.agent.create import create_agent
from refold.agent.edge import FoldCommitted, FoldProposal
from refold.agent.offload import OffloadMiddleware
from refold.agent.setup import Binding
from refold.agent.window import WindowMiddleware
from refold.checkpoint.reducer import reduce_messages
from refold.checkpoint.state import LogState
from refold.core.plan import Plan, plan
from refold.core.policy import Policy
from refold.errors import ContextOverflowError, RefoldError
from refold.files import Files, LocalFiles, MemoryFiles, open_files

__all__ = [
    "Binding",
    "ContextOverflowError",
    "ControlMiddleware",
    "Files",
    "FoldCommitted",
    "FoldProposal",
    "LocalFiles",
    "LogState",
    "MemoryFiles",
    "OffloadMiddleware",
    "Plan",
    "Policy",
    "RefoldError",
    "WindowMiddleware",
    "create_agent",
    "open_files",
    "plan",
    "reduce_messages",
]
