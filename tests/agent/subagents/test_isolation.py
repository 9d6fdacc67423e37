"""Nothing private crosses between an agent and its subagents, nor between siblings; only what a spec names does."""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

import pytest
from agents import QUICK, TOOLS, worker_model
from delegating import (
    CONFIG,
    WIDE,
    call,
    calls,
    delegates,
    drive,
    model_of,
    refusals,
    results,
    says,
    seen_by,
    start,
    task,
)
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents.middleware import TodoListMiddleware
from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from refold.agent.create import create_agent
from refold.agent.subagents import CompiledSubagent, Subagent
from refold.agent.subagents.delegate import Child, Delegation, Ended, RunChild, delegate_gen, task_message
from refold.core.messages import text_of
from refold.core.passes import Scope
from refold.core.policy import Policy
from refold.core.program import run
from refold.errors import ConfigurationError
from refold.files import MemoryFiles

SECRET = "marmalade-7731"
ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class NotesState(AgentState[object]):
    secret: NotRequired[Annotated[str, PrivateStateAttr]]
    diary: NotRequired[str]
    found: NotRequired[Annotated[list[str], operator.add]]
    topic: NotRequired[str]


class Notes(AgentMiddleware[NotesState, None, object]):
    """A middleware with keys of its own: private, plain, adding."""

    state_schema = NotesState


@tool
def keep_secret(runtime: ToolRuntime) -> Command[object]:
    """Write private and plain keys of the state."""
    message = ToolMessage("kept", name="keep_secret", tool_call_id=runtime.tool_call_id)
    return Command(update={"messages": [message], "secret": SECRET, "diary": SECRET, "found": [SECRET]})


@tool
def look() -> str:
    """Look around."""
    return "looked"


def writer(messages: Any) -> Any:
    """Writes the keys, a pin and a todo, each with the secret, and then answers without it."""
    if isinstance(messages[-1], ToolMessage):
        return "I have written what I was told."
    todo = {"content": SECRET, "status": "pending"}
    return calls(call("keep_secret"), call("pin", name="p", text=SECRET), call("write_todos", todos=[todo]))


def reader(messages: Any) -> Any:
    return "nothing to see" if isinstance(messages[-1], ToolMessage) else calls(call("look"))


class TestFault177NothingPrivateCrosses:
    @ASYNC
    def test_between_siblings_and_to_the_parent(self, is_async: bool) -> None:
        """One of two parallel siblings writes a private key, a plain key, a pin and a todo: neither the other, nor the
        parent, nor a sibling that is called later is ever shown them, and no state of the parent holds them."""
        own = [Notes(), TodoListMiddleware()]
        first, second = model_of(writer), model_of(reader)
        parent = model_of([
            calls(task("write", "writer", 1), task("read", "reader", 2)), calls(task("read", "reader", 3)), "done",
        ])  # fmt: skip
        agent = create_agent(
            parent, [keep_secret, look], files=MemoryFiles(), checkpointer=InMemorySaver(), middleware=own,
            subagents=[
                Subagent(name="writer", description="Writes.", model=first),
                Subagent(name="reader", description="Reads.", model=second),
            ],
        )  # fmt: skip
        state = drive(agent, start(), is_async=is_async)
        assert SECRET in seen_by(first)
        assert SECRET not in seen_by(second)
        assert SECRET not in seen_by(parent)
        assert SECRET not in repr(agent.get_state(CONFIG).values)
        assert [text_of(m) for m in results(state)] == [
            "I have written what I was told.", "nothing to see", "nothing to see",
        ]  # fmt: skip

    @ASYNC
    def test_from_the_parent_to_a_child(self, is_async: bool) -> None:
        """What the parent has in its keys, pins and todos when it delegates, no child is shown, nor is any of its
        messages: a child's first request is its own prompt and the task."""
        child = model_of(reader)
        parent_steps = [writer([HumanMessage("x")]), calls(task("Look around.", "reader")), "done"]
        agent = create_agent(
            model_of(parent_steps), [keep_secret, look], system_prompt="PARENT-PROMPT", files=MemoryFiles(),
            checkpointer=InMemorySaver(), middleware=[Notes(), TodoListMiddleware()],
            subagents=[Subagent(name="reader", description="Reads.", model=child, prompt="CHILD-PROMPT")],
        )  # fmt: skip
        drive(agent, start("PARENT-TASK"), is_async=is_async)
        assert agent.get_state(CONFIG).values["secret"] == SECRET
        assert not any(word in seen_by(child) for word in (SECRET, "PARENT-PROMPT", "PARENT-TASK"))
        window = child.requests[0].window
        assert [m.type for m in window] == ["human"]
        assert text_of(window[0]).startswith("Look around.\n\n[Level standard: ")
        assert child.requests[0].system.startswith("CHILD-PROMPT\n\n")

    def test_folds_stay_with_their_log(self) -> None:
        """A child that folds its log many times leaves no fold in the parent, and its archives are under its own
        name."""
        files = MemoryFiles()
        child, worker = worker_model(30)
        child.limit = 6_500
        parent = model_of(delegates(task("Do all the steps.", "worker")))
        agent = create_agent(
            parent, files=files, checkpointer=InMemorySaver(),
            subagents=[Subagent(name="worker", description="Works.", model=child, tools=TOOLS, policy=QUICK)],
        )  # fmt: skip
        state = drive(agent, start())
        assert [text_of(m) for m in results(state)] == [worker.answer]
        assert worker.summaries > 0
        assert agent.get_state(CONFIG).values.get("folds", []) == []
        assert refusals(child, parent) == []
        folders = {info.path.split("/")[2] for info in files.list("/history")}
        assert len(folders) == 1
        assert folders.pop().startswith("t-tools-")

    def test_a_compiled_graph_gets_the_description_alone(self) -> None:
        """No guidance, no keys: what a graph of one's own is handed is one human message."""
        handed: list[Any] = []

        def node(state: MessagesState) -> dict[str, Any]:
            handed.append(dict(state))
            return {"messages": [AIMessage("seen")]}

        graph = StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile()
        agent = create_agent(
            model_of(delegates(task("Exactly this.", "mine", level="deep"))), files=MemoryFiles(),
            checkpointer=InMemorySaver(),
            subagents=[CompiledSubagent(name="mine", description="Mine.", graph=graph)],
        )  # fmt: skip
        assert text_of(results(drive(agent, start()))[0]) == "seen"
        assert [(m.type, m.content) for m in handed[0]["messages"]] == [("human", "Exactly this.")]
        assert set(handed[0]) == {"messages"}


