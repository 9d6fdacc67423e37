"""From the records of a recording to a well-formed log.

Recordings split one model reply over several records, put results late or early, repeat ids. `transcript_of` mends the
order and never the content:

1. Records of the same reply (`Entry.reply`) become one `AIMessage`, also when results of its first calls stand between.
2. Adjacent assistant messages become one: a call must follow a user turn or a result (Gemini refuses other histories).
3. A result goes behind the call that it answers, after the results that are there already.
4. Every message gets an id; calls without one get theirs from `CallIds`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata

from refold.core.blocks import blocks_of
from refold.core.canonical import derived_id
from refold.core.messages import text_of
from refold.core.rounds import pair
from refold.replay.transcript import Compaction, ToolSchema, Transcript, with_ids


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One message as recorded. `reply` names the model reply that an assistant record is a part of."""

    message: BaseMessage
    time: datetime | None = None
    reply: str | None = None


@dataclass(kw_only=True)
class Draft:
    """A dialogue while it is being read. Readers fill it in; `transcript_of` makes the transcript."""

    entries: list[Entry] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    tools: tuple[ToolSchema, ...] = ()
    model: str | None = None
    compactions: list[tuple[int, Compaction]] = field(default_factory=list)
    subagents: tuple[Transcript, ...] = ()

    def add(self, message: BaseMessage, *, time: datetime | None = None, reply: str | None = None) -> None:
        self.entries.append(Entry(message=message, time=time, reply=reply))

    def compacted(self, *, summary: str = "", tokens_before: int | None = None) -> None:
        """Note that the recorded agent shortened its context here."""
        self.compactions.append(
            (len(self.entries), Compaction(position=0, summary=summary, tokens_before=tokens_before))
        )


