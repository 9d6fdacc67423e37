"""Reading refold's own session format (docs/session-format.md); `refold.replay.jsonl` writes it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from langchain_core.messages import BaseMessage

from refold.errors import SessionFormatError
from refold.replay.fields import Skips, mapping, moment, number, sequence, string
from refold.replay.importers.blocks import tools_of
from refold.replay.importers.source import Source
from refold.replay.jsonl import HEADER, SUBAGENT, VERSION, message_from
from refold.replay.transcript import Compaction, Skipped, Transcript, with_ids

NAME: Final = "refold"


@dataclass(kw_only=True)
class _Agent:
    """One agent of a session while its lines are read."""

    head: Mapping[str, object]
    parent: int
    messages: list[BaseMessage] = field(default_factory=list)
    times: list[datetime | None] = field(default_factory=list)


def detect(sample: Sequence[object]) -> bool:
    """Whether a header line of ours is among the values."""
    return any(isinstance(mapping(value).get(HEADER), int) for value in sample)


def read(source: Source, skips: Skips) -> Iterator[Transcript]:
    """Every session of the file.

    Raises `SessionFormatError` for a version that this refold does not know.
    """
    agents: dict[int, _Agent] = {}
    for record in source.records(skips):
        fields = mapping(record.value)
        if HEADER in fields:
            _check_version(fields[HEADER], source)
            if agents:
                yield _transcript(agents, 0, source.name)
            agents = {0: _Agent(head=fields, parent=0)}
        elif (child := number(fields.get(SUBAGENT))) is not None and child > 0:
            agents[child] = _Agent(head=fields, parent=min(number(fields.get("parent")) or 0, child - 1))
        else:
            _add(agents, fields, record.line, skips)
    if agents:
        yield _transcript(agents, 0, source.name)


def _check_version(version: object, source: Source) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= VERSION:
        raise SessionFormatError(
            f"{source.path} is a refold session of version {version!r}, and this refold reads up to {VERSION}; upgrade"
        )


def _add(agents: dict[int, _Agent], fields: Mapping[str, object], line: int | None, skips: Skips) -> None:
    agent = agents.get(number(fields.get("agent")) or 0)
    if agent is None:
        skips.add("message whose header is lost", line)
        return
    try:
        message = message_from({name: value for name, value in fields.items() if name not in ("agent", "time")})
    except SessionFormatError:
        skips.add("line that is no message", line)
        return
    agent.messages.append(message)
    agent.times.append(moment(fields.get("time")))


def _transcript(agents: Mapping[int, _Agent], own: int, fallback: str) -> Transcript:
    agent = agents.get(own) or _Agent(head={}, parent=0)
    head = agent.head
    children = [key for key, other in agents.items() if other.parent == own and key != own]
    return Transcript(
        name=string(head.get("name")) or fallback,
        format=string(head.get("format")) or NAME,
        model=string(head.get("model")),
        call_id=string(head.get("call_id")),
        system=string(head.get("system")),
        tools=tools_of(head.get("tools")),
        messages=with_ids(agent.messages),
        times=tuple(agent.times) if any(agent.times) else (),
        compactions=tuple(_compaction(mapping(value)) for value in sequence(head.get("compactions"))),
        subagents=tuple(_transcript(agents, key, fallback) for key in children),
        skipped=tuple(_skipped(mapping(value)) for value in sequence(head.get("skipped"))),
    )


def _compaction(value: Mapping[str, object]) -> Compaction:
    return Compaction(
        position=number(value.get("position")) or 0,
        summary=string(value.get("summary")) or "",
        tokens_before=number(value.get("tokens_before")),
    )


def _skipped(value: Mapping[str, object]) -> Skipped:
    return Skipped(
        reason=string(value.get("reason")) or "unknown",
        count=number(value.get("count")) or 0,
        first_line=number(value.get("first_line")),
    )
