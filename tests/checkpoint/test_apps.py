"""Applications that know nothing of refold run unchanged: only the checkpointer differs, and nothing else does."""

import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import Field

from refold.checkpoint import AsyncSqliteSaver, SqliteSaver
from refold.replay import read_transcripts

Build = Callable[[BaseCheckpointSaver[Any]], Any]
CONFIG: Any = {"configurable": {"thread_id": "app"}, "recursion_limit": 500}


class Recording(BaseChatModel):
    """Says what was recorded: the reply whose number is the count of replies in the request."""

    replies: list[AIMessage]
    profile: dict[str, Any] | None = Field(default_factory=lambda: {"max_input_tokens": 10**9})

    @property
    def _llm_type(self) -> str:
        return "recording"

    def bind_tools(self, tools: Sequence[object], **kwargs: object) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: object, **kwargs: object) -> ChatResult:
        said = sum(isinstance(message, AIMessage) for message in messages)
        return ChatResult(generations=[ChatGeneration(message=self.replies[said].model_copy(deep=True))])


def _reply(number: int, text: str, *calls: tuple[str, dict[str, object]]) -> AIMessage:
    return AIMessage(
        text,
        id=f"reply-{number}",
        tool_calls=[ToolCall(name=name, args=args, id=f"call-{number}-{at}") for at, (name, args) in enumerate(calls)],
    )


def _look(path: str) -> str:
    return f"{path}: " + "line of the file\n" * 20


LOOK = StructuredTool.from_function(_look, name="look", description="Looks at a file.")
DEEP_REPLIES = [
    _reply(0, "I plan.", ("write_todos", {"todos": [{"content": "read", "status": "in_progress"}]})),
    _reply(1, "Two at once.", ("look", {"path": "a.py"}), ("look", {"path": "b.py"})),
    _reply(2, "I note it.", ("write_file", {"file_path": "/notes.md", "content": "# Notes\nfirst\n"})),
    _reply(3, "I delegate.", ("task", {"description": "Check a.py", "subagent_type": "general-purpose"})),
    _reply(4, "I correct.", ("edit_file", {"file_path": "/notes.md", "old_string": "first", "new_string": "second"})),
    _reply(5, "I read.", ("read_file", {"file_path": "/notes.md"})),
    _reply(6, "Done with the first turn."),
    _reply(7, "Again.", ("look", {"path": "c.py"})),
    _reply(8, "Done."),
]


def deep_app(saver: BaseCheckpointSaver[Any]) -> Any:
    """An application on deepagents: plan, files, parallel tools, a sub-agent."""
    from deepagents import create_deep_agent

    helper = Recording(replies=[_reply(100, "I look.", ("look", {"path": "a.py"})), _reply(101, "It is fine.")])
    general: Any = {
        "name": "general-purpose", "description": "Does a part.", "system_prompt": "Help.", "model": helper,
        "tools": [LOOK],
    }  # fmt: skip
    return create_deep_agent(Recording(replies=DEEP_REPLIES), [LOOK], subagents=[general], checkpointer=saver)


def graph_app(replies: Sequence[AIMessage], tools: Sequence[BaseTool]) -> Build:
    """An application on a plain `StateGraph` of its own."""

    def build(saver: BaseCheckpointSaver[Any]) -> Any:
        model = Recording(replies=[*replies])
        builder = StateGraph(MessagesState)
        builder.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_node("act", ToolNode([*tools]))
        builder.add_edge(START, "think")
        builder.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].tool_calls else END)
        builder.add_edge("act", "think")
        return builder.compile(checkpointer=saver)

    return build


SIMPLE = graph_app(
    [
        _reply(0, "Looking.", ("look", {"path": "a.py"}), ("look", {"path": "b.py"})),
        _reply(1, "It is there."),
        _reply(2, "Once more.", ("look", {"path": "c.py"})),
        _reply(3, "Done."),
    ],
    [LOOK],
)
QUESTIONS = ["Please check the files.", "And once more."]
APPS = pytest.mark.parametrize("build", [deep_app, SIMPLE], ids=["deepagents", "stategraph"])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AbstractContextManager[Any]]:
    if request.param == "sqlite":
        return lambda: SqliteSaver.from_conn_string(str(tmp_path / "app.db"))
    from refold.checkpoint import PostgresSaver

    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresSaver.from_conn_string(url)


