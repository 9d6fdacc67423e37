"""`create_agent`: batteries in, each replaceable; runs, resumes and stays inside its window."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.create import create_agent
from refold.agent.edge import FoldCommitted, FoldProposal
from refold.agent.offload import Thresholds
from refold.agent.setup import Binding
from refold.agent.stack import middleware
from refold.agent.subagents import GENERAL_PURPOSE
from refold.agent.subagents.building import child_window
from refold.agent.tools import Permissions, Rule
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver, add_messages
from refold.checkpoint.reducer import reduce_messages
from refold.core.messages import REFOLD_KEY, text_of
from refold.core.meter import EstimatingMeter
from refold.core.policy import Policy
from refold.errors import ConfigurationError
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}


@tool
def search(n: int) -> str:
    """Search."""
    return f"hit {n}: /data/file_{n}.csv has {n * 7} rows\n" * 120


def script_of(rounds: int) -> StrictModel:
    count = iter(range(10_000))

    def script(messages: list[BaseMessage]) -> AIMessage | str:
        if "Write a record" in text_of(messages[-1]):
            return "A record of the searches."
        number = next(count)
        if number % (rounds + 1) == rounds:
            return "done"
        return AIMessage("", tool_calls=[{"name": "search", "args": {"n": number}, "id": f"c{number}"}])

    return StrictModel(script=script, limit=9_000)  # type: ignore[arg-type]


class TestTheDefaultsWork:
    def test_places_are_paths_too(self, tmp_path: Path) -> None:
        """A `Path` serves as well as its text, for files and threads."""
        database = tmp_path / "deep" / "threads.db"
        agent = create_agent(script_of(0), files=tmp_path / "files", checkpointer=database)
        agent.invoke({"messages": [HumanMessage("go", id="h1")]}, CONFIG)
        assert database.exists()

    async def test_threads_in_postgres_by_url(self, postgres_server: str) -> None:
        """A `postgresql://` URL is all that it takes, sync and awaited; a second agent goes on with the thread."""
        policy, config = Policy(context_limit=9_000, output_reserve=500), {"configurable": {"thread_id": "by-url"}}
        first = create_agent(
            script_of(6), [search], files=MemoryFiles(), checkpointer=postgres_server, policy=policy
        )  # fmt: skip
        first.invoke({"messages": [HumanMessage("go", id="h1")]}, {**config, "recursion_limit": 99})
        second = create_agent(script_of(0), [search], files=MemoryFiles(), checkpointer=postgres_server, policy=policy)
        state = await second.ainvoke({"messages": [HumanMessage("more", id="h2")]}, config)
        assert [m.id for m in state["messages"] if isinstance(m, HumanMessage)] == ["h1", "h2"]
        assert state["messages"][-1].text == "done"

    def test_an_agent_runs_long_and_resumes_in_another_object(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without any storage given, files and threads are under `.refold`, and a second agent goes on from them."""
        monkeypatch.chdir(tmp_path)
        policy = Policy(context_limit=9_000, output_reserve=500)
        first = create_agent(script_of(40), [search], system_prompt="Search.", policy=policy)
        first.invoke({"messages": [HumanMessage("go", id="h1")]}, CONFIG)
        second = create_agent(script_of(5), [search], system_prompt="Search.", policy=policy)
        state = second.invoke({"messages": [HumanMessage("more", id="h2")]}, CONFIG)
        assert state["messages"][0].id == "h1"
        assert len(state["messages"]) == 1 + 2 * 40 + 1 + 1 + 2 * 5 + 1
        assert (tmp_path / ".refold" / "threads.db").exists()
        assert second.get_state(CONFIG).values["folds"]

    def test_large_results_are_files_that_the_agent_can_read(self) -> None:
        """Offload and file tools share the same files: a stub's path is read with read_file."""
        files = MemoryFiles()
        script = [
            AIMessage("", tool_calls=[{"name": "search", "args": {"n": 1}, "id": "c"}]),
            "done",
        ]
        agent = create_agent(
            StrictModel(script=script, limit=9_000), [search], files=files, checkpointer=InMemorySaver(),
            policy=Policy(context_limit=9_000, output_reserve=500),
        )  # fmt: skip
        state = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        marked = state["messages"][2].additional_kwargs[REFOLD_KEY]
        assert files.read(marked["path"]).decode() == search.invoke({"n": 1})
        assert "read=read_file" in text_of(state["messages"][2])


