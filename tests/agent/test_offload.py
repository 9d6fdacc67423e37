"""Offload: large results enter the log as stubs, verified; nothing is lost; small ones and readers enter whole."""

from collections.abc import Mapping

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.window import WindowMiddleware
from refold.core.messages import REFOLD_KEY, text_of
from refold.core.policy import Policy
from refold.errors import ConfigurationError, FilesUnavailableError
from refold.files import Files, MemoryFiles
from refold.testing import StrictModel

BIG = "\n".join(f"2026-01-01 12:00:{n:04d} ERROR worker {n} failed in src/app_{n}.py" for n in range(1_500))


@tool
def logs(n: int = 0) -> str:
    """Read logs."""
    return f"{n}\n{BIG}"


@tool
def short() -> str:
    """Answer shortly."""
    return "fine"


@tool
def chinese() -> str:
    """中文结果。"""
    return "数据库连接失败，请检查配置。" * 600


@tool
def jump() -> Command[object]:
    """A result that also updates the state."""
    message = ToolMessage(BIG, tool_call_id="jump-1", name="jump")
    return Command(update={"messages": [message], "extra": 1}, goto="model")


@tool
def several(runtime: ToolRuntime) -> list[Command[object]]:
    """Several commands, as LangGraph lets a tool return."""
    result = ToolMessage(BIG, tool_call_id=runtime.tool_call_id or "", name="several")
    return [Command(update={"messages": [HumanMessage("a note")]}), Command(update={"messages": [result]})]


class Broken(MemoryFiles):
    def write(self, path: str, data: bytes, *, mode: str) -> None:  # type: ignore[override]
        raise FilesUnavailableError("the disk is full")


def run_agent(calls: list[tuple[str, Mapping[str, object]]], files: Files, **options: object) -> list[BaseMessage]:
    """The log of an agent that makes the given calls in one message and then answers."""
    tool_calls = [{"name": name, "args": dict(args), "id": f"{name}-{n}"} for n, (name, args) in enumerate(calls, 1)]
    model = StrictModel(script=[AIMessage("", tool_calls=tool_calls), "done"], limit=20_000)
    window = WindowMiddleware(files=files, policy=Policy(context_limit=20_000, output_reserve=1_000))
    agent = create_agent(
        model, [logs, short, chinese, jump, several], checkpointer=InMemorySaver(),
        middleware=[window, OffloadMiddleware(window, **options)],  # type: ignore[arg-type]
    )  # fmt: skip
    state = agent.invoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t"}})
    return list(state["messages"])


class TestLargeResultsAreStored:
    @pytest.mark.parametrize("name", ["logs", "chinese"])
    def test_the_stub_names_a_path_that_holds_every_byte(self, name: str) -> None:
        """Faults 87, 109: by tokens, in any script; what the stub names reads back whole."""
        files = MemoryFiles()
        message = run_agent([(name, {})], files)[2]
        marked = message.additional_kwargs[REFOLD_KEY]
        original = {"logs": logs, "chinese": chinese}[name].invoke({})
        assert files.read(marked["path"]) == original.encode()
        assert f"path={marked['path']} " in text_of(message)
        assert "read=read_history" in text_of(message)
        assert len(text_of(message)) < len(original) // 4

    def test_small_results_enter_whole(self) -> None:
        """And nothing is stored for them."""
        files = MemoryFiles()
        assert text_of(run_agent([("short", {})], files)[2]) == "fine"
        assert list(files.list("/")) == []

    def test_results_that_come_together_share_the_room(self) -> None:
        """Fault 2: eight results that are each under the threshold of one do not overflow together."""
        alone = Thresholds().of("logs", used=1_000, budget=16_000, together=1)
        together = Thresholds().of("logs", used=1_000, budget=16_000, together=8)
        assert together < alone
        assert 8 * together <= 0.5 * 15_000 + 8

    def test_a_command_keeps_every_other_field(self) -> None:
        """Only the messages of its update are replaced."""
        window = WindowMiddleware(files=MemoryFiles())
        assert OffloadMiddleware(window)
        message = run_agent([("jump", {})], MemoryFiles())[2]
        assert message.additional_kwargs[REFOLD_KEY]["kind"] == "ingested"

    def test_a_list_of_commands_is_each_command(self) -> None:
        """A tool may return several; each keeps what it does, and the large result among them is stored."""
        files = MemoryFiles()
        log = run_agent([("several", {})], files)
        stored = next(m for m in log if isinstance(m, ToolMessage))
        assert files.read(stored.additional_kwargs[REFOLD_KEY]["path"]) == BIG.encode()
        assert [m.text for m in log if isinstance(m, HumanMessage)] == ["go", "a note"]

    def test_a_fixed_threshold_of_a_tool_wins(self) -> None:
        """`per_tool` lets a result in whole that would be stored otherwise (fault 112)."""
        thresholds = Thresholds(per_tool={"chinese": 50_000})
        assert REFOLD_KEY not in run_agent([("chinese", {})], MemoryFiles(), thresholds=thresholds)[2].additional_kwargs


class TestItFailsClosed:
    def test_a_result_that_cannot_be_stored_enters_whole(self) -> None:
        """Fault 107: nothing is dropped because storage failed; the window folds or refuses later."""
        message = run_agent([("chinese", {})], Broken())[2]
        assert text_of(message) == chinese.invoke({})

    def test_impossible_thresholds_are_refused(self) -> None:
        """With the values that were given."""
        with pytest.raises(ConfigurationError, match="share"):
            Thresholds(share=0)


class TestItIsIdempotent:
    def test_the_same_result_twice_is_stored_once(self) -> None:
        """Two runs over the same files name the same path."""
        files = MemoryFiles()
        first, second = (run_agent([("logs", {"n": 7})], files)[2] for _ in range(2))
        assert first.additional_kwargs == second.additional_kwargs
        assert len(list(files.list("/results"))) == 1
