"""psycopg's errors as ours, with what to do about them."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from refold.errors import CheckpointError, CorruptionError, DatabaseUnavailableError

REPEAT = (errors.SerializationFailure, errors.DeadlockDetected)
"""After these the server rolled back, and running the transaction again may succeed."""


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn errors of psycopg and its pool into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise typed(error) from error


def typed(error: psycopg.Error) -> CheckpointError:
    match error:
        case PoolTimeout() | PoolClosed() | TooManyRequests():
            return DatabaseUnavailableError(
                f"the pool gave no connection ({error}): check that the server is up, or let the pool have more of them"
            )
        case errors.QueryCanceled():
            return DatabaseUnavailableError(
                f"the server stopped a statement ({error}): repeat the step, or raise statement_timeout"
            )
        case errors.LockNotAvailable() | errors.SerializationFailure() | errors.DeadlockDetected():
            return DatabaseUnavailableError(f"other writers were in the way for too long ({error}): repeat the step")
        case errors.DiskFull() | errors.OutOfMemory() | errors.InsufficientResources():
            return DatabaseUnavailableError(f"the server is out of space ({error}): free some and repeat the step")
        case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
            return DatabaseUnavailableError(f"the database cannot be written ({error}): check the role and the server")
        case errors.UndefinedTable():
            return DatabaseUnavailableError(
                f"the tables are not there ({error}): call setup() with a role that may create them"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return CorruptionError(f"the server reports damaged data ({error}): restore it from a backup")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return DatabaseUnavailableError(
                f"the connection to the server was lost or refused ({error}): repeat the step; if it was stored just "
                "before, that changes nothing"
            )
        case _:
            return CheckpointError(f"Postgres refused a statement ({error}); is the schema the one that setup() makes?")
