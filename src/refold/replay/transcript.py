"""A recorded session as values: what the agent was told, said and got back, in LangChain messages.

A transcript is a log as refold understands it: every tool result stands after its call, parts of one model reply are
one message, and every message has an id. What a recording does not have is not made up: a call that was never answered
stays unanswered, a result without a call is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata

from refold.core.canonical import Json, derived_id
from refold.core.messages import content_hash
from refold.core.rounds import Pairing, pair
from refold.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSchema:
    """A tool as the model saw it. `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Json]

    def as_openai(self) -> Mapping[str, Json]:
        """The schema in the form that `bind_tools` of every LangChain chat model accepts."""
        function: Mapping[str, Json] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Records of a file that did not become messages, by reason.

    `first_line` is 1-based; None where lines mean nothing.
    """

    reason: str
    count: int
    first_line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """A place where the recorded agent shortened its own context. The messages before it are in the transcript too.

    `position` is the number of messages before it; `tokens_before` is what the recording says, if it does.
    """

    position: int
    summary: str = ""
    tokens_before: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """One recorded dialogue of one agent.

    `format` names the importer that read it. `system` is the system prompt that preceded the dialogue, None where the
    recording has none. `times` is empty or has one entry per message. `call_id` of a subagent's transcript is the call
    in the parent that started it, where the recording tells.
    """

    name: str
    format: str
    messages: tuple[BaseMessage, ...]
    system: str | None = None
    tools: tuple[ToolSchema, ...] = ()
    times: tuple[datetime | None, ...] = ()
    model: str | None = None
    call_id: str | None = None
    compactions: tuple[Compaction, ...] = ()
    subagents: tuple["Transcript", ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def usages(self) -> tuple[UsageMetadata | None, ...]:
        """What the provider reported, one entry per message; None where it reported nothing."""
        return tuple(m.usage_metadata if isinstance(m, AIMessage) else None for m in self.messages)

    def pairing(self) -> Pairing:
        """How calls and results belong together: unanswered calls and orphan results are read from it."""
        return pair(self.messages)


def join_transcripts(transcripts: Iterable[Transcript], *, name: str | None = None) -> Transcript:
    """Several dialogues as one long session, in order.

    Call ids and message ids that an earlier dialogue has used are replaced by derived ones, so that nothing collides.
    The first system prompt and the first model stand for the whole; tools are united by name, the first spelling wins.
    Raises `ConfigurationError` when there is nothing to join.
    """
    parts = list(transcripts)
    if not parts:
        raise ConfigurationError("no dialogue to join: give at least one transcript")
    messages: list[BaseMessage] = []
    times: list[datetime | None] = []
    compactions: list[Compaction] = []
    used: set[str] = set()
    for number, part in enumerate(parts):
        renamed = {call_id: f"{call_id}-d{number + 1}" for call_id in _call_ids(part.messages) & used}
        compactions += [replace(c, position=c.position + len(messages)) for c in part.compactions]
        messages += [_with_call_ids(message, renamed) for message in part.messages]
        times += part.times or [None] * len(part.messages)
        used |= _call_ids(part.messages) | set(renamed.values())
    return Transcript(
        name=name or parts[0].name,
        format=parts[0].format,
        messages=with_ids(messages),
        system=next((part.system for part in parts if part.system is not None), None),
        tools=tuple({tool.name: tool for part in reversed(parts) for tool in reversed(part.tools)}.values())[::-1],
        times=tuple(times) if any(time is not None for time in times) else (),
        model=next((part.model for part in parts if part.model is not None), None),
        compactions=tuple(compactions),
        subagents=tuple(child for part in parts for child in part.subagents),
        skipped=united(skip for part in parts for skip in part.skipped),
    )


def united(skips: Iterable[Skipped]) -> tuple[Skipped, ...]:
    """Counts of the same reason added up, in order of first appearance."""
    found: dict[str, Skipped] = {}
    for skip in skips:
        before = found.get(skip.reason)
        found[skip.reason] = skip if before is None else replace(before, count=before.count + skip.count)
    return tuple(found.values())


def with_ids(messages: Sequence[BaseMessage]) -> tuple[BaseMessage, ...]:
    """The same messages, each with an id that no earlier one has; derived ids depend on position and content alone."""
    taken: set[str] = set()
    result: list[BaseMessage] = []
    for position, message in enumerate(messages):
        if not message.id or message.id in taken:
            made = derived_id("recorded message", str(position), message.type, content_hash(message))
            message = message.model_copy(update={"id": made})
        taken.add(str(message.id))
        result.append(message)
    return tuple(result)


def _call_ids(messages: Iterable[BaseMessage]) -> set[str]:
    ids: set[str] = set()
    for message in messages:
        match message:
            case AIMessage():
                ids |= {str(call["id"]) for call in (*message.tool_calls, *message.invalid_tool_calls)}
            case ToolMessage():
                ids.add(message.tool_call_id)
            case _:
                pass
    return ids


def _with_call_ids(message: BaseMessage, renamed: Mapping[str, str]) -> BaseMessage:
    match message:
        case AIMessage() if message.tool_calls or message.invalid_tool_calls:
            calls = [{**call, "id": renamed.get(str(call["id"]), call["id"])} for call in message.tool_calls]
            broken = [{**call, "id": renamed.get(str(call["id"]), call["id"])} for call in message.invalid_tool_calls]
            return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})
        case ToolMessage() if message.tool_call_id in renamed:
            return message.model_copy(update={"tool_call_id": renamed[message.tool_call_id]})
        case _:
            return message
