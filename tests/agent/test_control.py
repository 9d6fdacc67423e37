"""Control tools: the model asks, the next call folds; pinned notes stay in view; numbers are true."""

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.control import ControlMiddleware, reduce_pins
from refold.agent.window import WindowMiddleware
from refold.core.estimate import estimate_text
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}


@tool
def look(n: int) -> str:
    """Look."""
    return f"finding {n} in src/module_{n}.py: " + "ordinary words of a result " * 40


def called(tool_name: str, number: int, /, **args: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool_name, "args": args, "id": f"{tool_name}-{number}"}])


def agent_of(steps: list[AIMessage | str], *, limit: int = 20_000) -> tuple[object, StrictModel]:
    left = list(steps)

    def script(messages: list[BaseMessage]) -> AIMessage | str:
        if "Write a record" in text_of(messages[-1]):
            return "A record: findings were collected."
        return left.pop(0)

    model = StrictModel(script=script, limit=limit)  # type: ignore[arg-type]
    window = WindowMiddleware(files=MemoryFiles(), policy=Policy(context_limit=limit, output_reserve=500))
    middleware = [window, ControlMiddleware(window)]
    return create_agent(model, [look], middleware=middleware, checkpointer=InMemorySaver()), model


class TestCompactionIsAskedFor:
    def test_the_call_after_the_tool_folds_and_the_request_is_gone(self) -> None:
        """Fault 199: the request is deferred to the next call, made once, and says what is known."""
        rounds = int(0.46 * 19_000 / (estimate_text(look.invoke({"n": 1})) + 60))  # under `soft`, over the least
        steps: list[AIMessage | str] = [called("look", n, n=n) for n in range(rounds)]
        steps += [called("compact_conversation", 1, focus="the findings"), "done", "and again"]
        agent, model = agent_of(steps)
        state = agent.invoke({"messages": [HumanMessage("collect")]}, CONFIG)  # type: ignore[attr-defined]
        results = [m for m in state["messages"] if getattr(m, "name", None) == "compact_conversation"]
        assert [m.content.split(".")[0] for m in results] == ["Requested"]
        asked = [r for r in model.requests if "the findings" in text_of(r.messages[-1])]
        assert len(asked) == 1
        values = agent.get_state(CONFIG).values  # type: ignore[attr-defined]
        assert values["compaction"] is None
        assert {fold["reason"] for fold in values["folds"]} == {"requested"}
        agent.invoke({"messages": [HumanMessage("more")]}, CONFIG)  # type: ignore[attr-defined]
        assert len(agent.get_state(CONFIG).values["folds"]) == len(values["folds"])  # type: ignore[attr-defined]

    def test_a_short_conversation_is_left_alone_and_told_so(self) -> None:
        """Below the least occupancy nothing changes, truthfully."""
        agent, _ = agent_of([called("compact_conversation", 1), "done"])
        state = agent.invoke({"messages": [HumanMessage("hi")]}, CONFIG)  # type: ignore[attr-defined]
        assert state["messages"][2].content.startswith("Not needed")
        assert not agent.get_state(CONFIG).values.get("folds")  # type: ignore[attr-defined]


class TestPins:
    def test_a_pinned_note_is_in_view_after_its_call_was_folded(self) -> None:
        """The note stands in STATE once its round is summarised."""
        steps: list[AIMessage | str] = [called("pin", 1, name="rule", text="never touch tests/")]
        steps += [called("look", n, n=n) for n in range(60)]
        agent, model = agent_of([*steps, "done"], limit=9_000)
        agent.invoke({"messages": [HumanMessage("collect")]}, CONFIG)  # type: ignore[attr-defined]
        last = "\n".join(text_of(m) for m in model.requests[-1].messages)
        assert "never touch tests/" in last
        assert not any(
            call["name"] == "pin" for m in model.requests[-1].messages for call in getattr(m, "tool_calls", [])
        )

    def test_notes_are_bounded_replaced_and_taken_away(self) -> None:
        """Over the budget nothing is pinned; a name is unique; unpin removes it."""
        steps: list[AIMessage | str] = [
            called("pin", 1, name="a", text="one"),
            called("pin", 2, name="a", text="two"),
            called("pin", 3, name="long", text="words " * 3_000),
            called("unpin", 4, name="missing"),
            "done",
        ]
        agent, _ = agent_of(steps)
        state = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)  # type: ignore[attr-defined]
        assert agent.get_state(CONFIG).values["pins"] == {"a": "two"}  # type: ignore[attr-defined]
        statuses = [m.status for m in state["messages"] if m.type == "tool"]
        assert statuses == ["success", "success", "error", "error"]

    def test_the_reducer_is_pure(self) -> None:
        """Replayed, it gives the same notes."""
        left = {"a": "1"}
        assert reduce_pins(left, {"b": "2", "a": None}) == {"b": "2"}
        assert left == {"a": "1"}


class TestUsage:
    def test_the_numbers_are_those_of_the_last_request(self) -> None:
        """Fault 199: the tool returns what is used and what is left."""
        agent, _ = agent_of([called("context_usage", 1), "done"])
        state = agent.invoke({"messages": [HumanMessage("hi")]}, CONFIG)  # type: ignore[attr-defined]
        assert " tokens (" in state["messages"][2].content
        assert "are free" in state["messages"][2].content
