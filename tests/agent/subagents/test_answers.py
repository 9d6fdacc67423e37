"""An answer takes no more of its caller's window than there is room for, and nothing of it is lost."""

import base64
import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from delegating import CONFIG, call, calls, delegates, drive, model_of, refusals, results, says, start, task
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent as create_langchain_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from refold.agent.create import create_agent
from refold.agent.setup import Binding
from refold.agent.subagents import CompiledSubagent, Subagent, SubagentDefaults, SubagentMiddleware
from refold.agent.subagents.delegate import answer_of
from refold.agent.subagents.room import ANSWERS
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.core.estimate import estimate_text
from refold.core.messages import REFOLD_KEY, text_of
from refold.core.policy import Policy
from refold.errors import ConfigurationError, FilesUnavailableError
from refold.files import MemoryFiles
from refold.testing import StrictModel
from refold.testing.samples import PNG

LIMIT = 32_000
POLICY = Policy(output_reserve=1_000)


def long_answer(name: str, tokens: int = 50_000) -> str:
    """About so many tokens of findings, each line of its own."""
    return "\n".join(f"{name} found {n}: /srv/{name}/part_{n}.py fails with E{n:05d}" for n in range(tokens // 20))


def by_name(messages: Sequence[BaseMessage]) -> str:
    """A child that answers at length about what it was asked for."""
    return long_answer(text_of(messages[-1]).split()[0])


def helper(script: Any = by_name, **more: Any) -> Subagent:
    return Subagent(name="helper", description="Helps.", model=model_of(script, limit=None), **more)


class TestFault182ManyAnswersTogether:
    @pytest.mark.parametrize(("store", "is_async"), [("sqlite", False), ("memory", False), ("memory", True)])
    def test_sixteen_children_of_50k_tokens_into_32k(self, store: str, is_async: bool, tmp_path: Path) -> None:
        """The parent goes on: every request of it fits, it reads one answer back by the path in its window, and each
        answer is stored whole."""
        names = [f"child{n}" for n in range(16)]
        wanted: list[str] = []

        def parent(messages: Sequence[BaseMessage]) -> Any:
            last = messages[-1]
            if not isinstance(last, ToolMessage):
                return calls(*(task(name, "helper", name) for name in names))
            if last.name == "task":
                shown = next(m for m in messages if isinstance(m, ToolMessage) and "child11 found 0" in text_of(m))
                path = text_of(shown).split("path=")[1].split()[0]
                wanted.append(path)
                return calls(call("read_file", path=path))
            return "all is read"

        assert estimate_text(long_answer("child0")) >= 50_000
        model, files = StrictModel(script=parent, limit=LIMIT), MemoryFiles()
        opened: AbstractContextManager[Any] = nullcontext(InMemorySaver())
        if store == "sqlite":
            opened = SqliteSaver.from_conn_string(str(tmp_path / "t.db"))
        with opened as saver:
            agent = create_agent(model, files=files, checkpointer=saver, policy=POLICY, subagents=[helper()])
            state = drive(agent, start(), is_async=is_async)
        assert text_of(state["messages"][-1]) == "all is read"
        assert refusals(model) == []
        assert max(r.tokens for r in model.requests) < 0.8 * LIMIT
        assert "child11 found 3: /srv/child11/part_3.py" in text_of(results(state, "read_file")[0])
        stored = [files.read(m.additional_kwargs[REFOLD_KEY]["path"]).decode() for m in results(state)]
        assert stored == [long_answer(name) for name in names]

    def test_a_hundred_children_into_32k(self) -> None:
        """No size enters whole whatever the number: a hundred answers of a page each are a hundred short stubs."""
        names = [f"child{n}" for n in range(100)]
        script = delegates(*(task(name, "helper", name) for name in names))
        model, files = StrictModel(script=script, limit=LIMIT), MemoryFiles()
        agent = create_agent(
            model, files=files, checkpointer=InMemorySaver(), policy=POLICY,
            subagents=[helper(lambda ms: long_answer(text_of(ms[-1]).split()[0], 1_200))],
        )  # fmt: skip
        state = drive(agent, start())
        assert text_of(state["messages"][-1]) == "parent done"
        assert refusals(model) == []
        assert len(results(state)) == 100
        assert all(REFOLD_KEY in m.additional_kwargs for m in results(state))

    def test_children_that_return_into_a_window_that_is_nearly_full(self) -> None:
        """With the window near its trigger the answers leave room for the fold that comes next."""
        notes = "\n".join(f"note {n}: keep /srv/n_{n}" for n in range(1_450))

        def parent(messages: Sequence[BaseMessage]) -> Any:
            if "Stop here for a moment" in text_of(messages[-1]):
                return "A record of the work."
            last = messages[-1]
            return (
                "parent done"
                if isinstance(last, ToolMessage)
                else calls(*(task(f"c{n}", "helper", n) for n in range(8)))
            )

        model = StrictModel(script=parent, limit=LIMIT)
        agent = create_agent(
            model, files=MemoryFiles(), checkpointer=InMemorySaver(), policy=POLICY, subagents=[helper()]
        )
        history = [HumanMessage("go", id="h1"), AIMessage(notes, id="a1"), HumanMessage("on", id="h2")]
        state = drive(agent, {"messages": history})
        assert text_of(state["messages"][-1]) == "parent done"
        assert refusals(model) == []

    @given(used=st.integers(0, 40_000), budget=st.integers(1_000, 40_000), together=st.integers(1, 200))
    def test_together_they_take_half_of_what_is_free(self, used: int, budget: int, together: int) -> None:
        """Whatever the numbers: so many thresholds are at most half the free room, or each is a stub's own size."""
        most = ANSWERS.of("task", used=used, budget=budget, together=together)
        assert most == ANSWERS.least or most * together <= 0.5 * (budget - used) + together


class TestFault179AnAnswerIsSized:
    def test_a_short_answer_enters_as_it_is(self) -> None:
        """And nothing is stored for it."""
        files = MemoryFiles()
        agent = create_agent(
            StrictModel(script=delegates(task("x")), limit=LIMIT), files=files, checkpointer=InMemorySaver(),
            policy=POLICY, subagents=[helper(says("  It is in /srv/a.py.\n"))],
        )  # fmt: skip
        message = results(drive(agent, start()))[0]
        assert (text_of(message), message.status, message.additional_kwargs) == ("It is in /srv/a.py.", "success", {})
        assert list(files.list("/")) == []

    def test_alone_it_may_take_a_tenth_of_the_window(self) -> None:
        """One answer of 2.5k tokens enters a window of 31k whole; the same one of eight does not."""
        answer = long_answer("one", 2_200)
        for together, whole in ((1, True), (8, False)):
            script = delegates(*(task("x", "helper", n) for n in range(together)))
            agent = create_agent(
                StrictModel(script=script, limit=LIMIT), files=MemoryFiles(), checkpointer=InMemorySaver(),
                policy=POLICY, subagents=[helper(says(answer))],
            )  # fmt: skip
            assert {text_of(m) == answer for m in results(drive(agent, start()))} == {whole}

    def test_a_run_that_is_resumed_in_its_tools(self) -> None:
        """A process that never saw a request of the thread sizes answers as well, from the state."""
        saver, files = InMemorySaver(), MemoryFiles()
        broken = True

        def child(messages: Sequence[BaseMessage]) -> Any:
            return RuntimeError("killed") if broken else by_name(messages)

        def agent() -> Any:
            script = delegates(task("x"))
            return create_agent(
                StrictModel(script=script, limit=LIMIT), files=files, checkpointer=saver, policy=POLICY,
                subagents=[helper(child)],
            )  # fmt: skip

        with pytest.raises(RuntimeError, match="killed"):
            drive(agent(), start())
        broken = False
        message = results(drive(agent(), None))[0]
        assert message.additional_kwargs[REFOLD_KEY]["kind"] == "ingested"
        assert files.read(message.additional_kwargs[REFOLD_KEY]["path"]).decode() == long_answer("x")

    def test_a_call_that_no_model_of_ours_made(self) -> None:
        """A call that was written into the state by hand is sized as well: the window is measured then."""
        files = MemoryFiles()
        agent = create_agent(
            StrictModel(script=["parent done"], limit=LIMIT), files=files, checkpointer=InMemorySaver(), policy=POLICY,
            subagents=[helper()],
        )  # fmt: skip
        agent.update_state(CONFIG, {"messages": [HumanMessage("go"), calls(task("x"))]}, as_node="model")
        message = results(drive(agent, None))[0]
        assert files.read(message.additional_kwargs[REFOLD_KEY]["path"]).decode() == long_answer("x")

    def test_the_preview_is_typed(self) -> None:
        """A structured answer over the room is previewed by its shape."""
        answer = json.dumps({"findings": [{"path": f"/srv/p{n}.py", "line": n} for n in range(4_000)], "sure": True})
        agent = create_agent(
            StrictModel(script=delegates(task("x")), limit=LIMIT), files=MemoryFiles(), checkpointer=InMemorySaver(),
            policy=POLICY, subagents=[helper(says(answer))],
        )  # fmt: skip
        assert 'of="json"' in text_of(results(drive(agent, start()))[0])


class Broken(MemoryFiles):
    def write(self, path: str, data: bytes, *, mode: str) -> None:  # type: ignore[override]
        raise FilesUnavailableError("the disk is full")


class TestItFailsClosed:
    def agent(self, window: WindowMiddleware, answer: str) -> Any:
        return create_langchain_agent(
            model_of(delegates(task("x"))), [], checkpointer=InMemorySaver(),
            middleware=[
                window,
                SubagentMiddleware(
                    window, [helper(says(answer), middleware=())], defaults=SubagentDefaults(model=model_of([]))
                ),
            ],
        )  # fmt: skip

    def test_without_a_reader_the_answer_enters_whole(self) -> None:
        """A path that no bound tool reads is never shown instead of content: neither where none is configured, nor
        where the one that is configured is not bound."""
        answer = long_answer("x", 4_000)
        for binding in (Binding(file_reader=None, log_reader=None), Binding(file_reader="read_file")):
            window = WindowMiddleware(files=MemoryFiles(), policy=Policy(context_limit=20_000), binding=binding)
            state = drive(self.agent(window, answer), start())
            assert text_of(results(state)[0]) == answer

    def test_without_storage_the_answer_enters_whole(self) -> None:
        """Nothing is cut because a disk is full."""
        answer = long_answer("x", 4_000)
        window = WindowMiddleware(files=Broken(), policy=Policy(context_limit=200_000))
        assert text_of(results(drive(self.agent(window, answer), start()))[0]) == answer


class Finding(BaseModel):
    path: str
    lines: list[int]


@dataclasses.dataclass
class Verdict:
    good: bool


class TestWhatTheAnswerIs:
    def test_a_structured_response_as_json(self) -> None:
        """By a response format of the spec."""
        found = {"path": "/srv/a.py", "lines": [3, 5]}
        child = lambda ms: calls(call("Finding", **found))  # noqa: E731
        agent = create_agent(
            model_of(delegates(task("x"))), files=MemoryFiles(), checkpointer=InMemorySaver(),
            subagents=[helper(child, response_format=ToolStrategy(Finding))],
        )  # fmt: skip
        assert json.loads(text_of(results(drive(agent, start()))[0])) == found

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Finding(path="/a", lines=[1]), '{"path":"/a","lines":[1]}'), (Verdict(good=True), '{"good": true}'),
            ({"wörter": "数据"}, '{"wörter": "数据"}'), ([], "[]"), (0, "0"), ("as it is", "as it is"),
        ],
    )  # fmt: skip
    def test_any_structured_value(self, value: object, text: str) -> None:
        """Pydantic, dataclass, JSON values, falsy ones too; a text stays a text."""
        assert answer_of({"structured_response": value}, [AIMessage("words")], since="t") == text

    @pytest.mark.parametrize(
        ("log", "text"),
        [
            (["task", AIMessage("first"), AIMessage("last")], "last"),
            (["task", AIMessage("said"), AIMessage("")], "said"),
            (["task", AIMessage("said"), AIMessage("  \n")], "said"),
            ([AIMessage("an earlier task's"), "task", AIMessage("")], ""),
            ([AIMessage("an earlier task's"), "task", AIMessage("mine")], "mine"),
            (["task", AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}])], "so"),
            (["task"], ""), ([], ""),
        ],
    )  # fmt: skip
    def test_the_last_words_after_the_task(self, log: list[Any], text: str) -> None:
        """Empty last messages are passed over, reasoning is no answer, and what was said before the task is not."""
        messages = [HumanMessage("do", id="t") if item == "task" else item for item in log]
        assert answer_of({}, messages, since="t") == text

    def test_a_child_without_words_is_an_error(self) -> None:
        """The caller is told, and not with an empty success."""
        agent = create_agent(
            model_of(delegates(task("x"))),
            files=MemoryFiles(),
            checkpointer=InMemorySaver(),
            subagents=[helper(says(""))],
        )
        message = results(drive(agent, start()))[0]
        assert message.status == "error"
        assert "ended without an answer" in text_of(message)

    def graph(self, node: Callable[[Any], Any], state: Any) -> Any:
        return StateGraph(state).add_node("n", node).add_edge(START, "n").compile()

    def run(self, graph: Any) -> ToolMessage:
        agent = create_agent(
            model_of(delegates(task("x", "mine"))), files=MemoryFiles(), checkpointer=InMemorySaver(),
            subagents=[CompiledSubagent(name="mine", description="Mine.", graph=graph)],
        )  # fmt: skip
        return results(drive(agent, start()))[0]

    def test_of_a_graph_with_a_pydantic_state(self) -> None:
        """Any state with `messages` will do."""

        class State(BaseModel):
            messages: list[Any] = []

        message = self.run(self.graph(lambda state: {"messages": [*state.messages, AIMessage("mine")]}, State))
        assert text_of(message) == "mine"

    def test_of_a_graph_whose_messages_are_something_else(self) -> None:
        """An error that says what to do, and not an empty answer."""

        class State(TypedDict):
            messages: Any

        with pytest.raises(ConfigurationError, match="put out no list of messages"):
            self.run(self.graph(lambda state: {"messages": "words"}, State))


