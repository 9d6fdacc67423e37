"""Databases by path or URL: what is in them, and how to open them on either side of a migration.

What refold's own savers look like from here is in `refold.checkpoint.migrate.ours`.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.migrate.keys import without_cipher
from refold.checkpoint.migrate.langgraph import LangGraphPostgresSource, LangGraphSqliteSource
from refold.checkpoint.migrate.lossless import lossless
from refold.checkpoint.migrate.saved import Source
from refold.checkpoint.migrate.troubles import database_errors
from refold.errors import ConfigurationError, DatabaseUnavailableError

Kind: TypeAlias = Literal["langgraph", "refold"]

_TABLES: dict[Kind, str] = {"langgraph": "checkpoints", "refold": "refold_meta"}
"""A table by which each kind is known."""
_PASSWORD = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?")
_PASSWORD_OF_DSN = re.compile(r"(?i)((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|\S+)")
_KEYED = "SELECT 1 FROM refold_meta WHERE key = 'hash_key'"
_IDENTITY = (
    "SELECT pg_postmaster_start_time()::text, current_schema(), oid::text FROM pg_database "
    "WHERE datname = current_database()"
)


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database and the kinds of savers that have tables in it; a new one has none."""

    url: str
    kinds: frozenset[Kind]
    encrypted: bool = False
    """whether it is of refold's and has a key"""
    identity: tuple[str, ...] = ()
    """what two URLs of one Postgres database have in common"""

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
    if not found:
        return _PASSWORD_OF_DSN.sub(r"\1...", url)
    rest = _PASSWORD.sub("", rest).rstrip("?&")
    if "@" not in rest:
        return f"{scheme}://{rest}"
    account, _, place = rest.rpartition("@")
    return f"{scheme}://{account.partition(':')[0]}@{place}"


def check_url(url: str) -> None:
    """Raises `ConfigurationError` for a Postgres URL that is not understood as it was meant: errors of the driver would
    show parts of its password as a host, a port or an option."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except Error:
        parts = None
    name = "" if parts is None else str(parts.get("dbname", ""))
    address = "" if parts is None else f"{parts.get('host', '')} {parts.get('port', '')}"
    if parts is None or "@" in address or ("@" in name and name in url):
        # Without the driver's error as a cause: its text has the password.
        raise ConfigurationError(
            f"{public_name(url).partition('?')[0]} is no URL that Postgres understands; in a user name or password "
            "write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, & as %26, % as %25 and a space as %20"
        ) from None


def look_into(url: str) -> Database:
    """What a path or URL leads to. Raises `ConfigurationError` for what is no database that can be used."""
    if is_postgres(url):
        return _look_into_postgres(url)
    path = Path(url)
    if "://" in url or path.is_dir():
        raise ConfigurationError(f"{public_name(url)} is neither a file nor a postgresql:// URL")
    if not path.exists() or path.stat().st_size == 0:
        return Database(url=url, kinds=frozenset())
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            encrypted = _TABLES["refold"] in tables and connection.execute(_KEYED).fetchone() is not None
    except sqlite3.DatabaseError as error:
        raise ConfigurationError(f"{path} is no SQLite database: {error}") from error
    kinds = frozenset(kind for kind, table in _TABLES.items() if table in tables)
    return Database(url=url, kinds=kinds, encrypted=encrypted)


def _look_into_postgres(url: str) -> Database:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError("Postgres needs the extra: pip install 'refold[postgres]'") from error
    check_url(url)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            kinds = frozenset(
                kind
                for kind, table in _TABLES.items()
                if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,)
            )
            encrypted = "refold" in kinds and connection.execute(_KEYED).fetchone() is not None
            identity = tuple(map(str, connection.execute(_IDENTITY).fetchone() or ()))
    except psycopg.Error as error:
        raise DatabaseUnavailableError(f"{public_name(url)} cannot be reached: {error}") from error
    return Database(url=url, kinds=kinds, encrypted=encrypted, identity=identity)


def is_same(one: Database, other: Database) -> bool:
    """Whether two names lead to one database, however they are written; links count as what they lead to."""
    if one.is_postgres or other.is_postgres:
        return one.identity == other.identity != ()
    return is_file(Path(one.url), other.url)


def is_file(path: Path, name: str) -> bool:
    """Whether a path leads to a file, however the two are written."""
    other = Path(name)
    return path.samefile(other) if path.exists() and other.exists() else path.resolve() == other.resolve()


@contextmanager
def open_source(database: Database, kind: Kind, serde: SerializerProtocol | None = None) -> Iterator[Source]:
    """Opens the reading side; `serde` decrypts where values are encrypted."""
    if kind == "refold":
        from refold.checkpoint.migrate.ours import RefoldSource

        with RefoldSource.open(database.url, serde if database.encrypted else without_cipher(serde)) as ours:
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
    """Opens the writing side, with its tables made where they are missing; `serde` encrypts what is written.

    Raises `DatabaseUnavailableError` when it cannot be opened, or its tables cannot be made.
    """
    if kind == "refold":
        from refold.checkpoint.migrate.ours import open_saver

        with open_saver(database.url, lossless(serde)) as ours:
            yield ours
    else:
        with ExitStack() as stack:
            with database_errors("target"):
                theirs = _open_theirs(stack, database)
            theirs.serde = lossless(serde)
            yield theirs


def _open_theirs(stack: ExitStack, database: Database) -> BaseCheckpointSaver[str]:
    if database.is_postgres:
        with _package_of("langgraph-checkpoint-postgres"):
            from langgraph.checkpoint.postgres import PostgresSaver

        saver = stack.enter_context(PostgresSaver.from_conn_string(database.url))
        saver.setup()
        return saver
    with _package_of("langgraph-checkpoint-sqlite"):
        from langgraph.checkpoint.sqlite import SqliteSaver

    connection = stack.enter_context(closing(sqlite3.connect(database.url, check_same_thread=False)))
    sqlite_saver = SqliteSaver(connection)
    sqlite_saver.setup()
    return sqlite_saver


@contextmanager
def _package_of(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"LangGraph's own savers are not installed: pip install {name}") from error
