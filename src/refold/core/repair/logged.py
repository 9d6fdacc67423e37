"""The repair of a log itself, for those who read the state and need its pairing whole. The view needs none of this.

What is written is pairing alone: results for calls that have none, in place; results of no call, and second ones,
gone; results behind their calls; ids of calls that are missing or doubled, and doubled ids of messages. All else that
the view mends stays the view's affair. Everything is derived from the log, so that doing it twice, or after a crash,
changes nothing more; a result that comes late takes the place of the one that was written for it.

Left alone: what a summary covers already (its fold names the messages that it stands for), and calls of the newest
round that may still be answered: they wait for a tool, or for a human.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from refold.core.canonical import derived_id
from refold.core.messages import REFOLD_KEY, answers_of, calls_of
from refold.core.names import NO_NAMES, Names
from refold.core.repair import START, Front, Reason, Repaired, repair
from refold.core.rounds import settled_length

_WRITTEN: Final = frozenset({"answered", "moved", "orphan-dropped", "duplicate-dropped", "call-id"})
_LOOSE: Final = frozenset({"orphan-dropped", "duplicate-dropped"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedLog:
    """A log without faults: the next look is at what is new. `settled` messages need none, `front` is theirs."""

    messages: tuple[BaseMessage, ...] = ()
    settled: int = 0
    front: Front = START
    ids: Names = field(default=NO_NAMES, repr=False)


def check_log(messages: Sequence[BaseMessage], *, known: CheckedLog | None = None) -> CheckedLog | None:
    """The log as one that was checked, None where it has a fault that `repaired_log` mends.

    `known` is what an earlier check gave: it changes the cost, never the result.
    """
    if known is None or known.messages != tuple(messages[: len(known.messages)]):
        known = CheckedLog()
    new_ids = [message.id for message in messages[len(known.messages) :] if message.id]
    ids = known.ids.plus(new_ids)
    if len(ids) != len(known.ids) + len(new_ids):
        return None
    tail = messages[known.settled :]
    found = repair(tail, front=known.front, waiting=waiting_calls(messages))
    if any(mended.kind in _WRITTEN for mended in found.repairs):
        # The call of a loose result may stand before the tail.
        loose = known.settled and all(m.kind in _LOOSE for m in found.repairs if m.kind in _WRITTEN)
        return check_log(messages) if loose else None
    return _checked(messages, known, ids)


def accepted_log(messages: Sequence[BaseMessage]) -> CheckedLog:
    """A log that is taken as it is, faults and all: they stand where nothing may be written."""
    ids = NO_NAMES.plus(message.id for message in messages if message.id)
    return _checked(messages, CheckedLog(), ids)


def repaired_log(messages: Sequence[BaseMessage], *, start: int = 0) -> tuple[BaseMessage, ...]:
    """The log with its pairing mended; messages before `start` stay as they are. Pure and idempotent."""
    own = _with_ids(messages)
    kept = [index for index, message in enumerate(own) if index < start or not _is_synthetic(message)]
    given = [own[index] for index in kept]
    found = repair(given, waiting=waiting_calls(own), reasons=_known_reasons(own))
    ahead = [own[index] for index in kept if index < start]
    return (*ahead, *_written(given, found, len(ahead)))


def waiting_calls(messages: Sequence[BaseMessage]) -> frozenset[str]:
    """The ids of calls of the newest round that may still be answered: valid ones, after which nobody spoke."""
    newest = len(messages) - 1
    while newest >= 0 and isinstance(messages[newest], ToolMessage):
        newest -= 1
    if newest < 0 or not isinstance(messages[newest], AIMessage):
        return frozenset()
    answered = {call for message in messages[newest + 1 :] for call in answers_of(message)}
    return frozenset(call.id for call in calls_of(messages[newest]) if call.valid and call.id) - answered


def _checked(messages: Sequence[BaseMessage], known: CheckedLog, ids: Names) -> CheckedLog:
    tail = messages[known.settled :]
    settled = settled_length(tail)
    front = repair(tail[:settled], front=known.front).front
    return CheckedLog(messages=tuple(messages), settled=known.settled + settled, front=front, ids=ids)


def _written(given: Sequence[BaseMessage], found: Repaired, start: int) -> list[BaseMessage]:
    """What of a repaired view goes into the log, from the messages at `start` on."""
    kinds: dict[int, set[str]] = {}
    for mended in found.repairs:
        kinds.setdefault(mended.index, set()).add(mended.kind)
    written: list[BaseMessage] = []
    shown: set[int] = set()
    split: set[int] = set()
    owner = -1
    for message, source in zip(found.messages, found.sources, strict=True):
        if source is not None and not isinstance(message, ToolMessage):
            owner = source
        if (source if source is not None else owner) < start:
            continue
        if source is None:
            written += [message] if isinstance(message, ToolMessage) else []  # no opening words
            continue
        mine = kinds.get(source, set())
        if "result-lifted" in mine and (mine & _WRITTEN or "call-id" in kinds.get(owner, ())):
            split.add(source)  # results in a human message that are not all as they stand there
        if source in split or source not in shown:
            whole = source in split or isinstance(given[source], ToolMessage) or "call-id" in mine
            written.append(message if whole else given[source])
        shown.add(source)
    return written


def _with_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages, each doubled id replaced by one that is derived from it and the count of those before."""
    used: set[str] = set()
    own: list[BaseMessage] = []
    for message in messages:
        identity, number = message.id, 1
        while identity and identity in used:
            number += 1
            identity = derived_id("repair", "message", str(message.id), str(number))
        used.add(identity or "")
        own.append(message if identity == message.id else message.model_copy(update={"id": identity}))
    return own


def _known_reasons(messages: Sequence[BaseMessage]) -> Mapping[str, Reason]:
    """Why calls have no result, as results that were written for them say: the calls may look otherwise by now."""
    written = [message for message in messages if isinstance(message, ToolMessage) and _is_synthetic(message)]
    return {message.tool_call_id: message.additional_kwargs[REFOLD_KEY].get("reason") for message in written}


def _is_synthetic(message: BaseMessage) -> bool:
    marked = message.additional_kwargs.get(REFOLD_KEY)
    return isinstance(message, ToolMessage) and isinstance(marked, dict) and marked.get("kind") == "repair"
