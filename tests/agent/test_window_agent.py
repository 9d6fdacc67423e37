"""`WindowMiddleware` in real agents: a strict model refuses what a provider refuses, and every run ends well."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from agents import QUICK, SUMMARY, TOOLS, Worker, is_summary_request, work, worker_model
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    TodoListMiddleware,
)
from langchain.agents.middleware.types import AgentMiddleware
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from refold.agent.window import WindowMiddleware
from refold.core.messages import is_record, text_of
from refold.core.validate import all_violations
from refold.errors import ConfigurationError, ContextOverflowError
from refold.files import MemoryFiles
from refold.testing import DIALECTS, StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 300}


def window(**options: object) -> WindowMiddleware:
    return WindowMiddleware(**{"files": MemoryFiles(), "policy": QUICK, **options})  # type: ignore[arg-type]


def agent(model: StrictModel, *middleware: AgentMiddleware[Any, Any, Any], **options: Any) -> Any:
    stack = middleware or (window(),)
    return create_agent(
        model, options.pop("tools", TOOLS), middleware=stack, checkpointer=options.pop("checkpointer", InMemorySaver()),
        **options,
    )  # fmt: skip


def start(text: str = "Do all the steps, one by one.") -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id="task")]}


def go(graph: Any, given: Any, *, is_async: bool = False, config: Any = CONFIG) -> dict[str, Any]:
    if not is_async:
        return graph.invoke(given, config)  # type: ignore[no-any-return]
    return asyncio.run(graph.ainvoke(given, config))  # type: ignore[no-any-return]


def kinds(graph: Any) -> Counter[str]:
    return Counter(str(fold["kind"]) for fold in graph.get_state(CONFIG).values.get("folds", []))


def summary_requests(model: StrictModel) -> list[str]:
    """The texts of the requests for a summary that were answered."""
    asked = [r.messages for r in model.requests if r.refusal is None and is_summary_request(r.messages)]
    return [repr([(m.type, m.content) for m in messages]) for messages in asked]


def assert_sound(model: StrictModel, *, refused: int = 0) -> None:
    """No request was refused for its form; at most so many for their size; all are valid for every provider."""
    refusals = [request.refusal for request in model.requests if request.refusal is not None]
    assert len(refusals) <= refused
    for request in model.requests:
        assert all_violations(request.window) == {}


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class TestALongRunStaysInsideItsWindow:
    @BOTH
    def test_many_rounds(self, is_async: bool) -> None:
        """Fault 19, 204: thirty rounds in a window of about four; the log keeps every message, nothing is refused."""
        model, worker = worker_model(30)
        graph = agent(model)
        result = go(graph, start(), is_async=is_async)
        assert result["messages"][-1].text == "All steps are done."
        assert len(result["messages"]) == 62
        assert kinds(graph)["summary"] >= 1
        assert len(set(summary_requests(model))) == worker.summaries
        assert "folds" not in result
        assert_sound(model)
        assert max(request.tokens for request in model.requests) <= 4_000

    def test_many_turns(self) -> None:
        """Turn after turn on one thread: the newest request is verbatim and the last human message of each request."""
        model, worker = worker_model(4, limit=3_000)
        graph = agent(model)
        for turn in range(8):
            worker.calls = 0
            go(graph, {"messages": [HumanMessage(f"Turn {turn}: again, please.", id=f"h{turn}")]})
            users = [m for m in model.requests[-1].window if isinstance(m, HumanMessage) and not is_record(m)]
            assert text_of(users[0]) == "Turn 0: again, please."
            assert text_of(users[-1]) == f"Turn {turn}: again, please."
        assert kinds(graph)["summary"] >= 1
        assert_sound(model)

    @BOTH
    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_a_limit_that_no_one_declared_is_learnt(self, dialect: str, is_async: bool) -> None:
        """Faults 7 and 9: whatever words the server has for it, the run ends with an answer."""
        if dialect == "ollama":
            pytest.skip("that server cuts silently; there is no refusal to learn from")
        model, _ = worker_model(14, profile={}, dialect=dialect, limit=3_000)
        graph = agent(model)
        result = go(graph, start(), is_async=is_async)
        assert result["messages"][-1].text == "All steps are done."
        assert any(request.refusal for request in model.requests)
        assert_sound(model, refused=8)

    @pytest.mark.parametrize("dialect", ["langchain", "openai", "vllm", "gemini", "bedrock"])
    def test_a_refusal_in_the_middle_of_a_stream(self, dialect: str) -> None:
        """Fault 9: the error comes after the first chunk."""
        model, _ = worker_model(14, profile={}, dialect=dialect, overflow_at="stream", limit=3_000)
        graph = agent(model)
        parts = list(graph.stream(start(), CONFIG, stream_mode="messages"))
        assert any(request.refusal for request in model.requests)
        assert "".join(chunk.text for chunk, _ in parts).endswith("All steps are done.")

    def test_a_summary_request_leaves_room_for_the_answers_cap(self) -> None:
        """Faults 12, 16: the provider counts `max_tokens` into the window, of the summary's request too."""
        model, worker = worker_model(25, limit=4_000, shared_limit=True, max_tokens=1_000)
        go(agent(model, window(policy=replace(QUICK, output_reserve=None))), start())
        assert worker.summaries >= 2
        assert_sound(model)

    @pytest.mark.parametrize("declared", [True, False], ids=["declared", "learnt"])
    def test_the_summary_model_has_its_own_window(self, declared: bool) -> None:
        """Faults 1, 16, 144: a limit of 1k with the answer's cap in it; undeclared, one refusal is enough
        for all later passes."""
        model, _ = worker_model(25)
        options: dict[str, Any] = {} if declared else {"profile": {}}
        writer = StrictModel(
            script=Worker(rounds=0), limit=1_000, shared_limit=True, max_tokens=300, model_name="writer", **options
        )
        graph = agent(model, window(summary_model=writer))
        go(graph, start())
        assert kinds(graph)["summary"] + kinds(graph)["merge"] >= 3
        assert kinds(graph)["strike"] == 0
        assert_sound(model)
        assert_sound(writer, refused=0 if declared else 1)

    def test_a_body_limit_is_learnt_too(self) -> None:
        """Fault 17: HTTP 413; what is sent again is smaller."""
        model, _ = worker_model(14, profile={}, byte_limit=9_000, limit=None)
        graph = agent(model)
        assert go(graph, start())["messages"][-1].text == "All steps are done."
        sizes = [(request.size, request.refusal is not None) for request in model.requests]
        for (size, refused), (following, _) in pairwise(sizes):
            assert not refused or following < size

    def test_a_model_that_always_refuses_ends_in_a_typed_error(self) -> None:
        """Fault 11, 29: bounded attempts, each smaller, then the error with its numbers."""
        model, _ = worker_model(3, limit=120, profile={})
        with pytest.raises(ContextOverflowError, match="tokens: limit"):
            go(agent(model), start("word " * 400))
        assert len(model.requests) <= 5

    def test_system_prompt_and_tools_that_fill_the_window(self) -> None:
        """Fault 14: nothing to fold helps, and the error says what fills it, before anything is sent."""
        model, _ = worker_model(1, limit=600)
        with pytest.raises(ContextOverflowError, match="system prompt") as raised:
            go(agent(model, system_prompt="Rules. " * 800), start())
        assert raised.value.system > 500
        assert model.requests == ()


