"""What a saver's programs ask of a database: named statements, transactions, and nothing else.

The algorithms of this room are programs (see `refold.core.program`) over these effects. A driver (`sqlite/driver.py`,
`postgres/driver.py`) answers them: it knows how to begin, commit and retry, and turns its driver's errors into the
typed ones of `refold.errors`. Statements are named blocks of the backend's `queries.sql`; both backends have the same
names with the same parameters and columns, which a test checks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from refold.core.program import Effect, Program
from refold.errors import CorruptionError

T = TypeVar("T")

SqlValue: TypeAlias = int | str | bytes | float | None
Row: TypeAlias = tuple[SqlValue, ...]
Args: TypeAlias = Mapping[str, SqlValue]

NO_ARGS: Args = {}


@dataclass(frozen=True, kw_only=True)
class Select(Effect[list[Row]]):
    """Run one named statement with named parameters; its rows, empty for a statement that returns none.

    `last`: the program makes no other after it, and does nothing that may fail, so that a driver may commit with it.
    """

    statement: str
    args: Args = field(default_factory=dict)
    last: bool = False


@dataclass(frozen=True, kw_only=True)
class SelectIn(Effect[list[Row]]):
    """Run a statement for any number of `keys` (its `:keys` is a set of values); rows in no promised order."""

    statement: str
    keys: Sequence[SqlValue]
    args: Args = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ahead(Effect[None]):
    """A hint: the program will most probably make these statements, so that they can travel together. A driver for
    which each statement is a round trip runs them at once and gives the answers when they are asked for, each once; any
    other driver does nothing.

    Statements run in order, so one that locks a row comes before those that rely on it. None may be of what the program
    itself changes before it asks. One that is not asked for costs its time and nothing else.
    """

    selects: Sequence["Select | SelectIn"]


@dataclass(frozen=True, kw_only=True)
class SelectEach(Effect[list[list[Row]]]):
    """Run one statement once per mapping of parameters, in order; the rows of each. One round trip where possible.

    `later`: the program does not look at the answer, which may be empty, so that a driver may send it with the next.
    """

    statement: str
    rows: Sequence[Args]
    later: bool = False


@dataclass(frozen=True, kw_only=True)
class Statement(Effect[None]):
    """Run a statement of a schema or migration script."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Transaction(Effect[T], Generic[T]):
    """Run a program of statements atomically and give what it returns.

    `write=False` sees one consistent snapshot and changes nothing. A driver may run `program` again from the start
    after a conflict, so the program keeps its results to itself until it returns. `ahead` gives what `Ahead` says,
    for the beginning of the transaction; a driver that has no use for it does not call it. `long`: it reads much of the
    database, and others should not wait for it.
    """

    program: Callable[[], Program[T]]
    write: bool
    ahead: Callable[[], "Sequence[Select | SelectIn]"] | None = None
    long: bool = False


@dataclass(frozen=True, kw_only=True)
class Barrier(Effect[None]):
    """Wait until every write transaction that began before now has ended."""


@dataclass(frozen=True, kw_only=True)
class Vacuum(Effect[None]):
    """Give space that no row uses back to the file system, where the backend can."""


def one(rows: Sequence[Row]) -> Row | None:
    """The first row, or None."""
    return rows[0] if rows else None


def as_bytes(value: object) -> bytes:
    """A column of bytes. Raises `CorruptionError` for anything else: only a damaged database has it there."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    raise CorruptionError(f"a column of bytes holds a {type(value).__name__}; restore the database from a backup")