class TestFault181TheToolLogStaysInTheChild:
    def test_a_long_run_enters_as_its_answer(self) -> None:
        """Forty rounds of tool calls in an awaited child add two messages to the parent's log: call and answer."""
        child, worker = worker_model(40, limit=WIDE)
        parent = model_of(delegates(task("Do all the steps.", "worker")))
        agent = create_agent(
            parent, files=MemoryFiles(), checkpointer=InMemorySaver(),
            subagents=[Subagent(name="worker", description="Works.", model=child, tools=TOOLS)],
        )  # fmt: skip
        state = drive(agent, start(), is_async=True)
        assert worker.calls == 41
        assert [m.type for m in state["messages"]] == ["human", "ai", "tool", "ai"]
        assert "built /srv/app/module" in seen_by(child)
        assert "built /srv/app/module" not in seen_by(parent)
        assert "built /srv/app/module" not in repr(agent.get_state(CONFIG).values)

    def test_reading_a_stored_answer_reads_the_answer(self) -> None:
        """Fetching the result of a child by its path gives what it said, and none of its steps."""
        answer = "\n".join(f"conclusion {n}: keep {n}" for n in range(4_000))

        def child(messages: Any) -> Any:
            return answer if isinstance(messages[-1], ToolMessage) else calls(call("work", step=1))

        def parent(messages: Any) -> Any:
            last = messages[-1]
            if not isinstance(last, ToolMessage):
                return calls(task("Work."))
            if last.name == "task":
                return calls(call("read_file", path=last.additional_kwargs["refold"]["path"]))
            return "done"

        model = model_of(parent)
        agent = create_agent(
            model, files=MemoryFiles(), checkpointer=InMemorySaver(), policy=Policy(context_limit=40_000),
            subagents=[Subagent(name="helper", description="Helps.", model=model_of(child), tools=TOOLS)],
        )  # fmt: skip
        state = drive(agent, start())
        assert "conclusion 7: keep 7" in text_of(results(state, "read_file")[0])
        assert "built /srv/app/module" not in seen_by(model)