def _plain(value: object, names: dict[str, str]) -> object:
    """A value with random ids of messages replaced by their order of appearance, which is the same in every run."""
    match value:
        case BaseMessage():
            fields = value.model_dump()
            fields["id"] = (
                names.setdefault(str(value.id), f"id-{len(names)}") if isinstance(value, ToolMessage) else value.id
            )
            return fields
        case dict():
            return {key: _plain(item, names) for key, item in value.items() if key not in ("created_at", "modified_at")}
        case list() | tuple():
            return [_plain(item, names) for item in value]
        case _:
            return value


def _states(graph: Any) -> list[object]:
    """Every state of the thread, oldest first: values, next nodes, step, and what each task did."""
    names: dict[str, str] = {}
    return [
        (_plain(state.values, names), state.next, state.metadata["step"], state.metadata["source"])
        for state in reversed(list(graph.get_state_history(CONFIG)))
    ]


def _ask(graph: Any, question: str, number: int) -> None:
    graph.invoke({"messages": [HumanMessage(question, id=f"question-{number}")]}, CONFIG)


class TestAppsRunUnchanged:
    @APPS
    def test_the_same_states(self, build: Build, opened: Callable[[], AbstractContextManager[Any]]) -> None:
        """Two turns, the second in a new process's saver: every state is the one of LangGraph's InMemorySaver."""
        memory = InMemorySaver()
        for number, question in enumerate(QUESTIONS):
            _ask(build(memory), question, number)
            with opened() as saver:
                _ask(build(saver), question, number)
        with opened() as saver:
            assert _states(build(saver)) == _states(build(memory))
            assert saver.verify().problems == ()

    @APPS
    async def test_awaited(self, build: Build, tmp_path: Path) -> None:
        """The same with the async saver, streamed."""
        memory = InMemorySaver()
        question = {"messages": [HumanMessage(QUESTIONS[0], id="question-0")]}
        events = []
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
            for checkpointer in (memory, saver):
                stream = build(checkpointer).astream(question, CONFIG, stream_mode="updates")
                events.append([sorted(event) async for event in stream])
        assert events[0] == events[1]
        with SqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
            assert _states(build(saver)) == _states(build(memory))

    def test_the_log_state(self, tmp_path: Path) -> None:
        """An agent whose messages are a log has, on our saver, the states that it has in memory."""
        from langchain.agents import create_agent

        from refold.checkpoint.state import LogState

        def build(saver: BaseCheckpointSaver[Any]) -> Any:
            model = Recording(replies=[_reply(0, "Looking.", ("look", {"path": "a.py"})), _reply(1, "Done.")])
            return create_agent(model, [LOOK], state_schema=LogState, checkpointer=saver)

        memory = InMemorySaver()
        _ask(build(memory), QUESTIONS[0], 0)
        with SqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
            _ask(build(saver), QUESTIONS[0], 0)
        with SqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
            assert _states(build(saver)) == _states(build(memory))


@pytest.mark.recorded
class TestRecordedSessions:
    def test_a_recorded_dialogue(self, sessions_dir: Path, tmp_path: Path) -> None:
        """A recorded customer-service dialogue, with the tools' recorded answers, played on a `StateGraph`."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            transcript = next(read_transcripts(sessions_dir / "openai-messages-airline.json"))
        answers = {m.tool_call_id: m.content for m in transcript.messages if isinstance(m, ToolMessage)}
        calls = [call for m in transcript.messages if isinstance(m, AIMessage) for call in m.tool_calls]
        by_arguments = {
            (c["name"], json.dumps(c["args"], sort_keys=True)): answers.get(c["id"] or "", "") for c in calls
        }
        tools = [_recorded_tool(name, by_arguments) for name in sorted({call["name"] for call in calls})]
        replies = [m for m in transcript.messages if isinstance(m, AIMessage)]
        build = graph_app([*replies, AIMessage("The recording ends here.", id="end")], tools)
        questions = [str(m.content) for m in transcript.messages if isinstance(m, HumanMessage)]
        memory = InMemorySaver()
        assert len(calls) > 3
        assert len(questions) > 1
        for number, question in enumerate(questions):
            _ask(build(memory), question, number)
            with SqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
                _ask(build(saver), question, number)
        with SqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
            assert _states(build(saver)) == _states(build(memory))
            assert saver.verify().problems == ()


def _recorded_tool(name: str, answers: dict[tuple[str, str], Any]) -> BaseTool:
    def answer(**arguments: object) -> Any:
        return answers[name, json.dumps(arguments, sort_keys=True)]

    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    return StructuredTool(name=name, description="Recorded.", func=answer, args_schema=schema)