class Report(BaseModel):
    """The report at the end."""

    title: str
    findings: list[str]


class TestStructuredOutput:
    @BOTH
    @pytest.mark.parametrize("strategy", [ToolStrategy, AutoStrategy])
    def test_by_a_tool(self, strategy: Any, is_async: bool) -> None:
        """Summaries are asked without the forced output tool; the answer is parsed as ever."""
        model, worker = worker_model(18)
        worker.answer = AIMessage(  # type: ignore[assignment]
            "", tool_calls=[{"id": "r", "name": "Report", "args": {"title": "done", "findings": ["a"]}}]
        )
        graph = agent(model, response_format=strategy(Report))
        result = go(graph, start(), is_async=is_async)
        assert result["structured_response"] == Report(title="done", findings=["a"])
        assert kinds(graph)["summary"] >= 1
        assert_sound(model)
        first = next(r for r in model.requests if r.tools and is_summary_request(r.messages))
        assert first.tools == model.requests[0].tools  # fault 124: the prefix is the live one from byte 0
        assert first.cached >= len(first.messages) - 3

    def test_by_the_provider(self) -> None:
        """The provider's own structured output, with folds on the way."""
        model, worker = worker_model(18)
        worker.answer = '{"title": "done", "findings": []}'
        graph = agent(model, response_format=ProviderStrategy(Report))
        assert go(graph, start())["structured_response"] == Report(title="done", findings=[])
        assert kinds(graph)["summary"] >= 1
        assert all("response_format" not in r.kwargs for r in model.requests if is_summary_request(r.messages))

    @pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
    def test_its_schema_counts(self, strategy: Any) -> None:
        """Fault 6: the schema that structured output adds is part of the request, and of the count."""
        schema = {
            "title": "Wide",
            "description": "A wide form.",
            "type": "object",
            "properties": {
                f"field_{n}": {"type": "string", "description": "What field it is. " * 12} for n in range(60)
            },
        }
        model, _ = worker_model(1, limit=1_500)
        with pytest.raises(ContextOverflowError) as raised:
            go(agent(model, response_format=strategy(schema)), start())
        assert raised.value.tools > 1_500


