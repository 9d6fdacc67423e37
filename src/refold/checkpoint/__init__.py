"""Checkpoints that are small and exact: LangGraph savers that store every value once.

from refold.checkpoint import SqliteSaver

with SqliteSaver.from_conn_string("checkpoints.db") as saver:
    graph = builder.compile(checkpointer=saver)
"""

from refold.checkpoint.sqlite.saver import SqliteSaver

__all__ = ["SqliteSaver"]
