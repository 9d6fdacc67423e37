"""The grant: a caller searches and reads what its child did, once that ended; without it there is nothing to open."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from delegating import CONFIG, call, calls, drive, model_of, refusals, results, start, task
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.create import create_agent
from refold.agent.subagents import Subagent
from refold.agent.subagents.history import HISTORY_KEY, READ_SUBAGENT, SEARCH_SUBAGENT
from refold.checkpoint import SqliteSaver
from refold.core.history import parse_history
from refold.core.messages import REFOLD_KEY, text_of
from refold.core.policy import Policy
from refold.errors import FilesUnavailableError
from refold.files import LocalFiles, MemoryFiles

ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
BIG = "\n".join(f"2026-01-01 12:00:{n:04d} ERROR worker {n} failed in src/app_{n}.py" for n in range(1_500))


@tool
def probe(where: str) -> str:
    """Probe a place."""
    return f"{where} holds the code QZX-4471\n{BIG if where == 'big' else ''}"


def child(messages: Sequence[BaseMessage]) -> Any:
    """Probes what it was asked to, and answers without the code that it saw."""
    if isinstance(messages[-1], ToolMessage):
        return "It is there."
    return AIMessage("First I probe.", tool_calls=[call("probe", where=text_of(messages[-1]).split("\n")[0])])


def path_of(messages: Sequence[BaseMessage]) -> str:
    """The path of the history as it stands in the window."""
    shown = next(text_of(m) for m in messages if isinstance(m, ToolMessage) and m.name == "task")
    return shown.split(": ", 1)[1].split(";")[0]


def agent_of(script: Any, *, files: Any = None, saver: Any = None, grant: bool = True, **more: Any) -> Any:
    return create_agent(
        model_of(script), [probe], files=files if files is not None else MemoryFiles(),
        checkpointer=saver if saver is not None else InMemorySaver(), policy=Policy(context_limit=60_000),
        subagents=[
            Subagent(name="helper", description="Helps.", model=model_of(child), grant_history=grant, **more)
        ],
    )  # fmt: skip


def steps(*made: Any) -> Any:
    """A caller that delegates, and then makes calls over the history that the result named, one after the other."""

    def script(messages: Sequence[BaseMessage]) -> Any:
        done = sum(isinstance(m, ToolMessage) for m in messages)
        if done == 0:
            return calls(task("cellar"))
        return calls(made[done - 1](path_of(messages))) if done <= len(made) else "parent done"

    return script


class TestAGrantedHistoryIsOpen:
    @ASYNC
    def test_is_searched_and_read(self, is_async: bool) -> None:
        """What the answer left out is found by a word and read by the id that the search named."""
        agent = agent_of(
            steps(
                lambda path: call(SEARCH_SUBAGENT, history=path, query="QZX-4471"),
                lambda path: call(READ_SUBAGENT, history=path),
            )
        )
        state = drive(agent, start(), is_async=is_async)
        answer = results(state)[0]
        assert "QZX" not in text_of(answer)
        assert text_of(answer).startswith("[history of this run of helper: /history/t-tools-")
        assert text_of(answer).endswith("]\nIt is there.")
        found, read = text_of(results(state, SEARCH_SUBAGENT)[0]), text_of(results(state, READ_SUBAGENT)[0])
        assert "(tool): cellar holds the code QZX-4471" in found
        assert found.split()[1] in read
        assert "First I probe." in read
        assert '(call probe probe-1) {"where":"cellar"}' in read.replace('": "', '":"')

    def test_of_a_finished_child_after_a_restart(self, tmp_path: Path) -> None:
        """Another process over the same files and store, turns later, opens it as well."""
        with SqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
            drive(agent_of(steps(), files=LocalFiles(tmp_path / "files"), saver=saver), start())
        made: list[str] = []

        def later(messages: Sequence[BaseMessage]) -> Any:
            if isinstance(messages[-1], HumanMessage):
                made.append(path_of(messages))
                return calls(call(SEARCH_SUBAGENT, history=made[0], query="code"))
            return "found"

        with SqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
            agent = agent_of(later, files=LocalFiles(tmp_path / "files"), saver=saver)
            state = drive(agent, {"messages": [HumanMessage("and the code?")]})
        assert "QZX-4471" in text_of(results(state, SEARCH_SUBAGENT)[0])

    def test_finds_what_the_child_had_stored(self) -> None:
        """A result that the child's own log holds as a stub is searched whole, and the hit says where it is."""

        def script(messages: Sequence[BaseMessage]) -> Any:
            done = sum(isinstance(m, ToolMessage) for m in messages)
            if done == 0:
                return calls(task("big"))
            return calls(call(SEARCH_SUBAGENT, history=path_of(messages), query="worker 777")) if done == 1 else "done"

        state = drive(agent_of(script, policy=Policy(context_limit=20_000)), start())
        found = text_of(results(state, SEARCH_SUBAGENT)[0])
        assert "worker 777 failed in src/app_777.py" in found
        assert ", in /results/" in found

    def test_with_an_answer_that_was_stored(self) -> None:
        """The note stands above the preview, and both paths work."""
        files = MemoryFiles()
        long = "\n".join(f"finding {n}: /srv/p{n}.py" for n in range(6_000))
        agent = create_agent(
            model_of(lambda ms: "done" if isinstance(ms[-1], ToolMessage) else calls(task("x"))), files=files,
            checkpointer=InMemorySaver(), policy=Policy(context_limit=60_000),
            subagents=[
                Subagent(name="helper", description="Helps.", model=model_of(lambda ms: long), grant_history=True)
            ],
        )  # fmt: skip
        message = results(drive(agent, start()))[0]
        assert files.read(message.additional_kwargs[REFOLD_KEY]["path"]).decode() == long
        history = parse_history(files.read(message.additional_kwargs[HISTORY_KEY]["path"]).decode())
        assert [(entry.role, entry.body) for entry in history[1:]] == [("ai", long)]
        assert text_of(message).startswith(
            f"[history of this run of helper: {message.additional_kwargs[HISTORY_KEY]['path']};"
        )


