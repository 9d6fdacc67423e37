"""The file tools as an agent meets them: called and awaited, through LangGraph's tool node."""

import asyncio
import re
from collections.abc import Callable, Sequence

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from refold.agent.tools import FILE_TOOLS, file_tools
from refold.core.estimate import estimate_text
from refold.errors import ConfigurationError
from refold.files import Files, LocalFiles, MemoryFiles

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
Call = Callable[..., ToolMessage]


def run_tools(tools: Sequence[BaseTool], *calls: tuple[str, dict[str, object]], awaited: bool) -> list[ToolMessage]:
    """The results of calls, made in one step of a graph."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    made = [{"name": name, "args": args, "id": f"c{index}"} for index, (name, args) in enumerate(calls)]
    state = {"messages": [AIMessage(content="", tool_calls=made)]}
    compiled = graph.compile()
    result = asyncio.run(compiled.ainvoke(state)) if awaited else compiled.invoke(state)
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


@pytest.fixture(params=[False, True], ids=["called", "awaited"])
def awaited(request: pytest.FixtureRequest) -> bool:
    """Both ways to run a tool."""
    return bool(request.param)


@pytest.fixture
def files(tmp_path: object) -> Files:
    """Where the tools work."""
    return LocalFiles(f"{tmp_path}/root")


@pytest.fixture
def call(files: Files, awaited: bool) -> Call:
    """One call of one tool."""

    def one(name: str, **arguments: object) -> ToolMessage:
        (message,) = run_tools(file_tools(files, page_tokens=1_000), (name, arguments), awaited=awaited)
        return message

    return one


class TestWhatTheModelIsTold:
    """Short descriptions, only its own arguments."""

    def test_schemas(self) -> None:
        """Each tool has a short description; every argument has one; nothing internal is shown."""
        tools = file_tools(MemoryFiles())
        assert tuple(tool.name for tool in tools) == FILE_TOOLS
        for tool in tools:
            schema = tool.tool_call_schema.model_json_schema()
            assert 20 < len(tool.description) < 200
            assert "runtime" not in schema["properties"]
            assert all(argument.get("description") for argument in schema["properties"].values())
        tokens = sum(estimate_text(str(tool.tool_call_schema.model_json_schema())) for tool in tools)
        assert tokens < 2_000

    def test_a_choice_of_tools(self) -> None:
        """Only the named tools are made, in the usual order; unknown names and bounds are refused."""
        assert [tool.name for tool in file_tools(MemoryFiles(), names={"grep", "ls"})] == ["ls", "grep"]
        with pytest.raises(ConfigurationError, match="rm"):
            file_tools(MemoryFiles(), names=["rm"])
        with pytest.raises(ConfigurationError, match="page_tokens"):
            file_tools(MemoryFiles(), page_tokens=0)


class TestReading:
    """`read_file` shows everything, a bounded page at a time."""

    def test_numbered_lines(self, files: Files, call: Call) -> None:
        """Lines have numbers; a part says where it ends and how to go on."""
        files.write("/a", b"one\r\ntwo\nthree", mode="create")
        assert call("read_file", path="/a").content == "     1\tone\n     2\ttwo\n     3\tthree"
        part = call("read_file", path="/a", offset=2, limit=1).content
        assert part == "     2\ttwo\n[lines 2 to 2 of /a; go on with offset=3]"
        assert call("read_file", path="a", offset=3).content == "     3\tthree\n[lines 3 to 3 of /a, the end]"

    def test_pages_cover_every_line_once(self, files: Files, call: Call) -> None:
        """Following the notes to the end gives every line exactly once, each page within its tokens."""
        lines = [f"line {number} 中文内容" * (number % 7) for number in range(1, 900)]
        files.write("/long", "\n".join(lines).encode(), mode="create")
        seen: list[str] = []
        offset: int | None = 1
        while offset is not None:
            content = str(call("read_file", path="/long", offset=offset).content)
            assert estimate_text(content) < 1_400
            page = [line.partition("\t")[2] for line in content.split("\n") if "\t" in line]
            assert page
            seen += page
            found = re.search(r"go on with offset=(\d+)\]$", content)
            offset = int(found[1]) if found else None
        assert seen == lines

    def test_one_line_of_ten_megabytes(self, files: Files, call: Call) -> None:
        """A single 10 MB line makes progress page by page, from its start, its middle, and to its end."""
        line = "".join(f"{number:09d} " for number in range(1_000_000))
        files.write("/one", line.encode(), mode="create")
        first = str(call("read_file", path="/one").content)
        head, note = first.rsplit("\n", 1)
        assert line.startswith(head)
        found = re.search(r"char_offset=(\d+)", note)
        assert found is not None
        assert int(found[1]) == len(head) > 1_000
        for offset in (len(head), 5_000_003, len(line) - 50):
            page, note = str(call("read_file", path="/one", char_offset=offset).content).rsplit("\n", 1)
            assert line[offset:].startswith(page)
            assert f"characters {offset} to {offset + len(page)}" in note
        assert note.endswith("the end]")

    def test_a_long_line_among_short_ones(self, files: Files, call: Call) -> None:
        """Pages lead through short lines, into a long one by characters, and the text is whole."""
        text = "a\nb\n" + "中" * 40_000 + "\nc\n"
        files.write("/mixed", text.encode(), mode="create")
        first = str(call("read_file", path="/mixed").content)
        assert first == "     1\ta\n     2\tb\n[lines 1 to 2 of /mixed; go on with offset=3]"
        note = str(call("read_file", path="/mixed", offset=3).content).rsplit("\n", 1)[1]
        seen, offset = 0, int(re.findall(r"char_offset=(\d+)", note)[0])
        start = offset
        joined = ""
        while True:
            page, note = str(call("read_file", path="/mixed", char_offset=offset).content).rsplit("\n[", 1)
            joined += page
            offset += len(page)
            seen += 1
            if note.endswith("the end]"):
                break
        assert joined == text[start:]
        assert 5 < seen < 200

    def test_ends(self, files: Files, call: Call) -> None:
        """Empty files, offsets past the end and missing files are said, with names nearby."""
        files.write("/notes/plan.md", b"x\n", mode="create")
        files.write("/empty", b"", mode="create")
        assert call("read_file", path="/empty").content == "[/empty is empty]"
        assert call("read_file", path="/notes/plan.md", offset=9).content == (
            "[/notes/plan.md has 1 lines; offset=9 is past its end]"
        )
        assert call("read_file", path="/notes/plan.md", char_offset=9).content == (
            "[/notes/plan.md has 2 characters; char_offset=9 is past its end]"
        )
        missing = call("read_file", path="/notes/Plan.txt")
        assert (missing.status, missing.content) == (
            "error",
            "nothing is stored at /notes/Plan.txt; near it: /notes/plan.md",
        )
        folder = call("read_file", path="/notes")
        assert (folder.status, "folder" in folder.content) == ("error", True)

    def test_media_are_shown(self, files: Files, call: Call) -> None:
        """A picture and a PDF come as blocks, whatever the name says; over the limit a line says so."""
        files.write("/p.dat", PNG, mode="create")
        files.write("/d.pdf", b"%PDF-1.7 \x00", mode="create")
        files.write("/huge.png", PNG + bytes(5 * 1024 * 1024), mode="create")
        text, picture = call("read_file", path="/p.dat").content
        assert text == {"type": "text", "text": f"[/p.dat, image/png, {len(PNG)} bytes]"}
        assert (picture["type"], picture["mime_type"]) == ("image", "image/png")
        assert call("read_file", path="/d.pdf").content[1]["type"] == "file"
        assert "too large" in call("read_file", path="/huge.png").content

    def test_binary_and_other_encodings(self, files: Files, call: Call) -> None:
        """Binary files are described, not dumped; UTF-16 with a mark and broken UTF-8 are read."""
        files.write("/a.zip", b"PK\x03\x04\x00\x00" * 500, mode="create")
        files.write("/w.txt", "Straße\n".encode("utf-16"), mode="create")
        files.write("/l.txt", b"caf\xe9\n", mode="create")
        assert call("read_file", path="/a.zip").content.startswith("[/a.zip is binary (application/zip, 3000 bytes)")
        assert call("read_file", path="/w.txt").content == "     1\tStraße"
        assert call("read_file", path="/l.txt").content == "     1\tcaf\ufffd"

    @pytest.mark.parametrize("text", ["\x00\x1b[31mred", "%PDF-1.4 of a page", "\ufeffmarked", "GIF89a"])
    @pytest.mark.parametrize("path", ["/results/t/call.png-1f", "/history/t/1-2f.md", "/inputs/t/m-3f.md"])
    def test_text_that_left_a_conversation_is_text(self, files: Files, call: Call, text: str, path: str) -> None:
        """Whatever it holds or begins with: a stub names this tool to read it back."""
        files.write(path, text.encode(), mode="create")
        assert call("read_file", path=path).content == f"     1\t{text}"
        assert call("read_file", path=path, char_offset=0).content.startswith(f"{text}\n[characters 0 to {len(text)} ")

    def test_media_of_ones_own_among_artifacts_are_media(self, files: Files, call: Call) -> None:
        """A tool may store a picture there, under a name that says so."""
        files.write("/results/plot.png", PNG, mode="create")
        assert call("read_file", path="/results/plot.png").content[1]["type"] == "image"


class TestEditing:
    """`edit_file` changes exactly what was meant."""

    def test_unique_or_all(self, files: Files, call: Call) -> None:
        """One occurrence is replaced; of several none, unless all are asked for."""
        files.write("/a", b"x = 1\ny = 1\n", mode="create")
        refused = call("edit_file", path="/a", old_string="1", new_string="2")
        assert (refused.status, "2 times" in refused.content, "lines 1, 2" in refused.content) == ("error", True, True)
        assert files.read("/a") == b"x = 1\ny = 1\n"
        assert call("edit_file", path="/a", old_string="x = 1", new_string="x = 3").content == "Edited /a: line 1."
        call("edit_file", path="/a", old_string=" = ", new_string="=", replace_all=True)
        assert files.read("/a") == b"x=3\ny=1\n"

    def test_crlf_is_kept(self, files: Files, call: Call) -> None:
        """Fault 106: a model's `\\n` matches CRLF, and the file stays CRLF throughout, edit after edit."""
        files.write("/a", b"one\r\ntwo\r\nthree\r\n", mode="create")
        call("edit_file", path="/a", old_string="one\ntwo", new_string="1\n2\n2b")
        call("edit_file", path="/a", old_string="2b\r\nthree", new_string="3\r\n4")
        assert files.read("/a") == b"1\r\n2\r\n3\r\n4\r\n"

    @pytest.mark.parametrize(("old", "new"), [("two", "two\n2b"), ("\nthree", "\n2b\nthree"), ("two\r\n", "two\n2b\n")])
    def test_lines_that_are_added_to_crlf_end_like_the_others(
        self, files: Files, call: Call, old: str, new: str
    ) -> None:
        """Also where the text that is replaced is found without its line end."""
        files.write("/a", b"one\r\ntwo\r\nthree\r\n", mode="create")
        call("edit_file", path="/a", old_string=old, new_string=new)
        assert files.read("/a") == b"one\r\ntwo\r\n2b\r\nthree\r\n"

    def test_mixed_line_ends_are_edited_as_given(self, files: Files, call: Call) -> None:
        """Where a file has both, nothing says which is meant."""
        files.write("/a", b"one\r\ntwo\nthree\r\n", mode="create")
        call("edit_file", path="/a", old_string="two", new_string="two\n2b")
        assert files.read("/a") == b"one\r\ntwo\n2b\nthree\r\n"

    def test_other_bytes_are_kept(self, files: Files, call: Call) -> None:
        """Bytes that are no UTF-8, and a byte order mark, come out as they went in."""
        files.write("/a", b"\xef\xbb\xbfcaf\xe9 \xff old", mode="create")
        call("edit_file", path="/a", old_string="old", new_string="新")
        assert files.read("/a") == b"\xef\xbb\xbfcaf\xe9 \xff " + "新".encode()

    def test_mistakes_are_explained(self, files: Files, call: Call) -> None:
        """What is not there, differs in spaces, is empty or would change nothing: an error that says what to do."""
        files.write("/a", b"def f():\n    return 1\n", mode="create")
        cases = {
            ("nowhere", "x"): "copy the text exactly",
            ("return 1\n  ", "x"): "line 2",
            ("", "x"): "write_file",
            ("return", "return"): "nothing would change",
        }
        for (old, new), expected in cases.items():
            message = call("edit_file", path="/a", old_string=old, new_string=new)
            assert message.status == "error"
            assert expected in message.content
        assert call("edit_file", path="/none", old_string="a", new_string="b").status == "error"
        assert files.read("/a") == b"def f():\n    return 1\n"

    def test_edits_at_once_are_all_made(self, awaited: bool) -> None:
        """Parallel edits of one file in one step: none is lost."""
        files = MemoryFiles()
        files.write("/a", b"".join(b"line %d old\n" % number for number in range(6)), mode="create")
        calls = [
            ("edit_file", {"path": "/a", "old_string": f"line {n} old", "new_string": f"line {n} new"})
            for n in range(6)
        ]
        messages = run_tools(file_tools(files), *calls, awaited=awaited)
        assert [message.status for message in messages] == ["success"] * 6
        assert files.read("/a") == b"".join(b"line %d new\n" % number for number in range(6))


