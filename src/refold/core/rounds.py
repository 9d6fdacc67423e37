"""Rounds: which results answer which calls, and where a history may be cut.

Pairing is by order, not by id alone: some servers use the same id again in every round, and two AI messages may have
their results interleaved. A result answers the latest call before it with its id that is still open; a result with no
open call is an orphan. A history may be cut only where no call before the cut is answered after it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from refold.core.blocks import blocks_of
from refold.core.messages import Call, answers_of, awaits_server_result, calls_of


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedCall:
    """A call, the index of the message that made it, and of the message that answers it (None: unanswered)."""

    call: Call
    made_by: int
    answered_by: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """How calls and answers of a message list belong together. Indexes are into that list."""

    calls: tuple[PairedCall, ...]
    orphans: tuple[tuple[int, str], ...]
    """(index, call id) of each answer that answers nothing, or a call that was answered before."""

    def unanswered(self) -> tuple[PairedCall, ...]:
        return tuple(paired for paired in self.calls if paired.answered_by is None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """The smallest run of messages that a cut may not split: `[start, stop)`.

    A unit with an AI message is a round (or several, when their results are interleaved). `open` says that a call in
    it has no answer, or a server tool of Anthropic no result yet (`running`): what comes later may still belong to it.
    """

    start: int
    stop: int
    has_ai: bool
    open: bool
    running: bool = False

    def __len__(self) -> int:
        return self.stop - self.start


def pair(messages: Sequence[BaseMessage]) -> Pairing:
    """Match every answer of a message list to its call, in linear time.

    Within a message, calls with the same id are answered in the order in which they were made. A missing id counts as
    the empty one, so that servers without ids pair by order.
    """
    made: list[tuple[Call, int]] = []
    answered: dict[int, int] = {}
    open_calls: dict[str, list[deque[int]]] = {}
    orphans: list[tuple[int, str]] = []
    for index, message in enumerate(messages):
        for call_id in answers_of(message):
            waiting = open_calls.get(call_id)
            if waiting:
                answered[waiting[-1].popleft()] = index
                if not waiting[-1]:
                    waiting.pop()
            else:
                orphans.append((index, call_id))
        mine: dict[str, deque[int]] = {}
        for call in calls_of(message):
            mine.setdefault(call.id or "", deque()).append(len(made))
            made.append((call, index))
        for call_id, numbers in mine.items():
            open_calls.setdefault(call_id, []).append(numbers)
    return Pairing(
        calls=tuple(
            PairedCall(call=call, made_by=index, answered_by=answered.get(number))
            for number, (call, index) in enumerate(made)
        ),
        orphans=tuple(orphans),
    )


def units_of(messages: Sequence[BaseMessage]) -> tuple[Unit, ...]:
    """Partition a message list at every place where it may be cut, in linear time.

    Besides calls and their answers, a server-side call stays with its result, also when they stand in two messages.
    """
    reach = list(range(len(messages)))
    paired = pair(messages)
    unanswered = {call.made_by for call in paired.unanswered()}
    for call in paired.calls:
        if call.answered_by is not None:
            reach[call.made_by] = max(reach[call.made_by], call.answered_by)
    spans, running = _server_spans(messages)
    for start, stop in spans:
        reach[start] = max(reach[start], stop)
    units: list[Unit] = []
    start, far = 0, -1
    for index in range(len(messages)):
        far = max(far, reach[index])
        if index >= far:
            run = range(start, index + 1)
            units.append(
                Unit(
                    start=start,
                    stop=index + 1,
                    has_ai=any(isinstance(messages[i], AIMessage) for i in run),
                    open=any(i in unanswered or i in running for i in run),
                    running=any(i in running for i in run),
                )
            )
            start = index + 1
    return tuple(units)


def settled_length(messages: Sequence[BaseMessage]) -> int:
    """How many leading messages form whole units that only a late answer to one of their calls can change: all but the
    newest unit, and those from the first whose server tool still runs."""
    settled = 0
    for unit in units_of(messages)[:-1]:
        if unit.running:
            break
        settled = unit.stop
    return settled


def _server_spans(messages: Sequence[BaseMessage]) -> tuple[list[tuple[int, int]], set[int]]:
    """Server-side tools whose result stands in a later message, as (index of the call, index of the result), and the
    indexes of those that still wait for it: no human message has ended their turn yet."""
    open_calls: dict[str, int] = {}
    running: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for index, message in enumerate(messages):
        if isinstance(message, HumanMessage) and not answers_of(message):
            running.clear()
        for block in () if isinstance(message.content, str) else blocks_of(message):
            if block.call_id is None:
                continue
            if block.kind == "server_call":
                open_calls[block.call_id] = index
                if awaits_server_result(message, block):
                    running[block.call_id] = index
            elif block.kind == "server_result":
                running.pop(block.call_id, None)
                if (start := open_calls.pop(block.call_id, index)) != index:
                    spans.append((start, index))
    return spans, set(running.values())
