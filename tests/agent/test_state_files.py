"""Files in graph state under the whole agent: what leaves the window is in the thread's own state, and reads back."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from agents import QUICK, THOUGHT, is_summary_request, work, worker_model
from langchain.agents import create_agent as create_langchain_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import refold
from refold.agent.retention import RetentionMiddleware
from refold.agent.sessions import with_files
from refold.checkpoint import SqliteSaver
from refold.core.messages import REFOLD_KEY, text_of
from refold.errors import ConfigurationError
from refold.files import CompositeFiles, MemoryFiles, Retention, StateFiles, referenced_paths
from refold.testing import Step, StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}
BIG = "\n".join(f"line {n}: the quagga number {n} was seen at /srv/zoo/{n}.txt" for n in range(1_200))


def drive(agent: Any, is_async: bool, text: str = "go", config: Any = CONFIG) -> dict[str, Any]:
    given = {"messages": [("user", text)]}
    found = asyncio.run(agent.ainvoke(given, config)) if is_async else agent.invoke(given, config)
    assert isinstance(found, dict)
    return found


def call(name: str, number: int, /, **args: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"type": "tool_call", "id": f"{name}-{number}", "name": name, "args": args}])


@tool
def logs() -> str:
    """Read the logs."""
    return BIG


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """LangGraph's own saver, under which the log is a delta channel, and refold's."""
    if request.param == "memory":
        yield InMemorySaver()
        return
    with SqliteSaver.from_conn_string(str(tmp_path / "t.db")) as own:
        yield own


@pytest.mark.parametrize("is_async", [False, True])
class TestFoldsIntoTheState:
    @pytest.mark.parametrize("composed", [False, True])
    def test_every_path_in_the_window_is_in_the_thread(self, is_async: bool, composed: bool, saver: Any) -> None:
        """A long run folds; what its requests name is in the state that the same supersteps stored, whole."""
        files = CompositeFiles(StateFiles(), {"/shared": MemoryFiles()}) if composed else StateFiles()
        model, worker = worker_model(25)
        agent = refold.create_agent(model, [work], files=files, checkpointer=saver, policy=QUICK)
        drive(agent, is_async)
        values = agent.get_state(CONFIG).values
        named = referenced_paths([text_of(m) for request in model.requests for m in request.messages])
        assert worker.summaries > 0
        assert {path for path in named if path.startswith(("/results/", "/history/"))}
        assert named <= set(values["refold_files"])
        assert [request.refusal for request in model.requests if request.refusal is not None] == []

    def test_in_somebody_elses_agent(self, is_async: bool) -> None:
        """The middleware brings the channel, so that nothing is to be declared."""
        model, worker = worker_model(25)
        parts = refold.middleware(StateFiles(), policy=QUICK)
        agent = create_langchain_agent(model, [work], middleware=parts, checkpointer=InMemorySaver())
        drive(agent, is_async)
        assert worker.summaries > 0
        assert agent.get_state(CONFIG).values["refold_files"]

    def test_what_was_stored_reads_back_and_is_found(self, is_async: bool, saver: Any) -> None:
        """By `read_file`, by `read_history` and by `search_history`, and an appended file holds each piece once."""

        def script(messages: Sequence[BaseMessage]) -> Step:
            results = [m for m in messages if isinstance(m, ToolMessage)]
            path = str(results[0].additional_kwargs[REFOLD_KEY]["path"]) if results else ""
            steps = [
                call("logs", 1),
                call("read_file", 2, path=path),
                call("read_history", 3, ref=path),
                call("search_history", 4, query="quagga 1111"),
                call("write_file", 5, path="/notes", content="one\n", mode="append"),
                call("write_file", 6, path="/notes", content="two\n", mode="append"),
                call("read_file", 7, path="/notes"),
                AIMessage("done"),
            ]
            return steps[len(results)]

        files = StateFiles()
        model = StrictModel(script=script, limit=20_000)
        agent = refold.create_agent(model, [logs], files=files, checkpointer=saver)
        log = drive(agent, is_async)["messages"]
        by_file, by_ref, found, _, _, notes = [text_of(m) for m in log if isinstance(m, ToolMessage)][1:]
        assert "quagga number 0" in by_file
        assert "quagga number 0" in by_ref
        assert "quagga number 1111" in found
        assert "one" in notes
        with files.session(agent.get_state(CONFIG).values):
            assert files.read("/notes") == b"one\ntwo\n"

    def test_a_childs_large_answer_is_in_the_parents_state(self, is_async: bool, saver: Any) -> None:
        """Each agent has files of its own: the child's originals are in its state, its answer in the caller's."""

        def script(messages: Sequence[BaseMessage]) -> Step:
            if is_summary_request(messages):
                return "SUMMARY"
            if "handed this task by another agent" in text_of(messages[0]):
                rounds = sum(isinstance(m, ToolMessage) for m in messages)
                return BIG if rounds else call("write_file", 1, path="/childs", content="x")
            results = [m for m in messages if isinstance(m, ToolMessage)]
            if not results:
                made = [
                    {"id": f"c{n}", "name": "task", "args": {"description": f"do {n}", "subagent": "general-purpose"}}
                    for n in range(3)
                ]
                return AIMessage(THOUGHT, tool_calls=made)  # type: ignore[arg-type]
            if len(results) == 3:
                path = str(results[0].additional_kwargs[REFOLD_KEY]["path"])
                return call("read_file", 2, path=path)
            return text_of(results[-1])[:200]

        model = StrictModel(script=script, limit=20_000)
        agent = refold.create_agent(
            model, [logs], files=StateFiles(), checkpointer=saver, subagents=[refold.GENERAL_PURPOSE], policy=QUICK
        )
        state = drive(agent, is_async)
        assert "quagga number 0" in text_of(state["messages"][-1])
        stored = agent.get_state(CONFIG).values["refold_files"]
        assert "/childs" not in stored
        assert [path for path in stored if path.startswith("/results/")]

    def test_a_fork_has_the_files_of_its_past(self, is_async: bool) -> None:
        """Rewound to before a write, the thread does not know it."""

        def script(messages: Sequence[BaseMessage]) -> Step:
            results = sum(isinstance(m, ToolMessage) for m in messages)
            return call("write_file", results, path=f"/n{results}", content="x") if results < 2 else "done"

        agent = refold.create_agent(
            StrictModel(script=script, limit=20_000), files=StateFiles(), checkpointer=InMemorySaver()
        )
        drive(agent, is_async)
        sizes = [len(state.values.get("refold_files") or ()) for state in agent.get_state_history(CONFIG)]
        assert sizes == sorted(sizes, reverse=True)
        assert (sizes[0], sizes[-1]) == (2, 0)


class TestChangesJoinAnyResult:
    """Of a tool, whatever form its result has."""

    CHANGE: ClassVar[dict[str, object]] = {"refold_files": ["later"]}

    def test_each_form(self) -> None:
        """Nothing that was there is lost, and changes of files keep their order."""
        message = ToolMessage("x", tool_call_id="1")
        assert with_files(message, {}) is message
        assert with_files(message, self.CHANGE) == Command(update={"messages": [message], "refold_files": ["later"]})
        own = Command(update={"a": 1, "refold_files": ["first"]}, goto="n")
        assert with_files(own, self.CHANGE) == Command(update={"a": 1, "refold_files": ["first", "later"]}, goto="n")
        bare = Command(goto="n")
        assert with_files(bare, self.CHANGE) == Command(update=self.CHANGE, goto="n")
        assert with_files([message], self.CHANGE) == [message, Command(update=self.CHANGE)]

    def test_a_command_for_another_graph(self) -> None:
        """The other graph is not given the files of this one."""
        away = Command(graph=Command.PARENT, update={"a": 1}, goto="n")
        assert with_files(away, self.CHANGE) == [away, Command(update=self.CHANGE)]


class TestWhatCannotWorkIsRefused:
    def test_retention_over_files_that_go_with_their_thread(self) -> None:
        """When the agent is built, not in the middle of a run; state that holds no originals is no hindrance."""
        with pytest.raises(ConfigurationError, match="prune checkpoints"):
            RetentionMiddleware(InMemorySaver(), StateFiles(), Retention(most_files=1))
        mixed = CompositeFiles(MemoryFiles(), {"/results": StateFiles()})
        with pytest.raises(ConfigurationError, match="prune checkpoints"):
            RetentionMiddleware(InMemorySaver(), mixed, Retention(most_files=1))
        notes = CompositeFiles(MemoryFiles(), {"/notes": StateFiles()})
        assert RetentionMiddleware(InMemorySaver(), notes, Retention(most_files=1))
