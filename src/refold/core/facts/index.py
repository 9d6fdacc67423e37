"""The compact index of facts: how it is written, and how it is read back.

    user constraints:
    - never push to main @9f3c1a
    paths under /home/dev/app/:
    - src/core/{facts.py,plan.py} @77aa01
    - README.md @9f3c1a
    commands:
    - pytest -q tests/core @77aa01
    numbers:
    - latency 42 ms; budget $3.50 @9f3c1a

A line holds facts that were last seen in the message whose id ends with what follows the `@`. Paths of one folder stand
in braces; a heading `paths under X` puts X in front of every path below it. `index_hits` reads exactly this back, so
what an index says counts as said, and survives the next summary.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from refold.core.facts.model import Fact, FactClass, Hit

SHORT_ID: Final = 6
"""Characters of a message id in an index, from its end: ids often share their beginning (`run--...`, `msg_...`)."""

_HEADINGS: Final[Mapping[FactClass, str]] = {
    FactClass.CONSTRAINT: "user constraints",
    FactClass.TODO: "open todos",
    FactClass.ERROR: "errors",
    FactClass.PATH: "paths",
    FactClass.COMMAND: "commands",
    FactClass.NUMBER: "numbers",
    FactClass.URL: "urls",
    FactClass.IDENTIFIER: "identifiers",
}
_CLASS_OF: Final = {heading: cls for cls, heading in _HEADINGS.items()}
_HEADING: Final = re.compile(rf"({'|'.join(_HEADINGS.values())})(?: under ([^\n]{{1,600}}))?:")
_LINE: Final = re.compile(r"- ([^\n]+?)(?: @[^\s@]{1,12})?")
_BRACES: Final = re.compile(r"([^{}\n]*)\{([^{}\n]*)\}")
_SINGLE: Final = frozenset({FactClass.CONSTRAINT, FactClass.TODO, FactClass.COMMAND, FactClass.URL})
"""Classes with one fact to a line, since their texts may hold any punctuation."""

_MAX_ROOTS: Final = 8
_MIN_ROOT: Final = 8


def short_id(message_id: str) -> str:
    """A message id as an index writes it: its last `SHORT_ID` characters, blanks and `@` replaced."""
    return re.sub(r"[\s@]", "_", message_id[-SHORT_ID:])


def render_section(cls: FactClass, facts: Sequence[Fact]) -> str:
    """The lines of one class of facts, given best first; empty without facts."""
    if not facts:
        return ""
    if cls is FactClass.PATH:
        return _path_section(facts)
    if cls in _SINGLE:
        lines = [f"- {' '.join(fact.text.split())} @{_last_id(fact)}" for fact in facts]
    else:
        spell = _with_context if cls is FactClass.NUMBER else _bare
        lines = [f"- {'; '.join(spell(f) for f in group)} @{mark}" for mark, group in _by_message(facts)]
    return "\n".join([f"{_HEADINGS[cls]}:", *lines])


def index_hits(text: str) -> Iterator[Hit]:
    """The facts of every index in a text (records unescaped), except numbers and names: those are read as text."""
    cls: FactClass | None = None
    root = ""
    for line in text.split("\n"):
        if (heading := _HEADING.fullmatch(line)) is not None:
            cls, root = _CLASS_OF[heading[1]], heading[2] or ""
        elif cls is None or (entry := _LINE.fullmatch(line)) is None:
            cls = None
        elif cls is FactClass.PATH:
            for path in _expand(entry[1]):
                yield Hit(cls=cls, text=root + path)
        elif cls in _SINGLE:
            yield Hit(cls=cls, text=entry[1])


def _expand(entry: str) -> Iterator[str]:
    match = _BRACES.fullmatch(entry)
    if match is None:
        yield entry
        return
    for name in match[2].split(","):
        yield match[1] + name


def _path_section(facts: Sequence[Fact]) -> str:
    folders: dict[str, list[Fact]] = {}
    for fact in facts:
        folders.setdefault(_folder(fact.text), []).append(fact)
    sections: list[str] = []
    left = list(folders)
    for root in _roots(left):
        below = [folder for folder in left if folder.startswith(root)]
        left = [folder for folder in left if not folder.startswith(root)]
        lines = [line for folder in below for line in _folder_lines(folder, folders[folder], len(root))]
        sections.append("\n".join([f"paths under {root}:", *lines]))
    if left:
        lines = [line for folder in left for line in _folder_lines(folder, folders[folder], 0)]
        sections.append("\n".join(["paths:", *lines]))
    return "\n".join(sections)


def _folder_lines(folder: str, facts: Sequence[Fact], start: int) -> Iterator[str]:
    """One line for the plain names of a folder, one for each name that braces cannot hold."""
    names = [fact for fact in facts if not re.search(r"[{},\s]", fact.text)]
    shown = folder[start:]
    if len(names) == 1:
        yield f"- {names[0].text[start:]} @{_last_id(names[0])}"
    elif names:
        latest = max(names, key=lambda fact: fact.last_index)
        listed = ",".join(fact.text[len(folder) :] for fact in names)
        yield f"- {shown}{{{listed}}} @{_last_id(latest)}"
    for fact in facts:
        if re.search(r"[{},\s]", fact.text):
            yield f"- {' '.join(fact.text.split())[start:]} @{_last_id(fact)}"


def _roots(folders: Sequence[str]) -> Iterator[str]:
    """Prefixes worth a heading: those that save most characters, in order, at most `_MAX_ROOTS`."""
    left = list(folders)
    for _ in range(_MAX_ROOTS):
        below: dict[str, int] = {}
        for folder in left:
            for prefix in _prefixes(folder):
                below[prefix] = below.get(prefix, 0) + 1
        best = max(below.items(), key=lambda item: ((item[1] - 1) * len(item[0]) - 14, item[0]), default=("", 0))
        root, count = best
        if count < 2 or len(root) < _MIN_ROOT or (count - 1) * len(root) < 20:
            return
        yield root
        left = [folder for folder in left if not folder.startswith(root)]


def _prefixes(folder: str) -> Iterator[str]:
    if any(char in folder for char in "{}\n"):
        return
    for match in re.finditer(r"[/\\]", folder[:400]):
        yield folder[: match.end()]


def _folder(path: str) -> str:
    cut = max(path.rfind("/"), path.rfind("\\")) + 1
    return path[:cut]


def _by_message(facts: Sequence[Fact]) -> Iterator[tuple[str, list[Fact]]]:
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(_last_id(fact), []).append(fact)
    yield from groups.items()


def _last_id(fact: Fact) -> str:
    return short_id(fact.message_ids[-1]) if fact.message_ids else "?"


def _bare(fact: Fact) -> str:
    return fact.text


def _with_context(fact: Fact) -> str:
    return f"{fact.context} {fact.text}" if fact.context else fact.text
