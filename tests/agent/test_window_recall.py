"""Reading back: by id and by path, page by page, whole."""

import json
import re
from typing import Any

import pytest
from agents import QUICK, TOOLS, worker_model
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.recall import Answer, Paging, paged, read_history_gen
from refold.agent.window import WindowMiddleware
from refold.core.estimate import estimate_text
from refold.core.log import read_log
from refold.core.program import run
from refold.core.project import project
from refold.errors import FilesUnavailableError
from refold.files import MemoryFiles, answer
from refold.testing.samples import PNG


def read(ref: str, messages: list[BaseMessage], *, start: int = 0, page: int = 200) -> Answer:
    files = MemoryFiles()
    files.write("/results/a.txt", ("long line " * 4000).encode(), mode="create")
    return run(read_history_gen(ref, start, read_log(messages), page), lambda effect: answer(files, effect))


LOG: list[BaseMessage] = [
    HumanMessage(
        [{"type": "text", "text": "See this."}, {"type": "image", "base64": PNG, "mime_type": "image/png"}], id="h"
    ),
    AIMessage("", id="a", tool_calls=[{"id": "c", "name": "write", "args": {"text": "要約 " * 300, "n": 1}}]),
    ToolMessage(
        [{"type": "web_search_tool_result", "x": 1}, {"type": "text", "text": "done"}], tool_call_id="c", id="t"
    ),
]


class TestWhatLeftTheWindowReadsBack:
    def test_media_of_a_message_come_back_as_media(self) -> None:
        """A picture inside a summarised span can be seen again by the id of its message."""
        found = read("h", LOG)
        assert isinstance(found, list)
        assert found[1] == {"type": "image", "base64": PNG, "mime_type": "image/png"}
        assert "See this." in str(found[0])

    def test_every_argument_and_block(self) -> None:
        """Arguments in full over pages; blocks of unknown kinds as JSON."""
        text, start = "", 0
        while True:
            page = str(read("a", LOG, start=start, page=60))
            head, _, body = page.partition("\n")
            text += body
            if "go on with start=" not in head:
                break
            start = int(head.split("go on with start=")[1].rstrip("]"))
        assert json.loads(text[text.index("{") :]) == {"text": "要約 " * 300, "n": 1}
        assert "web_search_tool_result" in str(read("t", LOG))
        assert "done" in str(read("t", LOG))

    def test_one_line_of_any_length_makes_progress(self) -> None:
        """Fault 99's cousin: a file of one line is read to its end in bounded pages."""
        seen, start = 0, 0
        for _ in range(2000):
            page = str(read("/results/a.txt", LOG, start=start))
            head, _, body = page.partition("\n")
            assert len(body) <= 1200
            seen += len(body)
            if "go on" not in head:
                break
            start = int(head.split("go on with start=")[1].rstrip("]"))
        assert seen == 40_000

    @pytest.mark.parametrize("ref", ["nobody", "/results/none", "/../etc/passwd", "", "/", "/a\0b"])
    def test_mistakes_are_answered_in_words(self, ref: str) -> None:
        """A wrong reference never raises into the agent."""
        assert isinstance(read(ref, LOG), str)

    @pytest.mark.parametrize("start", [-5, 0, 10**9])
    def test_any_start(self, start: int) -> None:
        """A start outside of the text says so or begins at the beginning."""
        assert "5 characters" in paged("hello", start, 100, of="x") or "hello" in paged("hello", start, 100, of="x")


def long_log(count: int) -> list[BaseMessage]:
    return [HumanMessage(f"number {n}: " + "些 words " * 60, id=f"msg_{n:06}") for n in range(count)]


class TestOnlyWhatWasStoredIsOpened:
    @pytest.mark.parametrize(
        "path",
        ["/secrets/key", "/results/../secrets/key", "/results/./../secrets/key", "/resultsx/key", "//secrets/key"],
    )
    def test_other_files_are_for_tools_with_permissions(self, path: str) -> None:
        """Rules bind the file tools; reading back is no way around them, alone or among several."""
        files = MemoryFiles()
        for where in ("/secrets/key", "/resultsx/key"):
            files.write(where, b"TOP SECRET", mode="create")
        for ref in (path, f"h, {path}"):
            found = run(read_history_gen(ref, 0, read_log(LOG), 200), lambda effect: answer(files, effect))
            assert "TOP SECRET" not in str(found)
            assert "/secrets/key" in str(found) or "/resultsx/key" in str(found)

    def test_storage_that_fails_is_answered_in_words(self) -> None:
        """A tool that reads back never ends a run."""

        class Gone(MemoryFiles):
            def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
                raise FilesUnavailableError("the disk is gone")

        found = run(read_history_gen("/results/a", 0, read_log(LOG), 200), lambda effect: answer(Gone(), effect))
        assert found == "Cannot read /results/a: the disk is gone"


