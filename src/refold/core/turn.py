"""One model call, as a program: project, measure, fold where due, check, send; on a refusal learn, fold deeper, resend.

    log, folds --project--> window --measure--> used vs budget --compact--> window' --check--> model
                                                    ^                                           | refused as too long
                                                    +------------- learn the true limit <-------+

Between two folds a request extends the one before it byte by byte. A request that does not fit, or breaks the rules of
its provider, is never sent: the typed error says why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.canonical import Json
from refold.core.compact import compact_gen
from refold.core.compaction import Compaction, Veto
from refold.core.effects import CallModel, Failure, LearnLimit, Report, Room
from refold.core.gauge import Gauge, measure
from refold.core.limits import Budget, budget
from refold.core.media_rules import MediaRules, rules_of
from refold.core.meter import Count, Meter
from refold.core.outcome import outcome_text
from refold.core.overflow import Overflow
from refold.core.program import Program
from refold.core.project import project
from refold.core.repair import repair
from refold.core.screen import screen_gen, send_gen
from refold.core.validate import Provider, violations
from refold.errors import ContextOverflowError, FoldVetoedError, InvalidWindowError, LargestMessage

_LARGEST = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Everything that one model call is given. `compaction.room` is filled in once the window is measured.

    `previous` is the gauge of an earlier call of the thread, if at hand: it changes the cost, never the result.
    """

    messages: Sequence[BaseMessage]
    folds: Sequence[Mapping[str, Json]]
    system: Count
    tools: Count
    meter: Meter
    scale: float
    room: Room
    compaction: Compaction
    provider: Provider
    previous: Gauge | None = None
    same_model: Callable[[AIMessage], bool] = lambda message: True
    media: MediaRules | None = None
    """What media the model takes; None for what its provider's rules say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A response, the folds that must be committed with it, the gauge of the request that was answered, and how the
    model's window was divided for it; `vetoed` is for the thread's next call (`Compaction.vetoed`)."""

    response: object
    folds: tuple[Mapping[str, Json], ...]
    gauge: Gauge
    room: Budget
    vetoed: Veto | None = None


def model_call_gen(turn: Turn) -> Program[Outcome]:
    """Make one model call within its limits.

    Raises `ContextOverflowError` where no fold can make it fit, `ConfigurationError` where the output cap leaves no
    room, `InvalidWindowError` where a fold would break the provider's rules, `FoldVetoedError` where the hook refused
    what the request cannot do without; and whatever the model raises that is no overflow.
    """
    gauge, room = open_gauge(turn), turn.room
    yield from _report_gen(turn, gauge)
    rules = turn.media or rules_of(turn.provider, {})
    screened = yield from screen_gen(gauge, rules, turn.compaction.scope)
    gauge, made = screened.gauge, [*screened.folds]
    vetoed, refusal, note = False, None, ""
    for _ in range(turn.compaction.policy.overflow_retries + 1):
        job = fit_compaction(turn, gauge, room, overflow=refusal is not None)
        before = (gauge.used, gauge.size)
        done = yield from compact_gen(job, gauge)
        gauge, vetoed = done.gauge, vetoed or done.vetoed
        made += done.folds
        if refusal is not None and gauge.used >= before[0] and gauge.size >= before[1]:
            raise overflow_error(
                "the provider refused the request and nothing is left to fold", gauge, job.room
            ) from refusal
        check_fits(gauge, job, guessed=room.limits.source == "default", vetoed=vetoed)
        check_valid(turn, gauge)
        free = job.budget - gauge.used
        if job.force and refusal is None:
            note = outcome_text(
                done.folds, before=before[0], after=gauge.used, budget=job.budget, vetoed=done.vetoed
            )  # fmt: skip
        call = partial(_call, over=free < 0, free=free, note=note)
        sent = yield from send_gen(gauge, turn.compaction.scope, call)
        gauge, answer = sent.screened.gauge, sent.answer
        made += sent.screened.folds
        if not isinstance(answer, Failure):
            return Outcome(
                response=answer, folds=tuple(made), gauge=gauge, room=job.room,
                vetoed=done.veto or job.vetoed,
            )  # fmt: skip
        refusal, overflow = answer.error, answer.overflow or Overflow()
        size = gauge.used + gauge.fixed
        yield from Report(event="overflow", data={"sent": size, "bytes": gauge.size, "limit": overflow.limit})
        room = yield from LearnLimit(overflow=overflow, sent=size, size=gauge.size, scale=gauge.scale)
    raise overflow_error("the provider refused the request as too long, again and again", gauge, job.room) from refusal


