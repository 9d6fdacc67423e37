"""SWE-agent trajectories: one JSON object with `history` (what the model saw) and `trajectory` (what was run).

The history is read where there is one, else the trajectory. Two kinds of agents write it: function-calling ones, whose
messages carry `tool_calls`, and those that write a command in their text (`action`). Such a command becomes a call of
`bash`, and the observation that follows becomes its result: it came from the machine, not from a person.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from refold.replay.fields import Skips, mapping, sequence, string
from refold.replay.importers.assemble import CallIds, Draft, transcript_of
from refold.replay.importers.blocks import RecordedCall, content_of, reply, result
from refold.replay.importers.chat import add_message
from refold.replay.importers.source import Source
from refold.replay.transcript import Transcript

NAME: Final = "swe-agent"
_TOOL: Final = "bash"


def detect(sample: Sequence[object]) -> bool:
    """Whether a value is an object with SWE-agent's steps or its history."""
    return any(_has_steps(mapping(value)) or _has_history(mapping(value)) for value in sample)


def read(source: Source, skips: Skips) -> Iterator[Transcript]:
    """One dialogue per object of the file."""
    for record in source.records(skips):
        value = mapping(record.value)
        if not (_has_steps(value) or _has_history(value)):
            skips.add("record of another kind", record.line)
            continue
        draft, calls = Draft(), CallIds()
        agent = mapping(mapping(value.get("replay_config")).get("agent"))
        draft.model = string(mapping(agent.get("model")).get("name"))
        if _has_history(value):
            _add_history(draft, sequence(value["history"]), calls, skips)
        else:
            _add_steps(draft, sequence(value["trajectory"]), calls, skips)
        yield transcript_of(draft, name=source.name, format=NAME)


def _has_steps(value: Mapping[str, object]) -> bool:
    steps = [mapping(step) for step in sequence(value.get("trajectory"))[:5]]
    return any("action" in step and "observation" in step for step in steps)


def _has_history(value: Mapping[str, object]) -> bool:
    messages = [mapping(message) for message in sequence(value.get("history"))[:5]]
    own = {"agent", "message_type", "thought", "action"}
    return any("role" in message and not message.keys().isdisjoint(own) for message in messages)


def _add_history(draft: Draft, history: Sequence[object], calls: CallIds, skips: Skips) -> None:
    waiting: str | None = None
    for item in history:
        message = mapping(item)
        role = message.get("role")
        if role == "assistant" and (command := string(message.get("action"))) and not message.get("tool_calls"):
            waiting = _add_command(draft, message, command, calls)
        elif role == "user" and waiting is not None and message.get("message_type", "observation") == "observation":
            call_id = calls.answered(_TOOL, waiting)
            draft.add(result(content=content_of(message.get("content")), call_id=call_id, name=_TOOL))
            waiting = None
        else:
            ids = sequence(message.get("tool_call_ids"))
            for call_id_ in ids if role == "tool" and len(ids) > 1 else (None,):
                single = message if call_id_ is None else {**message, "tool_call_id": call_id_}
                add_message(draft, single, calls, skips)
            waiting = None


def _add_steps(draft: Draft, steps: Sequence[object], calls: CallIds, skips: Skips) -> None:
    """Without a history: what the first step was asked, then each command with its observation."""
    first = mapping(steps[0]) if steps else {}
    for item in sequence(first.get("query")) or sequence(first.get("messages")):
        if mapping(item).get("role") == "assistant":
            break
        add_message(draft, item, calls, skips)
    for item in steps:
        step = mapping(item)
        command = string(step.get("action"))
        if command is None:
            add_message(draft, {"role": "assistant", "content": _said(step)}, calls, skips)
            continue
        waiting = _add_command(draft, step, command, calls)
        if step.get("observation") is not None:
            call_id = calls.answered(_TOOL, waiting)
            draft.add(result(content=content_of(step["observation"]), call_id=call_id, name=_TOOL))


def _add_command(draft: Draft, message: Mapping[str, object], command: str, calls: CallIds) -> str:
    call = RecordedCall(id=calls.made(_TOOL, None), name=_TOOL, args={"command": command})
    draft.add(reply(content=content_of(_said(message)), calls=[call]))
    return call.id


def _said(message: Mapping[str, object]) -> object:
    """What was said beside the command: `content` and `response` repeat the command, `thought` does not."""
    return next((message[key] for key in ("thought", "content", "response") if message.get(key)), "")