class TestOtherMiddleware:
    @pytest.mark.parametrize("outside", [True, False])
    @BOTH
    def test_fallback_model(self, outside: bool, is_async: bool) -> None:
        """Fault 74: a smaller fall-back model with stricter rules gets a window that fits it and that it takes."""
        worker = Worker(rounds=10)

        def failing(messages: Sequence[BaseMessage]) -> Any:
            return RuntimeError("down") if worker.calls >= 6 else worker(messages)

        first = StrictModel(script=failing, limit=6_000, model_name="big")
        second = StrictModel(script=worker, limit=2_500, model_name="small", provider="openai_responses")
        fallback = ModelFallbackMiddleware(second)
        graph = agent(first, *((fallback, window()) if outside else (window(), fallback)))
        assert go(graph, start(), is_async=is_async)["messages"][-1].text == "All steps are done."
        assert any(r.refusal is None for r in second.requests)
        assert all(r.refusal is None or not r.refusal.violations for r in second.requests)

    @pytest.mark.parametrize("order", [0, 1])
    def test_retry(self, order: int) -> None:
        """Retries around or inside the window cost no second summary of a span."""
        worker = Worker(rounds=18)
        failures = iter([False, True] * 200)

        def flaky(messages: Sequence[BaseMessage]) -> Any:
            return RuntimeError("blip") if not is_summary_request(messages) and next(failures) else worker(messages)

        model = StrictModel(script=flaky, limit=4_000)
        retry = ModelRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
        stack = [window(), retry]
        graph = agent(model, *(stack if order else reversed(stack)))
        assert go(graph, start())["messages"][-1].text == "All steps are done."
        assert kinds(graph)["summary"] >= 1
        assert len(set(summary_requests(model))) == worker.summaries

    def test_todos_stand_in_the_window_after_they_were_folded(self) -> None:
        """Fault 41, 39: the todo list is carried as data, whatever became of the call that wrote it."""
        todos = [{"content": f"step {n} of the plan", "status": "completed" if n < 3 else "pending"} for n in range(5)]
        worker = Worker(rounds=18)

        def script(messages: Sequence[BaseMessage]) -> Any:
            if not is_summary_request(messages) and worker.calls == 0:
                worker.calls += 1
                return AIMessage("", tool_calls=[{"id": "todo", "name": "write_todos", "args": {"todos": todos}}])
            return worker(messages)

        model = StrictModel(script=script, limit=4_500)
        graph = agent(model, TodoListMiddleware(), window())
        go(graph, start())
        state = next(
            m for m in model.requests[-1].window if m.additional_kwargs.get("refold", {}).get("kind") == "state"
        )
        assert "[completed] step 2 of the plan" in text_of(state)
        assert "[pending] step 4 of the plan" in text_of(state)

    @pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
    @pytest.mark.parametrize("first", [True, False])
    def test_human_in_the_loop(self, decision: str, first: bool) -> None:
        """Faults 59, 82, 84: calls that wait for a human, in the middle of folds; every later request is valid."""
        model, _ = worker_model(10)
        hitl = HumanInTheLoopMiddleware(interrupt_on={"work": True})
        stack = (hitl, window()) if first else (window(), hitl)
        graph = agent(model, *stack)
        result = go(graph, start())
        for _ in range(12):
            if "__interrupt__" not in result:
                break
            answer: dict[str, Any] = {"type": decision}
            if decision == "edit":
                answer["edited_action"] = {"name": "work", "args": {"step": 99}}
            if decision == "reject":
                answer["message"] = "Not this one, since it was done before. " * 40
            result = go(graph, Command(resume={"decisions": [answer]}))
        assert result["messages"][-1].text == "All steps are done."
        assert_sound(model)
        assert sum(kinds(graph).values()) >= 1

    def test_a_nested_agent_has_its_own_window(self) -> None:
        """Fault 177: folds do not pass from parent to child or between siblings, and both fit."""
        inner_model, inner_worker = worker_model(16)
        inner = create_agent(inner_model, TOOLS, middleware=[window()])

        from langchain_core.tools import tool

        @tool
        def delegate(step: int) -> str:
            """Have another agent do a step."""
            inner_worker.calls = 0
            return str(inner.invoke(start(f"inner {step}"), {"recursion_limit": 100})["messages"][-1].text)

        outer = Worker(rounds=3)

        def script(messages: Sequence[BaseMessage]) -> Any:
            step = outer(messages)
            if isinstance(step, AIMessage) and step.tool_calls:
                step.tool_calls[0]["name"] = "delegate"
            return step

        graph = agent(StrictModel(script=script, limit=4_000), tools=[delegate])
        go(graph, start())
        assert kinds(graph) == {}
        assert inner_worker.summaries >= 3
        assert_sound(inner_model)