class CallIds:
    """Ids for calls that were recorded without one, and the calls that results without an id answer."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str]] = []
        self._made = 0

    def made(self, name: str, recorded: object) -> str:
        """The id of a call: the recorded one, or one derived from its number and name."""
        self._made += 1
        call_id = recorded if isinstance(recorded, str) and recorded else _derived_call(name, self._made)
        self._open.append((call_id, name))
        return call_id

    def answered(self, name: str | None, recorded: object) -> str:
        """The id that a result answers: the recorded one, else the oldest open call of that name, else the only open.

        A result that answers nothing gets an id that no call has.
        """
        if isinstance(recorded, str) and recorded:
            at = next((i for i in reversed(range(len(self._open))) if self._open[i][0] == recorded), None)
        else:
            named = [i for i, (_, made_by) in enumerate(self._open) if name is not None and made_by == name]
            only = [0] if len(self._open) == 1 and name is None else []
            at = next(iter(named or only), None)
        if at is not None:
            return self._open.pop(at)[0]
        if isinstance(recorded, str) and recorded:
            return recorded
        self._made += 1
        return _derived_call(name or "orphan", -self._made)


def transcript_of(draft: Draft, *, name: str, format: str) -> Transcript:
    """The well-formed transcript of a draft. Raises nothing; an empty draft gives an empty transcript."""
    leading = 0
    while leading < len(draft.entries) and _is_plain_system(draft.entries[leading].message):
        leading += 1
    system = [*draft.system, *(text_of(entry.message) for entry in draft.entries[:leading])]
    marked = [(max(0, at - leading), note) for at, note in draft.compactions]
    entries, compactions = _whole_replies(draft.entries[leading:], marked)
    ordered = _adjacent_merged(_results_behind_calls(entries))
    return Transcript(
        name=name,
        format=format,
        system="\n\n".join(text for text in system if text) or None,
        tools=draft.tools,
        messages=with_ids([entry.message for entry in ordered]),
        times=tuple(entry.time for entry in ordered) if any(entry.time for entry in ordered) else (),
        model=draft.model,
        compactions=compactions,
        subagents=draft.subagents,
    )


def merged(first: AIMessage, second: AIMessage) -> AIMessage:
    """One assistant message that says what two said, in order; exact repeats of a call are kept once."""
    calls = list(first.tool_calls)
    calls += [call for call in second.tool_calls if call not in calls]
    broken = list(first.invalid_tool_calls)
    broken += [call for call in second.invalid_tool_calls if call not in broken]
    extra = {**first.additional_kwargs, **second.additional_kwargs}
    thoughts = [m.additional_kwargs.get("reasoning_content") for m in (first, second)]
    if all(isinstance(thought, str) and thought for thought in thoughts):
        extra["reasoning_content"] = "\n\n".join(cast("list[str]", thoughts))
    return AIMessage(
        content=_joined_content(first, second),
        tool_calls=calls,
        invalid_tool_calls=broken,
        additional_kwargs=extra,
        response_metadata={**first.response_metadata, **second.response_metadata},
        usage_metadata=_later(first.usage_metadata, second.usage_metadata),
        id=first.id or second.id,
        name=first.name or second.name,
    )


def _whole_replies(
    entries: Sequence[Entry], marked: Sequence[tuple[int, Compaction]]
) -> tuple[list[Entry], tuple[Compaction, ...]]:
    """Rules 1 and 2, carrying the positions of compactions along."""
    result: list[Entry] = []
    places: list[int] = []
    latest: dict[str, int] = {}  # reply -> its place in `result`, while only results follow it
    for entry in entries:
        places.append(len(result))
        message = entry.message
        if isinstance(message, AIMessage):
            adjacent = len(result) - 1 if result and isinstance(result[-1].message, AIMessage) else None
            place = latest.get(entry.reply, adjacent) if entry.reply is not None else adjacent
            if place is not None:
                result[place] = _absorbed(result[place], message)
            else:
                result.append(entry)
                latest.clear()
            if entry.reply is not None:
                latest[entry.reply] = len(result) - 1 if place is None else place
        else:
            result.append(entry)
            if not isinstance(message, ToolMessage):
                latest.clear()
    places.append(len(result))
    return result, tuple(replace(note, position=places[min(at, len(entries))]) for at, note in marked)


def _absorbed(entry: Entry, message: AIMessage) -> Entry:
    return replace(entry, message=merged(cast("AIMessage", entry.message), message))


def _adjacent_merged(entries: Iterable[Entry]) -> list[Entry]:
    result: list[Entry] = []
    for entry in entries:
        if isinstance(entry.message, AIMessage) and result and isinstance(result[-1].message, AIMessage):
            result[-1] = _absorbed(result[-1], entry.message)
        else:
            result.append(entry)
    return result


def _results_behind_calls(entries: Sequence[Entry]) -> list[Entry]:
    """Rule 3. Only `ToolMessage`s move: a message that holds results among other content stays where it is."""
    pairing = pair([entry.message for entry in entries])
    home: dict[int, int] = {
        call.answered_by: call.made_by
        for call in pairing.calls
        if call.answered_by is not None and isinstance(entries[call.answered_by].message, ToolMessage)
    }
    early = {call_id: at for at, call_id in reversed(pairing.orphans) if isinstance(entries[at].message, ToolMessage)}
    for call in pairing.unanswered():
        at = early.get(call.call.id or "")
        if at is not None and at < call.made_by:
            home[at] = call.made_by
            del early[call.call.id or ""]
    behind: dict[int, list[Entry]] = {}
    for at in sorted(home):
        behind.setdefault(home[at], []).append(entries[at])
    result: list[Entry] = []
    for at, entry in enumerate(entries):
        if at not in home:
            result += [entry, *behind.get(at, ())]
    return result


def _is_plain_system(message: BaseMessage) -> bool:
    return isinstance(message, SystemMessage) and all(block.kind == "text" for block in blocks_of(message))


def _joined_content(first: AIMessage, second: AIMessage) -> str | list[str | dict[str, object]]:
    blocks = [*_block_list(first.content), *_block_list(second.content)]
    if len(blocks) == 1 and isinstance(only := blocks[0], dict) and set(only) == {"type", "text"}:
        return str(only["text"])
    return blocks or ""


def _block_list(content: object) -> list[str | dict[str, object]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(cast("list[str | dict[str, object]]", content))


def _later(first: UsageMetadata | None, second: UsageMetadata | None) -> UsageMetadata | None:
    return first if second is None else second


def _derived_call(name: str, count: int) -> str:
    return f"call_{derived_id('recorded call', name, str(count)).replace('-', '')[:24]}"


def tool_names(entries: Iterable[Entry]) -> Mapping[str, str]:
    """Call id to tool name, for results that were recorded without a name."""
    return {
        str(call["id"]): call["name"]
        for entry in entries
        if isinstance(entry.message, AIMessage)
        for call in entry.message.tool_calls
    }
