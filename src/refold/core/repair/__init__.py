"""Repair of a view: a history that breaks the rules of pairing, shown so that every provider takes it.

The log is not touched. What is shown instead is derived from the messages alone, so the same log gives the same view,
and a history that breaks no rule gives the very same message objects (fault 81).

What is mended: unanswered calls get a result that says why there is none; results that stand away from their call come
to it, those of no call and second ones go; calls get the id, name and arguments that they lack, in every spelling at
once; messages without content say so; reasoning, item ids and server-tool blocks that lost their other half go. A
history that starts with the model's words gets a human message before them.

What is left: a second AI message in a row that calls a tool (Gemini refuses it), system messages that Anthropic takes
only elsewhere, and blocks that one provider made and another does not know.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.canonical import derived_id
from refold.core.messages import REFOLD_KEY, with_content
from refold.core.names import NO_NAMES, Names, Seen
from refold.core.repair.calls import CallIds, ShownCall, shown_calls, with_calls
from refold.core.repair.reasoning import EMPTY_ANSWER, detached, drop_bound_reasoning, unchained, without_blocks
from refold.core.repair.results import Reason, anchor, retargeted, split_results, synthetic_result
from refold.core.rounds import PairedCall, pair
from refold.core.validate.anthropic import loose_server_blocks
from refold.core.validate.openai_responses import repeated_items
from refold.core.validate.shape import (
    Shape,
    is_blank,
    is_unsigned_thinking,
    is_void,
    lacks_reasoning,
    shapes_of,
    trailing_reasoning,
)

__all__ = [
    "EMPTY_ANSWER",
    "START",
    "Front",
    "Reason",
    "Repair",
    "RepairKind",
    "Repaired",
    "drop_bound_reasoning",
    "repair",
    "unchained",
]

RepairKind: TypeAlias = Literal[
    "answered",
    "moved",
    "orphan-dropped",
    "duplicate-dropped",
    "call-id",
    "call-name",
    "call-arguments",
    "call-lifted",
    "result-lifted",
    "empty-filled",
    "reasoning-dropped",
    "server-block-dropped",
    "opened",
]

EMPTY_MESSAGE: Final = "(empty message)"
OPENING: Final = "(The conversation starts with the assistant's message.)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """One thing that the view shows differently: at which message of the list given, for which call, and why."""

    kind: RepairKind
    index: int
    detail: str
    call_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Front:
    """What the repair of later messages must know of those before them: the ids in use, and whether any was there."""

    calls: Names = NO_NAMES
    items: Names = NO_NAMES
    opened: bool = False


START: Final = Front()
"""The front of a whole history: nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaired:
    """The view, and how it differs from what was given; without repairs it holds the very same message objects.

    `sources` says for each message of the view which message given it shows, None where it shows none. `front` is for
    the repair of messages that come after these.
    """

    messages: tuple[BaseMessage, ...]
    repairs: tuple[Repair, ...]
    sources: tuple[int | None, ...]
    front: Front


def repair(
    messages: Sequence[BaseMessage],
    *,
    waiting: frozenset[str] = frozenset(),
    reasons: Mapping[str, Reason] | None = None,
    front: Front = START,
) -> Repaired:
    """Show a history so that all four providers take its form. Linear in what is given; pure.

    `waiting` are ids of calls that wait for a human: they are left without a result. `reasons` says by call id why a
    call has none; the default is `malformed` where the arguments do not parse and otherwise `unknown`, which claims
    nothing. After it `violations` finds nothing for histories of well-formed messages with any results missing, doubled
    or out of place; the module says what else is mended and what is left.

        repair([HumanMessage("go"), AIMessage("", tool_calls=[call])]).messages[-1].status  # "error"

    A long history may be repaired piece by piece: cut behind a unit (`settled_length`), and give the `front` of the
    first piece to the second. The pieces together are then the view of the whole, as long as no answer in the second
    belongs to a call in the first.
    """
    entries, sources, lifted = _split(messages)
    work = _Work(
        entries=entries,
        sources=sources,
        waiting=waiting,
        reasons=reasons or {},
        repairs=lifted,
        opened=front.opened,
        ids=CallIds(used=Seen(before=front.calls)),
        items=Seen(before=front.items),
    )
    view = tuple(work.run())
    after = Front(calls=work.ids.used.all(), items=work.items.all(), opened=work.opened)
    if not work.repairs:
        return Repaired(messages=tuple(messages), repairs=(), sources=tuple(range(len(messages))), front=after)
    repairs = tuple(sorted(work.repairs, key=lambda done: done.index))
    return Repaired(
        messages=tuple(message for message, _ in view),
        repairs=repairs,
        sources=tuple(None if entry is None else sources[entry] for _, entry in view),
        front=after,
    )


