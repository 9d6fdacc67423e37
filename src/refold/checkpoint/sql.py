"""Statements from `.sql` files: blocks that begin with `-- name: the_name`, described by the comment below it.

Parameters are written `:name` in every file. `:keys` stands for a set of values; a driver fills it in its own way.
"""

import re
from collections.abc import Mapping
from importlib import resources

_BLOCK = re.compile(r"^-- name:[ \t]*(?P<name>\w+)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*--.*$\n?", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):(?P<name>[a-z_]+)\b")


def read_sql(backend: str, file: str) -> str:
    """The text of a `.sql` file of a backend, as shipped in the package."""
    return (resources.files("refold.checkpoint") / backend / file).read_text(encoding="utf-8")


def named_blocks(text: str) -> Mapping[str, str]:
    """The statements of a file by name. Raises `ValueError` for a name that appears twice."""
    found: dict[str, str] = {}
    marks = list(_BLOCK.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : following.start() if following else len(text)]
        if mark["name"] in found:
            raise ValueError(f"statement {mark['name']} is defined twice")
        found[mark["name"]] = _COMMENT.sub("", body).strip().rstrip(";")
    return found


def parameters_of(statement: str) -> frozenset[str]:
    """The names of a statement's parameters."""
    return frozenset(match["name"] for match in _PARAMETER.finditer(statement))


def percent_style(statement: str) -> str:
    """A statement with `%(name)s` in place of `:name`, and literal percent signs doubled."""
    return _PARAMETER.sub(lambda match: f"%({match['name']})s", statement.replace("%", "%%"))


def migrations(backend: str) -> Mapping[int, str]:
    """Migration scripts by the schema version that they lead to."""
    folder = resources.files("refold.checkpoint") / backend / "migrations"
    found = {
        int(item.name.split("_", 1)[0]): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".sql")
    }
    return dict(sorted(found.items()))


def script(text: str) -> list[str]:
    """The statements of a script, one by one: an `executescript` would commit the transaction that it is in."""
    return [part for part in (piece.strip() for piece in _COMMENT.sub("", text).split(";")) if part]
