"""Search terms: what a text is found by, in any script.

Words of scripts with spaces are taken whole, in lower case; an identifier also by its parts (`readFile`, `read_file`
and `READ-FILE` are found by `read`, by `file` and by themselves). Scripts without spaces (Han, kana, Hangul, Thai, ...)
are taken as overlapping pairs of characters, so that any run of two or more of them is found wherever it stands (fault
192); a single character is a term of its own.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_DENSE: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
_TOKEN: Final = re.compile(rf"[{_DENSE}]+|[^\W{_DENSE}]+(?:[-_.][^\W{_DENSE}]+)*")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_DENSE_START: Final = re.compile(rf"[{_DENSE}]")
_LONGEST: Final = 120
"""Characters of a term; hashes and base64 runs are found by their first ones."""


def terms_of(text: str) -> Iterator[str]:
    """Every term of a text, in order, repeats included. Linear in its length."""
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        token = match[0]
        if _DENSE_START.match(token):
            yield from token
            yield from (token[i : i + 2] for i in range(len(token) - 1))
        else:
            yield from _word_terms(token)


def query_terms(query: str) -> list[str]:
    """The terms that a query asks for: of a run of a dense script its pairs only, else as `terms_of`, each once."""
    terms: list[str] = []
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", query)):
        token = match[0]
        if _DENSE_START.match(token):
            terms += [token] if len(token) == 1 else [token[i : i + 2] for i in range(len(token) - 1)]
        else:
            terms += _word_terms(token)
    return list(dict.fromkeys(terms))


def _word_terms(token: str) -> Iterator[str]:
    whole = token.casefold()[:_LONGEST]
    yield whole
    pieces = re.split(r"[-_.]", token)
    if len(pieces) > 1:
        yield from (piece.casefold()[:_LONGEST] for piece in pieces)
    for piece in pieces:
        parts = _PART.findall(piece)
        if len(parts) > 1:
            yield from (part.casefold()[:_LONGEST] for part in parts)
