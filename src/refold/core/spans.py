"""The part of the planner that chooses spans: which rounds a summary covers, which segments a merge does.

A span is of whole rounds. It never holds the task or the newest human message, which stand as they are.
"""

from collections.abc import Collection, Sequence

from refold.core.folds import span_of
from refold.core.situation import WORTH, Situation, Step, SummaryStep
from refold.core.view import View, kept_in_span, units_from
from refold.core.window import Segment

_LEAST_SUMMARY = 0.05
"""Part of the budget that a summary must free: many small segments cost more than they save, unless all else failed."""
_STATE_FRAME = 40
"""Tokens of STATE besides what its share of the budget bounds."""
_SEGMENT_FRAME = 150
"""Tokens of a segment besides its summary, quotes and facts: fence, headings, paths."""


def keep_from(view: View, share: float, budget: int) -> int:
    """The log index from which the newest part of the window is left alone: at least the last unit."""
    if not view.units:
        return view.base
    start = view.units[-1].start
    last_ai = next((unit.start for unit in reversed(view.units) if unit.has_ai), start)
    room = share * budget
    for row in reversed(view.rows):
        room -= row.tokens
        if room < 0:
            break
        if row.unit is None:
            break
        start = min(start, view.units[row.unit].start)
    return min(start, last_ai)


def summarise(view: View, situation: Situation, goal: int, steps: list[Step], *, edge: int | None = None) -> None:
    """Summarise the oldest visible rounds, as many as the goal needs, split at the newest human message."""
    if not situation.may("summary") or not situation.readable:
        return
    if edge is None:
        edge = keep_from(view, situation.policy.keep, situation.budget)
    log = view.gauge.window.log
    first, newest = log.first_human(), log.newest_human()
    start = max([(first + 1) if first is not None else 0, *(segment[2] for segment in view.segments)])
    parts = [(start, edge)]
    if newest is not None and start <= newest < edge:
        parts = [(start, newest), (newest + 1, edge)]
    for low, high in parts:
        if view.is_down_to(goal):
            break
        step = _span_step(view, situation, low, high, goal)
        if step is not None:
            steps.append(step)
    merge(view, situation, steps)


