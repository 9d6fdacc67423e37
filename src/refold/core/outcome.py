"""What became of a fold pass that the model asked for, in words for the model: true, and with the numbers."""

from collections.abc import Mapping, Sequence
from typing import Final

from refold.core.canonical import Json
from refold.core.folds import SPAN_KINDS
from refold.core.record import escape_record

_WORDS: Final = {
    "result": "tool results",
    "clear": "tool results",
    "args": "calls with long arguments",
    "media": "messages with media",
    "human": "long user messages",
}


def outcome_text(folds: Sequence[Mapping[str, Json]], *, before: int, after: int, budget: int, vetoed: bool) -> str:
    """One line about a requested pass. `folds` are those that it made, `before` and `after` tokens of the window."""
    there = f"the window holds {after} of {budget} tokens"
    became = f"{before} tokens became {after} of {budget}"
    errors = (str(_data(fold).get("error", "")) for fold in folds if fold["kind"] == "strike")
    failed = next((escape_record(" ".join(error.split())[:200]) for error in errors), None)
    shorter = _shorter(folds)
    if any(fold["kind"] in SPAN_KINDS for fold in folds):
        count = sum(_count(fold) for fold in folds if fold["kind"] in SPAN_KINDS)
        also = f", and {shorter} shorter" if shorter else ""
        done = f"{count} older messages are shown as a summary now{also}; {became}"
        return f"The requested compaction is done: {done}. Everything stays readable."
    if shorter:
        why = f"No summary was made: {failed}." if failed else "No summary was made."
        return f"The requested compaction is done in part: {shorter} are shown shorter; {became}. {why}"
    if vetoed:
        return f"The requested compaction was refused by the application; nothing was changed, {there}."
    if failed is not None:
        return f"The requested compaction failed ({failed}); nothing was changed, {there}."
    return f"The requested compaction changed nothing: all but the newest rounds is as short as it gets; {there}."


def _shorter(folds: Sequence[Mapping[str, Json]]) -> str:
    """How many single messages of each sort a pass shows shorter; empty where it does not."""
    counts: dict[str, int] = {}
    for fold in folds:
        items = _data(fold).get("items")
        if (words := _WORDS.get(str(fold["kind"]))) is not None and isinstance(items, Sequence):
            counts[words] = counts.get(words, 0) + len(items)
    return ", ".join(f"{count} {words}" for words, count in counts.items())


def _data(fold: Mapping[str, Json]) -> Mapping[str, Json]:
    data = fold["data"]
    return data if isinstance(data, Mapping) else {}


def _count(fold: Mapping[str, Json]) -> int:
    span = _data(fold).get("span")
    count = span.get("count") if isinstance(span, Mapping) else 0
    return count if isinstance(count, int) else 0
