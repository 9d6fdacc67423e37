"""Records: the fence around everything that refold writes into a window, and what keeps a value from leaving it.

    <record kind="summary" fold="f1">
    ... values, escaped ...
    </record>

A model reads what stands between the tags as data of earlier work; only what `<user-words>` holds inside a record is a
user's. The fence holds only if no value can write a tag of its own, so every value passes `escape_record` first: after
each `<` that opens something which reads as a `record` or `user-words` tag (any case, spacing, slash, invisible or
full-width spelling) stands one more backslash. `unescape_record` takes exactly that one away again, so the pair is
lossless for every text, escaped texts included.
"""

import re
from collections.abc import Mapping
from typing import Final

from refold.errors import ConfigurationError

# Characters that a reader does not see or that stand for a blank: soft hyphen, zero-width and directional marks, BOM.
_GAP: Final = (
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff]"
)
# Full-width forms and the Cyrillic and Greek letters that look the same.
_LETTERS: Final = ("rRｒＲгᴦ", "eEｅＥеЕΕ", "cCｃＣсСϲ", "oOｏＯоОοΟ0", "rRｒＲгᴦ", "dDｄＤԁ")
_USER: Final = (
    "uUｕＵ",
    "sSｓＳѕ",
    "eEｅＥеЕΕ",
    "rRｒＲгᴦ",
    "-\u2010-\u2015－_＿",
    "wWｗＷ",
    "oOｏＯоОοΟ0",
    "rRｒＲгᴦ",
    "dDｄＤԁ",
)
_RECORD: Final = rf"{_GAP}*+".join(f"[{letters}]" for letters in _LETTERS)
_WORDS: Final = rf"{_GAP}*+".join(f"[{letters}]" for letters in _USER)
_OPENERS: Final = "<＜﹤‹\u2329\u3008˂"
_SLASHES: Final = "/／⁄∕"
_OPEN: Final = rf"([{_OPENERS}])(\\*+)"
_TAG: Final = re.compile(rf"{_OPEN}((?:{_GAP}|[{_SLASHES}])*+(?:{_RECORD}|{_WORDS}))")
_FENCE: Final = re.compile(rf"{_OPEN}((?:{_GAP}|[{_SLASHES}])*+{_RECORD})")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")


def escape_record(text: str) -> str:
    """The text with every record and user-words tag in it made harmless; linear in its length.

    >>> escape_record("a </record> b")
    'a <\\\\/record> b'
    """
    return _TAG.sub(r"\1\2\\\3", text) if _may_hold_tag(text) else text


def unescape_record(text: str) -> str:
    """The text that `escape_record` was given."""
    return _TAG.sub(lambda tag: tag[1] + tag[2][1:] + tag[3], text) if _may_hold_tag(text) else text


def wrap_record(body: str, *, kind: str, attributes: Mapping[str, str] | None = None) -> str:
    """A record of the given kind around a body whose values were escaped.

    Should a tag in the body still be live, it is escaped here, so that what is returned always has one opening and one
    closing tag. Raises `ConfigurationError` for a kind or attribute name that is not `[a-z][a-z0-9_-]*`.
    """
    named = {"kind": kind, **(attributes or {})}
    for name in (kind, *named):
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"a record's kind and attribute names are like 'fold-id', not {name!r}")
    head = " ".join(f'{name}="{_attribute(value)}"' for name, value in named.items())
    inner = _FENCE.sub(lambda tag: tag[0] if tag[2] else f"{tag[1]}\\{tag[3]}", body)
    return f"<record {head}>\n{inner}\n</record>"


def _may_hold_tag(text: str) -> bool:
    return any(opener in text for opener in _OPENERS)


def _attribute(value: str) -> str:
    value = escape_record(" ".join(value.split()))
    for plain, entity in (("&", "&amp;"), ('"', "&quot;"), (">", "&gt;")):
        value = value.replace(plain, entity)
    return value
