"""One call of the `task` tool, as a program: run the child, take its answer, size it, and hand it up.

Nothing goes down but the description and the keys of `inputs`; nothing comes up but the answer and the keys of
`outputs` (fault 177). The answer is a structured response as JSON, else the last words of the child. A child that met
its bound on steps is an answer too, marked as an error; what else a child raises is raised in the caller.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langgraph.types import Command
from pydantic import BaseModel

from refold.agent.subagents.history import Grant, granted_gen
from refold.agent.subagents.levels import LevelName, step_bound
from refold.agent.subagents.specs import AnySubagent, Graph, Subagent
from refold.agent.subagents.words import child_message, no_answer, unfinished
from refold.core.canonical import derived_id
from refold.core.ingest import Ingestion, ingest_gen, media_reference_gen
from refold.core.media_parts import Part, parts_of
from refold.core.messages import text_of, with_content
from refold.core.passes import Scope
from refold.core.program import Effect, Program
from refold.errors import ConfigurationError

TASK = "task"
State = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Child:
    """A subagent that can be run."""

    spec: AnySubagent
    graph: Graph


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a run of a child ended: the last state that it put out, None for none, and whether its steps ran out."""

    state: object
    out_of_steps: bool = False


@dataclass(frozen=True, kw_only=True)
class RunChild(Effect[Ended]):
    """Run a child's graph in the caller's run: its streams, interrupts and checkpoints are nested in the caller's.
    Whatever the graph raises, interrupts included, is thrown into the program, but for the bound on steps."""

    child: Child
    given: State
    steps: int | None


@dataclass(frozen=True, kw_only=True)
class Delegation:
    """One call: which child, what it is asked (`task_message`), and where the answer goes.

    `state` is the caller's, of which only the `inputs` are looked at, `limit` the most supersteps that its run has for
    anything nested. `threshold` is the most tokens of an answer that enters whole. `thread` names the child's log.
    """

    child: Child
    task: HumanMessage
    level: LevelName
    limit: int | None
    call_id: str
    state: State
    scope: Scope
    threshold: int
    thread: str


def task_message(spec: AnySubagent, description: str, level: LevelName, call_id: str) -> HumanMessage:
    """The message that starts a child's log. Its id is the same when the call is made again after a crash."""
    text = child_message(description, level) if isinstance(spec, Subagent) else description
    return HumanMessage(text, id=derived_id("task", call_id, spec.name, text))


def delegate_gen(job: Delegation) -> Program[Command[object]]:
    """Carry out one call. Returns the update of the caller's state."""
    spec = job.child.spec
    inputs = {key: job.state[key] for key in spec.inputs if key in job.state}
    steps = step_bound(job.level, spec.steps, job.limit)
    ended = yield from RunChild(child=job.child, given={**inputs, "messages": [job.task]}, steps=steps)
    state = _state_of(ended.state, spec)
    log = convert_to_messages(
        cast("list[BaseMessage]", state["messages"])
    )  # a graph that runs elsewhere puts them out as JSON
    answer = answer_of(state, log, since=str(job.task.id))
    media = () if state.get("structured_response") is not None else media_of(log, since=str(job.task.id))
    failed = ended.out_of_steps or not (answer or media)
    if failed:
        answer = unfinished(spec.name, steps, answer) if ended.out_of_steps else no_answer(spec.name)
    message: BaseMessage = ToolMessage(
        answer, name=TASK, tool_call_id=job.call_id, status="error" if failed else "success"
    )
    message = yield from ingest_gen(
        Ingestion(message=cast("ToolMessage", message), scope=job.scope, threshold=job.threshold)
    )
    if spec.grant_history:
        message = yield from granted_gen(Grant(subagent=spec.name, thread=job.thread, messages=log), message)
    message = yield from _shown_gen(message, media, job.scope)
    outputs = {key: state[key] for key in spec.outputs if key in state and not _same(state[key], inputs.get(key))}
    return Command(update={"messages": [message], **outputs})


def answer_of(state: State, log: Sequence[BaseMessage], *, since: str) -> str:
    """The answer of a child: its structured response as JSON, else the last words that it said after the task. Empty
    where there are none: what a graph with a memory said to earlier tasks is no answer to this one."""
    structured = state.get("structured_response")
    if structured is not None:
        return _json(structured)
    said = (text_of(message).strip() for message in _said(log, since))
    return next((text for text in said if text), "")


def media_of(log: Sequence[BaseMessage], *, since: str) -> Sequence[tuple[Part, object]]:
    """The media of a child's answer, which is the last thing that it said or showed, each with its block."""
    shown = next((message for message in _said(log, since) if parts_of(message) or text_of(message).strip()), None)
    return [] if shown is None else [(part, shown.content[int(part.place[0])]) for part in parts_of(shown)]


def _said(log: Sequence[BaseMessage], since: str) -> Sequence[AIMessage]:
    """What a child said after the task, newest first."""
    start = next((index for index, message in enumerate(log) if message.id == since), 0)
    return [message for message in reversed(log[start:]) if isinstance(message, AIMessage)]


def _shown_gen(message: BaseMessage, media: Sequence[tuple[Part, object]], scope: Scope) -> Program[BaseMessage]:
    """The result with the media of the answer: as references, since pictures of many children would fill a window; as
    they are where they cannot be stored, or where nothing reads what was stored."""
    notes: list[str] = []
    whole: list[object] = []
    for part, block in media:
        text = None
        if part.inline and scope.file_reader is not None:
            text = yield from media_reference_gen(part, part.damage, scope)
        notes += [text] if text is not None else []
        whole += [block] if text is None else []
    if not media:
        return message
    said = "\n".join(filter(None, [text_of(message), *notes]))
    return with_content(message, [*([{"type": "text", "text": said}] if said else []), *whole] if whole else said)


def _state_of(state: object, spec: AnySubagent) -> State:
    if state is None:
        return {"messages": []}
    if isinstance(state, BaseModel):
        state = {name: getattr(state, name) for name in type(state).model_fields}
    if not isinstance(state, Mapping) or not isinstance(state.get("messages"), list):
        raise ConfigurationError(
            f"the graph of subagent {spec.name!r} put out no list of messages: give its output schema a `messages` key"
        )
    return state


def _same(after: object, before: object) -> bool:
    """Whether a shared value came back as it was handed in. What cannot be compared counts as changed."""
    return after is before or (type(after) is type(before) and (after == before) is True)


def _json(value: object) -> str:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
