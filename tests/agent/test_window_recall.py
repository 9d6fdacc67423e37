"""Reading back: by id and by path, page by page, whole."""

import json

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.agent.recall import Answer, paged, read_history_gen
from refold.core.program import run
from refold.files import MemoryFiles, answer
from refold.testing.samples import PNG


def read(ref: str, messages: list[BaseMessage], *, start: int = 0, page: int = 200) -> Answer:
    files = MemoryFiles()
    files.write("/results/a.txt", ("long line " * 4000).encode(), mode="create")
    return run(read_history_gen(ref, start, messages, page), lambda effect: answer(files, effect))


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
