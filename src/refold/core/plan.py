"""The planner: which folds, in which order, down to where.

Pure and public: `plan` is also the dry run. Between calls nothing is folded below `soft`; from there to `trigger` only
lossless folds that pay for the prefix they rewrite; at `trigger` one pass goes down to `target`, in order of loss. When
the request cannot fit at all, any message anywhere may be folded, largest first, and the deterministic floor stands
in where no summary can be had. See docs/policy.md for why deep and rare is cheaper than shallow and often.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from langchain_core.messages import ToolMessage

from refold.core.folds import FoldKind, Span, span_of
from refold.core.gauge import Gauge
from refold.core.messages import role_of
from refold.core.passes import Proposal, Scope
from refold.core.policy import Policy
from refold.core.project import Segment
from refold.core.view import Candidate, Crowd, Row, View, has_inline_media, kept_in_span, open_view, units_from

Zone: TypeAlias = Literal["under", "soft", "trigger", "overflow"]

_WORTH = 24
"""Tokens below which folding a single message is never worth an entry in the state."""
_LEAST_SUMMARY = 0.05
"""Part of the budget that a summary must free: many small segments cost more than they save, unless all else failed."""
_STATE_FRAME = 40
"""Tokens of STATE besides what its share of the budget bounds."""
_LOOK = 0.025
"""Part of the budget by which a window in the soft zone grows before it is looked at again."""
_GROWTH_CALLS = 16
"""Calls that the growth of a window is judged by."""
_SEGMENT_FRAME = 150
"""Tokens of a segment besides its summary, quotes and facts: fence, headings, paths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemStep:
    """Fold single messages by one kind. `left` are the window's tokens after this step."""

    kind: FoldKind
    targets: tuple[tuple[int, Proposal], ...]
    saved: int
    left: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryStep:
    """Show the log messages `[start, stop)`, but for `kept`, as one segment.

    `source` are the tokens that it replaces, `expected` those it is expected to take. A `merge` stands for the
    segments of the folds in `merged` and what lies between them.
    """

    span: Span
    start: int
    stop: int
    kept: tuple[int, ...]
    source: int
    expected: int
    left: int
    merged: tuple[str, ...] = ()

    @property
    def kind(self) -> FoldKind:
        return "merge" if self.merged else "summary"


Step: TypeAlias = ItemStep | SummaryStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a pass would do. Tokens are of the window's messages; `budget` is what they may take.

    `fits` says whether the window after all steps is within the budget and the byte limit.
    """

    zone: Zone
    reason: str
    budget: int
    before: int
    after: int
    size: int
    steps: tuple[Step, ...]
    fits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What the planner is told besides the window.

    `budget` is in tokens. `idle` are the seconds since the last call, None when unknown. `summaries` says whether a
    summary may be made now (`refold.core.progress`), `force` asks for a summary of all but the kept part, whatever the
    zone. `pinned` are the tokens of the pinned notes, which STATE shows whole. `deny_kinds` and `deny_keys` name what
    failed in this pass, so that a second plan goes another way.
    """

    budget: int
    policy: Policy
    scope: Scope
    idle: float | None = None
    summaries: bool = True
    force: bool = False
    overflow: bool = False
    waiting: frozenset[str] = frozenset()
    pinned: int = 0
    deny_kinds: frozenset[str] = frozenset()
    deny_keys: frozenset[tuple[str, str]] = frozenset()


