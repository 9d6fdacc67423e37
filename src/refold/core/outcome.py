"""What became of a fold pass that the model asked for, in words for the model: true, and with the numbers."""

from collections.abc import Mapping, Sequence

from refold.core.canonical import Json
from refold.core.folds import SPAN_KINDS
from refold.core.record import escape_record


def outcome_text(folds: Sequence[Mapping[str, Json]], *, before: int, after: int, budget: int, vetoed: bool) -> str:
    """One line about a requested pass. `folds` are those that it made, `before` and `after` tokens of the window."""
    there = f"the window holds {after} of {budget} tokens"
    kinds = [str(fold["kind"]) for fold in folds]
    errors = (str(_data(fold).get("error", "")) for fold in folds if fold["kind"] == "strike")
    failed = next((escape_record(" ".join(error.split())[:200]) for error in errors), None)
    spans = [fold for fold in folds if fold["kind"] in SPAN_KINDS]
    if spans:
        count = sum(_count(fold) for fold in spans)
        done = f"{count} older messages are shown as a summary now, {before} tokens became {after} of {budget}"
        return f"The requested compaction is done: {done}. Everything stays readable."
    if any(kind not in ("strike", "state") for kind in kinds):
        why = f" No summary was made: {failed}." if failed else " No summary was made."
        done = f"older results and arguments are shown shorter, {before} tokens became {after} of {budget}"
        return f"The requested compaction is done in part: {done}.{why}"
    if vetoed:
        return f"The requested compaction was refused by the application; nothing was changed, {there}."
    if failed is not None:
        return f"The requested compaction failed ({failed}); nothing was changed, {there}."
    return f"The requested compaction changed nothing: all but the newest rounds is as short as it gets; {there}."


def _data(fold: Mapping[str, Json]) -> Mapping[str, Json]:
    data = fold["data"]
    return data if isinstance(data, Mapping) else {}


def _count(fold: Mapping[str, Json]) -> int:
    span = _data(fold).get("span")
    count = span.get("count") if isinstance(span, Mapping) else 0
    return count if isinstance(count, int) else 0
