"""`ls`, `glob` and `grep`: what is there, bounded, with what may not be read left out."""

from itertools import groupby
from typing import Final, Literal

from pydantic import BaseModel, Field

from refold.agent.tools.permissions import Permissions, Permit
from refold.agent.tools.words import capped, model_folder, times
from refold.core.program import Program
from refold.files import GlobFiles, Hit, ListFolder, Query, SearchResult
from refold.files.search import search_gen

MOST_ENTRIES: Final = 400
MOST_MATCHES: Final = 300
MOST_HITS: Final = 200


class LsArguments(BaseModel):
    """Arguments of `ls`."""

    path: str = Field(default="/", description="Absolute path of a folder")


class GlobArguments(BaseModel):
    """Arguments of `glob`."""

    pattern: str = Field(description="e.g. *.py (any depth), /src/**/*.{ts,tsx}, /logs/2024-*/app?.log")


class GrepArguments(BaseModel):
    """Arguments of `grep`."""

    pattern: str = Field(description="Text to find, taken literally unless regex is true")
    path: str = Field(default="/", description="Folder or file to search in")
    glob: str | None = Field(default=None, description="Only files that match, e.g. *.py")
    regex: bool = Field(default=False, description="Take the pattern as a regular expression, matched line by line")
    ignore_case: bool = Field(default=False, description="Ignore case")
    context: int = Field(default=0, ge=0, le=20, description="Lines to show before and after each match")
    max_results: int = Field(default=50, ge=1, le=MOST_HITS, description="Most matches")


def ls_gen(arguments: LsArguments, permissions: Permissions) -> Program[str]:
    """One line per folder and file directly inside."""
    path = model_folder(arguments.path)
    if path != "/":
        yield from Permit(operations=("read",), paths=(path,))
    folder = yield from ListFolder(path=path)
    lines = [f"{name}/" for name in folder.folders if permissions.shows(name)]
    lines += [f"{info.path}  {info.size} bytes" for info in folder.files if permissions.shows(info.path)]
    if not lines:
        return f"[{path} is empty or does not exist]"
    return capped(lines, most=MOST_ENTRIES, hint="use glob with a narrower pattern")


def glob_gen(arguments: GlobArguments, permissions: Permissions) -> Program[str]:
    """One line per file that matches."""
    found = yield from GlobFiles(pattern=arguments.pattern.strip())
    lines = [f"{info.path}  {info.size} bytes" for info in found if permissions.shows(info.path)]
    if not lines:
        return f"[no file matches {arguments.pattern}]"
    return capped(lines, most=MOST_MATCHES, hint="narrow the pattern")


def grep_gen(arguments: GrepArguments, permissions: Permissions, *, seconds: float) -> Program[str]:
    """Matches by file, with line numbers; what ended the search is said."""
    path = model_folder(arguments.path)
    if path != "/":
        yield from Permit(operations=("read",), paths=(path,))
    syntax: Literal["literal", "regex"] = "regex" if arguments.regex else "literal"
    query = Query(
        pattern=arguments.pattern,
        syntax=syntax,
        under=path,
        glob=arguments.glob,
        ignore_case=arguments.ignore_case,
        context=arguments.context,
        max_hits=arguments.max_results,
        seconds=seconds,
    )
    # A path that was asked for by name was permitted above, so only what lies below it is filtered.
    result = yield from search_gen(query, allowed=lambda found: found == path or permissions.reads_freely(found))
    return _shown(result, arguments, path)


def _shown(result: SearchResult, arguments: GrepArguments, path: str) -> str:
    blocks = [
        "\n".join([file, *_numbered(list(hits))]) for file, hits in groupby(result.hits, key=lambda hit: hit.path)
    ]
    notes = []
    if result.ended == "hits":
        notes.append(f"stopped at max_results={arguments.max_results}: narrow the search, or raise it")
    if result.ended == "time":
        notes.append("stopped when its time was over: search fewer files or use a simpler pattern")
    if result.skipped:
        notes.append(f"{times(len(result.skipped), 'file')} not searched (binary or unreadable)")
    if not blocks:
        blocks = [f"[no match for {arguments.pattern!r} in {times(result.searched, 'file')} under {path}]"]
    return "\n\n".join(blocks + [f"[{'; '.join(notes)}]"] * bool(notes))


def _numbered(hits: list[Hit]) -> list[str]:
    """`12:` before a match, `12-` before a line of context, each line once, `--` between groups that do not touch."""
    lines: dict[int, str] = {}
    matches = {hit.line: hit.text for hit in hits}
    for hit in hits:
        first = hit.line - len(hit.before)
        lines |= {number: text for number, text in enumerate(hit.before, first) if number not in matches}
        lines |= {number: text for number, text in enumerate(hit.after, hit.line + 1) if number not in matches}
    lines |= matches
    shown: list[str] = []
    previous: int | None = None
    with_context = any(hit.before or hit.after for hit in hits)
    for number in sorted(lines):
        if with_context and previous is not None and number > previous + 1:
            shown.append("--")
        shown.append(f"{number}{':' if number in matches else '-'} {lines[number]}")
        previous = number
    return shown
