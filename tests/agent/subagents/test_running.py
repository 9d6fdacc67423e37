"""A child runs inside its caller's run: streams, interrupts, crashes, cancellation and bounds on steps."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from delegating import (
    CONFIG,
    call,
    calls,
    delegates,
    drive,
    model_of,
    refusals,
    results,
    seen_by,
    start,
    task,
    uses,
)
from langchain.agents.middleware import ToolErrorMiddleware, ToolRetryMiddleware
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt

from refold.agent.create import create_agent
from refold.agent.subagents import GENERAL_PURPOSE, Subagent
from refold.checkpoint import AsyncSqliteSaver, SqliteSaver
from refold.core.messages import text_of
from refold.files import MemoryFiles
from refold.testing import Hang, StrictModel

Saver = BaseCheckpointSaver[str]
ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@tool
def ask_human(question: str) -> str:
    """Ask the human."""
    return f"the human says {interrupt(question)}"


@tool
def announce(text: str) -> str:
    """Tell the stream."""
    get_stream_writer()({"announced": text})
    return "announced"


def asking(messages: Any) -> Any:
    """A child that asks the human what it was told to ask."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return f"child heard that {text_of(last)}"
    return calls(call("ask_human", question=text_of(last).split("\n")[0]))


def agent_of(
    parent: Any, child: Any, saver: Saver | None = None, tools: Any = (ask_human, announce), **more: Any
) -> Any:
    return create_agent(
        parent if isinstance(parent, StrictModel) else model_of(parent), list(tools), files=MemoryFiles(),
        checkpointer=saver or InMemorySaver(),
        subagents=[Subagent(name="helper", description="Helps.", model=child)], **more,
    )  # fmt: skip


