"""A small world for core programs: it answers their effects from memory, and remembers what they asked for.

    world = World()
    outcome = run(model_call_gen(world.turn(messages)), world.answer)

Files are `MemoryFiles`; the model is a function from the window to an answer or an exception; the summariser a function
from its request. Nothing of LangChain's agents is involved, so a whole long thread runs in milliseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.messages import AIMessage, BaseMessage

from refold.core.canonical import Json
from refold.core.compaction import Compaction, Summariser
from refold.core.effects import (
    AskSummariser,
    CallModel,
    ConfirmFolds,
    Failure,
    LearnLimit,
    Reply,
    Report,
    Room,
    Sleep,
)
from refold.core.gauge import Gauge
from refold.core.limits import Budget, LearnedLimits, ModelKey, resolve_limits
from refold.core.meter import Count, EstimatingMeter, Meter
from refold.core.overflow import parse_overflow, refuses_media
from refold.core.passes import Scope
from refold.core.policy import Policy
from refold.core.program import Effect, run
from refold.core.segment import Facts
from refold.core.turn import Outcome, Turn, model_call_gen
from refold.core.validate import Provider
from refold.files import Files, MemoryFiles, answer

_KEY = ModelKey(model="world")

SUMMARY = "The work so far, in short: steps were taken and results came back; the task goes on."


def answered(messages: Sequence[BaseMessage]) -> AIMessage:
    """A model that always answers."""
    return AIMessage(content="ok", id=f"ai-{len(messages)}")


def summarised(request: AskSummariser) -> AIMessage:
    """A summariser that always works."""
    return AIMessage(content=SUMMARY)


@dataclass(kw_only=True)
class World:
    """The outside of a program. `limit` is the declared input limit, None for a model that declares none.

    `confirm` plays the `before_fold` hook. What was asked is in `sent`, `summaries`, `events` and `slept`.
    """

    limit: int | None = 8_000
    policy: Policy = field(default_factory=lambda: Policy(summary_backoff=0.0, output_reserve=500))
    model: Callable[[Sequence[BaseMessage]], object] = answered
    summariser: Callable[[AskSummariser], AIMessage] = summarised
    confirm: Callable[[ConfirmFolds], Sequence[Mapping[str, Json]]] = lambda effect: effect.folds
    files: Files = field(default_factory=MemoryFiles)
    meter: Meter = field(default_factory=EstimatingMeter)
    provider: Provider = "openai_chat"
    thread: str = "t1"
    file_reader: str | None = "read_history"
    log_reader: str | None = "read_history"
    summary_limit: int = 100_000
    summary_meter: Meter = field(default_factory=lambda: EstimatingMeter(upper_bound=True))
    live: bool = True
    system: Count = field(default_factory=lambda: Count(tokens=0, bytes=0))
    tools: Count = field(default_factory=lambda: Count(tokens=0, bytes=0))
    facts: Facts = field(default_factory=Facts)
    learned: LearnedLimits = field(default_factory=LearnedLimits)
    sent: list[tuple[BaseMessage, ...]] = field(default_factory=list)
    summaries: list[AskSummariser] = field(default_factory=list)
    events: list[tuple[str, Mapping[str, Json]]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def turn(
        self,
        messages: Sequence[BaseMessage],
        folds: Sequence[Mapping[str, Json]] = (),
        *,
        previous: Gauge | None = None,
        idle: float | None = None,
        force: bool = False,
        focus: str | None = None,
    ) -> Turn:
        """A turn over a log and its folds in this world."""
        scope = Scope(thread=self.thread, policy=self.policy, file_reader=self.file_reader, log_reader=self.log_reader)
        compaction = Compaction(
            room=Budget(limit=0, reserved=0, system=0, tools=0, messages=0),
            policy=self.policy,
            scope=scope,
            summariser=Summariser(live=self.live, limit=self.summary_limit, meter=self.summary_meter),
            facts=self.facts,
            idle=idle,
            force=force,
            focus=focus,
        )
        return Turn(
            messages=messages, folds=folds, system=self.system, tools=self.tools, meter=self.meter, scale=1.0,
            room=self.room(), compaction=compaction, provider=self.provider, previous=previous,
        )  # fmt: skip

    def call(
        self,
        messages: Sequence[BaseMessage],
        folds: Sequence[Mapping[str, Json]] = (),
        *,
        previous: Gauge | None = None,
    ) -> Outcome:
        """One model call, sync."""
        return run(model_call_gen(self.turn(messages, folds, previous=previous)), self.answer)

    def room(self) -> Room:
        """What is known of the model's limits by now."""
        learned = self.learned.of(_KEY)
        bodies = [size for size in (self.policy.body_limit, learned.body_limit if learned else None) if size]
        return Room(
            limits=resolve_limits(explicit=self.limit, learned=learned),
            learned=learned,
            reserve=self.policy.output_reserve,
            body_limit=min(bodies, default=None),
        )

    def answer(self, effect: Effect[object]) -> object:
        """Answer one effect."""
        match effect:
            case CallModel(messages=messages):
                self.sent.append(tuple(messages))
                return self._asked(lambda: self.model(messages))
            case AskSummariser():
                self.summaries.append(effect)
                return self._summary(effect)
            case Sleep(seconds=seconds):
                self.slept.append(seconds)
                return None
            case ConfirmFolds():
                return self.confirm(effect)
            case Report(event=event, data=data):
                self.events.append((event, data))
                return None
            case LearnLimit():
                self.learned = self.learned.learn(
                    _KEY, effect.overflow, estimated=effect.sent, scale=effect.scale, estimated_bytes=effect.size
                )
                return self.room()
            case _:
                return answer(self.files, effect)

    async def aanswer(self, effect: Effect[object]) -> object:
        """The same for `arun`."""
        return self.answer(effect)

    def renewed(self) -> "World":
        """The same storage and models in another process: nothing that was only remembered is left."""
        return replace(self, learned=LearnedLimits(), sent=[], summaries=[], events=[], slept=[])

    def _asked(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except Exception as error:
            overflow = parse_overflow(error)
            media = overflow is None and refuses_media(error)
            if overflow is None and not media:
                raise
            return Failure(error=error, overflow=overflow, media=media)

    def _summary(self, effect: AskSummariser) -> Reply | Failure:
        try:
            return Reply(message=self.summariser(effect))
        except Exception as error:  # noqa: BLE001 - whatever a summariser raises is a failed summary
            return Failure(error=error, overflow=parse_overflow(error))
