"""refold keeps long LangGraph agents inside their context window and their checkpoints linear, without losing a byte."""

from refold.errors import ContextOverflowError, RefoldError

__all__ = ["ContextOverflowError", "RefoldError"]