def _split(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[int], list[Repair]]:
    """The messages with results in human messages set free, the index that each came from, and what was set free."""
    entries: list[BaseMessage] = []
    sources: list[int] = []
    lifted: list[Repair] = []
    for source, message in enumerate(messages):
        parts = split_results(message)
        entries += parts
        sources += [source] * len(parts)
        if parts[0] is not message:
            detail = "results in a human message are shown as tool messages"
            lifted.append(Repair(kind="result-lifted", index=source, detail=detail))
    return entries, sources, lifted


@dataclass(kw_only=True)
class _Work:
    """One repair under way. `entries` are what is repaired, `sources` where each stood in what was given."""

    entries: Sequence[BaseMessage]
    sources: Sequence[int]
    waiting: frozenset[str]
    reasons: Mapping[str, Reason]
    repairs: list[Repair]
    opened: bool
    ids: CallIds
    items: Seen

    def run(self) -> Iterator[tuple[BaseMessage, int | None]]:
        """The messages of the view, each with the entry that it shows."""
        shapes = shapes_of(self.entries)
        pairing = pair(self.entries)
        calls: dict[int, list[PairedCall]] = {}
        for paired in pairing.calls:
            calls.setdefault(paired.made_by, []).append(paired)
        self._note_orphans(shapes, pairing.orphans)
        loose: dict[int, set[int]] = {}
        for index, block in loose_server_blocks(shapes):
            loose.setdefault(index, set()).add(block.index)
        owners = _owners(self.entries)
        for index, (entry, shape) in enumerate(zip(self.entries, shapes, strict=True)):
            if isinstance(entry, ToolMessage):
                continue  # it stands behind its call
            if not self.opened and not isinstance(entry, SystemMessage):
                self.opened = True
                yield from self._open(index, entry)
            if isinstance(entry, AIMessage):
                mine = calls.get(index, [])
                shown = shown_calls(entry, [paired.call for paired in mine], self.ids)
                self._note_calls(index, shown)
                yield self._mend_ai(index, shape, with_calls(entry, shown), loose.get(index, set())), index
                yield from self._results(index, mine, shown, owners)
            else:
                yield (self._mend_human(index, shape) if isinstance(entry, HumanMessage) else entry), index

    def _results(
        self, index: int, calls: Sequence[PairedCall], shown: Sequence[ShownCall], owners: Sequence[int]
    ) -> Iterator[tuple[BaseMessage, int | None]]:
        """The results of one AI message: the real ones as they stand, then those that are made."""
        answers = {paired.answered_by: call.id for paired, call in zip(calls, shown, strict=True)}
        for answer in sorted(at for at in answers if at is not None):
            result = self.entries[answer]
            if isinstance(result, ToolMessage):
                if owners[answer] != index:
                    self._note("moved", answer, "its call is not in the message before it", answers[answer])
                yield retargeted(result, answers[answer]), answer
        for paired, call in zip(calls, shown, strict=True):
            waits = paired.call.valid and paired.call.id in self.waiting  # malformed ones are never run
            if paired.answered_by is None and not call.call.native and not waits:
                reason = self.reasons.get(paired.call.id or "", "unknown" if paired.call.valid else "malformed")
                self._note("answered", index, reason, call.id)
                yield synthetic_result(self.entries[index], call_id=call.id, name=call.name, reason=reason), None

    def _mend_human(self, index: int, shape: Shape) -> BaseMessage:
        message, blocks = shape.message, shape.blocks
        if is_blank(message, blocks):
            self._note("empty-filled", index, "a human message without content")
            return with_content(message, EMPTY_MESSAGE)
        if any(block.kind == "text" and not block.text for block in blocks):
            self._note("empty-filled", index, "an empty text block beside others is left out")
            return with_content(message, [b.raw for b in blocks if b.kind != "text" or b.text])
        return message

    def _mend_ai(self, index: int, shape: Shape, message: AIMessage, loose: set[int]) -> AIMessage:
        """What is empty, doubled or cut in half in the content. Changed calls keep their places in it."""
        if is_void(message, shape.blocks, shape.calls):
            self._note("empty-filled", index, "an AI message without text and calls")
            return message.model_copy(update={"content": EMPTY_ANSWER})
        if not shape.blocks:
            return message
        if loose:
            self._note("server-block-dropped", index, "a server tool use without its result, or the reverse")
        bound = trailing_reasoning(shape)
        bound |= {block.index for block in shape.blocks if is_unsigned_thinking(message, block)}
        if bound:
            self._note("reasoning-dropped", index, "reasoning that is unsigned, or not followed by what it led to")
        if dropped := bound | loose:
            message = without_blocks(message, lambda block: block.index in dropped)
        if repeated_items(shape.blocks, self.items) or lacks_reasoning(shape):
            self._note("reasoning-dropped", index, "item ids that occur twice, or whose reasoning item is gone")
            message = detached(message)
        return message

    def _open(self, index: int, entry: BaseMessage) -> Iterator[tuple[BaseMessage, None]]:
        if isinstance(entry, AIMessage):
            self._note("opened", index, "the conversation starts with an AI message")
            made = derived_id("repair", "opening", anchor(entry))
            yield HumanMessage(OPENING, id=made, additional_kwargs={REFOLD_KEY: {"kind": "repair"}}), None

    def _note(self, kind: RepairKind, index: int, detail: str, call_id: str | None = None) -> None:
        self.repairs.append(Repair(kind=kind, index=self.sources[index], detail=detail, call_id=call_id))

    def _note_orphans(self, shapes: Sequence[Shape], orphans: Sequence[tuple[int, str]]) -> None:
        lost = {index: call_id for index, call_id in orphans if isinstance(self.entries[index], ToolMessage)}
        called: set[str] = set()
        for index, shape in enumerate(shapes) if lost else ():
            called.update(call.id or "" for call in shape.calls)
            if index not in lost:
                continue
            if lost[index] in called:
                self._note("duplicate-dropped", index, "the call has a result already", lost[index])
            else:
                self._note("orphan-dropped", index, "no call with this id comes before it", lost[index])

    def _note_calls(self, index: int, shown: Sequence[ShownCall]) -> None:
        for call in shown:
            if "id" in call.changes:
                self._note("call-id", index, f"shown for the id {call.call.id!r}", call.id)
            if "name" in call.changes:
                self._note("call-name", index, f"shown as {call.name!r}", call.id)
            if "arguments" in call.changes:
                self._note("call-arguments", index, "arguments that are no JSON object are shown as text", call.id)
            if "lifted" in call.changes:
                self._note("call-lifted", index, "a call that stands only in the content", call.id)


def _owners(entries: Sequence[BaseMessage]) -> list[int]:
    """For each message, the last one up to it that is no tool message: what a result stands behind."""
    owners, owner = [], -1
    for index, entry in enumerate(entries):
        if not isinstance(entry, ToolMessage):
            owner = index
        owners.append(owner)
    return owners