@pytest.fixture(params=["sqlite", "memory"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AbstractContextManager[Saver]]:
    """Opens the same store; in memory it is one object."""
    if request.param == "sqlite":
        return lambda: SqliteSaver.from_conn_string(str(tmp_path / "t.db"))
    saver = InMemorySaver()
    return lambda: nullcontext(saver)


class TestInterruptsReachTheCaller:
    def test_of_one_child_and_the_run_goes_on_in_it(
        self, open_saver: Callable[[], AbstractContextManager[Saver]]
    ) -> None:
        """The caller's run stops with the child's question; another agent object over the same store resumes, inside
        the child, which makes no model call twice."""
        child, parent = model_of(asking), model_of(delegates(task("How many?")))
        with open_saver() as saver:
            stopped = drive(agent_of(parent, child, saver), start())
            assert [i.value for i in stopped["__interrupt__"]] == ["How many?"]
        with open_saver() as saver:
            state = drive(agent_of(parent, child, saver), Command(resume="seven"))
        assert text_of(results(state)[0]) == "child heard that the human says seven"
        assert text_of(state["messages"][-1]) == "parent done"
        assert (len(child.requests), len(parent.requests)) == (2, 2)
        assert refusals(child, parent) == []

    def test_of_parallel_children_each_with_its_own_answer(
        self, open_saver: Callable[[], AbstractContextManager[Saver]]
    ) -> None:
        """Three children ask at once, a fourth does not; answers by id come one by one and all together, and what is
        answered or done is not run again."""
        child = model_of(lambda ms: "no question" if text_of(ms[-1]).startswith("quiet") else asking(ms))
        made = [task(name, "helper", n) for n, name in enumerate(["red", "green", "quiet", "blue"])]
        parent = model_of(delegates(*made))
        with open_saver() as saver:
            agent = agent_of(parent, child, saver)
            stopped = drive(agent, start())
            ids = {i.value: i.id for i in stopped["__interrupt__"]}
            assert set(ids) == {"red", "green", "blue"}
            stopped = drive(agent, Command(resume={ids["green"]: "G"}))
            assert {i.value for i in stopped["__interrupt__"]} == {"red", "blue"}
            state = drive(agent, Command(resume={ids["red"]: "R", ids["blue"]: "B"}))
        assert [text_of(m) for m in results(state)] == [
            "child heard that the human says R", "child heard that the human says G", "no question",
            "child heard that the human says B",
        ]  # fmt: skip
        assert (len(child.requests), len(parent.requests)) == (7, 2)

    @pytest.mark.parametrize("store", ["sqlite", "memory"])
    def test_awaited(self, store: str, tmp_path: Path) -> None:
        """The same with two children that are awaited."""
        child = model_of(asking)
        parent = model_of(delegates(task("red", "helper", 1), task("green", "helper", 2)))

        @asynccontextmanager
        async def opened() -> AsyncIterator[Saver]:
            if store == "memory":
                yield InMemorySaver()
                return
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
                yield saver

        async def scenario() -> dict[str, Any]:
            async with opened() as saver:
                agent = agent_of(parent, child, saver)
                stopped = await agent.ainvoke(start(), CONFIG)
                ids = {i.value: i.id for i in stopped["__interrupt__"]}
                await agent.ainvoke(Command(resume={ids["red"]: "R"}), CONFIG)
                found: dict[str, Any] = await agent.ainvoke(Command(resume={ids["green"]: "G"}), CONFIG)
                return found

        state = asyncio.run(scenario())
        assert [text_of(m) for m in results(state)] == [
            "child heard that the human says R", "child heard that the human says G",
        ]  # fmt: skip
        assert (len(child.requests), len(parent.requests)) == (4, 2)

    @pytest.mark.parametrize("decision", ["approve", "reject"])
    def test_approvals_of_the_caller_hold_in_children(self, decision: str) -> None:
        """A tool that waits for a human waits in a child as well: delegating is no way around it."""
        ran: list[str] = []

        @tool
        def deploy(where: str) -> str:
            """Deploy."""
            ran.append(where)
            return "deployed"

        agent = agent_of(
            delegates(task("Deploy it.")), model_of(uses(call("deploy", where="prod"))), tools=[deploy],
            interrupt_on={"deploy": True},
        )  # fmt: skip
        stopped = drive(agent, start())
        request = stopped["__interrupt__"][0].value["action_requests"][0]
        assert (request["name"], request["args"]) == ("deploy", {"where": "prod"})
        assert ran == []
        state = drive(agent, Command(resume={"decisions": [{"type": decision}]}))
        assert ran == (["prod"] if decision == "approve" else [])
        assert text_of(state["messages"][-1]) == "parent done"

    @pytest.mark.parametrize("middleware", [ToolRetryMiddleware(max_retries=2), ToolErrorMiddleware(lambda *_: "no")])
    def test_through_middleware_that_catches_errors(self, middleware: Any) -> None:
        """Retry and error middleware let a child's interrupt pass."""
        agent = agent_of(delegates(task("How many?")), model_of(asking), middleware=[middleware])
        assert [i.value for i in drive(agent, start())["__interrupt__"]] == ["How many?"]
        state = drive(agent, Command(resume="seven"))
        assert text_of(results(state)[0]) == "child heard that the human says seven"


class TestStreams:
    def stream(self, mode: Any, *, subgraphs: bool, is_async: bool = False) -> list[Any]:
        agent = agent_of(
            model_of(delegates(task("Announce it.")), chunk_size=4),
            model_of(uses(call("announce", text="here I am")), chunk_size=4),
        )  # fmt: skip

        async def collect() -> list[Any]:
            return [item async for item in agent.astream(start(), CONFIG, stream_mode=mode, subgraphs=subgraphs)]

        if is_async:
            return asyncio.run(collect())
        return list(agent.stream(start(), CONFIG, stream_mode=mode, subgraphs=subgraphs))

    @ASYNC
    def test_tokens_of_a_child_come_under_its_namespace(self, is_async: bool) -> None:
        """With `subgraphs=True`; each token carries who said it."""
        said: dict[tuple[str, ...], str] = {}
        names: dict[tuple[str, ...], set[str]] = {}
        for namespace, (chunk, meta) in self.stream("messages", subgraphs=True, is_async=is_async):
            if isinstance(chunk, AIMessageChunk):
                said[namespace] = said.get(namespace, "") + text_of(chunk)
                names.setdefault(namespace, set()).add(str(meta.get("lc_agent_name")))
        own, inner = said.pop(()), said
        assert own == "parent done"
        assert list(inner.values()) == ["child done: announced"]
        assert [key[0].split(":")[0] for key in inner] == ["tools"]
        assert [names[key] for key in inner] == [{"helper"}]

    @ASYNC
    def test_a_caller_that_asks_for_its_own_gets_its_own(self, is_async: bool) -> None:
        """Without `subgraphs` no token or message of a child is among the caller's."""
        items = self.stream("messages", subgraphs=False, is_async=is_async)
        said = "".join(text_of(chunk) for chunk, _ in items if isinstance(chunk, AIMessageChunk))
        assert said == "parent done"
        updates = self.stream("updates", subgraphs=False, is_async=is_async)
        assert [name for update in updates for name in update] == ["model", "tools", "model"]

    @ASYNC
    def test_custom_events_of_a_child_come_under_its_namespace(self, is_async: bool) -> None:
        """Once; LangGraph hands them up where the caller asked for nested graphs, as with any subgraph."""
        items = self.stream("custom", subgraphs=True, is_async=is_async)
        told = [(namespace[0].split(":")[0], event) for namespace, event in items if "announced" in event]
        assert told == [("tools", {"announced": "here I am"})]
        alone = self.stream("custom", subgraphs=False, is_async=is_async)
        assert [event for event in alone if "announced" in event] == []

    def test_updates_of_a_child_are_seen_in_order(self) -> None:
        """Every superstep of the child, and then the caller's tool step that it was."""
        items = self.stream("updates", subgraphs=True)
        shape = [("child" if namespace else "caller", name) for namespace, update in items for name in update]
        assert shape == [
            ("caller", "model"), ("child", "model"), ("child", "tools"), ("child", "model"), ("caller", "tools"),
            ("caller", "model"),
        ]  # fmt: skip


class Flaky:
    """A tool that fails while `broken`, and counts how often each of its calls ran."""

    def __init__(self) -> None:
        self.broken = True
        self.ran: Counter[str] = Counter()
        self.lock = threading.Lock()

    def tools(self) -> list[BaseTool]:
        @tool
        def first(name: str) -> str:
            """Work that succeeds."""
            with self.lock:
                self.ran[f"first {name}"] += 1
            return "first is done"

        @tool
        def second(name: str) -> str:
            """Work that fails at first."""
            with self.lock:
                self.ran[f"second {name}"] += 1
            if self.broken and name == "bad":
                raise RuntimeError("the disk is gone")
            return "second is done"

        return [first, second]


def two_steps(messages: Any) -> Any:
    name = text_of(next(m for m in messages if isinstance(m, HumanMessage))).split("\n")[0]
    done = sum(isinstance(m, ToolMessage) for m in messages)
    return calls(call(["first", "second"][done], name=name)) if done < 2 else f"both steps of {name} are done"


class TestCrashes:
    @ASYNC
    def test_an_error_goes_up_and_the_run_goes_on_where_each_child_stopped(self, is_async: bool) -> None:
        """As from any tool: the error is the caller's, and a second run goes on from the last step of each child that
        was stored."""
        flaky = Flaky()
        child = model_of(two_steps)
        parent = model_of(delegates(task("bad", "helper", 1), task("good", "helper", 2)))
        agent = agent_of(parent, child, tools=flaky.tools())
        with pytest.raises(RuntimeError, match="the disk is gone"):
            drive(agent, start(), is_async=is_async, durability="sync")
        flaky.broken = False
        state = drive(agent, None, is_async=is_async)
        assert [text_of(m) for m in results(state)] == ["both steps of bad are done", "both steps of good are done"]
        assert flaky.ran["first bad"] == 1
        assert flaky.ran["first good"] + flaky.ran["second good"] <= 3  # its sibling's failure met it at one step
        assert refusals(parent, child) == []

    @ASYNC
    def test_a_run_that_dies_between_the_childs_end_and_its_answer(self, is_async: bool) -> None:
        """Resumed, the answer is taken from the child that has ended; it is not asked again."""
        deaths = iter([True])

        class Dies(AgentMiddleware[Any, Any, Any]):
            def wrap_tool_call(self, request: Any, handler: Any) -> Any:
                return self.after(request, handler(request))

            async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
                return self.after(request, await handler(request))

            def after(self, request: Any, result: Any) -> Any:
                if request.tool_call["name"] == "task" and next(deaths, False):
                    raise RuntimeError("killed")
                return result

        child = model_of(["the answer"])
        agent = agent_of(delegates(task("x")), child, middleware=[Dies()])
        with pytest.raises(RuntimeError, match="killed"):
            drive(agent, start(), is_async=is_async, durability="sync")
        assert text_of(results(drive(agent, None, is_async=is_async))[0]) == "the answer"
        assert len(child.requests) == 1

    def test_a_caller_that_would_rather_be_told(self) -> None:
        """LangChain's own middleware turns the error into a result, and the caller goes on."""
        flaky = Flaky()
        agent = agent_of(
            delegates(task("bad")), model_of(two_steps), tools=flaky.tools(),
            middleware=[ToolErrorMiddleware(lambda error, request: f"failed: {error}", tools=["task"])],
        )  # fmt: skip
        result = results(drive(agent, start()))[0]
        assert (result.status, text_of(result)) == ("error", "failed: the disk is gone")

    def test_a_retried_task_is_a_new_run(self) -> None:
        """Within one superstep a second attempt starts over, in a log of its own."""
        flaky = Flaky()
        child = model_of(two_steps)

        def heal(error: Exception) -> bool:
            flaky.broken = False
            return True

        agent = agent_of(
            delegates(task("bad")), child, tools=flaky.tools(),
            middleware=[ToolRetryMiddleware(tools=["task"], retry_on=heal, initial_delay=0.0, jitter=False)],
        )  # fmt: skip
        result = results(drive(agent, start()))[0]
        assert (result.status, text_of(result)) == ("success", "both steps of bad are done")
        assert flaky.ran == {"first bad": 2, "second bad": 2}
        assert refusals(child) == []


class TestCancellation:
    def test_the_caller_is_told_the_truth_and_goes_on(self) -> None:
        """A run that is cancelled while a child works leaves a call without a result. The next request shows it as
        such, claims neither success nor a human's decision, and is valid; the log is not touched (fault 76)."""
        child = model_of([Hang()])
        parent = model_of([calls(task("Take your time.")), "I go on."])
        agent = agent_of(parent, child)

        async def scenario() -> dict[str, Any]:
            running = asyncio.create_task(agent.ainvoke(start(), CONFIG))
            while not child.requests:
                await asyncio.sleep(0.005)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            found: dict[str, Any] = await agent.ainvoke({"messages": [HumanMessage("still there?")]}, CONFIG)
            return found

        state = asyncio.run(scenario())
        assert [m.type for m in state["messages"]] == ["human", "ai", "human", "ai"]
        shown = [m for m in parent.requests[-1].window if isinstance(m, ToolMessage)]
        assert [(m.tool_call_id, m.status) for m in shown] == [("task-1", "error")]
        assert text_of(shown[0]) == (
            "No result was recorded for this call. Whether it ran is not known: check before you rely on it."
        )
        assert refusals(parent) == []

    def test_a_cancelled_child_goes_on_where_it_was(self) -> None:
        """Resumed instead, it repeats no step that was done."""
        flaky = Flaky()
        hangs = iter([True])

        def child(messages: Any) -> Any:
            second = sum(isinstance(m, ToolMessage) for m in messages) == 1
            return Hang() if second and next(hangs, False) else two_steps(messages)

        model = model_of(child)
        agent = agent_of(delegates(task("good")), model, tools=flaky.tools())

        async def scenario() -> dict[str, Any]:
            running = asyncio.create_task(agent.ainvoke(start(), CONFIG, durability="sync"))
            while len(model.requests) < 2:
                await asyncio.sleep(0.005)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            found: dict[str, Any] = await agent.ainvoke(None, CONFIG)
            return found

        assert text_of(results(asyncio.run(scenario()))[0]) == "both steps of good are done"
        assert flaky.ran == {"first good": 1, "second good": 1}

    def test_a_childs_own_log_is_repaired_in_its_view(self) -> None:
        """Of two parallel calls in a child one is rejected by the human, and one has arguments that never were JSON:
        each gets a truthful result, and every request of the child is valid (fault 82 in a child)."""

        @tool
        def free(x: int) -> str:
            """Needs no approval."""
            return f"free {x}"

        @tool
        def guarded(x: int) -> str:
            """Needs approval."""
            return f"guarded {x}"

        def child(messages: Any) -> Any:
            if isinstance(messages[-1], ToolMessage):
                return "child done"
            broken = {"type": "invalid_tool_call", "id": "bad-1", "name": "free", "args": '{"x": ', "error": "cut off"}
            return AIMessage(
                "", tool_calls=[call("free", 1, x=1), call("guarded", 1, x=2)], invalid_tool_calls=[broken]
            )

        model = model_of(child)
        agent = agent_of(delegates(task("x")), model, tools=[free, guarded], interrupt_on={"guarded": True})
        drive(agent, start())
        state = drive(agent, Command(resume={"decisions": [{"type": "reject"}]}))
        assert text_of(results(state)[0]) == "child done"
        shown = {m.tool_call_id: m for m in model.requests[-1].window if isinstance(m, ToolMessage)}
        assert {key: m.status for key, m in shown.items()} == {
            "free-1": "success", "guarded-1": "error", "bad-1": "error",
        }  # fmt: skip
        assert "malformed" in text_of(shown["bad-1"])
        assert refusals(model) == []


class TestSteps:
    def endless(self, messages: list[BaseMessage]) -> AIMessage:
        number = len(messages)
        return AIMessage(f"Looking, {number}.", tool_calls=[call("announce", number, text="again")])

    @ASYNC
    def test_a_child_that_does_not_end_is_stopped_and_the_caller_is_told(self, is_async: bool) -> None:
        """With what it said last; the caller goes on."""
        child = model_of(self.endless)
        agent = create_agent(
            model_of(delegates(task("Look."))), [announce], files=MemoryFiles(), checkpointer=InMemorySaver(),
            subagents=[Subagent(name="helper", description="Helps.", model=child, steps=10)],
        )  # fmt: skip
        state = drive(agent, start(), is_async=is_async)
        result = results(state)[0]
        assert result.status == "error"
        assert text_of(result).startswith("Not finished: subagent 'helper' stopped after 10 steps")
        assert text_of(result).endswith("What it said last:\n\nLooking, 10.")
        assert text_of(state["messages"][-1]) == "parent done"

    @pytest.mark.parametrize(("level", "own", "bound"), [("quick", None, 60), ("deep", 12, 12), ("quick", 500, 60)])
    def test_the_lower_of_level_and_spec_holds(self, level: Any, own: int | None, bound: int) -> None:
        """And the level is the spec's where the call names none."""
        child = model_of(self.endless)
        agent = create_agent(
            model_of(delegates(task("Look."))), [announce], files=MemoryFiles(), checkpointer=InMemorySaver(),
            subagents=[Subagent(name="helper", description="Helps.", model=child, steps=own, level=level)],
        )  # fmt: skip
        result = results(drive(agent, start()))[0]
        assert f"after {bound} steps" in text_of(result)
        assert len(child.requests) == bound // 2
        assert f"[Level {level}: " in seen_by(child)

    def test_a_level_without_bound_goes_on_to_the_runs_own(self) -> None:
        """`deep` has no bound but the recursion limit that the caller's run was given."""
        agent = agent_of(delegates(task("Look.", level="deep")), model_of(self.endless))
        result = results(drive(agent, start(), {**CONFIG, "recursion_limit": 30}))[0]
        assert text_of(result).startswith("Not finished: subagent 'helper' stopped after 30 steps")


class TestWithoutACheckpointer:
    @ASYNC
    def test_parallel_children_of_a_plain_call(self, is_async: bool) -> None:
        """Without a thread each child still has a log and a window of its own."""
        child = model_of(lambda ms: f"did {text_of(ms[-1]).split()[0]}")
        agent = agent_of(model_of(delegates(task("one", "helper", 1), task("two", "helper", 2))), child)
        agent.checkpointer = None
        state = drive(agent, start(), {"recursion_limit": 50}, is_async=is_async)
        assert [text_of(m) for m in results(state)] == ["did one", "did two"]


class TestTheGeneralPurposeChild:
    def test_is_the_parent_again_without_its_conversation(self) -> None:
        """The same model and tools, files shared; it cannot delegate further."""

        def script(messages: Any) -> Any:
            first, last = messages[0], messages[-1]
            child = "handed this task by another agent" in text_of(first)
            if isinstance(last, ToolMessage):
                return "child done" if child else "parent done"
            return calls(call("announce", text="hi")) if child else calls(task("CHILD", "general-purpose"))

        model = model_of(script)
        agent = create_agent(
            model, [announce], files=MemoryFiles(), checkpointer=InMemorySaver(), subagents=[GENERAL_PURPOSE]
        )
        state = drive(agent, start())
        assert text_of(results(state)[0]) == "child done"
        own, inner = (
            {tool["function"]["name"] for tool in model.requests[index].tools}
            for index in (0, 1)  # type: ignore[index]
        )
        assert own - inner == {"task"}
        assert inner - own == set()