def _call(gauge: Gauge, *, over: bool, free: int, note: str) -> CallModel:
    return CallModel(messages=gauge.window.messages, over=over, free=free, note=note)


def _report_gen(turn: Turn, gauge: Gauge) -> Program[None]:
    """Say which folds do not act, once for as long as it is the same ones."""
    window = gauge.window
    known = turn.previous.window if turn.previous is not None else None
    if known is None or known.void != window.void:
        for lost in window.void:
            yield from Report(event="fold_void", data={"fold": lost.fold, "reason": lost.reason})
    if known is None or known.unreadable != window.unreadable:
        for other in window.unreadable:
            yield from Report(event="fold_ignored", data={"fold": other.id, "reason": other.reason})


def open_gauge(turn: Turn) -> Gauge:
    """The measured window of a turn, before any fold of its own."""
    previous = turn.previous
    window = project(turn.messages, turn.folds, previous=previous.window if previous is not None else None)
    return measure(
        window, turn.meter, system=turn.system, tools=turn.tools, scale=turn.scale, previous=previous,
        same_model=turn.same_model,
    )  # fmt: skip


def fit_compaction(turn: Turn, gauge: Gauge, room: Room, *, overflow: bool = False) -> Compaction:
    """The compaction job within a room.

    Raises `ContextOverflowError` when system prompt and tools alone fill it, `ConfigurationError` when the output cap
    leaves no room for messages.
    """
    limits = room.limits
    if room.learned is not None and limits.source == "learned":
        limits = replace(limits, input=room.learned.ceiling(gauge.scale) or limits.input)
    tools = round(gauge.scale * gauge.tools.tokens)
    divided = budget(
        limits, reserve=room.reserve, system=gauge.fixed - tools, tools=tools,
        learned_output=room.learned.output if room.learned is not None else None,
    )  # fmt: skip
    policy = replace(turn.compaction.policy, body_limit=room.body_limit)
    return replace(turn.compaction, room=divided, policy=policy, overflow=overflow)


def check_fits(gauge: Gauge, job: Compaction, *, guessed: bool, vetoed: bool) -> None:
    """Raise where a window is over its budget or its body over the byte limit.

    A limit that no one declared (`guessed`) refuses nothing: the provider's own refusal teaches the true one.
    """
    over = gauge.used > job.budget and not guessed
    heavy = job.policy.body_limit is not None and gauge.size > job.policy.body_limit
    if not over and not heavy:
        return
    if vetoed:
        raise FoldVetoedError(
            "the before_fold hook refused folds without which the request does not fit: "
            f"{gauge.used} tokens of messages for {job.budget}, {gauge.size} bytes for {job.policy.body_limit}"
        )
    if heavy and not over:
        raise overflow_error(f"the request body has {gauge.size} bytes, over {job.policy.body_limit}", gauge, job.room)
    raise overflow_error("the window does not fit, although everything that may be folded is", gauge, job.room)


def check_valid(turn: Turn, gauge: Gauge) -> None:
    """Raise where a window breaks a structural rule that the log by itself does not.

    Only what changed since the last call is looked at. What the user's own log breaks is the provider's to judge.
    """
    window = gauge.window
    start = 0
    if turn.previous is not None and window.grown_from is turn.previous.window.entries:
        settled = turn.previous.window.settled
        start = settled if settled <= window.shared else 0  # a late answer changed what was settled
    new = [entry.message for entry in window.entries[start:]]
    found = violations(new, turn.provider, continues=start > 0)
    if not found:
        return
    own = {broken.rule for broken in violations(repair(list(window.log.messages)).messages, turn.provider)}
    ours = [broken for broken in found if broken.rule not in own]
    if ours:
        raise InvalidWindowError(
            f"the window breaks the rules of {turn.provider}: "
            + "; ".join(f"{v.rule} at message {start + v.index} ({v.detail})" for v in ours[:3])
        )


def overflow_error(reason: str, gauge: Gauge, room: Budget) -> ContextOverflowError:
    """The typed error with the numbers of a window that cannot be sent."""
    entries = gauge.window.entries
    order = sorted(range(len(entries)), key=lambda index: -gauge.tokens(index))[:_LARGEST]
    return ContextOverflowError(
        reason,
        limit=room.limit,
        reserved=room.reserved,
        system=room.system,
        tools=room.tools,
        messages=gauge.used,
        largest=[
            LargestMessage(message_id=str(entries[i].message.id), type=entries[i].message.type, tokens=gauge.tokens(i))
            for i in order
        ],
    )
