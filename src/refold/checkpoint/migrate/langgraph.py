"""LangGraph's own savers as sources: read-only, one snapshot per checkpoint, nothing locked for long.

Checkpoints are read by LangGraph's savers themselves, so that every format they still read is read. What their public
methods leave out, the place of each write, comes from the tables, in the same snapshot.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.migrate.keys import check_key
from refold.checkpoint.migrate.lossless import lossless
from refold.checkpoint.migrate.saved import Mark, Place, Saved, SavedWrite
from refold.errors import ConfigurationError, CorruptionError, DatabaseUnavailableError

if TYPE_CHECKING:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.sqlite import SqliteSaver

_PAGE: Final = 1000
_SAMPLES: Final = 3
_Key = tuple[str, str, int, str]  # task id, task path, index, channel

# rowid moves when a row is replaced, so a mark changes although counts and lengths do not.
_SQLITE_INDEX: Final = """
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id,
    c.rowid || '.' || coalesce(length(c.checkpoint), 0) || '.' || coalesce(length(c.metadata), 0) || '.' ||
    (SELECT count(*) || '.' || coalesce(max(w.rowid), 0) || '.' || coalesce(sum(length(w.value)), 0)
     FROM writes w WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
         AND w.checkpoint_id = c.checkpoint_id)
FROM checkpoints c
WHERE (c.thread_id, c.checkpoint_ns, c.checkpoint_id) > (?, ?, ?)
ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id LIMIT ?
"""
# xmin is the transaction that wrote the row, so it does for Postgres what rowid does for SQLite.
_POSTGRES_INDEX: Final = """
SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id,
    c.xmin::text || '.' ||
    (SELECT count(*) || '.' || coalesce(max(w.xmin::text::bigint), 0) || '.' || coalesce(sum(octet_length(w.blob)), 0)
     FROM checkpoint_writes w WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
         AND w.checkpoint_id = c.checkpoint_id)
FROM checkpoints c
WHERE (c.thread_id, c.checkpoint_ns, c.checkpoint_id) > (%s, %s, %s)
ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id LIMIT %s
"""


def _saved(found: CheckpointTuple, keys: Sequence[_Key], place: Place) -> Saved:
    """Joins the writes as LangGraph reads them with their places, which come in the same order."""
    checkpoint: object = found.checkpoint  # whatever the bytes in its row say
    if not isinstance(checkpoint, dict) or checkpoint.get("id") != place.checkpoint_id:
        raise CorruptionError("what is stored is not the checkpoint of this id")
    pending = found.pending_writes or []
    ordered = sorted(keys, key=lambda key: writes_sort_key(key[1], key[0], key[2]))
    if [(task, channel) for task, _, _, channel in ordered] != [(task, channel) for task, channel, _ in pending]:
        raise CorruptionError("its writes cannot be matched with their rows; is the database being repaired?")
    writes = [
        SavedWrite(task_id=task, task_path=path, index=index, channel=channel, value=value)
        for (task, path, index, channel), (_, _, value) in zip(ordered, pending, strict=True)
    ]
    return Saved(tuple=found, writes=writes)


class LangGraphSqliteSource:
    """A file that LangGraph's `SqliteSaver` or `AsyncSqliteSaver` wrote. Opened read-only."""

    def __init__(self, connection: sqlite3.Connection, saver: "SqliteSaver", *, has_task_path: bool) -> None:
        self._connection = connection
        self._saver = saver
        self._path_column = "task_path" if has_task_path else "''"

    @classmethod
    @contextmanager
    def open(cls, path: Path, serde: SerializerProtocol | None = None) -> Iterator["LangGraphSqliteSource"]:
        """Raises `ConfigurationError` when the file is not there or holds no such database, or values under another
        key."""
        try:
            from langgraph.checkpoint.sqlite import SqliteSaver
        except ImportError as error:
            raise ConfigurationError(
                "reading LangGraph's SQLite databases needs: pip install langgraph-checkpoint-sqlite"
            ) from error
        if not path.is_file():
            raise ConfigurationError(f"there is no file {path}")
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            columns = _columns(connection, "writes")
            if "checkpoint" not in _columns(connection, "checkpoints") or "idx" not in columns:
                raise ConfigurationError(f"{path} holds no checkpoints of LangGraph's SqliteSaver")
            [mode] = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                # LangGraph sets the mode when it opens a file, which a read-only connection must not.
                raise ConfigurationError(f"{path} is not in WAL mode; set it: sqlite3 {path} 'PRAGMA journal_mode=WAL'")
            source = cls(
                connection,
                SqliteSaver(connection, serde=lossless(serde)),
                has_task_path="task_path" in columns,
            )
            check_key(source._encrypted(), serde)
            yield source
        except sqlite3.OperationalError as error:
            raise DatabaseUnavailableError(f"{path} cannot be read: {error}") from error
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"{path} is no SQLite database that can be read: {error}") from error
        finally:
            connection.close()

    def index(self) -> Iterator[tuple[Place, Mark]]:
        after = ("", "", "")
        while rows := self._connection.execute(_SQLITE_INDEX, (*after, _PAGE)).fetchall():
            for thread, namespace, checkpoint, mark in rows:
                yield Place(thread_id=thread, checkpoint_ns=namespace, checkpoint_id=checkpoint), mark
            after = rows[-1][:3]

    def read(self, place: Place) -> Saved | None:
        self._connection.execute("BEGIN")
        try:
            found = self._saver.get_tuple(place.config)
            keys = self._connection.execute(
                f"SELECT task_id, {self._path_column}, idx, channel FROM writes "
                "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                (place.thread_id, place.checkpoint_ns, place.checkpoint_id),
            ).fetchall()
        finally:
            self._connection.rollback()
        return None if found is None else _saved(found, keys, place)

    def history(self, place: Place, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        return dict(self._saver.get_delta_channel_history(config=place.config, channels=channels))

    def size(self) -> int:
        [bytes_] = self._connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        ).fetchone()
        return int(bytes_)

    def _encrypted(self) -> list[tuple[str, bytes]]:
        """Some encrypted values with their tags."""
        found: list[tuple[str, bytes]] = []
        for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
            found += self._connection.execute(
                f"SELECT type, {column} FROM {table} WHERE type LIKE '%+%' AND {column} IS NOT NULL LIMIT {_SAMPLES}"
            ).fetchall()
        return found


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


