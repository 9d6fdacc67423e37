"""Opening a SQLite file."""

import os
import sqlite3
from typing import TypeAlias

from refold.checkpoint.sqlite.driver import typed_errors

Database: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
"""What `sqlite3.connect` takes: a path, or as a string also a `file:` URI or ":memory:"."""


def connect(database: Database, *, timeout: float) -> sqlite3.Connection:
    """A connection as the saver wants it: usable from any thread, transactions begun by hand.

    Raises `DatabaseUnavailableError` when the file cannot be opened.
    """
    with typed_errors():
        return sqlite3.connect(
            database,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=isinstance(database, str) and database.startswith("file:"),
        )
