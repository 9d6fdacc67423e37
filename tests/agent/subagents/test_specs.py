"""What a spec says, what it leaves to the parent, and what is refused before anything runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from agents import QUICK, SUMMARY, TOOLS, worker_model
from delegating import call, calls, delegates, drive, model_of, refusals, results, says, start, task, uses
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

import refold
from refold.agent.create import create_agent
from refold.agent.subagents import GENERAL_PURPOSE, CompiledSubagent, Subagent, SubagentDefaults, SubagentMiddleware
from refold.agent.subagents.building import child_window
from refold.agent.tools import Permissions, Rule
from refold.agent.window import WindowMiddleware
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.errors import ConfigurationError
from refold.files import MemoryFiles
from refold.testing import StrictModel


@tool
def search(query: str) -> str:
    """Search."""
    return f"hits for {query}"


@tool
def count(text: str) -> str:
    """Count."""
    return str(len(text))


def build(*specs: Any, **more: Any) -> Any:
    return create_agent(
        more.pop("model", model_of([])), [search, count], files=MemoryFiles(), checkpointer=InMemorySaver(),
        subagents=specs, **more,
    )  # fmt: skip


class Numbers(TypedDict):
    number: int


def no_messages() -> Any:
    return StateGraph(Numbers).add_node("n", lambda state: state).add_edge(START, "n").compile()


class TestWhatCannotWorkIsRefused:
    @pytest.mark.parametrize(
        ("specs", "said"),
        [
            ([Subagent(name="a", description="x"), Subagent(name="a", description="y")], "several subagents are"),
            ([Subagent(name=" ", description="x")], "give it a name of one line"),
            ([Subagent(name="a\nb", description="x")], "give it a name of one line"),
            ([Subagent(name="a", description=" \n")], "subagent 'a' has no description"),
            ([Subagent(name="a", description="x", tools=["search", "fly"])], "have: fly; there are: search, count"),
            ([Subagent(name="a", description="x", steps=0)], "has steps=0"),
            ([Subagent(name="a", description="x", level="slow")], "choose from quick, standard, deep"),  # type: ignore[arg-type]
            ([CompiledSubagent(name="a", description="x", graph=no_messages())], "has no messages"),
            ([CompiledSubagent(name="a", description="x", graph=RunnableLambda(str))], "give a compiled"),  # type: ignore[arg-type]
        ],
    )  # fmt: skip
    def test_with_a_message_that_says_what_to_do(self, specs: Sequence[Any], said: str) -> None:
        """When the agent is built, not when a model first delegates."""
        with pytest.raises(ConfigurationError, match=said):
            build(*specs)

    def test_a_child_without_a_model(self) -> None:
        """In LangChain's own agent the parent's model is not known; nor are tools that rules are for."""
        window = WindowMiddleware(files=MemoryFiles())
        with pytest.raises(ConfigurationError, match="has no model"):
            SubagentMiddleware(window, [Subagent(name="a", description="x")])
        ruled = Subagent(name="a", description="x", permissions=Permissions(otherwise="deny"))
        with pytest.raises(ConfigurationError, match="no file tools"):
            SubagentMiddleware(window, [ruled], defaults=SubagentDefaults(model=model_of([])))
        with pytest.raises(ConfigurationError, match="no subagent is given"):
            SubagentMiddleware(window, [])


class TestCallsThatCannotBeCarriedOut:
    def result(self, made: Any) -> ToolMessage:
        specs = [Subagent(name=name, description="x", model=model_of(says("ran"))) for name in ("red", "green")]
        return results(drive(build(*specs, model=model_of(delegates(made))), start()))[0]

    def test_an_unknown_subagent_is_answered_with_the_names(self) -> None:
        """As an error result; the run goes on."""
        message = self.result(task("x", "blue"))
        assert (message.status, text_of(message)) == (
            "error", "Not run: no subagent is called 'blue'. There are: red, green.",
        )  # fmt: skip

    def test_instructions_under_another_name_are_not_dropped(self) -> None:
        """A model that writes them into an argument of its own is told, instead of a child that works from a title."""
        message = self.result(task("Short title", "red", prompt="The real instructions."))
        assert message.status == "error"
        assert "no argument prompt" in text_of(message)

    @pytest.mark.parametrize("made", [task("", "red"), task("x", "red", level="forever"), call("task", subagent="red")])
    def test_invalid_arguments(self, made: Any) -> None:
        """Are an error result too."""
        assert self.result(made).status == "error"


class TestTheParentIsTold:
    def schema(self, *specs: Any) -> Any:
        model = model_of(["ok"])
        drive(build(*specs, model=model), start())
        return next(one["function"] for one in model.requests[0].tools if one["function"]["name"] == "task")  # type: ignore[index]

    def test_when_delegating_pays_and_whom_there_is(self) -> None:
        """The description says it; the schema lists names and levels."""
        schema = self.schema(
            Subagent(name="red", description="Knows\n red things."),
            Subagent(name="green", description="Green.", grant_history=True),
        )
        said = schema["description"]
        assert "Delegate what takes minutes" in said
        assert "in parallel" in said
        assert "- red: Knows red things.\n- green: Green. (you may search" in said
        properties = schema["parameters"]["properties"]
        assert properties["subagent"]["enum"] == ["red", "green"]
        assert properties["level"]["enum"] == ["quick", "standard", "deep"]
        assert all(f"- {level}: " in said for level in properties["level"]["enum"])

    def test_without_subagents_there_is_no_tool(self) -> None:
        """Nobody pays for what is not used."""
        model = model_of(["ok"])
        drive(build(model=model), start())
        assert "task" not in {one["function"]["name"] for one in model.requests[0].tools}  # type: ignore[index]

    def test_the_built_in_one_can_be_replaced(self) -> None:
        """By the same value with other fields."""
        schema = self.schema(replace(GENERAL_PURPOSE, description="Only for searching."))
        assert "- general-purpose: Only for searching." in schema["description"]


class TestWhatASpecLeavesOutIsTheParents:
    def tools_of(self, spec: Subagent) -> set[str]:
        child = model_of(says("ok"))
        drive(build(replace(spec, model=child), model=model_of(delegates(task("x", spec.name)))), start())
        return {one["function"]["name"] for one in child.requests[0].tools}  # type: ignore[index]

    def test_tools(self) -> None:
        """All, or those that it names, or its own; file tools and recall always, `task` never."""
        own = {"read_file", "write_file", "grep", "read_history", "search_history", "pin"}
        named = {"search", "count"}
        everything = self.tools_of(Subagent(name="a", description="x"))
        assert everything >= own | named
        assert "task" not in everything
        assert self.tools_of(Subagent(name="a", description="x", tools=["count"])) == everything - {"search"}
        assert self.tools_of(Subagent(name="a", description="x", tools=[])) == everything - named

    def test_permissions(self) -> None:
        """A rule of the parent binds its children, unless a spec has its own."""
        files = MemoryFiles()
        denied = Permissions(Rule(effect="deny", paths=("/secrets/**",)))
        for own, refused in ((None, True), (Permissions(), False)):
            child = model_of(uses(call("write_file", path="/secrets/key", content="x")))
            agent = create_agent(
                model_of(delegates(task("x"))), files=files, checkpointer=InMemorySaver(), permissions=denied,
                subagents=[Subagent(name="helper", description="x", model=child, permissions=own)],
            )  # fmt: skip
            assert ("do not let you write" in text_of(results(drive(agent, start()))[0])) == refused

    def test_files_are_shared(self) -> None:
        """What a child writes the parent reads."""

        def parent(messages: Sequence[BaseMessage]) -> Any:
            last = messages[-1]
            if not isinstance(last, ToolMessage):
                return calls(task("Write.", "a"))
            return calls(call("read_file", path="/notes.md")) if last.name == "task" else "done"

        child = model_of(uses(call("write_file", path="/notes.md", content="from the child")))
        agent = build(Subagent(name="a", description="x", model=child), model=model_of(parent))
        assert "from the child" in text_of(results(drive(agent, start()), "read_file")[0])

    def test_middleware(self) -> None:
        """The parent's, unless a spec has its own, none included."""
        seen: list[str] = []

        class Watch(AgentMiddleware[Any, Any, Any]):
            def before_agent(self, state: Any, runtime: Any) -> None:
                seen.append(text_of(state["messages"][0]).split("\n")[0])

        for own, expected in ((None, ["go", "x"]), ((), ["go"])):
            seen.clear()
            spec = Subagent(name="a", description="x", model=model_of(says("ok")), middleware=own)
            drive(build(spec, model=model_of(delegates(task("x", "a"))), middleware=[Watch()]), start())
            assert seen == expected


