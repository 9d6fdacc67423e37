"""Fault 104 end to end: collecting never breaks a thread, a fork or a checkpoint that is still there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

import refold
from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.reach import recall
from refold.agent.retention import RetentionMiddleware, acollect_artifacts, collect_artifacts, live_paths
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver
from refold.checkpoint.state import LogState
from refold.cli.main import run
from refold.core.policy import Policy
from refold.core.project import project
from refold.errors import ConfigurationError, FilesUnavailableError
from refold.files import FileInfo, Files, LocalFiles, MemoryFiles, Retention, referenced_paths
from refold.testing import StrictModel

POLICY = Policy(context_limit=30_000, output_reserve=500, result_min=100, clear_min=40, preview=60, clear_keep=1)
NOTHING_KEPT = Retention(most_files=0, grace=0)


@tool
def dump(n: int) -> str:
    """Dump."""
    return "\n".join(f"dump {n} row {row}: /srv/{n}/{row}.csv" for row in range(150))


def config(thread: str, **more: str) -> Any:
    return {"configurable": {"thread_id": thread, **more}, "recursion_limit": 200}


def agent_of(saver: BaseCheckpointSaver[Any], files: Files, *, log: bool, more: tuple[Any, ...] = ()) -> Any:
    def script(messages: list[Any]) -> AIMessage | str:
        if "Write a record" in messages[-1].text:
            return "A record of dumps."
        done = sum(isinstance(m, ToolMessage) for m in messages)
        asked = sum(isinstance(m, HumanMessage) and m.text.startswith("dump") for m in messages)
        if done >= 5 * asked:
            return "done"
        return AIMessage("", tool_calls=[{"name": "dump", "args": {"n": done}, "id": f"call-{len(messages)}-{done}"}])

    window = WindowMiddleware(files=files, policy=POLICY)
    return create_agent(
        StrictModel(script=script, limit=30_000), [dump], checkpointer=saver,
        middleware=[window, OffloadMiddleware(window, thresholds=Thresholds(least=200, share=0.02)), *more],
        state_schema=LogState if log else None,
    )  # fmt: skip


def everything_reads_back(agent: Any, files: Files, threads: list[str]) -> int:
    """Every artifact that any checkpoint of the threads names is there; messages of every head can be reached. Returns
    how many checkpoints there are."""
    seen = 0
    for thread in threads:
        for state in agent.get_state_history(config(thread)):
            seen += 1
            for path in referenced_paths(state.values.get("messages", []), state.values.get("folds", [])):
                assert files.stat(path) is not None, path
        values = agent.get_state(config(thread)).values
        window = project(values["messages"], values.get("folds") or [])
        assert recall(window, files, page=1_000).unreachable == ()
    return seen


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as opened:
        yield opened


@pytest.mark.parametrize("log", [False, True], ids=["add_messages", "LogState"])
class TestFault104:
    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_threads_forks_and_old_checkpoints_keep_their_originals(
        self, saver: Any, log: bool, is_async: bool
    ) -> None:
        """With a quota of nothing, what any thread, fork or older checkpoint names stays; a deleted thread's goes."""
        files = MemoryFiles()
        agent = agent_of(saver, files, log=log)
        for thread in ("a", "b", "gone"):
            agent.invoke({"messages": [HumanMessage("dump it", id=f"{thread}-1")]}, config(thread))
            agent.invoke({"messages": [HumanMessage("dump more", id=f"{thread}-2")]}, config(thread))
        early = next(s for s in agent.get_state_history(config("a")) if len(s.values["messages"]) == 6)
        agent.invoke({"messages": [HumanMessage("dump the fork", id="fork")]}, early.config)
        before = {info.path for info in files.list("/")}
        theirs = {path for path in before if "/gone" in path}
        assert theirs
        saver.delete_thread("gone")
        if is_async and isinstance(saver, InMemorySaver):
            done = asyncio.run(acollect_artifacts(saver, files, NOTHING_KEPT))
        else:
            done = collect_artifacts(saver, files, NOTHING_KEPT)
        assert {info.path for info in done.removed} == theirs
        assert everything_reads_back(agent, files, ["a", "b"]) > 20

    def test_after_a_prune_the_rest_is_whole(self, log: bool, tmp_path: Path) -> None:
        """Pruned checkpoints free what only they named; what is left of the thread reads back, delta channels too."""
        files = MemoryFiles()
        with SqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
            agent = agent_of(saver, files, log=log)
            for turn in range(3):
                agent.invoke({"messages": [HumanMessage("dump it", id=f"h{turn}")]}, config("a"))
            early = next(s for s in agent.get_state_history(config("a")) if len(s.values["messages"]) == 6)
            abandoned = agent.invoke({"messages": [HumanMessage("dump aside", id="aside")]}, early.config)
            agent.update_state(early.config, {"messages": [HumanMessage("another branch", id="other")]})
            only_there = referenced_paths(abandoned["messages"]) - referenced_paths(
                agent.get_state(config("a")).values["messages"]
            )
            saver.prune(["a"], strategy="keep_last", keep=1)
            removed = {info.path for info in collect_artifacts(saver, files, NOTHING_KEPT).removed}
            assert only_there <= removed
            assert everything_reads_back(agent, files, ["a"]) == 1

    def test_several_savers_of_one_storage(self, log: bool, tmp_path: Path) -> None:
        """Originals of the threads of all given savers stay."""
        files, first, second = MemoryFiles(), InMemorySaver(), InMemorySaver()
        for saver, thread in ((first, "one"), (second, "two")):
            agent_of(saver, files, log=log).invoke({"messages": [HumanMessage("dump it", id="h")]}, config(thread))
        assert collect_artifacts([first, second], files, NOTHING_KEPT).removed == ()
        removed = collect_artifacts(first, files, NOTHING_KEPT).removed
        assert removed
        assert all("/two" in info.path for info in removed)


