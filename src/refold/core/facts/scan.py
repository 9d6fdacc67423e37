"""Every fact of one text, in linear time.

URLs, numbers, failures and commands are found by patterns over the whole text; paths and names by looking at its tokens
(runs without blanks or quotation marks), each distinct token once. Every pattern either has a fixed first character and
a bounded length, or consumes what it reads (possessive quantifiers), so that no input makes it read twice. A token of
more than `MAX_TOKEN` characters is data, not a name, and is passed over.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from refold.core.facts.commands import command_key, commands_in_text
from refold.core.facts.failures import failures_in
from refold.core.facts.model import FactClass, Hit, Origin
from refold.core.facts.names import names_in, quoted_names
from refold.core.facts.numbers import number_key, numbers_in
from refold.core.facts.paths import path_key, paths_in, take_quoted_paths
from refold.core.facts.prepare import CJK, narrow, prepare, squeeze
from refold.core.facts.sentences import constraints_in

MAX_TOKEN: Final = 1024
"""Characters of the longest token that is looked at."""
MAX_URL: Final = 2000
"""Characters of the longest URL that is a fact."""

_URL: Final = re.compile(
    r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{1,19}://"
    r"[^\s<>\"'`|\\^{}，。、；：！？（）【】《》「」『』〈〉“”‘’…]++"
)
_URL_PROSE: Final = re.compile(rf"(?<=[A-Za-z0-9#&?%])[,;.:!?)\]*]*[{CJK}]|(?<=//)[{CJK}]")
_URL_HOST: Final = re.compile(rf"[^/]{{1,40}}//[^/?#]{{1,300}}/(?=[{CJK}])")
_TOKEN: Final = re.compile(r"[^\s\"'`<>|;,、。「」『』【】《》〈〉“”‘’…·]+")
_WORTH: Final = re.compile(r"[A-Za-z0-9]")


class Scanner:
    """Scans texts, remembering the tokens that it has seen. One scanner per extraction."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[Hit, ...]] = {}

    def hits(self, text: str, origin: Origin) -> Iterator[Hit]:
        """The facts of a text, each as often as it occurs; checklists are read elsewhere, they have a state."""
        if origin == "human":
            for sentence in constraints_in(text):
                yield Hit(cls=FactClass.CONSTRAINT, text=sentence)
        prepared, urls = _take_urls(prepare(text))
        for url in urls:
            yield Hit(cls=FactClass.URL, text=url)
        prepared = narrow(prepared)
        for command in commands_in_text(prepared):
            yield Hit(cls=FactClass.COMMAND, text=command)
        prepared, quoted = take_quoted_paths(prepared)
        for path in quoted:
            yield Hit(cls=FactClass.PATH, text=path)
        for failure in failures_in(prepared):
            yield Hit(cls=FactClass.ERROR, text=failure)
        yield from numbers_in(prepared, origin)
        for match in _TOKEN.finditer(prepared):
            yield from self._token(match[0])
        if origin != "tool":
            for name in quoted_names(prepared):
                yield Hit(cls=FactClass.IDENTIFIER, text=name)

    def _token(self, token: str) -> Iterable[Hit]:
        if not 2 < len(token) <= MAX_TOKEN:
            return ()
        known = self._tokens.get(token)
        if known is None:
            known = self._tokens[token] = tuple(_scan_token(token)) if _WORTH.search(token) else ()
        return known


def key_of(cls: FactClass, text: str) -> str:
    """The spelling under which a fact is known within its class."""
    match cls:
        case FactClass.PATH:
            return path_key(text)
        case FactClass.NUMBER:
            return number_key(narrow(text))
        case FactClass.COMMAND:
            return command_key(text)
        case FactClass.URL:
            return text.rstrip("/")
        case FactClass.CONSTRAINT | FactClass.TODO:
            return squeeze(text).casefold()
        case FactClass.ERROR | FactClass.IDENTIFIER:
            return text


def _scan_token(token: str) -> Iterator[Hit]:
    rest = token
    for path in paths_in(token):
        yield Hit(cls=FactClass.PATH, text=path)
        rest = rest.replace(path, " ")
    yield from names_in(rest)


def _take_urls(text: str) -> tuple[str, list[str]]:
    """The text with its URLs blanked, and the URLs."""
    if "://" not in text:
        return text, []
    urls: list[str] = []

    def take(match: re.Match[str]) -> str:
        url = match[0]
        if (prose := _URL_PROSE.search(url)) is not None:
            url = url[: prose.start()]
        url = _trim(bare[0] if (bare := _URL_HOST.match(url)) is not None else url)
        if len(url) <= MAX_URL and not url.endswith("://"):
            urls.append(url)
        return " " + match[0][len(url) :]

    return _URL.sub(take, text), urls


def _trim(url: str) -> str:
    """Without the punctuation of the sentence around it; a closing bracket stays when it was opened in the URL."""
    end = len(url)
    opened = {")": url.count("(") - url.count(")"), "]": url.count("[") - url.count("]")}
    while end and (url[end - 1] in ".,;:!?*_~" or opened.get(url[end - 1], 0) < 0):
        if url[end - 1] in opened:
            opened[url[end - 1]] += 1
        end -= 1
    return url[:end]
