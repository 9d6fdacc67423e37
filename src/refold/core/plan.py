"""The planner: which folds, in which order, down to where.

Pure and public: `plan` is also the dry run. Between calls nothing is folded below `soft`; from there to `trigger` only
lossless folds that pay for the prefix they rewrite; at `trigger` one pass goes down to `target`, in order of loss. When
the request cannot fit at all, any message anywhere may be folded, largest first, and the deterministic floor stands
in where no summary can be had. See docs/policy.md for why deep and rare is cheaper than shallow and often.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from langchain_core.messages import ToolMessage

from refold.core.folds import FoldKind
from refold.core.gauge import Gauge
from refold.core.messages import role_of
from refold.core.passes import Proposal, Scope
from refold.core.situation import WORTH, ItemStep, Plan, Situation, Step, Zone
from refold.core.spans import keep_from, release, summarise
from refold.core.view import Candidate, Crowd, Row, View, has_inline_media, open_view

_LOOK = 0.025
"""Part of the budget by which a window in the soft zone grows before it is looked at again."""
_GROWTH_CALLS = 16
"""Calls that the growth of a window is judged by."""


def plan(gauge: Gauge, situation: Situation) -> Plan:
    """The steps for the next request, and what each leaves. No steps where nothing is due or nothing pays."""
    policy, used = situation.policy, gauge.used
    zone = zone_of(gauge, situation)
    nothing = Plan(
        zone=zone, reason="", budget=situation.budget, before=used, after=used, size=gauge.size, steps=(),
        fits=situation.fits(used, gauge.size),
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
        summarise(view, situation, 0, steps)  # what was asked for: every round before the kept part, in one segment
    _cheap(view, situation, goal, steps)
    if not view.is_down_to(goal) and situation.summaries and not situation.force:
        summarise(view, situation, goal, steps)
    if zone == "overflow" or not situation.fits(view.total, view.size):
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
        steps=tuple(steps), fits=situation.fits(view.total, view.size),
    )  # fmt: skip


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
    if not situation.may(kind):
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
    return candidate.saved >= WORTH


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
        summarise(view, situation, goal, steps, edge=last)
    others = [row for row in view.rows if row.index not in (first, newest)]
    _fold(view, situation, "clear", largest(view.rows), goal, steps)
    _fold(view, situation, "human", largest(others), goal, steps)
    if not situation.fits(view.total, view.size):
        every = replace(situation.scope, policy=replace(situation.policy, exclude_tools=frozenset()))
        _fold(view, situation, "clear", largest(view.rows), goal, steps, scope=every)
    if not situation.fits(view.total, view.size):
        summarise(view, situation, goal, steps, edge=len(log))
    release(view, situation, steps)
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
