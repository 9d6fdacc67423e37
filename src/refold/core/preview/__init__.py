"""Typed previews: what stands in the window for a text that was moved out of it.

A preview shows a text by what it is (JSON by shape, a table by heading and rows, a log by head, errors and tail, code
by outline, a diff by files), within a budget of tokens that it never passes. It is a pure function of its arguments;
its work is linear in the text, with one long line as with many, and only texts of the budget's size are counted.
"""

from refold.core.preview.code import code_preview, looks_like_code
from refold.core.preview.diff import diff_preview, looks_like_diff
from refold.core.preview.json_shape import is_json_lines, json_lines_preview, json_preview, parse_json
from refold.core.preview.logs import log_preview, looks_like_log
from refold.core.preview.model import CountText, Kind, Preview, Render, fit
from refold.core.preview.prose import prose_preview
from refold.core.preview.table import table_form, table_preview

__all__ = ["CountText", "Kind", "Preview", "preview"]

_SAMPLE = 20_000
"""Characters from which the kind of a text is told; JSON is told by parsing."""
_PREAMBLE = 1_000
_PREAMBLE_LINES = 10
_CHARACTERS_PER_TOKEN = 12
"""A text longer than the budget times this is not counted whole: no tokenizer averages so many characters."""


def preview(content: str, *, budget: int, count: CountText, hint: str | None = None) -> Preview:
    """The best short stand-in for a text in at most `budget` tokens, as `count` counts.

    A text that fits is its own preview. Otherwise everything shown is verbatim but for notes in square brackets that
    count what was left out. `hint` is a path or tool name that tells the kind (`src/app.py`). With a budget too small
    for any note the text is `…`, and empty where not even that fits. The text is not escaped for a record.
    """
    kind, render = _kind_of(content, hint)
    if len(content) <= max(budget, 0) * _CHARACTERS_PER_TOKEN and count(content) <= budget:
        return Preview(text=content, kind=kind)
    return Preview(text=fit(render, size=len(content), budget=budget, count=count), kind=kind)


def _kind_of(content: str, hint: str | None) -> tuple[Kind, Render]:
    if (parsed := parse_json(content)) is not None:
        return "json", json_preview(content, parsed[0])
    if (framed := _json_behind_preamble(content)) is not None:
        return "json", framed
    sample = content[:_SAMPLE]
    if is_json_lines(content):
        return "jsonl", json_lines_preview(content)
    if looks_like_diff(sample):
        return "diff", diff_preview(content)
    if looks_like_code(content, hint):
        return "code", code_preview(content)
    if (form := table_form(sample)) is not None:
        return "table", table_preview(content, form)
    if looks_like_log(sample) or looks_like_log(content[-_SAMPLE:]):
        return "log", log_preview(content)
    return "text", prose_preview(content)


def _json_behind_preamble(content: str) -> Render | None:
    """JSON that stands below a few lines of a tool's own (an exit code, a time), which are kept."""
    start = 0
    for _ in range(_PREAMBLE_LINES):
        end = content.find("\n", start, _PREAMBLE)
        if end < 0:
            return None
        start = end + 1
        if content.startswith(("{", "["), start) and (parsed := parse_json(content[start:])) is not None:
            preamble, body = content[:start], json_preview(content[start:], parsed[0])
            return lambda characters: preamble + body(characters - len(preamble)) if characters > start else body(0)
    return None
