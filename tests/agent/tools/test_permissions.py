"""Permissions: allow, deny and ask, by glob and operation."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from refold.agent.tools import Permissions, Rule, file_tools
from refold.errors import ConfigurationError, PathError
from refold.files import MemoryFiles
from refold.files.retention import ARTIFACT_FOLDERS

RULES = Permissions(
    Rule(effect="deny", paths=("/secrets/**", "*.pem"), reason="keys stay private"),
    Rule(effect="ask", paths=("/**",), operations=("delete",)),
    Rule(effect="ask", paths=("/shared/**",), operations=("read", "write")),
    Rule(effect="deny", paths=("/readonly/**",), operations=("write", "delete")),
)


def stored() -> MemoryFiles:
    """Files under each rule."""
    files = MemoryFiles()
    for path in ("/secrets/key", "/a.pem", "/shared/doc", "/readonly/x", "/work/y"):
        files.write(path, b"needle\n", mode="create")
    return files


class Thread:
    """A thread of a graph that runs tool calls, with interrupts."""

    def __init__(self, files: MemoryFiles, permissions: Permissions | None, *, awaited: bool) -> None:
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(list(file_tools(files, permissions=permissions))))
        graph.add_edge(START, "tools")
        graph.add_edge("tools", END)
        self.graph = graph.compile(checkpointer=InMemorySaver())
        self.awaited = awaited
        self.config: Any = {"configurable": {"thread_id": "1"}}

    def send(self, value: object) -> dict[str, Any]:
        """Run the graph on an input or a resume."""
        if self.awaited:
            return asyncio.run(self.graph.ainvoke(value, self.config))
        return self.graph.invoke(value, self.config)

    def call(self, name: str, **arguments: object) -> dict[str, Any]:
        """Make one tool call."""
        calls = [{"name": name, "args": arguments, "id": "c1"}]
        return self.send({"messages": [AIMessage(content="", tool_calls=calls)]})

    def answer(self, result: dict[str, Any]) -> ToolMessage:
        """The tool's result in the log."""
        assert "__interrupt__" not in result
        message = result["messages"][-1]
        assert isinstance(message, ToolMessage)
        return message


@pytest.fixture(params=[False, True], ids=["called", "awaited"])
def awaited(request: pytest.FixtureRequest) -> bool:
    """Both ways to run a tool."""
    return bool(request.param)


class TestRules:
    """How rules decide."""

    def test_what_is_no_rule_is_refused(self) -> None:
        """A rule that would silently never hold (a misspelt word, a text in the place of a list) is an error."""
        unusable: list[dict[str, Any]] = [
            {"effect": "Deny", "paths": ("/a",)},
            {"effect": "deny", "paths": "/secrets/**"},
            {"effect": "deny", "paths": ("/a",), "operations": ("write", "wirte")},
            {"effect": "deny", "paths": ("/a",), "operations": "write"},
        ]
        for fields in unusable:
            with pytest.raises(ConfigurationError, match="rule"):
                Rule(**fields)
        otherwise: Any = "none"
        with pytest.raises(ConfigurationError, match="otherwise"):
            Permissions(otherwise=otherwise)

    def test_the_first_rule_that_matches_decides(self) -> None:
        """Order matters, operations count, and what no rule names is as `otherwise` says."""
        rules = Permissions(
            Rule(effect="allow", paths=("/a/ok",)),
            Rule(effect="deny", paths=("/a/**",), operations=("write",)),
            otherwise="ask",
        )
        assert [rules.decide("write", path) for path in ("/a/ok", "/a/b", "/c")] == ["allow", "deny", "ask"]
        assert rules.decide("read", "/a/b") == "ask"

    def test_case_does_not_get_around_a_rule(self) -> None:
        """Deny and ask see names as case-insensitive storage does; allow does not widen."""
        rules = Permissions(
            Rule(effect="allow", paths=("/work/**",)), Rule(effect="deny", paths=("/Secrets/**",)), otherwise="ask"
        )
        assert [rules.decide("read", path) for path in ("/SECRETS/k", "/secrets", "/WORK/x", "/work/x")] == [
            "deny",
            "deny",
            "ask",
            "allow",
        ]

    def test_a_bad_glob_is_refused_when_the_rule_is_made(self) -> None:
        """Not at the first call in the middle of the night."""
        with pytest.raises(PathError):
            Rule(effect="deny", paths=("/{a",))