def plan(gauge: Gauge, situation: Situation) -> Plan:
    """The steps for the next request, and what each leaves. No steps where nothing is due or nothing pays."""
    policy, used = situation.policy, gauge.used
    zone = zone_of(gauge, situation)
    nothing = Plan(
        zone=zone, reason="", budget=situation.budget, before=used, after=used, size=gauge.size, steps=(),
        fits=_fits(used, gauge.size, situation),
    )  # fmt: skip
    lapsed = situation.idle is not None and situation.idle > policy.cache_ttl
    if zone in ("under", "soft") and (crowded := _uncrowd(gauge, situation, used)) is not None:
        return replace(crowded, zone=zone)
    if zone == "under" and not (lapsed and used > policy.target * situation.budget):
        return nothing
    if zone == "soft" and not lapsed and not _is_time_to_look(gauge, situation):
        return nothing
    view = open_view(gauge, situation.scope, waiting=situation.waiting)
    goal = round(policy.target * situation.budget)
    if policy.body_limit is not None and gauge.size > policy.trigger * policy.body_limit:
        view.size_goal = round(policy.soft * policy.body_limit)
    steps: list[Step] = []
    if zone in ("under", "soft"):
        _cheap(view, situation, goal, steps)
        if not _pays(gauge, situation, steps, lapsed=lapsed):
            return nothing
        return _done(view, situation, zone, "cache lapsed" if lapsed else "pays for the rewrite", steps, used)
    if situation.force:
        _summarise(view, situation, 0, steps)  # what was asked for: every round before the kept part, in one segment
    _cheap(view, situation, goal, steps)
    if not view.is_down_to(goal) and situation.summaries and not situation.force:
        _summarise(view, situation, goal, steps)
    if zone == "overflow" or not _fits(view.total, view.size, situation):
        _anywhere(view, situation, steps)
    gained = (used - view.total) / situation.budget
    if view.size_goal is not None:
        gained = max(gained, (gauge.size - view.size) / (policy.body_limit or gauge.size))
    if zone == "trigger" and not situation.force and gained < policy.min_gain:
        return replace(nothing, reason="a pass would free too little")
    reason = "requested" if situation.force else zone
    return _done(view, situation, zone, reason, steps, used)


def zone_of(gauge: Gauge, situation: Situation) -> Zone:
    """Where a window stands: by its tokens, and by its bytes where they are the tighter limit."""
    policy = situation.policy
    share = gauge.used / max(1, situation.budget)
    if policy.body_limit is not None:
        share = max(share, gauge.size / policy.body_limit)
    if situation.overflow or share > 1:
        return "overflow"
    if situation.force or share >= policy.trigger:
        return "trigger"
    return "soft" if share >= policy.soft else "under"


def _done(view: View, situation: Situation, zone: Zone, reason: str, steps: Sequence[Step], used: int) -> Plan:
    return Plan(
        zone=zone, reason=reason, budget=situation.budget, before=used, after=view.total, size=view.size,
        steps=tuple(steps), fits=_fits(view.total, view.size, situation),
    )  # fmt: skip


def _fits(tokens: int, size: int, situation: Situation) -> bool:
    limit = situation.policy.body_limit
    return tokens <= situation.budget and (limit is None or size <= limit)


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


def _cheap(view: View, situation: Situation, goal: int, steps: list[Step]) -> None:
    """The lossless kinds outside the kept part, oldest first, until the goal is reached."""
    edge = keep_from(view, situation.policy.keep, situation.budget)
    old = [row for row in view.rows if row.index < edge]
    first, newest = view.gauge.window.log.first_human(), view.gauge.window.log.newest_human()
    _fold(view, situation, "args", old, goal, steps)
    with_media = [row for row in view.rows if has_inline_media(row.shown) and row.index not in (first, newest)]
    recent = {row.index for row in with_media[len(with_media) - situation.policy.media_keep :]}
    _fold(
        view,
        situation,
        "media",
        [row for row in with_media if row.index < edge and row.index not in recent],
        goal,
        steps,
    )
    if situation.policy.body_limit is not None and view.size > situation.policy.trigger * situation.policy.body_limit:
        _lighten(view, situation, with_media, steps)
    _fold(view, situation, "result", old, goal, steps)
    results = [row for row in view.rows if isinstance(row.original, ToolMessage)]
    latest = {row.index for row in results[len(results) - situation.policy.clear_keep :]}
    _fold(view, situation, "clear", [row for row in old if row.index not in latest], goal, steps)
    _fold(view, situation, "human", [row for row in old if row.index not in (first, newest)], goal, steps)


def _uncrowd(gauge: Gauge, situation: Situation, used: int) -> Plan | None:
    """Move the oldest media out where they are over their own budget, down to half of it, so that this is rare; None
    where they are not, or nothing may go. Those of the task, of the newest request and of what came after the newest
    answer stay, and so do the newest `media_keep` messages with any."""
    policy, log = situation.policy, gauge.window.log
    crowd = Crowd.of(
        gauge, most=policy.media_count, share=policy.media_share * situation.budget, size=policy.media_bytes
    )
    if not crowd.is_over(1.0):
        return None
    view = open_view(gauge, situation.scope, waiting=situation.waiting)
    answered = max((row.index for row in view.rows if role_of(row.original) == "ai"), default=0)
    rows = [row for row in view.rows if has_inline_media(row.shown)]
    ends = (log.first_human(), log.newest_human())
    old = [
        row for row in rows[: max(0, len(rows) - policy.media_keep)] if row.index < answered and row.index not in ends
    ]
    steps: list[Step] = []
    _fold(view, situation, "media", old, 0, steps, enough=lambda: not crowd.without(view).is_over(0.5))
    return _done(view, situation, "soft", "media over their budget", steps, used) if steps else None


