"""`refold run` where nobody can be asked: what it prints, what it keeps, how it ends, what it may not touch."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from refold.agent.tools import Permissions
from refold.checkpoint import SqliteSaver, postgres
from refold.cli.main import run
from refold.cli.terminal.human import Human
from refold.cli.terminal.loading import load_model
from refold.cli.terminal.screen import JsonLines
from refold.cli.terminal.workspace import rules_of
from refold.errors import ConfigurationError
from refold.testing import StrictModel

MODELS = Path(__file__).parent / "models_for_run.py"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in an empty directory, with a scripted model by its function's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def call(*arguments: str, model: str = "echo") -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["run", *arguments, "--model", f"{MODELS}:{model}"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


class TestTwoTerminals:
    def test_the_second_on_one_thread_is_told(self, command: Run) -> None:
        """Who comes too late gets an error that says so; the thread is what the other one made of it."""
        code, _, err = command("mine", "--thread", "t", model="rival")
        assert code != 0
        assert "went on" in err or "moved" in err
        _, out, err = command("again", "--thread", "t")
        assert out == "message 3: again\n"


class TestOutput:
    def test_the_answer_alone_goes_to_standard_output(self, command: Run) -> None:
        """Piped, standard output is the agent's words; the rest is plain text on standard error."""
        code, out, err = command("say hi", "--thread", "t")
        assert (code, out) == (0, "message 1: say hi\n")
        assert err.splitlines()[0] == "new thread t"
        assert err.splitlines()[-1].startswith("window ")
        assert "\x1b" not in err

    def test_tools_are_shown(self, command: Run) -> None:
        """Name and arguments of each call; the size of a result, and of an error what it says."""
        code, out, err = command("write", "--allow", "/work/**", model="writer")
        assert code == 0
        assert "Result: " in out
        assert '● write_file(path="/work/note.txt", content="hello\\n")' in err
        assert "└ ls: " in err
        assert "└ read_file failed: the rules of this agent do not let you read /work/.refold/threads.db" in err

    def test_control_characters_are_shown_and_not_sent(self, command: Run) -> None:
        """What a model says cannot steer the terminal."""
        _, out, _ = command("write", "--allow", "/work/**", model="writer")
        assert "Let me look. ␛[2J" in out
        assert "\x1b" not in out

    @pytest.mark.parametrize("as_json", [[], ["--json"]])
    def test_nor_can_errors_or_marks_that_reorder_text(self, command: Run, as_json: list[str]) -> None:
        """What a model or server raises is as little trusted as what it says; bidirectional marks make a person approve
        what he does not read."""
        code, out, err = command("go", *as_json, model="hostile")
        assert code == 9
        assert "down␛]0;owned␇\ufffd2J" in err
        assert not set("\x1b\x07\x9b") & set(out + err)
        assert as_json or "see \ufffdgpj.\ufffd" in out

    def test_json(self, command: Run) -> None:
        """One object per line, an `event` in each; the whole answer comes as one, and the end says how it ended."""
        code, out, _ = command("write", "--allow", "write:/work/**", "--json", "--thread", "t", model="writer")
        events = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert events[0] | {"event": "thread", "thread": "t", "messages": 0} == events[0]
        calls = [(event["name"], event["arguments"]) for event in events if event["event"] == "tool_call"]
        assert calls[-1] == ("write_file", {"path": "/work/note.txt", "content": "hello\n"})
        assert [event["status"] for event in events if event["event"] == "tool_result"].count("error") == 1
        assert [event["text"] for event in events if event["event"] == "message"][-1].startswith("Result: ")
        assert events[-1] | {"event": "end", "ending": "answered", "folds": 0} == events[-1]
        assert 0 < events[-1]["used"] < events[-1]["budget"] < 32_000

    def test_a_task_from_standard_input(self, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """`-` reads the task."""
        monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
        assert command("-")[:2] == (0, "message 1: from a pipe\n")


class TestThreads:
    def test_a_thread_goes_on(self, command: Run) -> None:
        """A second run on the thread has the first one's messages, and says where the thread stood."""
        command("one", "--thread", "t")
        code, out, err = command("two", "--thread", "t")
        assert (code, out) == (0, "message 2: two\n")
        assert "thread t: 2 messages, 0 folds; last: ai: message 1: one" in err

    def test_the_threads_are_in_a_real_database(self, command: Run, tmp_path: Path) -> None:
        """By default in `.refold/threads.db`, which the other commands read."""
        command("one", "--thread", "t")
        assert run(["verify", str(tmp_path / ".refold" / "threads.db")]) == 0

    def test_a_place_of_its_own(self, command: Run, tmp_path: Path) -> None:
        """`--db` and `--files` put everything elsewhere, and nothing here."""
        command("one", "--thread", "t", "--db", str(tmp_path / "x" / "t.db"), "--files", "memory://", "--work", "none")
        assert [path.name for path in tmp_path.iterdir()] == ["x"]


class TestWaiting:
    def test_a_question_that_nobody_answers(self, command: Run, tmp_path: Path) -> None:
        """Exit code 8: nothing was written, what it waits for is said, and the command that answers it."""
        code, _, err = command("write", "--thread", "t", model="writer")
        assert code == 8
        assert not (tmp_path / "note.txt").exists()
        assert "waits for you: May the agent write /work/note.txt?" in err
        assert f"answer with: refold run --thread t --model {MODELS}:writer" in err

    def test_it_waits_on(self, command: Run) -> None:
        """Run again, also with another task, it still waits for the answer first, and says that."""
        command("write", "--thread", "t", model="writer")
        code, out, err = command("something else", "--thread", "t", model="writer")
        assert (code, out) == (8, "")
        assert "the new task is not given" in err
        assert "waits for you" in err

    def test_json_has_the_value(self, command: Run) -> None:
        """A program gets what waits as data."""
        code, out, _ = command("write", "--json", model="writer")
        events = [json.loads(line) for line in out.splitlines()]
        (waiting,) = [event["value"] for event in events if event["event"] == "interrupt"]
        assert code == 8
        assert waiting["action_requests"][0]["name"] == "write_file"
        assert events[-1]["ending"] == "waiting"

    def test_a_tool_of_the_users(self, command: Run) -> None:
        """A tool is asked about when it is named with `--confirm`."""
        code, out, _ = command("add", "--tools", f"{MODELS}:TOOLS", model="adds")
        assert (code, out) == (0, "It is: 5\n")
        assert command("add", "--tools", f"{MODELS}:add", "--confirm", "add", model="adds")[0] == 8


class TestErrors:
    def test_a_model_that_fails(self, command: Run) -> None:
        """Exit code 9, one line with the reason and the way on; what was said stays said, and the thread is kept."""
        code, out, err = command("go", "--thread", "t", model="breaks")
        assert (code, out[:4]) == (9, "Half")
        assert "error: OSError: the line went dead. The thread is kept; go on with: refold run --thread t" in err
        assert "Traceback" not in err
        with SqliteSaver.from_conn_string(".refold/threads.db") as saver:
            assert saver.stats().threads == 1

    def test_a_stopped_thread_goes_on(self, command: Run) -> None:
        """With no task, a run that was broken off is taken up where it stopped."""
        command("go", "--thread", "t", model="breaks")
        code, out, err = command("--thread", "t", model="echo")
        assert (code, out) == (0, "message 1: go\n")
        assert "stopped in the middle" in err

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("",),
            ("x", "--window", "none"),
            ("x", "--work", "nowhere"),
            ("x", "--deny", "run:/work/**"),
            ("x", "--system", "@nowhere"),
            ("x", "--confirm", "no_such_tool"),
            ("x", "--tools", "no_such_module_of_mine.x:y"),
            ("x", "--tools", f"{MODELS}:nothing"),
            ("x", "--key-env", "KEY"),
        ],
        ids=lambda arguments: " ".join(arguments)[:30] or "nothing",
    )
    def test_what_cannot_work(self, command: Run, arguments: tuple[str, ...]) -> None:
        """A usage error, before any model is called."""
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].startswith("error: ")

    def test_an_option_that_cannot_work_leaves_nothing_behind(self, command: Run, tmp_path: Path) -> None:
        """Neither a database nor its folder is made before every option was looked at."""
        (tmp_path / "file").write_text("")
        assert command("x", "--files", "weird://place")[0] == 2
        assert command("x", "--db", "mysql://db/threads")[0] == 2
        code, _, err = command("x", "--db", "file/threads.db")
        assert (code, err.splitlines()[-1].startswith("error: --db")) == (2, True)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_a_database_whose_package_is_not_there(self, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """One line that says what to install."""
        monkeypatch.delitem(sys.modules, "refold.checkpoint.postgres.saver", raising=False)
        monkeypatch.delattr(postgres, "saver", raising=False)
        monkeypatch.setitem(sys.modules, "psycopg", None)
        code, out, err = command("x", "--db", "postgresql://127.0.0.1:1/none")
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].endswith("refold[postgres]")


