"""Control tools: the model asks, the next call folds; pinned notes stay in view; numbers are true."""

import re
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.control import ControlMiddleware, reduce_compaction, reduce_pins
from refold.agent.edge import FoldProposal
from refold.agent.window import WindowMiddleware
from refold.core.estimate import estimate_text
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.core.segment import Facts, pins_alone, pins_text
from refold.files import MemoryFiles
from refold.testing import StrictModel

CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}


@tool
def look(n: int) -> str:
    """Look."""
    return f"finding {n} in src/module_{n}.py: " + "ordinary words of a result " * 40


def called(tool_name: str, number: int, /, **args: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool_name, "args": args, "id": f"{tool_name}-{number}"}])


def agent_of(
    steps: list[AIMessage | str], *, limit: int = 20_000, budget_line: bool = False
) -> tuple[object, StrictModel]:
    left = list(steps)

    def script(messages: list[BaseMessage]) -> AIMessage | str:
        if "Write a record" in text_of(messages[-1]):
            return "A record: findings were collected."
        return left.pop(0)

    model = StrictModel(script=script, limit=limit)  # type: ignore[arg-type]
    policy = Policy(context_limit=limit, output_reserve=500, budget_line=budget_line)
    window = WindowMiddleware(files=MemoryFiles(), policy=policy)
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


def note_of(request: Any) -> str:
    """What the tail of a request says about a requested pass."""
    last = request.messages[-1]
    return text_of(last) if last.additional_kwargs.get("refold", {}).get("kind") == "compaction" else ""


class TestTheModelIsToldWhatCameOfIt:
    """Once, in the request after the tool, behind everything that stays."""

    def run_with(
        self, *, summary: Any = "A record: findings were collected.", rounds: int | None = None, **options: Any
    ) -> tuple[list[str], Any, StrictModel]:
        count = rounds or int(0.46 * 19_000 / (estimate_text(look.invoke({"n": 1})) + 60))
        left: list[AIMessage | str] = [called("look", n, n=n) for n in range(count)]
        left += [called("compact_conversation", 1), called("look", 999, n=999), "done"]

        def script(messages: list[BaseMessage]) -> Any:
            return summary if "Write a record" in text_of(messages[-1]) else left.pop(0)

        model = StrictModel(script=script, limit=20_000)  # type: ignore[arg-type]
        policy = Policy(context_limit=20_000, output_reserve=500, summary_backoff=0.0, summary_retries=0)
        window = WindowMiddleware(files=MemoryFiles(), policy=options.pop("policy", policy), **options)
        agent = create_agent(
            model, [look], middleware=[window, ControlMiddleware(window, least=0.01)], checkpointer=InMemorySaver()
        )
        agent.invoke({"messages": [HumanMessage("collect")]}, CONFIG)
        asked = [r for r in model.requests if r.refusal is None and "Write a record" not in text_of(r.messages[-1])]
        return [note for r in asked if (note := note_of(r))], agent, model

    def test_done(self) -> None:
        """How many messages, the tokens before and after; the next request extends this one but for the note."""
        notes, agent, model = self.run_with()
        assert len(notes) == 1
        assert re.search(
            r"is done: \d+ older messages are shown as a summary now[^;]*; \d+ tokens became \d+ of", notes[0]
        )
        fold = agent.get_state(CONFIG).values["folds"][-1]
        assert f"{fold['before']} tokens became {fold['after']} of" in notes[0]
        asked = [r for r in model.requests if "Write a record" not in text_of(r.messages[-1])]
        place = next(n for n, r in enumerate(asked) if note_of(r))
        before, after = asked[place].messages[:-1], asked[place + 1].messages
        assert [m.content for m in after[: len(before)]] == [m.content for m in before]

    def test_a_summary_that_failed(self) -> None:
        """The tool never throws; the model is told that it failed, or what was done without."""
        notes, agent, _ = self.run_with(summary=RuntimeError("the summariser is down"))
        assert len(notes) == 1
        assert "failed" in notes[0] or "No summary was made: " in notes[0]
        assert agent.get_state(CONFIG).values["messages"][-1].text == "done"

    def test_a_pass_that_the_hook_refused(self) -> None:
        """The application's veto is said to be that; nothing was folded."""
        notes, agent, _ = self.run_with(before_fold=lambda proposal: False)
        assert len(notes) == 1
        assert "was refused by the application; nothing was changed" in notes[0]
        assert not agent.get_state(CONFIG).values.get("folds")

    def test_nothing_to_fold(self) -> None:
        """A conversation of one round cannot get shorter, and is told so."""
        notes, _, _ = self.run_with(rounds=1)
        assert len(notes) == 1
        assert "changed nothing" in notes[0]


