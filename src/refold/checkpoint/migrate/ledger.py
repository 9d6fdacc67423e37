"""What a migration has done, in a small file of its own, so that a later run goes on where this one stopped.

The ledger is only a shortcut: without it, everything is written and compared again, to the same result. A checkpoint is
entered after it was written and read back, so a killed run loses at most one batch of entries. It is never believed
without a look at the target (see `standing`).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from refold.checkpoint.migrate.saved import Mark, Place
from refold.errors import ConfigurationError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (source TEXT NOT NULL, target TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS proved (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL, mark TEXT NOT NULL,
    writes INTEGER NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A checkpoint that was copied and read back: the mark that the source gave it, and the rows of writes that the
    target had of it."""

    mark: Mark
    writes: int


class Ledger:
    """The places that a migration has finished, each with its `Entry`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, source: str, target: str) -> Iterator["Ledger"]:
        """`source` and `target` name the databases; a ledger of other ones raises `ConfigurationError`."""
        with _typed(path):
            connection = sqlite3.connect(path)
        try:
            ledger = cls(connection, path)
            ledger._begin(source, target)
            yield ledger
        finally:
            connection.close()

    def _begin(self, source: str, target: str) -> None:
        with _typed(self._path), self._connection:
            rows = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            tables = {name for (name,) in rows}
            if tables and "about" not in tables:
                raise ConfigurationError(f"{self._path} is a database and no ledger; name another file")
            self._connection.executescript(_SCHEMA)
            known = self._connection.execute("SELECT source, target FROM about").fetchone()
            if known is None:
                self._connection.execute("INSERT INTO about VALUES (?, ?)", (source, target))
            elif known != (source, target):
                raise ConfigurationError(
                    f"{self._path} is the ledger of a migration from {known[0]} to {known[1]}; name another ledger"
                )

    def of_thread(self, thread: str) -> dict[Place, Entry]:
        """What is finished of a thread."""
        with _typed(self._path):
            rows = self._connection.execute(
                "SELECT checkpoint_ns, checkpoint_id, mark, writes FROM proved WHERE thread_id = ?", (thread,)
            ).fetchall()
        return {
            Place(thread_id=thread, checkpoint_ns=namespace, checkpoint_id=checkpoint): Entry(mark=mark, writes=writes)
            for namespace, checkpoint, mark, writes in rows
        }

    def threads(self) -> list[str]:
        """The threads that something is finished of."""
        with _typed(self._path):
            return [name for (name,) in self._connection.execute("SELECT DISTINCT thread_id FROM proved ORDER BY 1")]

    def enter(self, done: Mapping[Place, Entry]) -> None:
        """Notes finished places, all or none."""
        with _typed(self._path), self._connection:
            self._connection.executemany(
                "INSERT OR REPLACE INTO proved VALUES (?, ?, ?, ?, ?)",
                [(*_key(place), entry.mark, entry.writes) for place, entry in done.items()],
            )

    def drop(self, places: Iterable[Place]) -> None:
        """These are not finished any more."""
        with _typed(self._path), self._connection:
            self._connection.executemany(
                "DELETE FROM proved WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                [_key(place) for place in places],
            )


def _key(place: Place) -> tuple[str, str, str]:
    return place.thread_id, place.checkpoint_ns, place.checkpoint_id


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """Only around what is done to the ledger itself, not around what others do while it is open."""
    try:
        yield
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} cannot be used as a ledger ({error}); name another one") from error
