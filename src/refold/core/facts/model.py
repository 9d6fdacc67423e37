"""What a fact is: a value that a run may need again and that a paraphrase would lose."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

CountText: TypeAlias = Callable[[str], int]
"""Tokens of a text."""

Origin: TypeAlias = Literal["human", "ai", "tool"]
"""Who wrote a text. What counts as a fact depends on it: only a human sets constraints, and tools print noise."""


class FactClass(StrEnum):
    """The classes of facts, in the order in which an index lists them."""

    CONSTRAINT = "constraint"
    """A sentence of a human message that says must, never, only, 不要, 必须, 禁止, 말 것, ..."""
    TODO = "todo"
    """An item of a checklist or todo list that is still open."""
    ERROR = "error"
    """An exception name, error code, HTTP status from 300, exit code other than 0, errno or signal."""
    PATH = "path"
    COMMAND = "command"
    NUMBER = "number"
    """A number that says what it counts: with a unit, an amount of money, a version, a date or time of day."""
    URL = "url"
    IDENTIFIER = "identifier"
    """A name of code, a host, a hash, a UUID, a ticket or order number, an e-mail address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One occurrence of a fact in one text. `context` is a few characters that stand before it, verbatim."""

    cls: FactClass
    text: str
    context: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A fact of a span, once, however often and in however many spellings it occurs.

    `text` is the first spelling, `message_ids` the messages that hold it in order (`#3` for the fourth message of
    the span when that has no id), `count` its occurrences, `last_index` the last message that holds it, as an index
    into the span. `context` is what stands before its first occurrence.
    """

    cls: FactClass
    text: str
    message_ids: tuple[str, ...]
    count: int
    last_index: int
    context: str = ""
