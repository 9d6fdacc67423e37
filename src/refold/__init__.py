"""refold keeps long LangGraph agents inside their context window, and their checkpoints linear, losing nothing."""

from refold.errors import ContextOverflowError, RefoldError

__all__ = ["ContextOverflowError", "RefoldError"]
