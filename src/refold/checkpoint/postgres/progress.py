"""How a transaction saves round trips: some answers came with an earlier one, and some statements wait for the next.

Programs over what a connection can do, so that both drivers share them: `begin_gen`, then `answer_gen` for each effect
of a saver's program, then `finish_gen`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from refold.checkpoint.effects import Ahead, Row, Select, SelectEach, SelectIn, Statement, Transaction
from refold.core.program import Effect, Program

ADVISORY_KEY: Final = 0x7265666F6C640001  # "refold", 1
_BEGIN_READ: Final = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
_BEGIN_WRITE: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    f"SELECT pg_advisory_xact_lock_shared({ADVISORY_KEY})",
)

Query: TypeAlias = tuple[str, Mapping[str, object]]
"""A statement's name and its parameters."""


@dataclass(frozen=True, kw_only=True)
class Send(Effect[list[list[Row]]]):
    """Texts and then statements in one round trip; what each statement gave. `commit`: with a COMMIT behind them."""

    texts: Sequence[str] = ()
    queries: Sequence[Query] = ()
    commit: bool = False


@dataclass(frozen=True, kw_only=True)
class Fetch(Effect[list[Row]]):
    """One statement and what it gave."""

    query: Query


@dataclass(kw_only=True)
class Progress:
    """How far a transaction is: `answers` were not asked for yet, `waiting` was not sent yet."""

    answers: dict[object, list[Row]] = field(default_factory=dict)
    waiting: list[Query] = field(default_factory=list)
    begun: bool = False
    committed: bool = False


def begin_gen(transaction: Transaction[object], progress: Progress) -> Program[None]:
    """Begin, with what the program will ask for first in the same round trip."""
    ahead = [] if transaction.ahead is None else transaction.ahead()
    yield from _fetch_ahead_gen(progress, ahead, texts=_BEGIN_WRITE if transaction.write else _BEGIN_READ)
    progress.begun = True


def finish_gen(progress: Progress) -> Program[None]:
    """Commit, unless the program's last statement did."""
    if progress.waiting or not progress.committed:
        yield from _send_gen(progress, commit=True)


def answer_gen(progress: Progress, effect: Effect[object]) -> Program[object]:
    """The answer to an effect inside a transaction."""
    match effect:
        case Select() | SelectIn():
            return (yield from _select_gen(progress, effect))
        case SelectEach(statement=name, rows=rows, later=True):
            progress.waiting += [(name, args) for args in rows]
            return []
        case SelectEach(statement=name, rows=rows):
            return (yield from _send_gen(progress, [(name, args) for args in rows]))
        case Ahead(selects=selects):
            yield from _fetch_ahead_gen(progress, selects)
            return None
        case Statement(text=text):
            yield from _send_gen(progress, texts=[text])
            return None
        case _:
            raise TypeError(f"{type(effect).__name__} is no statement")


def _select_gen(progress: Progress, select: Select | SelectIn) -> Program[list[Row]]:
    if isinstance(select, SelectIn) and not select.keys:
        return []
    known = progress.answers.pop(_key(select), None) if progress.answers else None
    if known is not None:
        return known
    last = isinstance(select, Select) and select.last
    if not last and not progress.waiting:
        return (yield from Fetch(query=_query(select)))
    [rows] = yield from _send_gen(progress, [_query(select)], commit=last)
    return rows


def _fetch_ahead_gen(
    progress: Progress, selects: Sequence[Select | SelectIn], *, texts: Sequence[str] = ()
) -> Program[None]:
    wanted = [select for select in selects if isinstance(select, Select) or select.keys]
    rows = yield from _send_gen(progress, [*map(_query, wanted)], texts=texts)
    progress.answers.update(zip(map(_key, wanted), rows, strict=True))


def _send_gen(
    progress: Progress, queries: Sequence[Query] = (), *, texts: Sequence[str] = (), commit: bool = False
) -> Program[list[list[Row]]]:
    """Texts, what waits, and statements; what the statements gave."""
    waited, progress.waiting = progress.waiting, []
    if not (texts or waited or queries or commit):
        return []
    if texts and waited:
        yield from Send(queries=waited)
        waited = []
    rows = yield from Send(texts=texts, queries=[*waited, *queries], commit=commit)
    progress.committed = commit
    return rows[len(waited) :]


def _query(select: Select | SelectIn) -> Query:
    if isinstance(select, SelectIn):
        return select.statement, {**select.args, "keys": [*select.keys]}
    return select.statement, select.args


def _key(select: Select | SelectIn) -> object:
    keys = tuple(select.keys) if isinstance(select, SelectIn) else None
    return select.statement, frozenset(select.args.items()), keys
