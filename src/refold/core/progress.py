"""Progress: what keeps fold passes from looping. All counters are read from the folds, so a restart keeps them.

A summary is allowed once per `summary_spacing` of new tokens; after `strikes` failed ones in a row automatic summaries
pause for as long. Both give way when the request does not fit otherwise. What was undone counts as an attempt: it is
not summarised again until as many new tokens came, and strikes before it no longer count.
"""

from refold.core.folds import SPAN_KINDS, Fold
from refold.core.gauge import Gauge
from refold.core.policy import Policy

_ATTEMPTS = SPAN_KINDS | {"strike", "undo"}


def summaries_allowed(gauge: Gauge, policy: Policy, *, budget: int) -> bool:
    """Whether an automatic summary may be made now."""
    last = next((fold for fold in reversed(gauge.window.folds) if fold.kind in _ATTEMPTS), None)
    if last is None:
        return True
    enough = policy.summary_spacing * budget
    if last.kind == "strike":
        if strikes_in_a_row(gauge.window.folds) < policy.strikes:
            return True
        return tokens_since(gauge, last) >= enough
    return tokens_since(gauge, last) >= enough


def strikes_in_a_row(folds: tuple[Fold, ...]) -> int:
    """How many of the newest summary passes failed, one after the other."""
    strikes = 0
    for fold in reversed(folds):
        if fold.kind == "strike":
            strikes += 1
        elif fold.kind in _ATTEMPTS:
            break
    return strikes


def tokens_since(gauge: Gauge, fold: Fold) -> int:
    """Tokens of the log messages that came after a fold was made; the whole window when its place is gone."""
    entries = gauge.window.entries
    place = gauge.window.log.positions.get(fold.at.key)
    if place is None:
        return gauge.used
    first = len(entries)
    while first > 0 and entries[first - 1].start > place:
        first -= 1
    return round(gauge.scale * (gauge.sums[-1] - gauge.sums[first]))