class TestEligibility:
    def test_it_goes_by_what_the_provider_reported(self) -> None:
        """The newest answer's own count of what it read and wrote comes before any estimate."""
        window = self.window_after_a_call()
        answer = AIMessage("x", usage_metadata={"input_tokens": 15_000, "output_tokens": 40, "total_tokens": 15_040})
        gauge = window.setup.host.last("t")
        assert gauge is not None
        assert window.occupancy_after("t", answer) == (15_040 - gauge.fixed, window.occupancy("t")[1])
        estimated = window.occupancy_after("t", AIMessage("word " * 200))[0]
        assert window.occupancy("t")[0] + 100 < estimated < window.occupancy("t")[0] + 400
        assert window.occupancy_after("another", answer) == (0, 0)

    def window_after_a_call(self) -> WindowMiddleware:
        window = WindowMiddleware(files=MemoryFiles(), policy=Policy(context_limit=20_000, output_reserve=500))
        create_agent(StrictModel(script=["hi"], limit=20_000), [look], middleware=[window]).invoke(
            {"messages": [HumanMessage("hi")]}, CONFIG
        )
        return window

    def test_after_a_restart_it_is_known_how_full_the_window_was(self) -> None:
        """A process that has not sent a window of the thread goes by what stands with the answer that it resumes."""
        saver = InMemorySaver()

        def build() -> Any:
            window = WindowMiddleware(files=MemoryFiles(), policy=Policy(context_limit=20_000, output_reserve=500))
            steps = [called("compact_conversation", 1)] if not saver.storage else ["done"]
            return create_agent(
                StrictModel(script=list(steps), limit=20_000), [look], checkpointer=saver,
                middleware=[window, ControlMiddleware(window)], interrupt_before=["tools"],
            )  # fmt: skip

        build().invoke({"messages": [HumanMessage("hi")]}, CONFIG)
        state = build().invoke(None, CONFIG)
        said = text_of(state["messages"][2])
        assert re.match(r"Not needed. The window holds \d+ of \d{5} tokens.", said), said
        assert state["messages"][-1].text == "done"


class TestAVetoIsRemembered:
    @pytest.mark.parametrize("kinds", [{"clear", "result", "args"}, {"summary", "merge"}])
    def test_the_hook_is_not_asked_at_every_call(self, kinds: set[str]) -> None:
        """After a veto no pass is planned or asked for until a tenth of the budget of new tokens came."""
        asked: list[int] = []

        def refuse(proposal: FoldProposal) -> bool:
            asked.append(proposal.before)
            return False

        policy = Policy(
            context_limit=60_000, output_reserve=500, kinds=frozenset(kinds), trigger=0.3, soft=0.3, target=0.2
        )
        window = WindowMiddleware(files=MemoryFiles(), policy=policy, before_fold=refuse)
        steps: list[Any] = [called("look", n, n=n) for n in range(110)]

        def script(messages: list[BaseMessage]) -> Any:
            return "A record." if "Write a record" in text_of(messages[-1]) else steps.pop(0) if steps else "done"

        model = StrictModel(script=script, limit=60_000)  # type: ignore[arg-type]
        agent = create_agent(model, [look], middleware=[window], checkpointer=InMemorySaver())
        agent.invoke({"messages": [HumanMessage("collect")]}, {**CONFIG, "recursion_limit": 400})
        calls = sum(window_tokens > 0.3 * 59_500 for window_tokens in (r.tokens for r in model.requests))
        assert calls > 30
        assert 1 <= len(asked) <= 6
        assert all(later - earlier >= 0.09 * 59_000 for earlier, later in pairwise(asked))
        assert not agent.get_state(CONFIG).values.get("folds")


