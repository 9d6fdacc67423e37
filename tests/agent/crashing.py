"""An agent whose process may die at any effect, in process: a fuse burns down at effects and kills all that follow.

`Crash` is outside `Exception`, so no code that handles errors handles it. After it every effect of the same life raises
it again, since a dead process does nothing more; the next life has new objects over the same files and database.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from agents import QUICK, is_summary_request
from langchain.agents import create_agent
from langchain.agents.middleware.types import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.recall import Paging, read_history_tool
from refold.agent.search import search_history_tool
from refold.agent.setup import Binding
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.checkpoint.sqlite.connect import connect
from refold.core.messages import is_record
from refold.files import LocalFiles
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 400}
TURNS, ROUNDS = 2, 10
LIMIT = 4_000
OFFLOAD = Thresholds(share=0.12, least=150)


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Fuse:
    """Counts effects, and kills the life at the `left`-th; None never does. `killed` is where it did."""

    left: int | None
    killed: str = ""
    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, place: str) -> None:
        if self.killed:
            raise Crash(self.killed)
        self.seen[place] += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.killed = place
                raise Crash(place)


class CrashingFiles(LocalFiles):
    """Files that die before or after a write."""

    def __init__(self, root: Path, fuse: Fuse) -> None:
        super().__init__(root)
        self.fuse = fuse

    def write(self, path: str, data: bytes, *, mode: Any) -> None:
        kind = path.split("/")[1]
        self.fuse(f"before {kind}")
        super().write(path, data, mode=mode)
        self.fuse(f"after {kind}")


class CrashingSaver(SqliteSaver):
    """A saver that dies before or after it stores."""

    fuse: Fuse

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self.fuse("before put")
        config = super().put(*args, **kwargs)
        self.fuse("after put")
        return config

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        self.fuse("before put_writes")
        super().put_writes(*args, **kwargs)
        self.fuse("after put_writes")


@dataclass
class World:
    """What outlives a process: the folder, how often a summary was asked for, and where lives ended."""

    folder: Path
    asked: int = 0
    crashes: Counter[str] = field(default_factory=Counter)

    @cached_property
    def tools(self) -> Sequence[BaseTool]:
        """The tools, once: their schemas take longer to make than a life."""
        files, paging = LocalFiles(self.files), Paging(page=500)
        return [work, scan, read_history_tool(files, paging=paging), search_history_tool(files, paging=paging)]

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def stored(self) -> int:
        """Summaries that are stored."""
        folder = self.files / "summaries"
        return sum(not path.name.startswith(".") for path in folder.iterdir()) if folder.exists() else 0

    @property
    def lost(self) -> int:
        """Summaries that were asked for in a life that ended before they were stored."""
        return self.crashes["after summary"] + self.crashes["before summaries"]


def answer_to(messages: Sequence[BaseMessage]) -> AIMessage:
    """The model's answer, by the newest message alone: a model that is asked again after a crash goes on the same."""
    last = next(message for message in reversed(messages) if not is_record(message))
    if isinstance(last, HumanMessage):
        step = int(str(last.id)[1:]) * ROUNDS + 1
    else:
        assert isinstance(last, ToolMessage)
        step = int(last.tool_call_id.split("-")[1]) + 1
        if step % ROUNDS == 1:
            return AIMessage(f"Turn {step // ROUNDS} is done.", id=f"end-{step}")
    names = ["work", "scan"] if step % 3 == 0 else ["scan"] if step % 4 == 0 else ["work"]
    calls = [
        {"type": "tool_call", "id": f"c-{step}-{n}", "name": name, "args": {"step": step, "note": "a" * (step % 5)}}
        for n, name in enumerate(names)
    ]
    return AIMessage(f"Step {step} follows, as the plan /srv/plan_{step}.md says.", id=f"ai-{step}", tool_calls=calls)


@tool
def work(step: int, note: str, runtime: ToolRuntime) -> ToolMessage:
    """Do a step."""
    return _done(
        "work", "\n".join(f"line {n} of step {step}: built /srv/app/m_{step}_{n}.py" for n in range(9)), runtime
    )


@tool
def scan(step: int, note: str, runtime: ToolRuntime) -> ToolMessage:
    """Look at much."""
    rows = (f"row {n} of scan {step}: {n * step} bytes in /data/part-{step}-{n}.bin" for n in range(40))
    return _done("scan", "\n".join(rows), runtime)


def _done(name: str, text: str, runtime: ToolRuntime) -> ToolMessage:
    return ToolMessage(text, tool_call_id=runtime.tool_call_id, id=f"t-{runtime.tool_call_id}", name=name)


class DyingTools(AgentMiddleware[Any, None, Any]):
    """Dies before a tool runs, or once it ran."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.fuse("before tool")
        result = handler(request)
        self.fuse("after tool")
        return result


@dataclass
class Life:
    """One process: every object new, over the folder of a world."""

    world: World
    fuse: Fuse

    def script(self, messages: Sequence[BaseMessage]) -> Any:
        if is_summary_request(messages):
            self.fuse("before summary")
            self.world.asked += 1
            self.fuse("after summary")
            return "The steps so far went well; the work goes on."
        self.fuse("before model")
        answer = answer_to(messages)
        self.fuse("after model")
        return answer

    def run(self) -> dict[str, Any]:
        """The state at the end of all turns. Raises `Crash` where the fuse ends."""
        with closing(connect(str(self.world.folder / "c.db"), timeout=5.0)) as connection:
            saver = CrashingSaver(connection)
            saver.fuse = self.fuse
            files = CrashingFiles(self.world.files, self.fuse)
            window = WindowMiddleware(files=files, policy=QUICK, binding=Binding())
            graph = create_agent(
                StrictModel(script=self.script, limit=LIMIT, allow_prefill=False),
                self.world.tools,
                middleware=[window, OffloadMiddleware(window, thresholds=OFFLOAD), DyingTools(self.fuse)],
                checkpointer=saver,
            )
            for turn in range(TURNS):
                state = graph.get_state(CONFIG)
                if state.tasks or any(m.id == f"h{turn}" for m in state.values.get("messages", [])):
                    if state.tasks:  # `next` leaves out those that ended before the process did
                        graph.invoke(None, CONFIG, durability="sync")
                    continue
                asked = HumanMessage(f"Turn {turn}: go on with the work.", id=f"h{turn}")
                graph.invoke({"messages": [asked]}, CONFIG, durability="sync")
            return dict(graph.get_state(CONFIG).values)


def lived(world: World, fuses: Iterator[Fuse]) -> dict[str, Any]:
    """The state at the end, after as many lives as it takes."""
    for fuse in fuses:
        try:
            return Life(world, fuse).run()
        except Crash:
            world.crashes[fuse.killed] += 1
    raise AssertionError("the fuses ended before the thread did")
