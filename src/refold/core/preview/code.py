"""Source code: an outline of its definitions with line numbers, outermost first, and its first lines."""

import re
from typing import Final

from refold.core.preview.model import SCANNED, Render, clip, head_lines, left_out, number_of_lines

_SUFFIX: Final = re.compile(
    r"\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|java|kt|kts|scala|c|h|cc|cpp|cxx|hpp|cs|rb|php|swift|dart|lua|sh|bash|ps1|sql|ex|exs"
    r"|erl|hs|ml|jl|r|pl|zig|vue|svelte|proto|graphql|tf)$",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(r"\s{0,8}\d{1,7}(?:\t|→|: ?|\| ?)")
"""The line numbers that readers put before lines (`cat -n` and its like)."""
_DEFINITION: Final = re.compile(
    r"(?P<indent>[ \t]*+)(?:"
    r"(?:async\s+)?def\s+\w+|class\s+\w+|module\s+\w+|defp?(?:module)?\s+[\w.]+"
    r"|(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?"
    r"(?:function\*?\s*\w*\s*\(|class\s+\w|interface\s+\w|type\s+\w+[^\n=]{0,80}=|enum\s+\w|namespace\s+\w)"
    r"|(?:export\s+)?(?:const|let|var)\s+\w+[^=\n]{0,80}=\s*(?:async\s*)?"
    r"(?:function\b|\([^)\n]{0,200}\)[^=\n]{0,60}=>|\w+\s*=>)"
    r"|func\s+(?:\([^)\n]{0,80}\)\s*)?\w+|type\s+\w+\s+(?:struct|interface|func)"
    r"|(?:pub(?:\([\w ]{1,20}\))?\s+)?(?:async\s+|unsafe\s+|const\s+|extern\s+\"C\"\s+)*"
    r"(?:fn|struct|enum|trait|impl|mod|union|macro_rules!)\b"
    r"|(?:(?:public|private|protected|internal|static|final|abstract|override|virtual|async|sealed|partial|open"
    r"|suspend|data|inline)\s+)+[\w<>\[\],.? ]{1,120}[({]"
    r"|fun\s+\w+|(?:CREATE|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:TABLE|VIEW|FUNCTION|INDEX|PROCEDURE|TRIGGER)\b"
    r"|(?:message|service|rpc|resource|module)\s+[\"\w]+.{0,80}\{"
    r"|[A-Za-z_][\w:<>*& ]{1,80}[*& ]\w+\([^;{}\n]{0,200}\)\s*(?:const\s*)?\{$"
    r")"
)
_PROSE_ENDS: Final = (".", "。", "？", "?", "!")
_KEYWORD_CALL: Final = re.compile(
    r"\s*(?:if|for|while|switch|return|else|case|catch|with|elif|assert|raise|throw|new|await|print)\b"
)


def looks_like_code(text: str, hint: str | None) -> bool:
    """Whether a path says so, or a fortieth of the first lines define something; one will do in a numbered file."""
    if hint is not None and _SUFFIX.search(hint.strip()):
        return True
    lines = [line for line in text[:20_000].split("\n")[:400] if line.strip()]
    if len(lines) < 5:
        return False
    bare = [_bare(line) for line in lines]
    defined = sum(1 for line in bare if _is_definition(line))
    numbered = sum(1 for line, body in zip(lines, bare, strict=True) if len(body) < len(line))
    return defined >= (1 if numbered * 10 >= len(lines) * 8 else max(2, len(lines) // 40))


def code_preview(text: str) -> Render:
    """Three fifths of the room for the outline, the rest for the first lines."""
    outline = _outline(text)
    scanned = f" in the first {SCANNED:,} characters" if len(text) > SCANNED else ""
    defined = f", {len(outline):,} definitions{scanned}" if outline else ""
    title = f"[code: {number_of_lines(text):,} lines, {len(text):,} characters{defined}]"

    def render(characters: int) -> str:
        room = characters - len(title) - 70
        if room < 30:
            return title
        width = max(40, min(200, room // 4))
        shown = _shown(outline, room * 3 // 5, width)
        used = sum(len(line) + 1 for line in shown)
        head, stop = head_lines(text, room - used, width)
        gap = [left_out(text, stop, len(text))] if stop < len(text) else []
        missing = len(outline) - len(shown)
        note = "[outline, line number: definition" + (f", {missing:,} inner ones left out]" if missing else "]")
        return "\n".join([title, *head, *gap, *([note, *shown] if shown and gap else [])])

    return render


def _outline(text: str) -> list[tuple[int, int, str]]:
    """(indent, line number, line) of every definition in the part that is read line by line."""
    found: list[tuple[int, int, str]] = []
    for number, line in enumerate(text[:SCANNED].split("\n"), start=1):
        body = _bare(line)
        if len(body) < 2_000 and _is_definition(body):
            indent = len(body.expandtabs(4)) - len(body.expandtabs(4).lstrip())
            shown = line.strip() if len(body) < len(line) else f"{number}: {line.rstrip()}"
            found.append((indent, number, shown))
    return found


def _shown(outline: list[tuple[int, int, str]], room: int, width: int) -> list[str]:
    """As many definitions as fit, the outermost first, in the order of the source."""
    chosen: list[tuple[int, str]] = []
    for _, number, line in sorted(outline, key=lambda entry: (entry[0], entry[1])):
        shown = clip(line, width)
        room -= len(shown) + 1
        if room < 0:
            break
        chosen.append((number, shown))
    return [line for _, line in sorted(chosen)]


def _bare(line: str) -> str:
    """A line without the number that a reader put before it."""
    prefix = _NUMBERED.match(line[:40])
    return line[prefix.end() :] if prefix is not None else line


def _is_definition(line: str) -> bool:
    body = line[:400]
    if not body.strip() or _KEYWORD_CALL.match(body) or body.rstrip().endswith(_PROSE_ENDS):
        return False
    return _DEFINITION.match(body) is not None