class TestFault196PolicyAndSummariserReachChildren:
    def test_the_parents_unless_the_spec_says_otherwise(self) -> None:
        """Its policy and summary model; numbers of the parent's model are not taken over for another one."""
        writer, own = model_of([]), model_of([])
        policy = Policy(trigger=0.6, context_limit=9_000, output_reserve=700)
        window = WindowMiddleware(files=MemoryFiles(), policy=policy, summary_model=writer)
        same = child_window(Subagent(name="a", description="x"), window).setup
        assert (same.policy, same.models.summary) == (policy, writer)
        other = child_window(Subagent(name="a", description="x", model=own), window).setup
        assert other.policy == replace(policy, context_limit=None, output_reserve=None)
        assert other.models.summary is writer
        told = child_window(Subagent(name="a", description="x", policy=QUICK, summary_model=own), window).setup
        assert (told.policy, told.models.summary) == (QUICK, own)
        assert window.setup.policy == policy

    def test_a_child_folds_at_its_own_models_limit_with_the_parents_summariser(self) -> None:
        """A small model under a parent with a large window: every request of it fits, and the parent's summary model
        wrote its segments, of which nobody's log or stream is the worse."""
        writer = StrictModel(script=lambda messages: SUMMARY, limit=100_000, model_name="writer")
        child, worker = worker_model(30, limit=6_500)
        parent = model_of(delegates(task("Do all the steps.", "worker")))
        agent = create_agent(
            parent, files=MemoryFiles(), checkpointer=InMemorySaver(), summary_model=writer,
            policy=replace(QUICK, context_limit=200_000),
            subagents=[Subagent(name="worker", description="Works.", model=child, tools=TOOLS)],
        )  # fmt: skip
        assert text_of(results(drive(agent, start()))[0]) == worker.answer
        assert worker.summaries == 0
        assert len(writer.requests) > 0
        assert refusals(child, parent, writer) == []

    def test_what_a_refusal_teaches_is_known_to_all(self) -> None:
        """A model whose limit nobody declared is refused once by the parent's or a child's request, not once each."""
        window = WindowMiddleware(files=MemoryFiles())
        child = child_window(Subagent(name="a", description="x", policy=QUICK), window)
        assert child.setup.host is window.setup.host


class TestTheFacade:
    def test_names(self) -> None:
        """Everything that a user needs is there."""
        names = {"GENERAL_PURPOSE", "CompiledSubagent", "Subagent", "SubagentDefaults", "SubagentMiddleware"}
        assert names <= set(refold.__all__)
        assert refold.Subagent is Subagent
