"""From a LangChain request to a `Turn`: which model, which limits, which tools can read back, what to count with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.config import get_config

from refold.agent.edge import BeforeFold, Edge, Models, Request
from refold.agent.host import Host
from refold.agent.models import ModelFacts, facts_of, may_be_same_model
from refold.agent.recall import READ_HISTORY
from refold.agent.search import SEARCH_HISTORY
from refold.agent.telemetry import Telemetry
from refold.agent.threads import thread_name
from refold.agent.tools import Permissions
from refold.core.canonical import Json
from refold.core.compaction import Compaction, Summariser
from refold.core.effects import LearnLimit, Room
from refold.core.limits import Budget, counts_output_of, resolve_limits
from refold.core.media_rules import rules_of
from refold.core.meter import Count, Meter
from refold.core.passes import Scope
from refold.core.policy import Policy
from refold.core.segment import Facts
from refold.core.turn import Turn
from refold.errors import ConfigurationError
from refold.files import Files


def refuse_name(argument: str, value: object, advice: str) -> None:
    """Raises `ConfigurationError` for a path, URL or name where its object belongs: it would fail only hours later."""
    if isinstance(value, str | Path):
        raise ConfigurationError(f"{argument}={str(value)!r} is a name: {advice}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """The agent's tools that read back: a file by its path, messages of the log by id, the history by a query."""

    file_reader: str | None = READ_HISTORY
    log_reader: str | None = READ_HISTORY
    search: str | None = SEARCH_HISTORY

    def bound(self, names: frozenset[str]) -> "Binding":
        """What of it is bound to a request; a note in a window names nothing else (fault 101)."""
        return Binding(
            file_reader=self.file_reader if self.file_reader in names else None,
            log_reader=self.log_reader if self.log_reader in names else None,
            search=self.search if self.search in names else None,
        )

    def beside(self, names: frozenset[str]) -> "Binding":
        """Without those of its tools whose names an agent's own tools take: they read something else."""
        reader = self.log_reader if self.file_reader in names else self.file_reader
        return replace(self, file_reader=reader, search=None if self.search in names else self.search)

    def under(self, permissions: Permissions | None) -> "Binding":
        """With `read_history` for stored originals where rules of the file tools could keep them from being read back:
        what a note says must work."""
        if permissions is None or permissions.reads_artifacts or self.log_reader is None:
            return self
        return replace(self, file_reader=self.log_reader)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What one middleware was configured with, and what it remembers between calls (`host`)."""

    policy: Policy
    models: Models
    meter: Meter | None
    host: Host
    binding: Binding

    def open(
        self, request: Request, *, files: Files, telemetry: Telemetry, before_fold: BeforeFold | None, now: float
    ) -> tuple[Turn, Edge]:
        """The turn of a request, and the edge that answers its effects."""
        facts = facts_of(request.model, request.model_settings)
        meter = self.meter or self.host.meter(facts.family)
        system = meter.count(request.system_message) if request.system_message is not None else Count(tokens=0, bytes=0)
        tools = meter.count_tools([*request.tools, *self.host.schemas(request.response_format)])
        room = self.room(facts)
        thread = thread_name(get_config(), request.messages)
        previous, at = self.host.take(thread)
        binding = self.binding.bound(tool_names(request.tools))
        turn = Turn(
            messages=request.messages,
            folds=cast("Sequence[Mapping[str, Json]]", request.state.get("folds") or ()),
            system=system,
            tools=tools,
            meter=meter,
            scale=self.host.scale(facts.key),
            room=room,
            compaction=self._compaction(request, facts, binding, thread, idle=None if at is None else now - at),
            provider=facts.provider,
            media=rules_of(facts.provider, facts.profile),
            previous=previous,
            same_model=lambda message: may_be_same_model(facts, message),
        )

        def learn(effect: LearnLimit) -> Room:
            self.host.learn(facts.key, effect)
            return self.room(facts)

        def learn_of(model: BaseChatModel, effect: LearnLimit) -> None:
            if (key := facts_of(model, {}).key) != facts.key:
                self.host.learn(key, effect)

        edge = Edge(
            request=request, facts=facts, files=files, models=self.models, telemetry=telemetry, thread=thread,
            learn=learn, learn_of=learn_of, before_fold=before_fold, room=room,
            budget_line=self.policy.budget_line,
        )  # fmt: skip
        return turn, edge

    @property
    def file_reader(self) -> str | None:
        """The tool that reads stored files."""
        return self.binding.file_reader

    def bound_file_reader(self, tools: Sequence[BaseTool]) -> str | None:
        """The tool that reads stored files, where it is among these; a stub names no other (fault 101)."""
        return self.file_reader if any(tool.name == self.file_reader for tool in tools) else None

    @property
    def reader(self) -> str | None:
        """The tool that reads back what a note stands for."""
        return self.binding.log_reader or self.binding.file_reader

    def room(self, facts: ModelFacts) -> Room:
        """What is known of what a request to a model may take."""
        learned = self.host.learned.of(facts.key)
        limits = resolve_limits(
            explicit=self.policy.context_limit,
            learned=learned,
            profile=facts.profile,
            counts_output=counts_output_of(facts.integration),
        )
        known = (self.policy.body_limit, learned.body_limit if learned is not None else None)
        return Room(
            limits=limits,
            learned=learned,
            reserve=self.policy.output_reserve or facts.output_cap,
            body_limit=min((limit for limit in known if limit is not None), default=None),
        )

    def _compaction(
        self, request: Request, facts: ModelFacts, binding: Binding, thread: str, *, idle: float | None
    ) -> Compaction:
        state = cast("Mapping[str, object]", request.state)
        todos = cast("Sequence[Mapping[str, Json]]", state.get("todos") or ())
        asked = cast("Mapping[str, str | None] | None", state.get("compaction"))
        return Compaction(
            room=Budget(limit=0, reserved=0, system=0, tools=0, messages=0),  # set once the window is measured
            policy=self.policy,
            scope=Scope(
                thread=thread, policy=self.policy, file_reader=binding.file_reader, log_reader=binding.log_reader
            ),
            summariser=self._summariser(request.model, facts),
            facts=Facts(todos=todos, pins=cast("Mapping[str, str]", state.get("pins") or {})),
            idle=idle,
            search=binding.search,
            force=asked is not None,
            focus=asked.get("focus") if asked is not None else None,
            vetoed=self.host.vetoes.get(thread),
        )

    def _summariser(self, model: BaseChatModel, facts: ModelFacts) -> Summariser:
        writer = facts_of(self.models.summary, {}) if self.models.summary is not None else facts
        fallback = None
        if self.models.fallback is not None:
            fallback = self._request_limit(facts_of(self.models.fallback, {}))
        return Summariser(
            live=self.models.summary is None,
            limit=self._request_limit(writer),
            meter=self.host.bound(writer.family),
            fallback_limit=fallback,
        )

    def _request_limit(self, facts: ModelFacts) -> int:
        """The most tokens of a summary request, as an upper bound counts it, beside the answer that its model caps."""
        room = self.room(facts)
        cap = facts.output_cap or (room.learned.output if room.learned is not None else None) or 0
        return max(0, room.limits.input - cap) if room.limits.shared else room.limits.input


def tool_names(tools: Sequence[BaseTool | Mapping[str, object]]) -> frozenset[str]:
    """The names of the tools bound to a request, LangChain's own and providers' dicts."""
    names: set[str] = set()
    for tool in tools:
        if isinstance(tool, BaseTool):
            names.add(tool.name)
            continue
        function = tool.get("function")
        name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
        if isinstance(name, str):
            names.add(name)
    return frozenset(names)