class TestBounds:
    def test_quota_and_age_take_the_oldest_loose_ones(self) -> None:
        """Of 60 loose results and the live ones, the oldest loose go until the quota holds."""
        clock = [0.0]
        files, saver = MemoryFiles(clock=lambda: clock[0]), InMemorySaver()
        agent_of(saver, files, log=False).invoke({"messages": [HumanMessage("dump it", id="h")]}, config("live"))
        live = {info.path for info in files.list("/")}
        for number in range(60):
            clock[0] = 10.0 + number
            files.write(f"/results/old/{number:03d}", b"x" * 50, mode="create")
        done = collect_artifacts(saver, files, Retention(most_files=len(live) + 20, grace=0), now=10_000)
        assert [info.path for info in done.removed] == [f"/results/old/{n:03d}" for n in range(40)]
        done = collect_artifacts(saver, files, Retention(older_than=9_935, grace=0), now=10_000)
        assert [info.path for info in done.removed] == [f"/results/old/{n:03d}" for n in range(40, 56)]
        assert live <= {info.path for info in files.list("/")}

    def test_what_is_new_is_left_alone(self) -> None:
        """An original whose stub is not stored yet has its grace."""
        files = MemoryFiles()
        files.write("/results/t/new", b"x", mode="create")
        assert collect_artifacts(InMemorySaver(), files, Retention(most_files=0, grace=3_600)).removed == ()


class TestOfItself:
    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_an_agent_collects_after_a_run_once_in_a_while(self, is_async: bool) -> None:
        """The middleware collects after the first run, and not again before its time."""
        now = [0.0]
        files, saver = MemoryFiles(), InMemorySaver()
        keeping = RetentionMiddleware(saver, files, NOTHING_KEPT, every=100, clock=lambda: now[0])
        agent = agent_of(saver, files, log=False, more=(keeping,))
        left: list[bool] = []
        for turn, at in enumerate((0.0, 50.0, 101.0)):
            now[0] = at
            files.write("/results/loose", b"x", mode="create")
            given = {"messages": [HumanMessage("hi", id=f"h{turn}")]}
            asyncio.run(agent.ainvoke(given, config("t"))) if is_async else agent.invoke(given, config("t"))
            left.append(files.stat("/results/loose") is not None)
        assert left == [False, True, False]

    def test_an_agent_that_is_built_with_bounds(self) -> None:
        """`create_agent(retention=...)` collects after a run; its own originals stay."""
        files = MemoryFiles()
        files.write("/results/loose", b"x", mode="create")
        model = StrictModel(
            script=[AIMessage("", tool_calls=[{"name": "dump", "args": {"n": 1}, "id": "c"}]), "done"], limit=30_000
        )
        agent = refold.create_agent(
            model, [dump], files=files, checkpointer=InMemorySaver(), policy=POLICY, retention=NOTHING_KEPT
        )
        agent.invoke({"messages": [HumanMessage("dump it", id="h")]}, config("t"))
        assert files.stat("/results/loose") is None
        assert everything_reads_back(agent, files, ["t"]) > 3

    def test_storage_that_fails_does_not_fail_the_run(self) -> None:
        """It is told on the custom stream."""

        class Down(MemoryFiles):
            def list(self, folder: str) -> list[FileInfo]:
                raise FilesUnavailableError("the disk is gone")

        saver = InMemorySaver()
        agent = agent_of(saver, MemoryFiles(), log=False, more=(RetentionMiddleware(saver, Down(), NOTHING_KEPT),))
        given = {"messages": [HumanMessage("hi", id="h")]}
        told = [event["refold"] for event in agent.stream(given, config("t"), stream_mode="custom")]
        assert [event["event"] for event in told if event["event"] == "retention_failed"] == ["retention_failed"]


class TestOnTheCommandLine:
    def test_collect(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """`refold collect` removes what no thread names, says so, and with --dry-run only says so."""
        path, files = str(tmp_path / "t.db"), LocalFiles(tmp_path / "files")
        with SqliteSaver.from_conn_string(path) as saver:
            agent_of(saver, files, log=False).invoke({"messages": [HumanMessage("dump it", id="h")]}, config("a"))
            live = live_paths(saver)
        files.write("/results/loose", b"x" * 9, mode="create")
        asked = ["collect", path, "--files", str(tmp_path / "files"), "--most-files", "0", "--grace", "0s", "--json"]
        assert run([*asked, "--dry-run"]) == 0
        assert json.loads(capsys.readouterr().out)["removed_files"] == 1
        assert files.stat("/results/loose") is not None
        assert run(asked) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["removed_files"], said["removed_bytes"]) == (1, 9)
        assert files.stat("/results/loose") is None
        assert all(files.stat(name) is not None for name in live)
        assert run([*asked[:4], "--json"]) == ConfigurationError.exit_code
        assert "without a bound" in capsys.readouterr().err
