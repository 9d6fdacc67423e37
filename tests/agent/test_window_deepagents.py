"""The window inside deepagents, in place of its summarisation."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import QUICK, TOOLS, is_summary_request, worker_model
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend, StateBackend
from deepagents.backends.protocol import BackendProtocol
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.deepagents import window_for_deepagents
from refold.core.messages import text_of
from refold.testing import StrictModel

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 500}


@pytest.fixture(params=["directory", "state"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> BackendProtocol:
    if request.param == "state":
        return StateBackend()
    return FilesystemBackend(root_dir=tmp_path, virtual_mode=True)


def limit_of(model: StrictModel) -> int:
    """A limit that leaves about 4,000 tokens beside deepagents' own prompt and tools, measured by a first request."""
    probe = StrictModel(script=["ok"])
    create_deep_agent(probe, TOOLS).invoke({"messages": [HumanMessage("hi")]})
    return probe.requests[0].tokens + 4_500


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_long_run(backend: BackendProtocol, is_async: bool) -> None:
    """Thirty rounds: deepagents' summarisation is gone, folds are made, and `read_file` reads what left."""
    model, worker = worker_model(24)
    model.limit = limit_of(model)
    model.profile = {"max_input_tokens": model.limit}
    script, paths = model.script, []

    def reading(messages: Any) -> Any:
        """At the end of the rounds, read an artifact that the window names."""
        if not is_summary_request(messages) and worker.calls == worker.rounds and not paths:
            notes = [text_of(m) for m in messages if "⟦refold:" in text_of(m) and "path=" in text_of(m)]
            paths.append(notes[0].split("path=")[1].split()[0])
            call = {"type": "tool_call", "id": "rd", "name": "read_file", "args": {"file_path": paths[0]}}
            return AIMessage("", tool_calls=[call])
        return script(messages)

    model.script = reading
    graph = create_deep_agent(
        model, TOOLS, backend=backend, middleware=[window_for_deepagents(backend, policy=QUICK)],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    given = {"messages": [HumanMessage("Do all the steps.", id="task")]}
    result = asyncio.run(graph.ainvoke(given, CONFIG)) if is_async else graph.invoke(given, CONFIG)
    assert result["messages"][-1].text == "All steps are done."
    state = graph.get_state(CONFIG).values
    assert "_summarization_event" not in graph.channels
    assert {fold["kind"] for fold in state["folds"]} >= {"clear", "summary", "state"}
    assert [r.refusal for r in model.requests if r.refusal is not None] == []
    read = next(m for m in result["messages"] if isinstance(m, ToolMessage) and m.tool_call_id == "rd")
    assert "built /srv/app/module_" in text_of(read)
    assert "read_history" not in "".join(text_of(m) for m in model.requests[-1].window)
