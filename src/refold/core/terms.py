"""Search terms: what a text is found by, in any script.

Words of scripts with spaces are taken whole, in lower case; an identifier also by its parts (`readFile`, `read_file`
and `READ-FILE` are found by `read`, by `file` and by themselves). Scripts without spaces (Han, kana, Hangul, Thai, ...)
are taken as overlapping pairs of characters, so that any run of two or more of them is found wherever it stands (fault
192); a single character is a term of its own.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

_DENSE: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
_TOKEN: Final = re.compile(rf"[{_DENSE}]+|[^\W{_DENSE}]+(?:[-_.][^\W{_DENSE}]+)*")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_BETWEEN: Final = re.compile(r"[-_.]")
_DENSE_START: Final = re.compile(rf"[{_DENSE}]")
_SHORT: Final = 64
"""Characters of a token whose terms are remembered."""
_LONGEST: Final = 120
"""Characters of a term; hashes and base64 runs are found by their first ones."""


def terms_of(text: str) -> list[str]:
    """Every term of a text, in order, repeats included. Linear in its length."""
    terms: list[str] = []
    for token in _tokens(text):
        terms += _short_terms(token) if len(token) <= _SHORT else _terms(token)
    return terms


def query_terms(query: str) -> list[str]:
    """The terms that a query asks for: of a run of a dense script its pairs only, else as `terms_of`, each once."""
    terms: list[str] = []
    for token in _tokens(query):
        terms += _pairs(token) if len(token) > 1 and _DENSE_START.match(token) else _terms(token)
    return list(dict.fromkeys(terms))


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text))


def _terms(token: str) -> Sequence[str]:
    if _DENSE_START.match(token):
        return (*token, *_pairs(token))
    terms = [token.casefold()]
    pieces = _BETWEEN.split(token)
    if len(pieces) > 1:
        terms += (piece.casefold() for piece in pieces)
    for piece in pieces:
        parts = _PART.findall(piece)
        if len(parts) > 1:
            terms += (part.casefold() for part in parts)
    return tuple(term[:_LONGEST] for term in terms)


def _pairs(run: str) -> list[str]:
    return list(map("".join, pairwise(run)))


_short_terms = lru_cache(maxsize=16_384)(_terms)
"""A log repeats its words."""