class TestSeveralAtOnce:
    def read_all(self, ref: str, log: list[BaseMessage], *, page: int) -> tuple[str, int]:
        """Everything that a reference gives, following the answers, without their notes, and the pages it took."""
        text, start = "", 0
        for pages in range(1, 200):
            given_page = str(read(ref, log, start=start, page=page))
            assert estimate_text(given_page) <= page + 80
            body, _, on = given_page.partition("[go on with ref=")
            text += re.sub(r"^\[msg_\d+[:,][^\n]*\]\n", "", body, flags=re.M).replace("\n\n", "")
            if on:
                ref = on.split('"')[1]
                start = int(on.split("start=")[1].rstrip("]")) if "start=" in on else 0
            elif "; go on with start=" in given_page:  # one is left, and the answer is as that to one
                start = int(given_page.split("; go on with start=")[1].split("]")[0])
            else:
                return text, pages
        raise AssertionError("no end")

    @pytest.mark.parametrize("page", [150, 400, 5_000])
    def test_a_range_is_read_whole_page_by_page(self, page: int) -> None:
        """Following what each answer says gives every message of the range, verbatim and in order."""
        log = long_log(12)
        text, pages = self.read_all("msg_000002..@000009", log, page=page)
        assert text == "".join(f"(human)\n{m.text}" for m in log[2:10])
        assert pages > 1 or page == 5_000

    def test_ids_paths_and_media_together(self) -> None:
        """A list of anything; a medium is named, not dumped."""
        found = str(read("h, t /results/a.txt", LOG, page=3_000))
        assert "(image: read this message alone to see it)" in found
        assert found.index("[h, whole]") < found.index("[t, whole]") < found.index("[/results/a.txt: characters 0 to")
        assert 'go on with ref="/results/a.txt", start=' in found

    def test_the_end_of_an_id_is_enough(self) -> None:
        """What an index of facts shows after the @ is a reference."""
        log = long_log(3)
        assert str(read("@000001", log, page=2_000)).startswith("[msg_000001, whole]")


class TestAPageFitsTheFreeRoom:
    @pytest.mark.parametrize(
        ("used", "calls", "tokens"),
        [(0, 1, 2_000), (9_000, 1, 500), (9_000, 5, 100), (9_990, 1, 100), (12_000, 1, 100)],
    )
    def test_it_is_half_of_what_is_free_shared_by_the_calls(self, used: int, calls: int, tokens: int) -> None:
        """At most the page of the policy, at least what makes progress."""
        made = [{"name": "read_history", "args": {}, "id": str(n)} for n in range(calls)]
        runtime = ToolRuntime(
            state={"messages": [AIMessage("", tool_calls=made)]}, config={}, context=None, stream_writer=print,
            tool_call_id="0", store=None,
        )  # fmt: skip
        assert Paging(page=2_000, occupancy=lambda thread, messages: (used, 10_000)).tokens(runtime) == tokens
        assert Paging(page=2_000).tokens(runtime) == 2_000


class TestFault191:
    def test_messages_before_the_boundary_are_listed_and_read(self) -> None:
        """Fault 191: what a summary covers reads back from the log, by an open range up to the boundary."""
        model, worker = worker_model(14)
        window = WindowMiddleware(files=MemoryFiles(), policy=QUICK)
        agent: Any = create_agent(model, TOOLS, middleware=[window], checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}
        agent.invoke({"messages": [HumanMessage("Do all the steps.", id="task")]}, config)
        assert worker.summaries > 0
        values = agent.get_state(config).values
        seen = project(values["messages"], values["folds"])
        stop = max(segment.stop for segment in seen.segments)
        text = str(read(f"..{seen.log.keys[stop - 1]}", values["messages"], page=10**6))
        hidden = seen.hidden()
        assert hidden
        assert all(f"[{seen.log.keys[index]}, whole]" in text for index in range(stop))
        assert all(str(values["messages"][index].text) in text for index in hidden)
