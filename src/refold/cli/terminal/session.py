"""One thread at the terminal: runs it, asks a person where it waits, stops it, and says where it stands.

A run is streamed in an event loop of its own, so that Ctrl-C cancels whatever it waits for; questions are asked between
two streams, where nothing runs. Checkpoints are written before each step begins (`durability="sync"`): whatever ends
the process, the thread is at its last finished step.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command, Interrupt, StateSnapshot

from refold.cli.terminal.ctrl_c import CtrlC
from refold.cli.terminal.human import Human, summary_of
from refold.cli.terminal.screen import Occupancy, Screen
from refold.core.estimate import estimate_text
from refold.errors import RefoldError, RunFailedError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from refold.agent.create import Agent

Ending: TypeAlias = Literal["answered", "waiting", "stopped"]
Given: TypeAlias = "Mapping[str, object] | Command[object] | None"

_TOLD: Final[Mapping[str, str]] = {
    "overflow": "the model refused the request as too long; folding and trying again",
    "summary_failed": "a summary failed",
    "artifact_failed": "an original could not be stored; it stays in the window",
    "repaired": "the log's calls and results were paired again",
}


@dataclass(kw_only=True)
class Session:
    """A thread of an agent. `human` is None where nobody can be asked; `resume` is the command that goes on with it."""

    agent: "Agent"
    thread: str
    screen: Screen
    human: Human | None
    resume: str
    runner: asyncio.Runner
    ctrl_c: CtrlC
    _now: Occupancy = field(default_factory=Occupancy)

    def stand(self) -> StateSnapshot:
        """The thread's newest state."""
        return self.ctrl_c.run(self.runner, lambda: self.agent.aget_state(self._config))

    def say_where_it_stands(self, state: StateSnapshot) -> None:
        """Tell how far the thread is, and what it waits for."""
        messages = cast("Sequence[BaseMessage]", state.values.get("messages") or ())
        passes = len({str(fold["pass"]) for fold in state.values.get("folds") or ()})
        self._now = replace(self._now, folds=passes)
        data: dict[str, object] = {"event": "thread", "thread": self.thread, "messages": len(messages), "folds": passes}
        if not messages:
            self.screen.note(f"new thread {self.thread}", **data)
            return
        waits = [summary_of(item.value) for item in state.interrupts]
        words = f"thread {self.thread}: {len(messages)} messages, {passes} folds; "
        if waits:
            words += "waits for you"  # what for is said where it is asked
        else:
            words += "stopped in the middle" if state.tasks else f"last: {_beginning(messages[-1])}"
        self.screen.note(words, **data, waits=waits)

    def say(self, task: str) -> Ending:
        """Give the agent a message, and run it."""
        return self.play({"messages": [HumanMessage(task)]})

    def play(self, given: Given) -> Ending:
        """Run until the agent has answered, waits for somebody who is not there, or is stopped.

        `None` goes on where the thread stopped. Raises what refold raises, and `RunFailedError` for whatever else a
        model or a tool raised.
        """
        while True:
            try:
                self.ctrl_c.run(self.runner, partial(self._stream, given))
                waiting = self.stand().interrupts
            except KeyboardInterrupt:
                return self._over("stopped")
            if not waiting:
                return self._over("answered")
            if self.human is None:
                return self._wait(waiting)
            try:
                given = Command(resume={item.id: self.human.answer(item.value) for item in waiting})
            except EOFError:
                return self._wait(waiting)
            except KeyboardInterrupt:
                return self._over("stopped")

    def answer_first(self, waiting: Sequence[Interrupt]) -> Ending:
        """Ask for what a resumed thread waits for, and run on."""
        if self.human is None:
            return self._wait(waiting)
        try:
            answers = {item.id: self.human.answer(item.value) for item in waiting}
        except EOFError:
            return self._wait(waiting)
        except KeyboardInterrupt:
            return self._over("stopped")
        return self.play(Command(resume=answers))

    def say_occupancy(self) -> None:
        """How full the window was."""
        self.screen.note(self._now.line, event="occupancy", used=self._now.used, budget=self._now.budget)

    @property
    def _config(self) -> "RunnableConfig":
        return {"configurable": {"thread_id": self.thread}}

    def _over(self, ending: Ending) -> Ending:
        self.screen.end_text()
        if ending == "stopped":
            self.screen.note(
                f"stopped; nothing is lost. Go on with: {self.resume}", event="stopped", resume=self.resume
            )
        self.screen.finish(ending)
        return ending

    def _wait(self, waiting: Sequence[Interrupt]) -> Ending:
        for item in waiting:
            self.screen.note(f"waits for you: {summary_of(item.value)}", event="interrupt", value=item.value)
        self.screen.note(f"answer with: {self.resume}", event="waiting", resume=self.resume)
        return self._over("waiting")

    async def _stream(self, given: Given) -> None:
        stream = self.agent.astream(
            cast("Command[object]", given),
            self._config,
            stream_mode=["messages", "updates", "custom"],
            durability="sync",
        )
        try:
            async for mode, part in stream:
                self._show(mode, part)
        except RefoldError:
            self.screen.finish("failed")
            raise
        except Exception as error:  # models and tools raise what they like; the thread is kept, so say how to go on
            self.screen.finish("failed")
            reason = " ".join(str(error).split()) or "no message"
            raise RunFailedError(
                f"{type(error).__name__}: {reason[:600].rstrip('.')}. The thread is kept; go on with: {self.resume}"
            ) from error

    def _show(self, mode: str, part: object) -> None:
        match mode, part:
            case "messages", (AIMessage() as piece, dict(metadata)) if metadata.get("langgraph_node") == "model":
                self._show_answer(piece)
            case "updates", dict(updates):
                for node, update in updates.items():
                    for message in _messages_of(update):
                        self._show_message(node, message)
            case "custom", {"refold": dict(event)}:
                self._show_event(event)
            case _:
                pass

    def _show_answer(self, message: AIMessage) -> None:
        if message.text:
            self.screen.text(message.text)
        if not isinstance(message, AIMessageChunk) or message.chunk_position == "last":
            self.screen.end_text()

    def _show_message(self, node: str, message: BaseMessage) -> None:
        match message:
            case AIMessage() if node == "model":
                self.screen.end_text()
                for call in message.tool_calls:
                    self.screen.tool_call(call["name"], call["args"])
                for invalid in message.invalid_tool_calls:
                    self.screen.note(f"the model called {invalid['name']} with arguments that are no JSON")
            case ToolMessage():
                text = message.text
                tokens = estimate_text(text)
                self.screen.tool_result(message.name or "tool", text, tokens=tokens, status=message.status)
            case _:
                pass

    def _show_event(self, event: Mapping[str, object]) -> None:
        match event:
            case {"event": "window", "used": int(used), "budget": int(budget)}:
                self._now = replace(self._now, used=used, budget=budget)
                self.screen.occupancy(self._now)
            case {"event": "fold", "before": before, "after": after}:
                self._now = replace(self._now, folds=self._now.folds + 1)
                self.screen.note(f"folded: {before:,} to {after:,} tokens", event="fold", before=before, after=after)
            case {"event": str(name)} if name in _TOLD:
                self.screen.note(_TOLD[name], **dict(event))
            case _:
                pass


def _messages_of(update: object) -> Iterator[BaseMessage]:
    """The messages of one node's update; several tools of one step come as a list of updates."""
    match update:
        case {"messages": list(messages)}:
            yield from (message for message in messages if isinstance(message, BaseMessage))
        case list():
            for item in update:
                yield from _messages_of(item)
        case _:
            pass


def _beginning(message: BaseMessage) -> str:
    text = " ".join(message.text.split())
    return f"{message.type}: {text[:120]}{'…' if len(text) > 120 else ''}"
