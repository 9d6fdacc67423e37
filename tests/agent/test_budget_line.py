"""Fault 201: the free room is shown each turn, at the tail only, and the prefix stays whole."""

import itertools

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from refold.agent.window import WindowMiddleware
from refold.core.canonical import canonical_bytes
from refold.core.messages import is_record, text_of
from refold.core.policy import Policy
from refold.files import MemoryFiles
from refold.testing import StrictModel


@tool
def look() -> str:
    """Look."""
    return "a short finding"


def test_fault_201_the_line_is_last_and_in_no_later_request() -> None:
    """Each request ends with one line; without it, each request extends the one before."""
    steps = [AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": f"c{n}"}]) for n in range(4)]
    model = StrictModel(script=[*steps, "done"], limit=8_000, provider="anthropic")
    policy = Policy(context_limit=8_000, output_reserve=500, budget_line=True)
    agent = create_agent(model, [look], middleware=[WindowMiddleware(files=MemoryFiles(), policy=policy)])
    state = agent.invoke({"messages": [HumanMessage("go")]})
    bare = []
    for request in model.requests:
        assert [is_record(message) for message in request.window] == [False] * (len(request.window) - 1) + [True]
        assert "tokens of this conversation's window are free" in text_of(request.window[-1])
        bare.append([canonical_bytes(message.content) for message in request.window[:-1]])
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(bare))
    assert not any(is_record(message) for message in state["messages"])
