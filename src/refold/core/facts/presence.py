"""Whether a text says a fact, in prose or in the compact form of an index."""

import re
from typing import Final

from refold.core.facts.index import index_hits
from refold.core.facts.model import Fact, FactClass
from refold.core.facts.prepare import narrow, squeeze
from refold.core.facts.scan import Scanner, key_of
from refold.core.facts.sentences import todos_in
from refold.core.record import unescape_record

_UNIT: Final = re.compile(r"(?<=\d)(?=[A-Za-z])")
_SEPARATORS: Final = "/\\"


class Presence:
    """The facts that one text says. Built in linear time; `has` then costs one look-up, or one search for sentences.

    A fact is there when it stands as a whole word, path, number or sentence. A path also counts when a longer path
    ends with it or leads through it (`core/plan.py` and `src/core` are in `src/core/plan.py`), since a reader sees it.
    """

    def __init__(self, text: str) -> None:
        plain = unescape_record(text)
        self._keys: set[tuple[FactClass, str]] = set()
        self._parts: set[str] = set()
        self._squeezed = squeeze(plain)
        self._folded = self._squeezed.casefold()
        for hit in (*Scanner().hits(plain, "ai"), *index_hits(plain)):
            key = key_of(hit.cls, hit.text)
            self._keys.add((hit.cls, key))
            if hit.cls is FactClass.PATH:
                self._add_path(key)
            elif hit.cls is FactClass.IDENTIFIER:
                self._add_name(key)
        self._keys.update((FactClass.TODO, key_of(FactClass.TODO, item)) for item, _ in todos_in(plain))

    def has(self, fact: Fact) -> bool:
        key = key_of(fact.cls, fact.text)
        if (fact.cls, key) in self._keys:
            return True
        match fact.cls:
            case FactClass.PATH | FactClass.IDENTIFIER:
                return key in self._parts or (len(key) > 3 and _stands_in(self._squeezed, key))
            case FactClass.COMMAND | FactClass.URL:
                return _stands_in(self._squeezed, key)
            case FactClass.CONSTRAINT | FactClass.TODO:
                return key in self._folded
            case FactClass.NUMBER | FactClass.ERROR:
                spelling = narrow(fact.text)
                spaced = _UNIT.sub(" ", spelling)
                return _stands_in(self._squeezed, spelling) or _stands_in(self._squeezed, spaced)

    def _add_path(self, path: str) -> None:
        """Every run of a path that begins or ends at a separator and reaches one of its ends."""
        for index, char in enumerate(path[:600]):
            if char in _SEPARATORS:
                self._parts.add(path[index + 1 :])
                self._parts.add(path[:index])

    def _add_name(self, name: str) -> None:
        parts = name.split(".")
        for index in range(1, min(len(parts), 12)):
            self._parts.add(".".join(parts[index:]))
            self._parts.add(".".join(parts[:index]))


def contains_fact(text: str, fact: Fact) -> bool:
    """Whether a text says a fact. For many facts of one text, build one `Presence`."""
    return Presence(text).has(fact)


def _stands_in(text: str, value: str) -> bool:
    """Whether a value occurs with no letter or digit of ASCII directly beside its own."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        left = start == 0 or not (_is_word(text[start - 1]) and _is_word(value[0]))
        right = end == len(text) or not (_is_word(text[end]) and _is_word(value[-1]))
        if left and right:
            return True
        start = text.find(value, end)
    return False


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")