def _lighten(view: View, situation: Situation, rows: Sequence[Row], steps: list[Step]) -> None:
    """Move media out for their bytes, oldest first, whatever their tokens (fault 96)."""
    limit = situation.policy.body_limit or 0
    _fold(view, situation, "media", rows, 0, steps, enough=lambda: view.size <= situation.policy.soft * limit)


def _fold(
    view: View,
    situation: Situation,
    kind: FoldKind,
    rows: Iterable[Row],
    goal: int,
    steps: list[Step],
    *,
    scope: Scope | None = None,
    enough: Callable[[], bool] | None = None,
) -> None:
    """Fold rows by one kind until the view is down to the goal; all that it folds is one step."""
    if not _may(situation, kind):
        return
    done: list[tuple[int, Proposal]] = []
    before = view.total
    for row in rows:
        if enough() if enough is not None else view.is_down_to(goal):
            break
        if (kind, row.key) in situation.deny_keys:
            continue
        candidate = view.candidate(row, kind, scope=scope)
        if candidate is None or not _worthwhile(candidate, by_size=enough is not None):
            continue
        view.apply(candidate, kind)
        done.append((row.index, candidate.proposal))
    if done:
        steps.append(ItemStep(kind=kind, targets=tuple(done), saved=before - view.total, left=view.total))


def _worthwhile(candidate: Candidate, *, by_size: bool) -> bool:
    if by_size:
        return candidate.size < candidate.row.size // 2
    return candidate.saved >= _WORTH


def _pays(gauge: Gauge, situation: Situation, steps: Sequence[Step], *, lapsed: bool) -> bool:
    """Whether cheap folds are worth the part of the cached prefix that they rewrite.

    Saved: the folded tokens, at the cached price, in each of the calls that come before the window reaches its trigger;
    and a part of the deep pass that is due then, which they put off. Paid once: writing everything after the earliest
    change at the full price instead of reading it. A lapsed cache has to be written anyway.
    """
    policy, budget = situation.policy, situation.budget
    saved = sum(step.saved for step in steps if isinstance(step, ItemStep))
    if saved < policy.min_gain * budget:
        return False
    if lapsed:
        return True
    earliest = min(index for step in steps if isinstance(step, ItemStep) for index, _ in step.targets)
    entry = next(i for i, entry in enumerate(gauge.window.entries) if entry.start >= earliest)
    suffix = gauge.used - saved - round(gauge.scale * gauge.sums[entry])
    cost = suffix * (policy.write_price - policy.read_price)
    calls = min(policy.expected_calls, (policy.trigger * budget - gauge.used) / growth(gauge))
    deep = policy.write_price * policy.target * budget * saved / ((policy.trigger - policy.target) * budget)
    return saved * calls * policy.read_price + deep > cost


def _is_time_to_look(gauge: Gauge, situation: Situation) -> bool:
    """Whether the window passed another `_LOOK` of the budget since its last request. What could be folded changes
    little from call to call, and to find it out is the dearest part of a call in the soft zone."""
    entries = gauge.window.entries
    last = next((i for i in range(len(entries) - 1, -1, -1) if role_of(entries[i].message) == "ai"), 0)
    before = gauge.used - gauge.scale * (gauge.sums[-1] - gauge.sums[last])
    step = _LOOK * situation.budget
    return gauge.used // step != before // step or before < situation.policy.soft * situation.budget


def growth(gauge: Gauge) -> float:
    """Tokens by which the window grows from call to call, by the newest of its rounds; at least 1."""
    entries = gauge.window.entries
    first, calls = len(entries), 0
    while first > 0 and calls < _GROWTH_CALLS and entries[first - 1].kind in ("log", "item", "repair"):
        first -= 1
        calls += role_of(entries[first].message) == "ai"
    return max(1.0, gauge.scale * (gauge.sums[-1] - gauge.sums[first]) / max(1, calls))


def _summarise(view: View, situation: Situation, goal: int, steps: list[Step], *, edge: int | None = None) -> None:
    """Summarise the oldest visible rounds, as many as the goal needs, split at the newest human message."""
    if not _may(situation, "summary") or not _readable(situation):
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
    _merge(view, situation, steps)


