"""How a transaction saves round trips: some answers came with an earlier one, and some statements wait for the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from refold.checkpoint.effects import Row, Select, SelectIn

Query: TypeAlias = tuple[str, Mapping[str, object]]
"""A statement's name and its parameters."""


def query_of(select: Select | SelectIn) -> Query:
    """A request in the form in which it is sent."""
    if isinstance(select, SelectIn):
        return select.statement, {**select.args, "keys": [*select.keys]}
    return select.statement, select.args


@dataclass(kw_only=True)
class Progress:
    """How far a transaction is: `answers` were not asked for yet, `waiting` was not sent yet."""

    answers: dict[object, list[Row]] = field(default_factory=dict)
    waiting: list[Query] = field(default_factory=list)
    committed: bool = False

    def add(self, selects: Sequence[Select | SelectIn], rows: Sequence[list[Row]]) -> None:
        self.answers.update(zip(map(_key, selects), rows, strict=True))

    def take(self, select: Select | SelectIn) -> list[Row] | None:
        """The answer to a request, where it is known. The next request of the same kind is made."""
        return self.answers.pop(_key(select), None) if self.answers else None


def _key(select: Select | SelectIn) -> object:
    keys = tuple(select.keys) if isinstance(select, SelectIn) else None
    return select.statement, frozenset(select.args.items()), keys