def _span_step(view: View, situation: Situation, low: int, high: int, goal: int) -> SummaryStep | None:
    """The shortest span from `low`, of whole units and at most to `high`, that brings the view down to the goal."""
    press = situation.overflow or not situation.fits(view.total, view.size)
    low = next((unit.start for unit in view.units if unit.start >= low), high)  # never inside a round
    kept = frozenset(kept_in_span(view, low, high, press=press))
    rows = {row.index: row for row in view.rows}
    source, size, stop = 0, 0, low
    for unit in view.units:
        if unit.start < low or unit.stop > high:
            continue
        gone = [rows[i] for i in range(unit.start, unit.stop) if i in rows and i not in kept]
        source += sum(row.tokens + row.beside for row in gone)
        size += sum(row.size for row in gone)
        stop = unit.stop
        expected = segment_size(situation, source)
        light = view.size_goal is None or view.size - size + 4 * expected <= view.size_goal
        if view.total - source + expected <= goal and light:
            break
    expected = segment_size(situation, source)
    least = 0 if press else _LEAST_SUMMARY * situation.budget
    if stop <= low or source - expected < max(WORTH, source // 10, least):
        return None
    told_anew = _told_anew(view, situation, low, expected)
    if told_anew:
        low = told_anew[0][0].start
        kept = frozenset(kept_in_span(view, low, stop, press=press))
        source = _swallow(view, told_anew, low, stop, kept)
        expected = segment_size(situation, source)
    anchors = view.gauge.window.log.anchors(low, stop)
    inside = tuple(index for index in sorted(kept) if low <= index < stop)
    view.hide(low, stop, inside, expected)
    _expect_state(view, situation)
    return SummaryStep(
        span=span_of(anchors), start=low, stop=stop, kept=inside, source=source, expected=expected, left=view.total,
        merged=tuple(segment.fold.id for segment, _ in told_anew),
    )  # fmt: skip


def _told_anew(view: View, situation: Situation, low: int, expected: int) -> list[tuple[Segment, int]]:
    """The segments that a new one, over rounds from `low` on, tells anew: all, when with it they would pass their
    share. One request then does what a summary and a merge do in two, and the pass gets as deep as it should.

    Only those on the same side of the newest human message, which no span swallows.
    """
    if not situation.may("merge"):
        return []
    together = sum(segment[3] for segment in view.segments)
    if together + expected <= situation.policy.segment_share * situation.budget:
        return []
    newest = view.gauge.window.log.newest_human() or 0
    side = newest if newest < low else 0
    return [(segment, tokens) for segment, start, _, tokens in view.segments if segment and start >= side]


def _swallow(view: View, old: Sequence[tuple[Segment, int]], low: int, high: int, kept: Collection[int]) -> int:
    """Take segments out of the account that a new one over `[low, high)` stands for. Returns what it replaces."""
    gone = sum(tokens for _, tokens in old)
    view.segments = [segment for segment in view.segments if not (low <= segment[1] and segment[2] <= high)]
    view.total -= gone
    return gone + sum(row.tokens + row.beside for row in view.rows if low <= row.index < high and row.index not in kept)


def _expect_state(view: View, situation: Situation) -> None:
    """Account for the STATE that is written with the first summary of a pass, in place of the one in view."""
    size = _STATE_FRAME + round(situation.policy.state_share * situation.budget) + situation.pinned
    view.total += max(0, size - view.state)
    view.state = max(size, view.state)


def segment_size(situation: Situation, source: int) -> int:
    """Tokens that a segment over so many is expected to take: bounded by the policy, and by a third of its source."""
    policy, budget = situation.policy, situation.budget
    most = min(policy.summary_tokens, round(policy.summary_share * budget))
    most += round((policy.quote_share + policy.facts_share) * budget)
    return min(_SEGMENT_FRAME + most, max(_SEGMENT_FRAME, source // 3))


def merge(view: View, situation: Situation, steps: list[Step]) -> None:
    """Merge the older half of the segments when together, with what lies between them, they pass their share.

    The newest human message is never inside a merge: only segments on one side of it are merged.
    """
    if not situation.may("merge") or not view.segments:
        return
    first, last = _lead(view, view.segments[0][1]), view.segments[-1][2]
    between = sum(row.tokens for row in view.rows if first <= row.index < last)
    if sum(segment[3] for segment in view.segments) + between <= situation.policy.segment_share * situation.budget:
        return
    old = _oldest_half(view)
    if len(old) >= 2:
        _merge_step(view, situation, old, steps)


def _merge_step(
    view: View, situation: Situation, old: Sequence[tuple[Segment, int]], steps: list[Step], *, press: bool = False
) -> None:
    """Show segments, and what may go of the rows before and between them, as one. With `press` there must be such rows:
    segments alone are not told again and again."""
    low, high = _lead(view, old[0][0].start), old[-1][0].stop
    kept = kept_in_span(view, low, high, press=press)
    gone = [row for row in view.rows if low <= row.index < high and row.index not in kept]
    loose = sum(row.tokens + row.beside for row in gone)
    source = sum(tokens for _, tokens in old) + loose
    expected = segment_size(situation, source)
    least = 0 if not situation.fits(view.total, view.size) else _LEAST_SUMMARY * situation.budget
    if source - expected < max(WORTH, source // 10, least) or (press and loose < WORTH):
        return
    _swallow(view, old, low, high, kept)
    view.hide(low, high, kept, expected)
    _expect_state(view, situation)
    steps.append(
        SummaryStep(
            span=span_of(view.gauge.window.log.anchors(low, high)),
            start=low,
            stop=high,
            kept=kept,
            source=source,
            expected=expected,
            left=view.total,
            merged=tuple(segment.fold.id for segment, _ in old),
        )
    )


def _lead(view: View, start: int) -> int:
    """Where a merge that begins with the segment at `start` may begin: behind the task. What stands there was in the
    way of an earlier span, such as a human message that was the newest then."""
    log = view.gauge.window.log
    first, newest = log.first_human(), log.newest_human()
    low = (first + 1) if first is not None else 0
    low = next((unit.start for unit in units_from(log, 0, start) if unit.start >= low), start)  # never inside a round
    return low if newest is None or not low <= newest < start else start


def release(view: View, situation: Situation, steps: list[Step]) -> None:
    """The request does not fit: merge segments with what an earlier pass kept in and between them, such as rounds whose
    answers might have come."""
    if not situation.may("merge") or not situation.readable:
        return
    newest = view.gauge.window.log.newest_human() or 0
    for before in (True, False):
        side = [
            (segment, tokens) for segment, start, _, tokens in view.segments if segment and (start < newest) is before
        ]
        if side and not situation.fits(view.total, view.size):
            _merge_step(view, situation, side, steps, press=True)


def _oldest_half(view: View) -> list[tuple[Segment, int]]:
    """The older half, and at least two, of the segments on that side of the newest human message where more tokens are.

    Segments that were only just planned are left out: they do not exist yet.
    """
    newest = view.gauge.window.log.newest_human() or 0
    there = [(segment, tokens) for segment, _, _, tokens in view.segments if segment is not None]
    sides = ([one for one in there if one[0].stop <= newest], [one for one in there if one[0].start > newest])
    side = max(sides, key=lambda found: sum(tokens for _, tokens in found) if len(found) > 1 else 0)
    return side[: max(2, len(side) // 2)]
