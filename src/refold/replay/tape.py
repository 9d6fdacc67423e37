"""The tape: a recorded log, how far a run has come in it, and every request that the run made.

The recording decides what happens next. A reply or a result that the agent's graph produces by itself is played when
the graph asks for it; everything else (human turns, results that came late, out of order or never) is fed to the graph
as input. So the log of the run is the recorded log, message for message, whatever is odd about it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata

from refold.errors import ReplayMismatchError
from refold.replay.measure import Request
from refold.replay.transcript import Skipped, Transcript, united

_PAUSE = 15.0
"""Seconds between two model calls of a recording without times: well within every cache's life."""
_FINISHED = ("finish_reason", "stop_reason", "stop_sequence", "status")


@dataclass(kw_only=True)
class Tape:
    """One recording while it is played.

    `position` is how many messages of the log the run has. `on_request` is called for each request, refused ones too.
    """

    transcript: Transcript
    on_request: Callable[[Request], None] = lambda request: None
    position: int = 0
    requests: list[Request] = field(default_factory=list)
    _rounds: Mapping[int, Mapping[str, ToolMessage]] = field(init=False, repr=False)
    _times: Sequence[float] = field(init=False, repr=False)
    _opening: int = field(init=False, repr=False)
    _round: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._rounds = _playable_rounds(self.transcript.messages)
        self._times = _seconds(self.transcript)
        messages = self.transcript.messages
        self._opening = next((n for n, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))

    def __len__(self) -> int:
        return len(self.transcript.messages)

    @property
    def ended(self) -> bool:
        """Whether the run has the whole log."""
        return self.position >= len(self)

    @property
    def calls_model(self) -> bool:
        """Whether the recording goes on with a reply of the model. One that a recording starts with, because what came
        before it was not recorded, answers no request that could be made: it is fed."""
        return self._opening < self.position < len(self) and isinstance(
            self.transcript.messages[self.position], AIMessage
        )

    def now(self) -> float:
        """The recording's time in seconds, as of the newest message that the run has."""
        return self._times[max(0, self.position - 1)] if self._times else 0.0

    def feed(self) -> list[BaseMessage]:
        """What the graph has to be given: everything up to the next reply. The run has it from now on."""
        start = self.position
        while not self.ended and not self.calls_model:
            self.position += 1
        return list(self.transcript.messages[start : self.position])

    def reply(self) -> AIMessage:
        """The recorded reply that comes next. Raises `ReplayMismatchError` where the recording has none."""
        message = None if self.ended else self.transcript.messages[self.position]
        if not isinstance(message, AIMessage):
            raise ReplayMismatchError(
                f"the agent called its model after {self.position} messages, the recorded did not"
            )
        return message

    def replied(self) -> None:
        """The reply was taken."""
        with self._lock:
            self._round = self.position
            self.position += 1

    def result(self, call_id: str | None) -> ToolMessage | None:
        """The recorded result of a call of the newest reply; None where the graph is to stop and be fed."""
        with self._lock:
            message = self._rounds.get(self._round, {}).get(call_id or "")
            if message is not None:
                self.position += 1
        return message

    def note(self, request: Request) -> None:
        """Keep a request."""
        self.requests.append(request)
        self.on_request(request)


def playable(transcript: Transcript) -> Transcript:
    """The transcript without what is no message of a log: orders to remove one, which a dump of a state can hold."""
    kept = [index for index, message in enumerate(transcript.messages) if not isinstance(message, RemoveMessage)]
    if len(kept) == len(transcript.messages):
        return transcript
    removals = Skipped(reason="removal of a message", count=len(transcript.messages) - len(kept))
    return Transcript(
        name=transcript.name,
        format=transcript.format,
        messages=tuple(transcript.messages[index] for index in kept),
        system=transcript.system,
        tools=transcript.tools,
        times=tuple(transcript.times[index] for index in kept) if transcript.times else (),
        model=transcript.model,
        call_id=transcript.call_id,
        compactions=transcript.compactions,
        subagents=transcript.subagents,
        skipped=united((*transcript.skipped, removals)),
    )


def as_reported(reply: AIMessage, *, tokens: int, output: int) -> AIMessage:
    """A recorded reply as the provider would give it for this request: the recorded usage was that of another one."""
    recorded = reply.usage_metadata
    usage = UsageMetadata(input_tokens=tokens, output_tokens=output, total_tokens=tokens + output)
    if recorded is not None and (details := recorded.get("output_token_details")):
        usage["output_token_details"] = details
    metadata = {key: reply.response_metadata[key] for key in _FINISHED if key in reply.response_metadata}
    return reply.model_copy(update={"usage_metadata": usage, "response_metadata": metadata})


def _playable_rounds(messages: Sequence[BaseMessage]) -> Mapping[int, Mapping[str, ToolMessage]]:
    """The rounds that the graph makes as they were recorded, by the index of their reply: every call has an id of its
    own, and exactly their results come next, in the order of the calls."""
    rounds: dict[int, Mapping[str, ToolMessage]] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage) or not message.tool_calls:
            continue
        ids = [call["id"] or "" for call in message.tool_calls]
        results = [m for m in messages[index + 1 : index + 1 + len(ids)] if isinstance(m, ToolMessage)]
        if all(ids) and len(set(ids)) == len(ids) and [result.tool_call_id for result in results] == ids:
            rounds[index] = dict(zip(ids, results, strict=True))
    return rounds


def _seconds(transcript: Transcript) -> list[float]:
    """Seconds since the first message, one entry per message; never running backwards."""
    if not any(transcript.times):
        pace: list[float] = []
        for message in transcript.messages:
            last = pace[-1] if pace else 0.0
            pace.append(last + (_PAUSE if isinstance(message, AIMessage) else 0.0))
        return pace
    known = [time.timestamp() if isinstance(time, datetime) else None for time in transcript.times]
    first = next(time for time in known if time is not None)
    seconds: list[float] = []
    for time in known:
        last = seconds[-1] if seconds else 0.0
        seconds.append(last if time is None else max(last, time - first))
    return seconds
