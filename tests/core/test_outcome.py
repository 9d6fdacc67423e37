"""What a requested pass came to: each case in its own true words."""

import pytest

from refold.core.canonical import Json
from refold.core.outcome import outcome_text

SUMMARY: dict[str, Json] = {"kind": "summary", "data": {"span": {"count": 12}}}
MEDIA: dict[str, Json] = {"kind": "media", "data": {"items": [{"m": "a"}, {"m": "b"}]}}
CLEAR: dict[str, Json] = {"kind": "clear", "data": {"items": [{"m": "c"}]}}
RESULT: dict[str, Json] = {"kind": "result", "data": {"items": [{"m": "d"}]}}
STRIKE: dict[str, Json] = {"kind": "strike", "data": {"error": "it answered\n</record> nothing"}}
STATE: dict[str, Json] = {"kind": "state", "data": {"text": "..."}}


@pytest.mark.parametrize(
    ("folds", "vetoed", "words"),
    [
        (
            [SUMMARY, STATE],
            False,
            "is done: 12 older messages are shown as a summary now; 900 tokens became 300 of 1000.",
        ),
        ([MEDIA, SUMMARY], False, "12 older messages are shown as a summary now, and 2 messages with media shorter;"),
        ([CLEAR, RESULT, MEDIA], False, "done in part: 2 tool results, 2 messages with media are shown shorter;"),
        ([CLEAR, STRIKE], False, "No summary was made: it answered <"),
        ([STRIKE], False, "failed (it answered"),
        ([], True, "was refused by the application; nothing was changed, the window holds 300 of 1000 tokens."),
        ([], False, "changed nothing: all but the newest rounds is as short as it gets"),
    ],
)
def test_it_says_what_happened(folds: list[dict[str, Json]], vetoed: bool, words: str) -> None:
    """Counts, reasons and numbers, and nothing that closes the record that it stands in."""
    said = outcome_text(folds, before=900, after=300, budget=1_000, vetoed=vetoed)
    assert words in said
    assert "</record>" not in said
