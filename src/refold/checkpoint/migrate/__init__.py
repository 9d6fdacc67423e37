"""Moving checkpoints between LangGraph's savers and refold's, with a proof; see `refold.checkpoint.migrate.run`."""

from refold.checkpoint.migrate.langgraph import LangGraphPostgresSource, LangGraphSqliteSource
from refold.checkpoint.migrate.ledger import Ledger
from refold.checkpoint.migrate.lossless import lossless
from refold.checkpoint.migrate.report import Mismatch, Report
from refold.checkpoint.migrate.run import migrate
from refold.checkpoint.migrate.saved import Place, Saved, SavedWrite, Source

__all__ = [
    "LangGraphPostgresSource",
    "LangGraphSqliteSource",
    "Ledger",
    "Mismatch",
    "Place",
    "Report",
    "Saved",
    "SavedWrite",
    "Source",
    "lossless",
    "migrate",
]
