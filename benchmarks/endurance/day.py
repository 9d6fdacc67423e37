"""Running the day, and measuring it."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain.agents import create_agent as create_langchain_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langsmith import tracing_context

from benchmarks.endurance.traffic import SUMMARY, TOOLS, TURN, answer, asked, is_summary_request, lines
from refold import Subagent, create_agent
from refold.agent.recall import Paging, read_history_tool
from refold.agent.search import search_history_tool
from refold.checkpoint.sqlite.connect import connect
from refold.checkpoint.sqlite.saver import SqliteSaver
from refold.core.canonical import canonical_bytes
from refold.files import LocalFiles
from refold.replay.jsonl import message_fields
from refold.testing import StrictModel


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a part of the rounds came to. `cpu` and `clock` are medians of a step in ms, `rss` MB, sizes bytes."""

    rounds: int
    messages: int
    cpu: float
    clock: float
    rss: float
    database: int
    raw: int
    files: int
    folds: int
    summaries: int
    requests: int
    invalid: int
    over_limit: int


@dataclass
class Tally:
    """What the model saw. `steps` are (CPU, clock) seconds between two of its calls within a turn."""

    requests: int = 0
    summaries: int = 0
    invalid: int = 0
    over_limit: int = 0
    steps: list[tuple[float, float]] = field(default_factory=list)
    last: tuple[float, float] | None = None

    def begin(self) -> None:
        now = time.process_time(), time.perf_counter()
        if self.last is not None:
            self.steps.append((now[0] - self.last[0], now[1] - self.last[1]))

    def end(self) -> None:
        self.last = time.process_time(), time.perf_counter()


class DayModel(StrictModel):
    """A strict model that tallies, outside the measured steps, and keeps no request."""

    tally: Any

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.tally.begin()
        self.tally.requests += 1
        self.tally.summaries += is_summary_request(messages)
        try:
            return super()._generate(messages, *args, **kwargs)
        finally:
            refusal = self._tape.requests[-1].refusal
            self.tally.invalid += refusal is not None and bool(refusal.violations)
            self.tally.over_limit += refusal is not None and not refusal.violations
            self._tape.requests.clear()
            self._tape.prefixes.clear()
            self.tally.end()


class BareModel(BaseChatModel):
    """A model that takes any window, and looks at its end alone."""

    tally: Any

    @property
    def _llm_type(self) -> str:
        return "bare"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.tally.begin()
        self.tally.requests += 1
        result = ChatResult(generations=[ChatGeneration(message=answer(messages))])
        self.tally.end()
        return result


def reported(messages: Sequence[BaseMessage]) -> AIMessage:
    """A subagent's answer: long."""
    return AIMessage(SUMMARY if is_summary_request(messages) else lines(len(messages[-1].text), 300))


@tool("task")
def bare_task(subagent: str, description: str) -> str:
    """What stands for a subagent where there are none."""
    return lines(len(description), 300)


@dataclass(kw_only=True)
class Day:
    """One run, in a folder. `managed` by refold, or by LangChain alone."""

    folder: Path
    window: int
    managed: bool
    tally: Tally = field(default_factory=Tally)

    def rows(self, rounds: int, *, tell: Callable[[Row], None], parts: int = 10) -> Iterator[Row]:
        """Run so many rounds, in whole turns, and give a row for each part of them."""
        turns = max(parts, -(-rounds // TURN))
        every = turns // parts
        config: Any = {"configurable": {"thread_id": "day"}, "recursion_limit": 10 * TURN}
        raw, counted = 0, 0
        with closing(connect(str(self.folder / "day.db"), timeout=30.0)) as connection, tracing_context(enabled=False):
            agent = self._agent(SqliteSaver(connection))
            for turn in range(turns):
                self.tally.last = None
                state = agent.invoke({"messages": [asked(turn)]}, config)
                messages = state["messages"]
                raw += sum(len(canonical_bytes(message_fields(message))) for message in messages[counted:])
                counted = len(messages)
                if (turn + 1) % every == 0:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    folds = len(agent.get_state(config).values.get("folds") or ())
                    row = self._row((turn + 1) * TURN, counted, raw, folds)
                    tell(row)
                    yield row

    def _agent(self, saver: SqliteSaver) -> Any:
        files = LocalFiles(self.folder / "files")
        if not self.managed:
            paging = Paging(page=1_000)
            recall: list[BaseTool] = [
                read_history_tool(files, paging=paging), search_history_tool(files, paging=paging)
            ]  # fmt: skip
            return create_langchain_agent(BareModel(tally=self.tally), [*TOOLS, *recall, bare_task], checkpointer=saver)
        reader = Subagent(
            name="reader", description="Reads much.", tools=(), model=StrictModel(script=reported, limit=self.window)
        )
        model = DayModel(script=answer, limit=self.window, tally=self.tally, allow_prefill=False)
        return create_agent(model, TOOLS, files=files, checkpointer=saver, subagents=[reader])

    def _row(self, rounds: int, messages: int, raw: int, folds: int) -> Row:
        steps, self.tally.steps = self.tally.steps, []
        return Row(
            rounds=rounds, messages=messages, raw=raw, folds=folds,
            cpu=1000 * statistics.median(cpu for cpu, _ in steps),
            clock=1000 * statistics.median(clock for _, clock in steps),
            rss=rss(),
            database=sum(path.stat().st_size for path in self.folder.glob("day.db*")),
            files=sum(info.size for info in LocalFiles(self.folder / "files").glob("/**")),
            summaries=self.tally.summaries, requests=self.tally.requests, invalid=self.tally.invalid,
            over_limit=self.tally.over_limit,
        )  # fmt: skip


def rss() -> float:
    """Memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