class TestPins:
    def test_notes_are_in_every_request_through_ten_compactions(self) -> None:
        """Fault 36's cousin: pinned once, the note stands in every request, verbatim, whatever is folded; also where
        STATE has hardly any room."""
        note = "Never touch tests/golden; the release is on 2031-04-05; ask ops (ticket OPS-77) before any migration."
        steps: list[Any] = [called("pin", 1, name="rules", text=note)]
        for n in range(12):
            steps += [called("look", 20 * n + k, n=20 * n + k) for k in range(4)]
            steps.append(called("compact_conversation", n + 1))

        def script(messages: list[BaseMessage]) -> Any:
            return "A record." if "Write a record" in text_of(messages[-1]) else steps.pop(0) if steps else "done"

        model = StrictModel(script=script, limit=8_000)  # type: ignore[arg-type]
        policy = Policy(context_limit=8_000, output_reserve=500, state_share=0.01, result_min=10**6, clear_min=10**6)
        window = WindowMiddleware(files=MemoryFiles(), policy=policy)
        control = ControlMiddleware(window, least=0.05)
        agent = create_agent(model, [look], middleware=[window, control], checkpointer=InMemorySaver())
        agent.invoke({"messages": [HumanMessage("collect")]}, CONFIG)
        folds = agent.get_state(CONFIG).values["folds"]
        assert len({fold["pass"] for fold in folds if fold["kind"] == "summary"}) >= 10
        with_pin = [r for r in model.requests if any("pin" in str(getattr(m, "tool_calls", "")) for m in r.messages)]
        rest = model.requests[model.requests.index(with_pin[0]) :]
        shown = ["\n".join(f"{text_of(m)} {getattr(m, 'tool_calls', '')}" for m in r.messages) for r in rest]
        assert all(note in text for text in shown)
        assert "## Pinned notes" in shown[-1]

    def test_the_planner_counts_them(self) -> None:
        """A pass with notes leaves a window within what it planned: STATE is measured with the notes in it."""
        facts = Facts(pins={"rule": "always ask first " * 20})
        assert "always ask first" in pins_alone(facts.pins)
        assert pins_text({}) == ""
        assert pins_text({"a": "</record> x"}).count("</record>") == 0

    def test_a_small_window_takes_few(self) -> None:
        """Notes are bounded by a twentieth of the budget too."""
        steps: list[AIMessage | str] = [called("pin", 1, name="long", text="words " * 400), "done"]
        agent, _ = agent_of(steps, limit=6_000)
        state = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)  # type: ignore[attr-defined]
        assert state["messages"][2].status == "error"
        assert "over " in state["messages"][2].content

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
        agent, _ = agent_of([called("context_usage", 1), "done"], budget_line=True)
        state = agent.invoke({"messages": [HumanMessage("hi")]}, CONFIG)  # type: ignore[attr-defined]
        assert " tokens (" in state["messages"][2].content
        assert "are free" in state["messages"][2].content

    def test_the_tool_is_there_where_the_policy_wants_it(self) -> None:
        """A model that is not told about its budget does not ask for it either."""
        names = []
        for wanted in (False, True):
            window = WindowMiddleware(files=MemoryFiles(), policy=Policy(budget_line=wanted))
            names.append([tool.name for tool in ControlMiddleware(window).tools])
        assert names == [["compact_conversation", "pin", "unpin"], [*names[0], "context_usage"]]


def together(*calls: AIMessage) -> AIMessage:
    return AIMessage("", tool_calls=[call for message in calls for call in message.tool_calls])


class TestSeveralCallsOfOneMessage:
    """Calls of one message run side by side, each with the state before all of them."""

    def test_two_requests_are_one_pass(self) -> None:
        """With what both ask for; a run does not end by it."""
        rounds = int(0.46 * 19_000 / (estimate_text(look.invoke({"n": 1})) + 60))
        steps: list[AIMessage | str] = [called("look", n, n=n) for n in range(rounds)]
        both = (
            called("compact_conversation", 1, focus="the paths"),
            called("compact_conversation", 2, focus="the errors"),
        )
        steps += [together(*both, called("compact_conversation", 3), called("look", 99, n=99)), "done"]
        agent, model = agent_of(steps)
        agent.invoke({"messages": [HumanMessage("collect")]}, CONFIG)  # type: ignore[attr-defined]
        values = agent.get_state(CONFIG).values  # type: ignore[attr-defined]
        assert values["compaction"] is None
        assert len({fold["pass"] for fold in values["folds"] if fold["reason"] == "requested"}) == 1
        asked = [text_of(request.messages[-1]) for request in model.requests]
        assert [text for text in asked if "the paths; the errors" in text]

    def test_notes_stay_within_their_budget(self) -> None:
        """The notes that earlier calls of the message keep are counted, and what they take away is not."""
        text = "word " * 280  # two of them fit, three do not
        made = [called("pin", n, name=f"n{n}", text=text) for n in range(3)]
        made += [called("unpin", 4, name="n0"), called("pin", 5, name="n5", text=text), called("unpin", 6, name="n2")]
        agent, _ = agent_of([together(*made), "done"])
        log = agent.invoke({"messages": [HumanMessage("hi")]}, CONFIG)["messages"]  # type: ignore[attr-defined]
        said = [text_of(message).split(":")[0].split(";")[0] for message in log[2:-1]]
        assert said == [
            "Pinned 'n0'", "Pinned 'n1'", "Not pinned", "Unpinned 'n0'.", "Pinned 'n5'", "No note is called 'n2'."
        ]  # fmt: skip
        assert sorted(agent.get_state(CONFIG).values["pins"]) == ["n1", "n5"]  # type: ignore[attr-defined]

    def test_the_reducer_is_pure(self) -> None:
        """None clears, requests join, the same focus is named once."""
        one, two = {"focus": "a"}, {"focus": "b"}
        assert reduce_compaction(one, two) == {"focus": "a; b"}
        assert reduce_compaction(None, one) == one
        assert reduce_compaction(one, None) is None
        assert reduce_compaction(one, one) == one
        assert reduce_compaction({"focus": None}, two) == two
