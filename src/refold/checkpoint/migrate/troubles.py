"""Errors of a migration: which concern one checkpoint, which the whole database, and what to say of either.

A stored value may make a serializer, a saver or a driver raise anything. What concerns one checkpoint is noted with its
place, and the others are copied; a database that cannot be reached or may not be used ends the run.
"""

import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from refold.checkpoint.migrate.saved import Place
from refold.errors import CorruptionError, DatabaseUnavailableError, RefoldError, SchemaVersionError

T = TypeVar("T")

_LONG: Final = 300
_TAG: Final = re.compile(r"Unknown serialization type: (\S+)")
_PICKLED: Final = (
    "a value is pickled; migrate from Python, where its classes can be imported, with "
    "serde=JsonPlusSerializer(pickle_fallback=True) on both sides"
)
_ENCRYPTED: Final = "a value is encrypted, and there is no key"


@contextmanager
def one_checkpoint(note: Callable[[str], None], *, doing: str, side: str) -> Iterator[None]:
    """Notes an error that concerns one checkpoint. Raises `DatabaseUnavailableError` or `SchemaVersionError` for one
    that concerns the database, which `side` names."""
    try:
        yield
    except Exception as error:  # whatever a value makes others raise: noted, and the run fails in the end
        whole = _whole(error, side)
        if whole is error:
            raise
        if whole is not None:
            raise whole from error
        note(f"{doing}: {in_words(error)}")


def answer_of(ask: Callable[[], T], *, otherwise: T, side: str) -> T:
    """An answer of a database, or `otherwise` where the question itself was wrong. Raises as `one_checkpoint` does."""
    found = [otherwise]
    with one_checkpoint(lambda text: None, doing="it cannot be asked", side=side):
        found.append(ask())
    return found[-1]


@contextmanager
def database_errors(side: str) -> Iterator[None]:
    """Every error of a driver as `DatabaseUnavailableError`: for what concerns no checkpoint."""
    try:
        yield
    except Exception as error:  # drivers are optional and share no base: told apart below, others pass
        if isinstance(error, RefoldError) or not _is_of_driver(error):
            raise
        raise _unavailable(error, side) from error


@contextmanager
def reading(place: Place) -> Iterator[None]:
    """Whatever a damaged or unknown value makes others raise, as `CorruptionError` with its place."""
    try:
        yield
    except Exception as error:  # a stored value may make its serializer raise anything: always raised again, typed
        whole = _whole(error, "source")
        if whole is error:
            raise
        raise whole or CorruptionError(f"{place} cannot be read: {in_words(error)}") from error


@contextmanager
def reading_all(name: str) -> Iterator[None]:
    """The same for a reading of everything that a database has, which `name` is the name of."""
    try:
        yield
    except Exception as error:  # as in `reading`
        if isinstance(error, RefoldError):
            raise
        raise CorruptionError(f"not every checkpoint of {name} can be read: {in_words(error)}") from error


def in_words(error: Exception) -> str:
    """One line that says what was wrong, and where it is known, what to do."""
    text = " ".join(str(error).split())
    if (tag := _TAG.search(text)) is not None:
        return _ENCRYPTED if "+" in tag[1] else _PICKLED if tag[1] == "pickle" else text
    if not isinstance(error, RefoldError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _whole(error: Exception, side: str) -> Exception | None:
    if isinstance(error, DatabaseUnavailableError | SchemaVersionError | MemoryError):
        return error
    if isinstance(error, sqlite3.OperationalError) and "Could not decode" not in str(error):
        return _unavailable(error, side)
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(error, psycopg.Error):
        return None
    limits = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted)
    of_values = (psycopg.DataError, psycopg.IntegrityError, *limits)
    if isinstance(error, of_values) or (isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None):
        return None
    return _unavailable(error, side)


def _is_of_driver(error: Exception) -> bool:
    psycopg = sys.modules.get("psycopg")
    return isinstance(error, sqlite3.Error) or (psycopg is not None and isinstance(error, psycopg.Error))


def _unavailable(error: Exception, side: str) -> DatabaseUnavailableError:
    text = " ".join(str(error).split())
    hint = "check that it can be reached, and the permissions"
    if type(error).__name__ in ("InsufficientPrivilege", "ReadOnlySqlTransaction"):
        hint = "give the role what it lacks (of a target: GRANT CREATE ON SCHEMA, or tables made by another role)"
    elif isinstance(error, sqlite3.OperationalError):
        hint = "check the file, its folder, the permissions and the space on the disk"
    return DatabaseUnavailableError(f"the {side} database cannot be used ({text}); {hint}, and run it again")
