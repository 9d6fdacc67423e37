"""The tools on files that live in graph state."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from refold.agent.tools import file_tools
from refold.files import CompositeFiles, FilesState, MemoryFiles, StateFiles


class State(MessagesState, FilesState):
    """Messages and files."""


def agent(files: Any) -> Any:
    """A graph that runs tool calls."""
    graph = StateGraph(State)
    graph.add_node("tools", ToolNode(list(file_tools(files))))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("awaited", [False, True])
class TestFilesFollowTheThread:
    """What a tool writes is in the state of its thread, and nowhere else."""

    def step(self, graph: Any, awaited: bool, thread: str, *calls: tuple[str, dict[str, object]]) -> list[ToolMessage]:
        """One step of tool calls; their results."""
        made = [{"name": name, "args": args, "id": f"c{index}"} for index, (name, args) in enumerate(calls)]
        value = {"messages": [AIMessage(content="", tool_calls=made)]}
        config = {"configurable": {"thread_id": thread}}
        result = asyncio.run(graph.ainvoke(value, config)) if awaited else graph.invoke(value, config)
        return result["messages"][-len(calls) :]

    def test_writes_are_seen_in_later_steps(self, awaited: bool) -> None:
        """Parallel writes of a step are all kept, later steps read and edit them, other threads see nothing."""
        graph = agent(StateFiles())
        self.step(
            graph,
            awaited,
            "1",
            ("write_file", {"path": "/a", "content": "one"}),
            ("write_file", {"path": "/b", "content": "two"}),
            ("write_file", {"path": "/log", "content": "x\n", "mode": "append"}),
            ("write_file", {"path": "/log", "content": "y\n", "mode": "append"}),
        )
        (edited,) = self.step(
            graph, awaited, "1", ("edit_file", {"path": "/a", "old_string": "one", "new_string": "1"})
        )
        assert edited.content == "Edited /a: line 1."
        assert edited.tool_call_id == "c0"
        ls, read, log, found = self.step(
            graph,
            awaited,
            "1",
            ("ls", {}),
            ("read_file", {"path": "/a"}),
            ("read_file", {"path": "/log"}),
            ("grep", {"pattern": "two"}),
        )
        assert ls.content == "/a  1 bytes\n/b  3 bytes\n/log  4 bytes"
        assert read.content == "     1\t1"
        assert sorted(log.content.splitlines()) == ["     1\tx", "     2\ty"]
        assert found.content == "/b\n1: two"
        self.step(graph, awaited, "1", ("delete", {"path": "/b"}))
        (other,) = self.step(graph, awaited, "2", ("ls", {}))
        assert other.content == "[/ is empty or does not exist]"

    def test_mounted_beside_other_storage(self, awaited: bool) -> None:
        """In a composite, the part in state is in state and the rest is where it was."""
        shared = MemoryFiles()
        graph = agent(CompositeFiles(shared, {"/thread": StateFiles()}))
        self.step(
            graph,
            awaited,
            "1",
            ("write_file", {"path": "/thread/a", "content": "mine"}),
            ("write_file", {"path": "/b", "content": "all"}),
        )
        (mine,) = self.step(graph, awaited, "1", ("ls", {"path": "/thread"}))
        (theirs,) = self.step(graph, awaited, "2", ("glob", {"pattern": "/**"}))
        assert mine.content == "/thread/a  4 bytes"
        assert theirs.content == "/b  3 bytes"

    def test_a_fork_has_the_files_of_its_moment(self, awaited: bool) -> None:
        """Going back to before a write, the file is not there."""
        graph = agent(StateFiles())
        self.step(graph, awaited, "1", ("write_file", {"path": "/a", "content": "one"}))
        before = graph.get_state({"configurable": {"thread_id": "1"}}).config
        self.step(graph, awaited, "1", ("write_file", {"path": "/b", "content": "two"}))
        value = {"messages": [AIMessage(content="", tool_calls=[{"name": "ls", "args": {}, "id": "f"}])]}
        assert graph.invoke(value, before)["messages"][-1].content == "/a  3 bytes"