class LangGraphPostgresSource:
    """A database that LangGraph's `PostgresSaver` or `AsyncPostgresSaver` wrote. Read in read-only snapshots."""

    def __init__(self, connection: "psycopg.Connection[dict[str, object]]", saver: "PostgresSaver") -> None:
        self._connection = connection
        self._saver = saver

    @classmethod
    @contextmanager
    def open(cls, url: str, serde: SerializerProtocol | None = None) -> Iterator["LangGraphPostgresSource"]:
        """Raises `ConfigurationError` when it holds no such tables, or those of the shallow saver, or values under
        another key."""
        try:
            import psycopg
            from langgraph.checkpoint.postgres import PostgresSaver
            from psycopg.rows import dict_row
        except ImportError as error:
            raise ConfigurationError(
                "reading LangGraph's Postgres databases needs: "
                "pip install langgraph-checkpoint-postgres psycopg[binary]"
            ) from error
        try:
            with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                _check_tables(connection)
                source = cls(connection, PostgresSaver(connection, serde=lossless(serde)))
                check_key(source._encrypted(), serde)
                yield source
        except psycopg.Error as error:
            raise DatabaseUnavailableError(f"the source database cannot be read: {error}") from error

    def index(self) -> Iterator[tuple[Place, Mark]]:
        after: tuple[object, ...] = ("", "", "")
        while rows := self._rows(_POSTGRES_INDEX, (*after, _PAGE)):
            for thread, namespace, checkpoint, mark in rows:
                yield (
                    Place(thread_id=str(thread), checkpoint_ns=str(namespace), checkpoint_id=str(checkpoint)),
                    str(mark),
                )
            after = rows[-1][:3]

    def read(self, place: Place) -> Saved | None:
        with self._connection.transaction():
            found = self._saver.get_tuple(place.config)
            keys = self._rows(
                "SELECT task_id, task_path, idx, channel FROM checkpoint_writes "
                "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
                (place.thread_id, place.checkpoint_ns, place.checkpoint_id),
            )
        return None if found is None else _saved(found, cast("list[_Key]", keys), place)

    def history(self, place: Place, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        return dict(self._saver.get_delta_channel_history(config=place.config, channels=channels))

    def size(self) -> int:
        [[bytes_]] = self._rows(
            "SELECT sum(pg_total_relation_size(name::regclass)) "
            "FROM unnest(ARRAY['checkpoints', 'checkpoint_blobs', 'checkpoint_writes']) AS name",
            (),
        )
        return int(cast("int", bytes_))

    def _encrypted(self) -> list[tuple[str, bytes]]:
        """Some encrypted values with their tags."""
        found: list[tuple[object, ...]] = []
        for table in ("checkpoint_blobs", "checkpoint_writes"):
            found += self._rows(
                f"SELECT type, blob FROM {table} WHERE type LIKE %s AND blob IS NOT NULL LIMIT {_SAMPLES}", ("%+%",)
            )
        return cast("list[tuple[str, bytes]]", found)

    def _rows(self, statement: str, arguments: Sequence[object]) -> list[tuple[object, ...]]:
        rows = self._connection.execute(statement.encode(), arguments).fetchall()
        return [tuple(row.values()) for row in rows]


def _check_tables(connection: "psycopg.Connection[dict[str, object]]") -> None:
    found = connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = ANY(current_schemas(false)) AND table_name IN ('checkpoints', 'checkpoint_writes')"
    ).fetchall()
    columns = {(row["table_name"], row["column_name"]) for row in found}
    if ("checkpoints", "checkpoint") not in columns:
        raise ConfigurationError("the source database holds no checkpoints of LangGraph's PostgresSaver")
    if ("checkpoints", "checkpoint_id") not in columns:
        raise ConfigurationError(
            "the source database is of LangGraph's ShallowPostgresSaver, which keeps no history; "
            "read each thread's state with it and put it with update_state"
        )
    if ("checkpoint_writes", "task_path") not in columns:
        raise ConfigurationError(
            "the source database is of an older langgraph-checkpoint-postgres; bring its tables up to date first: "
            "PostgresSaver.from_conn_string(url) and setup()"
        )