class TestWritingAndDeleting:
    """`write_file` and `delete` say what happened."""

    def test_write_modes(self, files: Files, call: Call) -> None:
        """Replace, create and append, each told apart in the answer."""
        assert call("write_file", path="/a", content="one").content == "Created /a (3 bytes)."
        assert call("write_file", path="/a", content="two!").content == "Replaced /a (4 bytes, before 3)."
        assert call("write_file", path="/a", content="x", mode="create").status == "error"
        assert call("write_file", path="/a", content="中", mode="append").content == "Appended 3 bytes to /a."
        assert files.read("/a") == "two!中".encode()

    def test_a_text_that_is_no_unicode(self, files: Files, call: Call) -> None:
        """A lone surrogate in a model's JSON does not break the call."""
        assert call("write_file", path="/a", content="x\ud800y").status == "success"
        assert files.read("/a") == b"x?y"

    def test_delete(self, files: Files, call: Call) -> None:
        """A file goes; a folder only when that is asked for; what is not there is an error."""
        for path in ("/d/a", "/d/b/c", "/e"):
            files.write(path, b"", mode="create")
        assert call("delete", path="/e").content == "Deleted /e."
        assert call("delete", path="/d").status == "error"
        assert call("delete", path="/d/", recursive=True).content == "Deleted 2 files in /d."
        assert call("delete", path="/d").status == "error"
        assert files.list("/") == ()

    @pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file", "delete", "ls", "grep"])
    def test_hostile_paths_are_answered_not_raised(self, call: Call, name: str) -> None:
        """A path that is refused comes back as an error result that the model can act on."""
        arguments = {"content": "x", "old_string": "a", "new_string": "b", "pattern": "x"}
        message = call(name, path="/../../etc/passwd", **arguments)
        assert message.status == "error"
        assert "'..'" in message.content


