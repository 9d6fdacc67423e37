"""How much of its caller's window an answer may take.

All answers of one message come back in one superstep, and none knows the others: each may take its part of half the
room that is free, so that together they leave the caller's window in a state where it can still fold (fault 182).
Unlike other tool results an answer has no size that always enters whole: of a hundred children each gets a hundredth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage

from refold.agent.models import ModelFacts
from refold.agent.offload import Thresholds
from refold.agent.threads import thread_name
from refold.agent.window import WindowMiddleware
from refold.core.canonical import Json
from refold.core.family import Family
from refold.core.limits import resolve_limits
from refold.core.passes import Scope
from refold.core.project import project

LEAST_PREVIEW: Final = 40
"""Tokens of a preview below which it would show nothing."""
REFERENCE: Final = 100
"""Tokens, about, of the reference that stands above a preview."""
ANSWERS: Final = Thresholds(least=REFERENCE + LEAST_PREVIEW)
"""An answer may take a tenth of the caller's budget, and its part of half the free room; what is shorter than the
shortest stub enters whole."""


@dataclass(frozen=True, kw_only=True)
class AnswerRoom:
    """The room for answers beside a caller's window. `facts` are of its model, where it is known."""

    window: WindowMiddleware
    thresholds: Thresholds
    facts: ModelFacts | None

    def scope(self, runtime: ToolRuntime) -> tuple[Scope, int]:
        """For the answer to a call: what ingestion must know, and the most tokens that enter whole."""
        messages: Sequence[BaseMessage] = runtime.state["messages"]
        thread = thread_name(runtime.config, messages)
        used, budget = self.window.occupancy(thread, messages)
        if budget == 0:
            used, budget = self._measured(runtime.state)
        newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
        calls = len(newest.tool_calls) if newest is not None else 1
        if newest is not None:  # the calls themselves came after the window was measured
            used += self.window.setup.host.meter(self._family()).count(newest).tokens
        most = self.thresholds.of("task", used=used, budget=budget, together=max(1, calls))
        policy = self.window.setup.policy
        short = replace(policy, preview=min(policy.preview, max(LEAST_PREVIEW, most - REFERENCE)))
        bound = self.window.setup.bound_file_reader(runtime.tools)
        return Scope(thread=thread, policy=short, file_reader=bound, log_reader=None), most

    def _measured(self, state: Mapping[str, object]) -> tuple[int, int]:
        """(used, budget) where this process made no request of the thread yet: a run that is resumed in its tools."""
        setup = self.window.setup
        messages = cast("Sequence[BaseMessage]", state["messages"])
        window = project(messages, cast("Sequence[Mapping[str, Json]]", state.get("folds") or ()))
        meter = setup.meter or setup.host.meter(self._family())
        used = sum(meter.count(entry.message).tokens for entry in window.entries)
        if self.facts is None:
            return used, resolve_limits(explicit=setup.policy.context_limit).input
        room = setup.room(self.facts)
        return used, max(1, room.limits.input - (room.reserve or 0))

    def _family(self) -> Family:
        return self.facts.family if self.facts is not None else "generic"