class TestDeclaredKeysCross:
    def test_in_and_out(self) -> None:
        """A key in `inputs` is the parent's value in the child; a key in `outputs` of parallel children is reduced by
        the parent's own reducer; others stay."""
        seen: list[Mapping[str, Any]] = []

        @tool
        def report(runtime: ToolRuntime) -> Command[object]:
            """Report what is in the state."""
            seen.append({key: runtime.state.get(key) for key in ("topic", "found", "diary")})
            message = ToolMessage("ok", name="report", tool_call_id=runtime.tool_call_id)
            return Command(update={"messages": [message], "found": [f"by {runtime.state['topic']}"], "diary": "mine"})

        child = model_of(lambda ms: "ok" if isinstance(ms[-1], ToolMessage) else calls(call("report")))
        parent = model_of(delegates(task("a", "helper", 1), task("b", "helper", 2)))
        agent = create_agent(
            parent, [report], files=MemoryFiles(), checkpointer=InMemorySaver(), middleware=[Notes()],
            subagents=[
                Subagent(name="helper", description="Helps.", model=child, inputs=["topic"], outputs=["found"])
            ],
        )  # fmt: skip
        drive(agent, {**start(), "topic": "bees", "found": ["before"], "diary": "the parent's"})
        values = agent.get_state(CONFIG).values
        assert values["found"] == ["before", "by bees", "by bees"]
        assert values["diary"] == "the parent's"
        assert seen == [{"topic": "bees", "found": [], "diary": None}] * 2

    def test_a_key_that_did_not_change_is_not_written(self) -> None:
        """Two parallel children that are handed a key without a reducer and leave it alone do not collide over it."""
        agent = create_agent(
            model_of(delegates(task("a", "helper", 1), task("b", "helper", 2))), files=MemoryFiles(),
            checkpointer=InMemorySaver(), middleware=[Notes()],
            subagents=[
                Subagent(
                    name="helper", description="Helps.", model=model_of(says("ok")), inputs=["topic"], outputs=["topic"]
                )
            ],
        )  # fmt: skip
        drive(agent, {**start(), "topic": "bees"})
        assert agent.get_state(CONFIG).values["topic"] == "bees"

    @pytest.mark.parametrize("key", ["folds", "pins", "messages", "compaction", "structured_response"])
    @pytest.mark.parametrize("side", ["inputs", "outputs"])
    def test_an_agents_own_keys_cannot_be_declared(self, key: str, side: str) -> None:
        """They are refused when the agent is built."""
        spec: Any = Subagent(name="helper", description="Helps.", **{side: [key]})
        with pytest.raises(ConfigurationError, match=f"names {key} in inputs or outputs"):
            create_agent(model_of([]), files=MemoryFiles(), checkpointer=InMemorySaver(), subagents=[spec])

    @pytest.mark.parametrize("side", ["inputs", "outputs"])
    def test_a_key_that_the_child_does_not_take_or_give_is_refused(self, side: str) -> None:
        """One that it does not have, and one that is private to it, which LangGraph would drop silently."""
        for key, own in (("topic", []), ("secret", [Notes()])):
            spec: Any = Subagent(name="helper", description="Helps.", middleware=own, **{side: [key]})
            with pytest.raises(ConfigurationError, match=f"has no {key} that can be handed in or out"):
                create_agent(model_of([]), files=MemoryFiles(), checkpointer=InMemorySaver(), subagents=[spec])


KEYS = st.sampled_from(["a", "b", "c", "d", "secret"])
VALUES = st.dictionaries(KEYS, st.integers(), max_size=5)


class TestOnlyDeclaredKeysCross:
    @given(parent=VALUES, child=VALUES, inputs=st.sets(KEYS), outputs=st.sets(KEYS))
    def test_whatever_the_states_hold(
        self, parent: dict[str, int], child: dict[str, int], inputs: set[str], outputs: set[str]
    ) -> None:
        """What a child is given is its task and the parent's values of `inputs`; what comes back is one message and the
        child's values of `outputs`."""
        graph = StateGraph(MessagesState).add_node("n", lambda state: state).add_edge(START, "n").compile()
        spec = CompiledSubagent(name="x", description="x", graph=graph, inputs=sorted(inputs), outputs=sorted(outputs))
        asked = task_message(spec, "do", "quick", "c1")
        job = Delegation(
            child=Child(spec=spec, graph=graph), task=asked, level="quick", limit=None, call_id="c1",
            state={**parent, "messages": [HumanMessage("the parent's")]}, threshold=10_000, thread="t",
            scope=Scope(thread="t", policy=Policy(), file_reader="read_file", log_reader=None),
        )  # fmt: skip
        given_to: list[Mapping[str, object]] = []

        def handle(effect: object) -> object:
            assert isinstance(effect, RunChild)
            given_to.append(effect.given)
            return Ended(state={**child, "messages": [asked, AIMessage("step"), AIMessage("answer")]})

        update: Any = run(delegate_gen(job), handle).update
        assert given_to == [{**{k: v for k, v in parent.items() if k in inputs}, "messages": [asked]}]
        assert [text_of(m) for m in update.pop("messages")] == ["answer"]
        unchanged = {k for k in inputs & set(parent) if parent[k] == child.get(k)}
        assert update == {k: v for k, v in child.items() if k in outputs - unchanged}
