"""What a migration has done, in a small file of its own, so that a later run goes on where this one stopped.

The ledger is only a shortcut: without it, everything is written and compared again, to the same result. A checkpoint is
entered after it was written and read back, so a killed run loses at most one batch of entries.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from refold.checkpoint.migrate.saved import Mark, Place
from refold.errors import ConfigurationError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (source TEXT NOT NULL, target TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL, mark TEXT NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
) WITHOUT ROWID;
"""


class Ledger:
    """The places that a migration has finished, each with the mark that its writes had."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, source: str, target: str) -> Iterator["Ledger"]:
        """`source` and `target` name the databases; a ledger of other ones raises `ConfigurationError`."""
        connection = None
        try:
            connection = sqlite3.connect(path)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if tables and "about" not in tables:
                raise ConfigurationError(f"{path} is a database and no ledger; name another file")
            connection.executescript(_SCHEMA)
            known = connection.execute("SELECT source, target FROM about").fetchone()
            if known is None:
                with connection:
                    connection.execute("INSERT INTO about VALUES (?, ?)", (source, target))
            elif known != (source, target):
                raise ConfigurationError(
                    f"{path} is the ledger of a migration from {known[0]} to {known[1]}; name another ledger"
                )
            yield cls(connection)
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"{path} cannot be used as a ledger ({error}); name another one") from error
        finally:
            if connection is not None:
                connection.close()

    def mark_of(self, place: Place) -> Mark | None:
        """The mark under which a place was finished, or None."""
        row = self._connection.execute(
            "SELECT mark FROM done WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            (place.thread_id, place.checkpoint_ns, place.checkpoint_id),
        ).fetchone()
        return None if row is None else str(row[0])

    def forget(self) -> None:
        """Nothing is done any more: the target is not the one that it was."""
        with self._connection:
            self._connection.execute("DELETE FROM done")

    def enter(self, done: Iterable[tuple[Place, Mark]]) -> None:
        """Notes finished places, all or none."""
        with self._connection:
            self._connection.executemany(
                "INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?)",
                [(place.thread_id, place.checkpoint_ns, place.checkpoint_id, mark) for place, mark in done],
            )