class TestDeny:
    """What is denied is refused and does not show."""

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("read_file", {"path": "/secrets/key"}),
            ("read_file", {"path": "/Secrets/KEY"}),
            ("write_file", {"path": "/secrets/new", "content": "x"}),
            ("edit_file", {"path": "/a.pem", "old_string": "needle", "new_string": "x"}),
            ("delete", {"path": "/secrets/key"}),
            ("delete", {"path": "/secrets", "recursive": True}),
            ("ls", {"path": "/secrets"}),
            ("grep", {"path": "/secrets", "pattern": "needle"}),
            ("write_file", {"path": "/readonly/x", "content": "x"}),
            ("edit_file", {"path": "/readonly/x", "old_string": "needle", "new_string": "x"}),
        ],
    )
    def test_each_tool_refuses(self, name: str, arguments: dict[str, object], awaited: bool) -> None:
        """The result is an error with the rule's reason, and nothing changes."""
        files = stored()
        message = Thread(files, RULES, awaited=awaited)
        result = message.answer(message.call(name, **arguments))
        assert (result.status, "do not let you" in result.content) == ("error", True)
        assert [(info.path, files.read(info.path)) for info in files.list("/")] == [
            (info.path, b"needle\n") for info in stored().list("/")
        ]

    def test_what_may_not_be_read_is_not_seen(self, awaited: bool) -> None:
        """Listings, globs, searches and hints leave it out; what needs asking is listed but not searched."""
        thread = Thread(stored(), RULES, awaited=awaited)
        assert thread.answer(thread.call("ls")).content == "/readonly/\n/shared/\n/work/"
        assert "pem" not in thread.answer(thread.call("glob", pattern="/**")).content
        assert thread.answer(thread.call("grep", pattern="needle")).content == (
            "/readonly/x\n1: needle\n\n/work/y\n1: needle"
        )
        assert "pem" not in thread.answer(thread.call("read_file", path="/a.txt")).content

    def test_what_may_not_be_read_is_not_learnt_by_deleting(self, awaited: bool) -> None:
        """A closed path is refused whether or not it is there; folders do not count or name what is closed in them."""
        files = MemoryFiles()
        for path in ("/secrets/prod", "/a/ok", "/a/key.pem", "/b/key.pem"):
            files.write(path, b"x", mode="create")
        rules = Permissions(Rule(effect="deny", paths=("/secrets/**", "*.pem")))

        def said(path: str, *, recursive: bool = False) -> str:
            thread = Thread(files, rules, awaited=awaited)
            return str(thread.answer(thread.call("delete", path=path, recursive=recursive)).content)

        for path in ("/secrets", "/secrets/prod", "/secrets/nothing", "/a/no.pem", "/a/key.pem"):
            assert said(path) == f"the rules of this agent do not let you delete {path}"
        assert said("/b", recursive=True) == "nothing is stored at or below /b"
        assert said("/a").startswith("/a is a folder with 1 file:")
        for path in ("/", "/a"):
            assert said(path, recursive=True) == (
                f"the rules of this agent do not let you delete all of {path}: name files in it"
            )
        assert len(files.list("/")) == 4


class TestArtifacts:
    """What refold stored is not the agent's to change."""

    @pytest.mark.parametrize("folder", ARTIFACT_FOLDERS)
    def test_by_default_artifacts_are_read_only(self, folder: str, awaited: bool) -> None:
        """Without rules, everything may be read and changed except what left the window, which may only be read."""
        files = MemoryFiles()
        files.write(f"{folder}/t/a", b"kept\n", mode="create")
        thread = Thread(files, None, awaited=awaited)
        for name, arguments in (
            ("write_file", {"path": f"{folder}/t/a", "content": "x"}),
            ("write_file", {"path": f"{folder.upper()}/t/b", "content": "x"}),
            ("edit_file", {"path": f"{folder}/t/a", "old_string": "kept", "new_string": "x"}),
            ("delete", {"path": folder, "recursive": True}),
        ):
            assert thread.answer(thread.call(name, **arguments)).status == "error"
        assert thread.answer(thread.call("read_file", path=f"{folder}/t/a")).content == "     1\tkept"
        assert thread.answer(thread.call("write_file", path="/notes", content="x")).status == "success"


class TestAsk:
    """A human decides, in the form that LangChain's clients know."""

    def test_approved(self, awaited: bool) -> None:
        """The run stops before anything happens, shows what is asked, and goes on when approved."""
        files = stored()
        thread = Thread(files, RULES, awaited=awaited)
        stopped = thread.call("delete", path="/work/y")
        (interrupt,) = stopped["__interrupt__"]
        (request,) = interrupt.value["action_requests"]
        assert (request["name"], request["args"]["path"]) == ("delete", "/work/y")
        assert request["description"] == "May the agent delete /work/y?"
        assert interrupt.value["review_configs"] == [
            {"action_name": "delete", "allowed_decisions": ["approve", "reject"]}
        ]
        assert files.stat("/work/y") is not None
        done = thread.send(Command(resume={"decisions": [{"type": "approve"}]}))
        assert thread.answer(done).content == "Deleted /work/y."
        assert files.stat("/work/y") is None

    @pytest.mark.parametrize(
        "reply",
        [
            {"decisions": [{"type": "reject", "message": "keep it"}]},
            {"type": "reject"},
            False,
            "reject",
            {"decisions": []},
            {"decisions": [{"type": "approve"}, {"type": "approve"}]},
            "yes",
            None,
        ],
    )
    def test_refused(self, reply: object, awaited: bool) -> None:
        """Whatever is not clearly an approval is a refusal, which the model is told."""
        files = stored()
        thread = Thread(files, RULES, awaited=awaited)
        thread.call("write_file", path="/shared/doc", content="x")
        message = thread.answer(thread.send(Command(resume={"any": reply}["any"] if reply is not None else "no")))
        assert (message.status, "did not allow" in message.content) == ("error", True)
        assert files.read("/shared/doc") == b"needle\n"

    def test_one_question_for_an_edit_and_for_a_folder(self, awaited: bool) -> None:
        """An edit asks once for reading and writing, a recursive delete once for all its files."""
        files = stored()
        files.write("/work/z", b"", mode="create")
        thread = Thread(files, RULES, awaited=awaited)
        stopped = thread.call("edit_file", path="/shared/doc", old_string="needle", new_string="x")
        (interrupt,) = stopped["__interrupt__"]
        assert interrupt.value["action_requests"][0]["description"] == (
            "May the agent read /shared/doc, write /shared/doc?"
        )
        thread.answer(thread.send(Command(resume=True)))
        assert files.read("/shared/doc") == b"x\n"
        thread.call("delete", path="/work", recursive=True)
        assert thread.answer(thread.send(Command(resume=True))).content == "Deleted 2 files in /work."