class TestModels:
    def test_a_name_that_nobody_knows(self) -> None:
        """A name without a provider, and a provider that is none."""
        for name in ("no-such-model", "nobody:model"):
            with pytest.raises(ConfigurationError, match="--model"):
                load_model(name, base_url=None, key_variable=None)

    def test_a_module_of_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module without a dot reads like a provider; where LangChain knows none of that name, it is the module."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.path", [*sys.path])
        (tmp_path / "scripted_at_home.py").write_text(MODELS.read_text("utf-8"), "utf-8")
        model = load_model("scripted_at_home:echo", base_url=None, key_variable=None)
        assert isinstance(model, StrictModel)
        with pytest.raises(ConfigurationError, match="has no 'nothing'"):
            load_model("scripted_at_home:nothing", base_url=None, key_variable=None)
        with pytest.raises(ConfigurationError, match="write provider:name, module:attribute, or"):
            load_model("nobody_at_home:echo", base_url=None, key_variable=None)

    def test_a_missing_key_is_a_usage_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a partner package raises for it is one line here."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(ConfigurationError, match="--model openai:gpt-5"):
            load_model("openai:gpt-5", base_url=None, key_variable=None)

    def test_no_key_for_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The usual key goes to no server on this machine; a server elsewhere needs one, over any name with a colon."""
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
        local = load_model("llama3.1:8b", base_url="http://127.0.0.1:1/v1", key_variable=None)
        away = load_model("llama3.1:8b", base_url="https://models.example/v1", key_variable=None)
        named = load_model("m", base_url="http://localhost:1/v1", key_variable="OPENAI_API_KEY")
        assert isinstance(local, ChatOpenAI)
        assert local.model_name == "llama3.1:8b"
        assert [_key(model) for model in (local, away, named)] == ["not-needed", "sk-of-the-user", "sk-of-the-user"]
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(ConfigurationError, match="--key-env"):
            load_model("m", base_url="https://models.example/v1", key_variable=None)

    def test_an_object_that_is_no_model(self) -> None:
        """A function that makes something else."""
        with pytest.raises(ConfigurationError, match="no LangChain chat model"):
            load_model(f"{MODELS}:TOOLS", base_url=None, key_variable=None)


def _key(model: object) -> str:
    assert isinstance(model, ChatOpenAI)
    assert model.openai_api_key is not None
    secret: Any = model.openai_api_key
    return str(secret.get_secret_value())


class TestRules:
    def _decide(self, rules: Permissions, operation: Any, *paths: str) -> set[str]:
        return {rules.decide(operation, path) for path in paths}

    def test_the_defaults(self) -> None:
        """It reads the directory and asks before it changes it; its own files are free; secrets are closed."""
        rules = rules_of(allow=(), ask=(), deny=())
        assert self._decide(rules, "read", "/work/a.py", "/work/b/c.md", "/notes.md") == {"allow"}
        assert self._decide(rules, "write", "/work/a.py", "/work/b/c.md") == {"ask"}
        assert self._decide(rules, "delete", "/work/a.py") == {"ask"}
        assert self._decide(rules, "write", "/notes.md") == {"allow"}
        closed = ("/work/.env", "/work/a/.env.local", "/work/x/key.pem", "/work/.git/config", "/work/.SSH/id_rsa")
        assert self._decide(rules, "read", *closed) == {"deny"}

    def test_the_threads_stay_closed(self) -> None:
        """Whatever is allowed, an agent does not reach its own record through the directory that it works on."""
        rules = rules_of(allow=("/**",), ask=(), deny=())
        kept = ("/work/.refold/threads.db", "/work/sub/.refold/files/results/x", "/work/.Refold/threads.db-wal")
        for operation in ("read", "write", "delete"):
            assert self._decide(rules, operation, *kept) == {"deny"}
        assert self._decide(rules, "write", "/results/t/x", "/history/t/1.md") == {"deny"}

    def test_given_rules_come_first(self) -> None:
        """Deny before ask before allow, and all of them before the defaults."""
        rules = rules_of(
            allow=("/work/src/**", "read:/work/.env"), ask=("/work/src/core/**",), deny=("delete:/work/**",)
        )
        assert self._decide(rules, "write", "/work/src/a.py") == {"allow"}
        assert self._decide(rules, "read", "/work/src/core/a.py") == {"ask"}
        assert self._decide(rules, "delete", "/work/src/a.py") == {"deny"}
        assert self._decide(rules, "read", "/work/.env") == {"allow"}
        assert self._decide(rules, "write", "/work/.env") == {"deny"}


class TestAnswers:
    def _answer(self, waiting: object, *lines: str) -> object:
        given = iter(lines)
        return Human(screen=JsonLines(io.StringIO()), ask=lambda _: next(given)).answer(waiting)

    def _review(self, *allowed: str) -> dict[str, Any]:
        return {
            "action_requests": [{"name": "f", "args": {"x": 1}, "description": "May it?"}],
            "review_configs": [{"action_name": "f", "allowed_decisions": list(allowed)}],
        }

    def test_each_decision(self) -> None:
        """In the form that LangChain's review takes."""
        every = self._review("approve", "edit", "reject", "respond")
        assert self._answer(every, "a") == {"decisions": [{"type": "approve"}]}
        assert self._answer(every, "r", "too risky") == {"decisions": [{"type": "reject", "message": "too risky"}]}
        assert self._answer(every, "n", "42") == {"decisions": [{"type": "respond", "message": "42"}]}
        edited = {"type": "edit", "edited_action": {"name": "f", "args": {"x": 2}}}
        assert self._answer(every, "e", "no json", "[1]", '{"x": 2}') == {"decisions": [edited]}

    def test_only_what_is_allowed(self) -> None:
        """Nothing is taken for an approval but an approval, and a decision that is not offered is asked for again."""
        assert self._answer(self._review("approve", "reject"), "", "yes?", "e", "n", "r", "") == {
            "decisions": [{"type": "reject"}]
        }

    def test_several_calls_and_one_at_a_time(self) -> None:
        """A decision for each call in order; the form for one call gets one decision."""
        one = self._review("approve", "reject")
        two = {**one, "action_requests": one["action_requests"] * 2}
        assert self._answer(two, "a", "r", "") == {"decisions": [{"type": "approve"}, {"type": "reject"}]}
        single = {"type": "tool_approval", "tool_call_id": "c", "name": "f", "args": {}, "description": "?"}
        assert self._answer(single, "approve") == {"type": "approve"}

    def test_a_question_of_any_kind(self) -> None:
        """The line that is typed."""
        assert self._answer("Which colour?", "blue") == "blue"
        assert self._answer({"form": [1]}, "2") == "2"