class TestFinding:
    """`ls`, `glob` and `grep` are bounded and say so."""

    def test_ls(self, files: Files, call: Call) -> None:
        """Folders and files with sizes, direct ones only."""
        for path in ("/d/b.txt", "/d/a/1", "/top"):
            files.write(path, b"123", mode="create")
        assert call("ls").content == "/d/\n/top  3 bytes"
        assert call("ls", path="d/").content == "/d/a/\n/d/b.txt  3 bytes"
        assert call("ls", path="/none").content == "[/none is empty or does not exist]"

    def test_caps(self, awaited: bool) -> None:
        """Listings of thousands are cut, with the number that is missing and what to do."""
        files = MemoryFiles()
        for number in range(1_000):
            files.write(f"/many/{number:04d}", b"", mode="create")
        ls, glob = run_tools(
            file_tools(files), ("ls", {"path": "/many"}), ("glob", {"pattern": "/many/*"}), awaited=awaited
        )
        assert ls.content.endswith("[600 more; use glob with a narrower pattern]")
        assert glob.content.endswith("[700 more; narrow the pattern]")

    def test_glob(self, files: Files, call: Call) -> None:
        """Matches, none, and a pattern that is refused."""
        files.write("/src/a.py", b"1", mode="create")
        assert call("glob", pattern="*.py").content == "/src/a.py  1 bytes"
        assert call("glob", pattern="*.rs").content == "[no file matches *.rs]"
        assert call("glob", pattern="{").status == "error"

    def test_grep(self, files: Files, call: Call) -> None:
        """Matches by file with numbers; context lines are marked apart; groups that do not touch are separated."""
        files.write("/b", b"1\n2\nneedle\n4\n5\n6\n7\nneedle\n", mode="create")
        files.write("/a", b"a needle\n", mode="create")
        assert call("grep", pattern="needle").content == "/a\n1: a needle\n\n/b\n3: needle\n8: needle"
        assert call("grep", pattern="needle", path="/b", context=1).content == (
            "/b\n2- 2\n3: needle\n4- 4\n--\n7- 7\n8: needle"
        )
        assert call("grep", pattern="n.e+dle", regex=True, max_results=1).content == (
            "/a\n1: a needle\n\n[stopped at max_results=1: narrow the search, or raise it]"
        )
        assert call("grep", pattern="NEEDLE", glob="*.md").content == "[no match for 'NEEDLE' in 0 files under /]"
        assert call("grep", pattern="(", regex=True).status == "error"

    def test_grep_ends(self, awaited: bool) -> None:
        """A pattern that would run for years ends at the bound and says so."""
        files = MemoryFiles()
        files.write("/a", b"a" * 40 + b"\n", mode="create")
        tools = file_tools(files, grep_seconds=0.2)
        (message,) = run_tools(tools, ("grep", {"pattern": "(a|aa)+b", "regex": True}), awaited=awaited)
        assert "stopped when its time was over" in message.content