PICTURE: dict[str, object] = {"type": "image", "base64": PNG, "mime_type": "image/png"}
LINK: dict[str, object] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


class TestMediaOfAnAnswer:
    """What a child shows is never dropped in silence."""

    def answer(self, said: list[Any], files: MemoryFiles) -> ToolMessage:
        agent = create_agent(
            model_of(delegates(task("x"))), files=files, checkpointer=InMemorySaver(),
            subagents=[helper(lambda messages: AIMessage(said))],
        )  # fmt: skip
        return results(drive(agent, start()))[0]

    @pytest.mark.parametrize("words", ["", "See the picture."])
    def test_a_picture_is_a_reference_that_reads_back(self, words: str) -> None:
        """With words or alone; it is stored once, and the answer is a success."""
        files = MemoryFiles()
        result = self.answer([*([{"type": "text", "text": words}] if words else []), PICTURE], files)
        (stored,) = files.list("/media")
        assert result.status == "success"
        assert words in text_of(result)
        assert stored.path in text_of(result)
        assert files.read(stored.path) == base64.b64decode(PNG)
        assert PNG not in str(result.content)

    def test_a_picture_beside_a_long_answer(self) -> None:
        """The preview, and the reference below it."""
        files = MemoryFiles()
        result = self.answer([{"type": "text", "text": long_answer("x", 30_000)}, PICTURE], files)
        assert result.additional_kwargs[REFOLD_KEY]["path"] in text_of(result)
        assert files.list("/media")[0].path in text_of(result)

    def test_what_cannot_be_stored_or_is_a_link_comes_as_it_is(self) -> None:
        """The caller's own window decides what its model is shown."""

        class Full(MemoryFiles):
            def write(self, path: str, data: bytes, *, mode: str) -> None:  # type: ignore[override]
                raise FilesUnavailableError("the disk is full")

        result = self.answer([{"type": "text", "text": "See."}, PICTURE, LINK], Full())
        assert result.content == [{"type": "text", "text": "See."}, PICTURE, LINK]
