"""`refold replay`: the wiring, the exit codes, the settings and what is printed."""

import json
from pathlib import Path

import pytest

from refold.cli.main import run
from refold.cli.settings import load_policy, parse_tokens
from refold.errors import ConfigurationError

KEY = "ghp_" + "AbCd1234EfGh5678IjKlMnOp9012QrSt3456"
DIALOGUE = [
    {"role": "user", "content": "look at /srv/a.py"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "r"},
    {"role": "assistant", "content": "done"},
]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / f"in-{KEY}.json"
    path.write_text(json.dumps([DIALOGUE, DIALOGUE]))
    return path


class TestReplay:
    """One command line."""

    def test_json_is_one_object_without_secrets(self, session: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Standard output holds nothing else."""
        assert run(["replay", str(session), "--window", "8k", "--json", "--join"]) == 0
        text = capsys.readouterr().out
        value = json.loads(text)
        assert (value["messages"], value["calls"], value["limit"], value["unreachable"]) == (8, 4, 8000, 0)
        assert KEY not in text

    def test_the_table_and_the_report(self, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The table says what was found and where the report is."""
        out = tmp_path / "deep" / "report.html"
        assert run(["replay", str(session), "--window", "8k", "--index", "1", "--out", str(out)]) == 0
        printed = capsys.readouterr().out
        assert "largest request" in printed
        assert KEY not in printed
        assert out.read_text("utf-8").startswith("<!doctype html>")

    def test_the_dry_run_changes_nothing(
        self, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It prints the plan; no file appears."""
        before = sorted(tmp_path.rglob("*"))
        assert run(["replay", str(session), "--window", "8k", "--dry-run"]) == 0
        assert "zone under" in capsys.readouterr().out
        assert run(["replay", str(session), "--window", "8k", "--dry-run", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["steps"] == []
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_request_that_is_not_valid_is_exit_6(self, tmp_path: Path) -> None:
        """A system message that stands before a user's breaks a rule of Anthropic's, whatever refold does."""
        path = tmp_path / "s.json"
        path.write_text(json.dumps([*DIALOGUE, {"role": "system", "content": "new rule"}, *DIALOGUE]))
        assert run(["replay", str(path), "--window", "8k", "--json"]) == 6

    def test_a_window_that_cannot_do_is_exit_3(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The error's own code, one line."""
        path = tmp_path / "s.json"
        path.write_text(json.dumps([{"role": "system", "content": "rule " * 3000}, *DIALOGUE]))
        assert run(["replay", str(path), "--window", "1k"]) == 3
        assert "limit 1000" in capsys.readouterr().err

    def test_more_dialogues_than_one_are_told(self, session: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a choice the first is taken, and a note says so; with one there is none."""
        assert run(["replay", str(session), "--window", "8k", "--json"]) == 0
        told = capsys.readouterr()
        assert json.loads(told.out)["messages"] == 4
        assert "several dialogues" in told.err
        assert run(["replay", str(session), "--window", "8k", "--json", "--index", "0"]) == 0
        assert capsys.readouterr().err == ""

    def test_both_choices_are_a_mistake(self, session: Path) -> None:
        """Exit 2, as for every option that cannot work."""
        assert run(["replay", str(session), "--join", "--index", "0"]) == 2
        assert run(["replay", str(session), "--window", "lots"]) == 2


class TestSettings:
    """File, then environment; clear errors."""

    def test_toml_json_and_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The environment wins over the file; what neither names has its default."""
        toml, plain = tmp_path / "p.toml", tmp_path / "p.json"
        toml.write_text("[policy]\ntrigger = 0.7\ntarget = 0.2\nkinds = ['args', 'summary']\n")
        plain.write_text('{"trigger": 0.7}')
        assert load_policy(toml).trigger == 0.7
        assert load_policy(toml).kinds == frozenset({"args", "summary"})
        monkeypatch.setenv("REFOLD_TRIGGER", "0.75")
        monkeypatch.setenv("REFOLD_SESSIONS", "/somewhere")
        assert load_policy(plain).trigger == 0.75
        assert load_policy(None).target == 0.3

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("triger = 0.7", "did you mean trigger"),
            ("trigger = 'high'", "trigger"),
            ("trigger = 1.5", "trigger"),
            ("target = 0.9", "target"),
            ("= nonsense", "neither JSON nor TOML"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path: Path, text: str, words: str) -> None:
        """The message names the setting."""
        path = tmp_path / "p.toml"
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=words):
            load_policy(path)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """Said as such."""
        with pytest.raises(ConfigurationError, match="cannot be read"):
            load_policy(tmp_path / "none.toml")

    @pytest.mark.parametrize(
        ("text", "tokens"), [("32k", 32_000), ("16_000", 16_000), ("1m", 1_000_000), ("8.5K", 8_500)]
    )
    def test_windows_as_people_write_them(self, text: str, tokens: int) -> None:
        """Thousands and millions."""
        assert parse_tokens(text) == tokens

    @pytest.mark.parametrize("text", ["", "k", "-5", "0", "inf", "nan", "many"])
    def test_no_windows(self, text: str) -> None:
        """A clear error, whatever it is."""
        with pytest.raises(ConfigurationError):
            parse_tokens(text)
