"""References: what a model may write to name messages of its log and stored files.

    m7                    a message by its id            m7, m9 /results/a     several, in this order
    m3..m7                a range, both ends included    ..m7   m3..   ..     open to the beginning, the end, both
    @3f9c1a  3f9c1a       the end of an id, as an index of facts writes it
    /results/t1/call-7    a file

A reference that is a message's whole id is that message, whatever characters it holds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from refold.core.log import Log

Target: TypeAlias = int | str
"""A message of the log by its index, or a file by its path."""

_BETWEEN: Final = re.compile(r"[\s,;]+")
_RANGE: Final = re.compile(r"\.\.+|…")
_SHORTEST: Final = 4
"""Characters of the end of an id that may stand for it."""
_MOST_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A reference that names nothing, or not one thing, and what to do about it."""

    text: str


def resolve(ref: str, log: Log) -> tuple[Target, ...] | Unresolved:
    """What a reference names, in order, each once; never empty."""
    whole = ref.strip()
    if whole in log.positions:
        return (log.positions[whole],)
    found: list[Target] = []
    for word in filter(None, _BETWEEN.split(whole)):
        named = _word(word, log)
        if isinstance(named, Unresolved):
            return (whole,) if whole.startswith("/") else named
        found += named
    return tuple(dict.fromkeys(found)) or Unresolved("Name a message id, a range of ids (first..last) or a path.")


def spell(targets: Sequence[Target], log: Log) -> str:
    """The reference that names some targets again: runs of messages as ranges."""
    words: list[str] = []
    run: list[int] = []
    for target in [*targets, ""]:
        if isinstance(target, int) and run and target == run[-1] + 1:
            run.append(target)
            continue
        if run:
            first, last = log.keys[run[0]], log.keys[run[-1]]
            words.append(first if len(run) == 1 else f"{first}..{last}")
        run = [target] if isinstance(target, int) else []
        words += [target] if isinstance(target, str) and target else []
    return ", ".join(words)


def _word(word: str, log: Log) -> Sequence[Target] | Unresolved:
    if word.startswith("/"):
        return [word]
    if word in log.positions:
        return [log.positions[word]]
    problem: Unresolved | None = None
    for cut in _RANGE.finditer(word):
        first = _end(word[: cut.start()], log, default=0)
        last = _end(word[cut.end() :], log, default=len(log) - 1)
        if isinstance(first, int) and isinstance(last, int):
            return range(min(first, last), max(first, last) + 1)
        problem = first if isinstance(first, Unresolved) else last if isinstance(last, Unresolved) else None
    if problem is not None:
        return problem
    one = _single(word, log)
    return one if isinstance(one, Unresolved) else [one]


def _end(word: str, log: Log, *, default: int) -> int | Unresolved:
    """An end of a range; none is the log's own."""
    if word:
        return _single(word, log)
    return default if len(log) else Unresolved("There is no message in this conversation yet.")


def _single(word: str, log: Log) -> int | Unresolved:
    """One message by its id or the end of it."""
    if word in log.positions:
        return log.positions[word]
    if word == "@^":
        return Unresolved("@^ repeats the id of the line above it in that index: use the id given there.")
    from refold.core.facts.index import short_id  # with all patterns of the facts: they take long to compile

    end = word.removeprefix("@")
    same = [index for index, key in enumerate(log.keys) if short_id(key) == end]
    if not same and len(end) >= _SHORTEST:
        same = [index for index, key in enumerate(log.keys) if key.endswith(end)]
    if len(same) == 1:
        return same[0]
    if not same:
        return Unresolved(f"No message {word!r} in this conversation. Use an id or a path exactly as a note names it.")
    named = ", ".join(log.keys[index] for index in same[:_MOST_NAMED])
    more = ", …" if len(same) > _MOST_NAMED else ""
    return Unresolved(f"{len(same)} messages have an id that ends with {end!r}: {named}{more}. Give the whole id.")
