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

A line holds facts that were last seen in the message whose id ends with what follows the `@` (`@^`: the same as of the
line above). Paths of one folder stand
in braces; a heading `paths under X` puts X in front of every path below it. `index_hits` reads exactly this back, so
what an index says counts as said, and survives the next summary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_LINE: Final = re.compile(r"- ([^\n]+?)(?: @[^\s@]{1,12})")
_BRACES: Final = re.compile(r"([^{}\n]*)\{([^{}\n]*)\}([^{}\n]*)")
_UNBRACED: Final = re.compile(r"[{},\s]")
_SEPARATOR: Final = re.compile(r"[/\\]")
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
        lines = list(_marked((" ".join(fact.text.split()), fact) for fact in facts))
    else:
        spell = _with_context if cls is FactClass.NUMBER else _bare
        lines = [f"- {'; '.join(spell(f) for f in group)} @{mark}" for mark, group in _by_message(facts)]
    return "\n".join([f"{_HEADINGS[cls]}:", *lines])


def index_hits(text: str) -> Iterator[Hit]:
    """The facts of every index in a text (records unescaped), except numbers: those are read as text."""
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
        elif cls is not FactClass.NUMBER:
            for name in entry[1].split("; "):
                yield Hit(cls=cls, text=name)


def _expand(entry: str) -> Iterator[str]:
    match = _BRACES.fullmatch(entry)
    if match is None:
        yield entry
        return
    for name in match[2].split(","):
        yield match[1] + name + match[3]


@dataclass(frozen=True, slots=True)
class _PathLine:
    """One line of the paths: all of them begin with `folder`, which `text` begins with too."""

    folder: str
    text: str
    last: Fact


def _path_section(facts: Sequence[Fact]) -> str:
    left = list(_path_lines(facts))
    sections: list[str] = []
    for root in _roots([line.folder for line in left]):
        below = [line for line in left if line.folder.startswith(root)]
        left = [line for line in left if not line.folder.startswith(root)]
        lines = _marked((line.text[len(root) :], line.last) for line in below)
        sections.append("\n".join([f"paths under {root}:", *lines]))
    if left:
        sections.append("\n".join(["paths:", *_marked((line.text, line.last) for line in left)]))
    return "\n".join(sections)


def _path_lines(facts: Sequence[Fact]) -> Iterator[_PathLine]:
    """Files of one folder on one line, then files that differ in one folder's name, then the rest."""
    folders: dict[str, list[Fact]] = {}
    for fact in facts:
        if _UNBRACED.search(fact.text):
            yield _PathLine("", " ".join(fact.text.split()), fact)
        else:
            folders.setdefault(_folder(fact.text), []).append(fact)
    alone: list[Fact] = []
    for folder, group in folders.items():
        if len(group) == 1:
            alone += group
        else:
            names = ",".join(fact.text[len(folder) :] for fact in group)
            yield _PathLine(folder, f"{folder}{{{names}}}", max(group, key=_index_of))
    yield from _across_folders(alone)


def _across_folders(facts: Sequence[Fact]) -> Iterator[_PathLine]:
    """`a/{x,y}/c.py`: paths that are equal but for one folder, the largest groups first."""
    groups: dict[tuple[str, str], dict[str, Fact]] = {}
    for fact in facts:
        cuts = [match.end() for match in _SEPARATOR.finditer(fact.text[:400])]
        for start, end in zip([0, *cuts], cuts, strict=False):
            groups.setdefault((fact.text[:start], fact.text[end - 1 :]), {})[fact.text[start : end - 1]] = fact
    done: set[str] = set()
    for (head, tail), members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        group = {name: fact for name, fact in members.items() if name and fact.text not in done}
        if len(group) > 1:
            done.update(fact.text for fact in group.values())
            yield _PathLine(head, f"{head}{{{','.join(group)}}}{tail}", max(group.values(), key=_index_of))
    for fact in facts:
        if fact.text not in done:
            yield _PathLine(_folder(fact.text), fact.text, fact)


def _index_of(fact: Fact) -> int:
    return fact.last_index


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


def _marked(lines: Iterable[tuple[str, Fact]]) -> Iterator[str]:
    """Lines with the message of each, the newest first; `@^` repeats the id of the line above."""
    before = ""
    for text, fact in sorted(lines, key=lambda line: -line[1].last_index):
        mark = _last_id(fact)
        yield f"- {text} @{'^' if mark == before else mark}"
        before = mark


def _last_id(fact: Fact) -> str:
    return short_id(fact.message_ids[-1]) if fact.message_ids else "?"


def _bare(fact: Fact) -> str:
    return " ".join(fact.text.split())


def _with_context(fact: Fact) -> str:
    return " ".join(f"{fact.context} {fact.text}".split())