class TestHooks:
    @BOTH
    def test_a_veto_changes_nothing(self, is_async: bool) -> None:
        """Fault 194: the hook says no, and the request is what it would have been; no fold is committed."""
        asked: list[Any] = []
        model, _ = worker_model(11, limit=6_000)
        graph = agent(model, window(before_fold=lambda proposal: asked.append(proposal) or False))
        go(graph, start(), is_async=is_async)
        assert asked
        assert asked[0].before > asked[0].after > 0
        assert sum(kinds(graph).values()) == 0
        assert len(model.requests[-1].window) == 23 + (is_summary_request(model.requests[-1].messages))

    @BOTH
    def test_a_vetoed_summary_is_not_paid_for_at_each_call(self, is_async: bool) -> None:
        """Fault 194: a summary that the hook refused is asked for again only after new tokens enough for another."""
        asked: list[str] = []
        model, worker = worker_model(31, limit=16_000)
        policy = replace(QUICK, kinds=frozenset({"summary"}), summary_spacing=0.9)
        graph = agent(model, window(policy=policy, before_fold=lambda p: asked.append(p.reason) or False))
        result = go(graph, start(), is_async=is_async)
        assert result["messages"][-1].text == worker.answer
        assert asked == ["trigger"]
        assert worker.summaries == 1

    def test_an_async_hook(self) -> None:
        """Awaited in an async run; a typed error in a sync one, which cannot await it."""

        async def hook(proposal: Any) -> bool:
            return True

        model, _ = worker_model(12)
        graph = agent(model, window(before_fold=hook))
        go(graph, start(), is_async=True)
        assert kinds(graph)["summary"] >= 1
        with pytest.raises(ConfigurationError, match="ainvoke"):
            go(agent(worker_model(12)[0], window(before_fold=hook)), start())

    def test_amending(self) -> None:
        """A hook keeps some folds and words a summary anew; what it did not propose is an error."""

        def hook(proposal: Any) -> list[Mapping[str, Any]]:
            return [
                {**fold, "data": {**fold["data"], "text": '<record kind="summary">In my words.</record>'}}
                for fold in proposal.folds
                if fold["kind"] in ("summary", "state")
            ]

        model, _ = worker_model(12)
        graph = agent(model, window(before_fold=hook))
        go(graph, start())
        assert set(kinds(graph)) <= {"summary", "state", "strike"}
        assert any("In my words." in text_of(message) for message in model.requests[-1].window)
        foreign = window(before_fold=lambda proposal: [{**proposal.folds[0], "id": "other"}])
        with pytest.raises(ConfigurationError, match="not proposed"):
            go(agent(worker_model(12)[0], foreign), start())

    @BOTH
    def test_after_fold_comes_once_per_pass_and_after_the_commit(self, is_async: bool) -> None:
        """Fault 204: exactly once, with the numbers, when the folds are in the state."""
        model, _ = worker_model(20)
        told: list[Any] = []
        graph = agent(model, window(after_fold=told.append))
        go(graph, start(), is_async=is_async)
        passes = [str(fold["pass"]) for fold in graph.get_state(CONFIG).values["folds"]]
        assert [event.pass_id for event in told] == list(dict.fromkeys(passes))
        assert all(event.before > event.after for event in told)
        assert all(len(event.folds) >= 1 for event in told)

    def test_after_fold_may_be_async(self) -> None:
        """Awaited where the agent is; a typed error where it is not."""
        told: list[Any] = []

        async def tell(committed: Any) -> None:
            await asyncio.sleep(0)
            told.append(committed.pass_id)

        graph = agent(worker_model(12)[0], window(after_fold=tell))
        go(graph, start(), is_async=True)
        assert told == list(dict.fromkeys(str(f["pass"]) for f in graph.get_state(CONFIG).values["folds"]))
        with pytest.raises(ConfigurationError, match="ainvoke"):
            go(agent(worker_model(12)[0], window(after_fold=tell)), start())

    def test_after_fold_comes_after_a_restart_too(self) -> None:
        """A process that stops between the commit and the hook's node: the one that goes on tells it, once."""
        model, _ = worker_model(14)
        told: list[Any] = []
        saver, files = InMemorySaver(), MemoryFiles()
        given: Any = start()
        for _ in range(200):
            middle = window(files=files, after_fold=told.append)
            graph = create_agent(
                model, TOOLS, middleware=[middle], checkpointer=saver,
                interrupt_after=["model"], interrupt_before=["model"],
            )  # fmt: skip
            graph.invoke(given, CONFIG)
            given = None
            if not graph.get_state(CONFIG).next:
                break
        passes = [str(fold["pass"]) for fold in graph.get_state(CONFIG).values["folds"]]
        assert passes
        assert [event.pass_id for event in told] == list(dict.fromkeys(passes))
        assert all(event.before > event.after for event in told)

    def test_folds_reach_the_custom_stream(self) -> None:
        """Each pass is told once, as data."""
        model, _ = worker_model(12)
        graph = agent(model)
        events = [part["refold"] for part in graph.stream(start(), CONFIG, stream_mode="custom") if "refold" in part]
        folds = [event for event in events if event["event"] == "fold"]
        passes = {str(fold["pass"]) for fold in graph.get_state(CONFIG).values["folds"]}
        assert {event["pass"] for event in folds} == passes
        assert SUMMARY not in str(events)