def _may(situation: Situation, kind: str) -> bool:
    """Whether a kind of fold is wanted, and did not fail in this pass."""
    return kind in situation.policy.kinds and kind not in situation.deny_kinds


def _readable(situation: Situation) -> bool:
    """A summary hides whole messages, so there must be a way back: a file to read, or the log itself."""
    return situation.scope.file_reader is not None or situation.scope.log_reader is not None


def _span_step(view: View, situation: Situation, low: int, high: int, goal: int) -> SummaryStep | None:
    """The shortest span from `low`, of whole units and at most to `high`, that brings the view down to the goal."""
    press = situation.overflow or not _fits(view.total, view.size, situation)
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
    if stop <= low or source - expected < max(_WORTH, source // 10, least):
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
    if not _may(situation, "merge"):
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


def _merge(view: View, situation: Situation, steps: list[Step]) -> None:
    """Merge the older half of the segments when together, with what lies between them, they pass their share.

    The newest human message is never inside a merge: only segments on one side of it are merged.
    """
    if not _may(situation, "merge") or not view.segments:
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
    least = 0 if not _fits(view.total, view.size, situation) else _LEAST_SUMMARY * situation.budget
    if source - expected < max(_WORTH, source // 10, least) or (press and loose < _WORTH):
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


def _release(view: View, situation: Situation, steps: list[Step]) -> None:
    """The request does not fit: merge segments with what an earlier pass kept in and between them, such as rounds whose
    answers might have come."""
    if not _may(situation, "merge") or not _readable(situation):
        return
    newest = view.gauge.window.log.newest_human() or 0
    for before in (True, False):
        side = [
            (segment, tokens) for segment, start, _, tokens in view.segments if segment and (start < newest) is before
        ]
        if side and not _fits(view.total, view.size, situation):
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


def _anywhere(view: View, situation: Situation, steps: list[Step]) -> None:
    """The request does not fit: fold any message anywhere, largest first, the tail included, until it does."""
    goal = round(min(situation.policy.trigger, 0.9) * situation.budget)
    log = view.gauge.window.log
    first, newest = log.first_human(), log.newest_human()

    def largest(rows: Iterable[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (-row.tokens, row.index))

    others = [row for row in view.rows if row.index not in (first, newest)]
    limit = situation.policy.body_limit
    if limit is not None and view.size > situation.policy.trigger * limit:
        _lighten(view, situation, [row for row in others if has_inline_media(row.shown)], steps)
    for kind in ("result", "args", "media"):
        _fold(view, situation, kind, largest(others), goal, steps)
    if not view.is_down_to(goal):
        last = next((unit.start for unit in reversed(view.units) if unit.has_ai), len(log))
        _summarise(view, situation, goal, steps, edge=last)
    others = [row for row in view.rows if row.index not in (first, newest)]
    _fold(view, situation, "clear", largest(view.rows), goal, steps)
    _fold(view, situation, "human", largest(others), goal, steps)
    if not _fits(view.total, view.size, situation):
        every = replace(situation.scope, policy=replace(situation.policy, exclude_tools=frozenset()))
        _fold(view, situation, "clear", largest(view.rows), goal, steps, scope=every)
    if not _fits(view.total, view.size, situation):
        _summarise(view, situation, goal, steps, edge=len(log))
    _release(view, situation, steps)
    terse = replace(situation.policy, human_min=situation.policy.human_min // 10, preview=situation.policy.preview // 4)
    short = replace(situation.scope, policy=terse)
    for row in _last_resort(view, situation):
        if limit is not None and view.size > limit:
            _lighten(view, situation, [row], steps)
        _fold(view, situation, "media", [row], situation.budget, steps)
        _fold(view, situation, "human", [row], situation.budget, steps, scope=short)


def _last_resort(view: View, situation: Situation) -> list[Row]:
    """Human messages in the order in which they may leave when nothing else helps: others, the task, the newest; the
    newest before the task only where it alone does not fit."""
    log = view.gauge.window.log
    first, newest = log.first_human(), log.newest_human()
    ends = {row.index: row for row in view.rows if row.index in (first, newest)}
    order = [ends[index] for index in sorted(ends)]
    if newest in ends and ends[newest].tokens > situation.budget:
        order.reverse()
    others = (row for row in view.rows if row.index not in ends and role_of(row.original) == "human")
    return [*sorted(others, key=lambda row: (-row.tokens, row.index)), *order]
