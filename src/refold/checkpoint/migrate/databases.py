"""Databases by path or URL: what is in them, and how to open them on either side of a migration.

What refold's own savers look like from here is in `refold.checkpoint.migrate.ours`.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.migrate.langgraph import LangGraphPostgresSource, LangGraphSqliteSource
from refold.checkpoint.migrate.lossless import lossless
from refold.checkpoint.migrate.saved import Source
from refold.errors import ConfigurationError, DatabaseUnavailableError

Kind: TypeAlias = Literal["langgraph", "refold"]

_TABLES: dict[Kind, str] = {"langgraph": "checkpoints", "refold": "refold_meta"}
"""A table by which each kind is known."""
_PASSWORD = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?")
_SIZE = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c WHERE c.oid = ANY(%s::regclass[])"


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database and the kinds of savers that have tables in it; a new one has none."""

    url: str
    kinds: frozenset[Kind]

    @property
    def is_postgres(self) -> bool:
        return is_postgres(self.url)

    @property
    def name(self) -> str:
        """The path or URL without its password."""
        return public_name(self.url)


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def public_name(url: str) -> str:
    """A path or URL that may be shown: the password is left out."""
    scheme, found, rest = url.partition("://")
    if found:
        rest = _PASSWORD.sub("", rest).rstrip("?&")
        url = f"{scheme}://{rest}"
    if not found or "@" not in rest:
        return url
    account, _, place = rest.rpartition("@")
    return f"{scheme}://{account.partition(':')[0]}@{place}"


def look_into(url: str) -> Database:
    """What a path or URL leads to. Raises `ConfigurationError` for what is no database that can be used."""
    if is_postgres(url):
        return Database(url=url, kinds=_postgres_kinds(url))
    path = Path(url)
    if "://" in url or path.is_dir():
        raise ConfigurationError(f"{public_name(url)} is neither a file nor a postgresql:// URL")
    if not path.exists() or path.stat().st_size == 0:
        return Database(url=url, kinds=frozenset())
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        raise ConfigurationError(f"{path} is no SQLite database: {error}") from error
    return Database(url=url, kinds=frozenset(kind for kind, table in _TABLES.items() if table in tables))


def _postgres_kinds(url: str) -> frozenset[Kind]:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError("Postgres needs the extra: pip install 'refold[postgres]'") from error
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            return frozenset(
                kind
                for kind, table in _TABLES.items()
                if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,)
            )
    except psycopg.Error as error:
        raise DatabaseUnavailableError(f"{public_name(url)} cannot be reached: {error}") from error


@contextmanager
def open_source(database: Database, kind: Kind, serde: SerializerProtocol | None = None) -> Iterator[Source]:
    """Opens the reading side; `serde` decrypts where values are encrypted."""
    if kind == "refold":
        from refold.checkpoint.migrate.ours import RefoldSource

        with RefoldSource.open(database.url, serde) as ours:
            yield ours
    elif database.is_postgres:
        with LangGraphPostgresSource.open(database.url, serde) as postgres:
            yield postgres
    else:
        with LangGraphSqliteSource.open(Path(database.url), serde) as sqlite:
            yield sqlite


@contextmanager
def open_target(
    database: Database, kind: Kind, serde: SerializerProtocol | None = None
) -> Iterator[BaseCheckpointSaver[str]]:
    """Opens the writing side, with its tables made where they are missing; `serde` encrypts what is written."""
    if kind == "refold":
        from refold.checkpoint.migrate.ours import open_saver

        with open_saver(database.url, lossless(serde)) as ours:
            yield ours
    elif database.is_postgres:
        with _package_of("langgraph-checkpoint-postgres"):
            from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(database.url) as saver:
            saver.setup()
            saver.serde = lossless(serde)
            yield saver
    else:
        with _package_of("langgraph-checkpoint-sqlite"):
            from langgraph.checkpoint.sqlite import SqliteSaver

        with closing(sqlite3.connect(database.url, check_same_thread=False)) as connection:
            sqlite_saver = SqliteSaver(connection, serde=lossless(serde))
            sqlite_saver.setup()
            yield sqlite_saver


@contextmanager
def _package_of(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"LangGraph's own savers are not installed: pip install {name}") from error