class TestEveryPartIsReplaceable:
    def test_with_a_saver_of_refolds_the_log_is_a_plain_channel_else_a_delta_channel(self, tmp_path: Path) -> None:
        """Either way the same log comes back."""
        lengths = []
        with SqliteSaver.from_conn_string(str(tmp_path / "own.db")) as own:
            for saver in (own, InMemorySaver()):
                agent = create_agent(
                    script_of(3), [search], files=MemoryFiles(), checkpointer=saver,
                    policy=Policy(context_limit=9_000, output_reserve=500),
                )  # fmt: skip
                agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
                channel = agent.channels["messages"]
                reducer = channel.operator if isinstance(channel, BinaryOperatorAggregate) else channel.reducer
                lengths.append((reducer, len(agent.get_state(CONFIG).values["messages"])))
        assert lengths == [(add_messages, 8), (reduce_messages, 8)]

    def test_a_place_that_is_no_place_is_refused(self) -> None:
        """With an error that says what to do."""
        with pytest.raises(ConfigurationError):
            create_agent(script_of(1), files="gopher://nowhere")

    def test_a_url_is_no_file_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A checkpointer that nothing answers to is no SQLite file under a folder named like its scheme."""
        monkeypatch.chdir(tmp_path)
        for place in ("mysql://app@db/agents", "sqlite:///threads.db"):
            with pytest.raises(ConfigurationError, match="give the path of a SQLite file"):
                create_agent(script_of(1), checkpointer=place)
        assert list(tmp_path.iterdir()) == []
        create_agent(script_of(1), checkpointer=f"file:{tmp_path}/threads.db")
        assert (tmp_path / "threads.db").exists()

    def test_a_name_where_an_object_belongs(self) -> None:
        """It is refused when the agent is built, not at the first fold."""
        name: Any = "./originals"
        with pytest.raises(ConfigurationError, match="open_files"):
            WindowMiddleware(files=name)
        with pytest.raises(ConfigurationError, match="open_files"):
            middleware(name)
        with pytest.raises(ConfigurationError, match="init_chat_model"):
            WindowMiddleware(summary_model=name)


class TestWhatCannotWorkIsRefused:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"model": None}, {"model": 3}, {"summary_model": 3}, {"tools": None}, {"tools": search},
            {"tools": "search"}, {"tools": ["search"]}, {"files": 3}, {"checkpointer": False}, {"checkpointer": True},
            {"policy": {"soft": 0.2}}, {"permissions": Rule(effect="deny", paths=["/x"])}, {"permissions": [1]},
            {"interrupt_on": ["search"]}, {"retention": "30d"}, {"subagents": GENERAL_PURPOSE}, {"subagents": ["x"]},
            {"middleware": WindowMiddleware()}, {"middleware": ["x"]}, {"middleware": [WindowMiddleware(name="mine")]},
        ],
        ids=lambda wrong: "-".join(f"{name}-{type(value).__name__}" for name, value in wrong.items()),
    )  # fmt: skip
    def test_by_name_and_before_anything_is_made(
        self, wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names the argument and says what to give; no database is left behind."""
        monkeypatch.chdir(tmp_path)
        ((name, _),) = wrong.items()
        with pytest.raises(ConfigurationError, match=rf"{name}.*give"):
            create_agent(**{"model": script_of(0), **wrong})
        assert list(tmp_path.iterdir()) == []

    def test_what_works_elsewhere_works(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tuples, plain functions, schemas of provider's tools, models in the making."""
        monkeypatch.chdir(tmp_path)

        def double(n: int) -> int:
            """Double."""
            return 2 * n

        create_agent(
            script_of(0), (search, double, {"type": "web_search"}), middleware=(), subagents=(GENERAL_PURPOSE,)
        )


class TestTheWindowIsYours:
    """What `refold.middleware` takes, `create_agent` takes too."""

    def test_hooks_and_meter(self) -> None:
        """The hooks see the passes; the meter counts."""
        proposed, committed = list[FoldProposal](), list[FoldCommitted]()
        meter = EstimatingMeter(family="o200k")
        agent = create_agent(
            script_of(12), [search], files=MemoryFiles(), checkpointer=InMemorySaver(), meter=meter,
            policy=Policy(context_limit=9_000, output_reserve=500), offload=None, before_fold=proposed.append,
            after_fold=committed.append,
        )  # fmt: skip
        agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        assert len(proposed) == len(committed) > 0
        assert meter.count_calls > 0

    @pytest.mark.parametrize("wanted", [True, False])
    def test_offload_and_control(self, wanted: bool) -> None:
        """Without offload a large result stays in the log; without control the model has none of its tools. Subagents
        are like their caller."""
        model, files = script_of(1), MemoryFiles()
        agent = create_agent(
            model, [search], files=files, checkpointer=InMemorySaver(), subagents=[GENERAL_PURPOSE],
            offload=Thresholds(share=0.01, least=200, slack=0.0) if wanted else None, control=wanted, repair="state",
        )  # fmt: skip
        state = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        assert (text_of(state["messages"][2]) == search.invoke({"n": 0})) is not wanted
        names = {tool["function"]["name"] for tool in model.requests[0].tools}
        assert ("pin" in names) is wanted
        assert "search_history" in names


class TestPermissionsAndRecall:
    """Rules of the file tools are kept by every tool, and cannot make what a note says untrue."""

    RULES = (
        Permissions(Rule(effect="allow", paths=("/work/**",)), otherwise="deny"),
        Permissions(Rule(effect="ask", paths=("/**",))),
        Permissions(Rule(effect="deny", paths=("*-*",), operations=("read",))),
    )

    @pytest.mark.parametrize("rules", RULES)
    def test_what_left_the_window_can_be_read_under_any_rules(self, rules: Permissions) -> None:
        """The reader that a stub names is one that the rules do not stop."""
        files = MemoryFiles()
        given: list[AIMessage | str] = [
            AIMessage("", tool_calls=[{"name": "search", "args": {"n": 1}, "id": "c1"}]),
            AIMessage("", tool_calls=[{"name": "read_history", "args": {"ref": ""}, "id": "c2"}]),
            "done",
        ]

        def script(messages: list[BaseMessage]) -> AIMessage | str:
            step = given.pop(0)
            if len(given) == 1:
                assert "read=read_history" in text_of(messages[-1])
                path = messages[-1].additional_kwargs[REFOLD_KEY]["path"]
                return AIMessage("", tool_calls=[{"name": "read_history", "args": {"ref": path}, "id": "c2"}])
            return step

        agent = create_agent(
            StrictModel(script=script, limit=9_000), [search], files=files, checkpointer=InMemorySaver(),  # type: ignore[arg-type]
            permissions=rules, policy=Policy(context_limit=9_000, output_reserve=500),
        )  # fmt: skip
        state = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        assert search.invoke({"n": 1})[:200] in text_of(state["messages"][4])

    def test_in_a_child_with_rules_of_its_own(self) -> None:
        """Its notes name a reader that its own rules allow, its parent's one that the parent's allow."""
        window = WindowMiddleware(
            files=MemoryFiles(), binding=Binding(file_reader="read_file", log_reader="read_history")
        )
        spec = replace(GENERAL_PURPOSE, permissions=self.RULES[0])
        assert child_window(spec, window, spec.permissions).setup.file_reader == "read_history"
        assert child_window(GENERAL_PURPOSE, window).setup.file_reader == "read_file"


@tool("read_file")
def read_nothing(which: str) -> str:
    """Read one of our own things."""
    return f"my own {which}"


class TestAToolOfTheUsersKeepsItsName:
    """Nobody's tool is replaced in silence by one of refold's, in the agent or in its subagents."""

    def drive(self, own: BaseTool, *, made: dict[str, object], delegated: bool = False) -> tuple[StrictModel, str]:
        def script(messages: list[BaseMessage]) -> AIMessage | str:
            last = messages[-1]
            if isinstance(last, ToolMessage):
                return text_of(last)
            child = "handed this task by another agent" in text_of(messages[0])
            if delegated and not child:
                args = {"description": "do", "subagent": "general-purpose"}
                return AIMessage("", tool_calls=[{"name": "task", "args": args, "id": "t"}])
            return AIMessage("", tool_calls=[{"name": own.name, "args": made, "id": "c"}])

        model = StrictModel(script=script, limit=9_000)  # type: ignore[arg-type]
        agent = create_agent(
            model, [own, search], files=MemoryFiles(), checkpointer=InMemorySaver(), subagents=[GENERAL_PURPOSE]
        )
        return model, text_of(agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)["messages"][-1])

    @pytest.mark.parametrize("delegated", [False, True])
    def test_it_is_the_one_that_is_bound_and_run(self, delegated: bool) -> None:
        """With its own schema, once."""
        model, said = self.drive(read_nothing, made={"which": "thing"}, delegated=delegated)
        assert said == "my own thing"
        for request in model.requests:
            bound = [t["function"] for t in request.tools if t["function"]["name"] == "read_file"]  # type: ignore[index]
            assert [f["description"] for f in bound] == ["Read one of our own things."]

    def test_notes_name_a_reader_that_reads_what_was_stored(self) -> None:
        """Theirs is not it."""
        steps = iter([AIMessage("", tool_calls=[{"name": "search", "args": {"n": 1}, "id": "c1"}]), "done"])
        agent = create_agent(
            StrictModel(script=lambda messages: next(steps), limit=9_000), [read_nothing, search],
            files=MemoryFiles(), checkpointer=InMemorySaver(), policy=Policy(context_limit=9_000, output_reserve=500),
        )  # fmt: skip
        state = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        assert "read=read_history" in text_of(state["messages"][2])

    @pytest.mark.parametrize("name", ["read_history", "task", "pin", "compact_conversation"])
    def test_names_that_cannot_be_shared_are_refused(self, name: str) -> None:
        """Nothing else could read back what left the window, and two tools of one name cannot both be called."""
        taken = search.model_copy(update={"name": name})
        with pytest.raises(ConfigurationError, match="rename yours"):
            create_agent(
                script_of(1), [taken], files=MemoryFiles(), checkpointer=InMemorySaver(), subagents=[GENERAL_PURPOSE]
            )


class TestReview:
    """Calls that wait for a human."""

    def test_a_name_that_no_tool_has_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A misspelt one would be a question that is never asked; the message says which there are. No database is left
        behind."""
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigurationError, match=r"calls of serch shall wait .* search, "):
            create_agent(script_of(1), [search], interrupt_on={"serch": True})
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["search", "write_file", "pin", "extra"])
    def test_every_tool_of_the_agent_has_a_name(self, name: str) -> None:
        """Yours, the files', the window's, and those of your middleware."""

        class Extra(AgentMiddleware[Any, Any, Any]):
            tools: Sequence[BaseTool] = [StructuredTool.from_function(lambda: "", name="extra", description="Extra.")]

        agent = create_agent(
            script_of(1), [search], files=MemoryFiles(), checkpointer=InMemorySaver(), middleware=[Extra()],
            interrupt_on={name: True},
        )  # fmt: skip
        assert agent.name