class TestWithoutAGrant:
    def test_nothing_is_stored_or_bound(self) -> None:
        """No archive, no tools, no note: the answer alone."""
        files = MemoryFiles()
        agent = agent_of(steps(), files=files, grant=False)
        message = results(drive(agent, start()))[0]
        assert (text_of(message), message.additional_kwargs) == ("It is there.", {})
        assert list(files.list("/")) == []
        model = model_of(["ok"])
        drive(create_agent(model, files=MemoryFiles(), checkpointer=InMemorySaver(), subagents=[
            Subagent(name="helper", description="Helps.")
        ]), start())  # fmt: skip
        bound = {one["function"]["name"] for one in model.requests[0].tools}  # type: ignore[index]
        assert "task" in bound
        assert bound & {SEARCH_SUBAGENT, READ_SUBAGENT} == set()

    def test_another_path_is_not_opened(self) -> None:
        """Neither a made-up one, nor a file that exists but that no result of a task named."""
        files = MemoryFiles()
        files.write("/notes.md", b"# refold history 1 {}", mode="create")
        agent = agent_of(
            steps(
                lambda path: call(READ_SUBAGENT, 1, history="/notes.md"),
                lambda path: call(SEARCH_SUBAGENT, 2, history=f"{path}x", query="code"),
            ),
            files=files,
        )
        state = drive(agent, start())
        path = results(state)[0].additional_kwargs[HISTORY_KEY]["path"]
        for message in (*results(state, READ_SUBAGENT), *results(state, SEARCH_SUBAGENT)):
            assert text_of(message).endswith(
                f"is no history that was granted to you. The results of your tasks name: {path}."
            )

    def test_a_history_that_was_changed_is_refused(self) -> None:
        """It would be taken for what the child did."""
        files = MemoryFiles()
        agent = agent_of(steps(), files=files)
        state = drive(agent, start())
        path = results(state)[0].additional_kwargs[HISTORY_KEY]["path"]
        files.write(path, files.read(path).replace(b"QZX", b"ABC"), mode="replace")
        script = steps(lambda path: call(READ_SUBAGENT, history=path))
        second = agent_of(script, files=files, saver=agent.checkpointer)
        second.update_state(CONFIG, {"messages": [HumanMessage("again")]})
        state = drive(second, {"messages": [HumanMessage("read it")]})
        assert "was changed since it was written" in text_of(results(state, READ_SUBAGENT)[0])


class Full(MemoryFiles):
    def write(self, path: str, data: bytes, *, mode: str) -> None:  # type: ignore[override]
        raise FilesUnavailableError("the disk is full")


class TestItFailsClosed:
    def test_a_history_that_cannot_be_stored_is_not_named(self) -> None:
        """The answer is there all the same."""
        message = results(drive(agent_of(steps(), files=Full()), start()))[0]
        assert (text_of(message), message.additional_kwargs) == ("It is there.", {})


class TestItIsBounded:
    def test_pages_fit_and_are_never_stored_again(self) -> None:
        """Reading a long history comes in pages, which enter the window as they are."""

        def script(messages: Sequence[BaseMessage]) -> Any:
            done = sum(isinstance(m, ToolMessage) for m in messages)
            if done == 0:
                return calls(task("big"))
            return calls(call(READ_SUBAGENT, done, history=path_of(messages))) if done < 4 else "done"

        model = model_of(script, limit=14_000)
        agent = create_agent(
            model, [probe], files=MemoryFiles(), checkpointer=InMemorySaver(), policy=Policy(output_reserve=500),
            subagents=[
                Subagent(
                    name="helper", description="Helps.", model=model_of(child), grant_history=True,
                    policy=Policy(context_limit=2_000_000),
                )
            ],
        )  # fmt: skip
        state = drive(agent, start())
        pages = results(state, READ_SUBAGENT)
        assert len(pages) == 3
        assert all(REFOLD_KEY not in m.additional_kwargs and "go on with" in text_of(m) for m in pages)
        assert refusals(model) == []