class TestCopiedReferences:
    @BOTH
    def test_a_call_that_repeats_a_reference_is_refused(self, is_async: bool) -> None:
        """Fault 131: the tool is not run, and the model is told where the whole text is."""
        copied = "⟦refold:withheld argument=content characters=9000 blake2b=ab message=m1 read=read_history⟧"
        steps: list[Any] = [
            AIMessage("", tool_calls=[{"id": "w", "name": "save", "args": {"content": f"x {copied}", "step": 1}}]),
            "Understood.",
        ]
        ran: list[str] = []

        from langchain_core.tools import tool

        @tool
        def save(content: str, step: int) -> str:
            """Save a text."""
            ran.append(content)
            return "saved"

        graph = agent(StrictModel(script=steps, limit=4_000), tools=[save])
        result = go(graph, start(), is_async=is_async)
        refused = next(m for m in result["messages"] if isinstance(m, ToolMessage))
        assert ran == []
        assert refused.status == "error"
        assert "read_history" in refused.text


class TestModelSwitch:
    def test_to_a_smaller_window(self) -> None:
        """Fault 29: the next call of the thread folds to what the new model takes."""
        saver, files = InMemorySaver(), MemoryFiles()
        big, _ = worker_model(10, limit=20_000)
        go(agent(big, window(files=files), checkpointer=saver), start())
        small, worker = worker_model(0, limit=2_500, model_name="small")
        result = go(
            agent(small, window(files=files), checkpointer=saver), {"messages": [HumanMessage("And now?", id="h2")]}
        )
        assert result["messages"][-1].text == worker.answer
        assert_sound(small)


def test_the_tool_of_the_middleware_reads_back_what_left() -> None:
    """What a stub names is what `read_history` reads, in the same agent."""
    model, worker = worker_model(9)
    graph = agent(model)
    go(graph, start())
    note = next(text_of(m) for m in model.requests[-1].window if "⟦refold:" in text_of(m) and "path=" in text_of(m))
    path = note.split("path=")[1].split()[0]
    plain = worker
    calls = {"n": 0}

    def script(messages: Sequence[BaseMessage]) -> Any:
        calls["n"] += 1
        if calls["n"] == 1:
            return AIMessage("", tool_calls=[{"id": "rr", "name": "read_history", "args": {"ref": path}}])
        return "read"

    model.script = script
    result = go(graph, {"messages": [HumanMessage("Read it.", id="again")]})
    read = next(m for m in result["messages"] if isinstance(m, ToolMessage) and m.tool_call_id == "rr")
    assert work.invoke({"step": 1})[:40] in read.text or "line 0 of step" in read.text
    assert plain.summaries >= 0
