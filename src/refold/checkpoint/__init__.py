"""Checkpoints that are small and exact: LangGraph savers that store every value once.

    from refold.checkpoint import SqliteSaver

    with SqliteSaver.from_conn_string("checkpoints.db") as saver:
        graph = builder.compile(checkpointer=saver)

The Postgres savers need the extra `refold[postgres]` and are imported when first asked for.
"""

from typing import TYPE_CHECKING

from refold.checkpoint.add_messages import add_messages
from refold.checkpoint.sqlite.asaver import AsyncSqliteSaver
from refold.checkpoint.sqlite.saver import SqliteSaver
from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from refold.checkpoint.postgres.saver import AsyncPostgresSaver, PostgresSaver

__all__ = ["AsyncPostgresSaver", "AsyncSqliteSaver", "PostgresSaver", "SqliteSaver", "add_messages"]


def __getattr__(name: str) -> object:
    if name not in ("AsyncPostgresSaver", "PostgresSaver"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from refold.checkpoint.postgres import saver
    except ImportError as error:
        raise ConfigurationError(
            f"{name} needs psycopg and its pool: install refold with the postgres extra, refold[postgres]"
        ) from error
    return {"AsyncPostgresSaver": saver.AsyncPostgresSaver, "PostgresSaver": saver.PostgresSaver}[name]
