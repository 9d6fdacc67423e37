"""`refold convert`: the wiring, the exit codes and what is printed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from refold.cli.main import run
from refold.replay import read_transcript, read_transcripts

KEY = "ghp_" + "AbCd1234EfGh5678IjKlMnOp9012QrSt3456"
DIALOGUE = [
    {"role": "user", "content": f"use {KEY}"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "r"},
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([DIALOGUE, DIALOGUE]))
    return path


class TestConvert:
    """One command line, one file."""

    def test_every_dialogue_is_written(self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The target holds what the source holds; the table says how much."""
        target = tmp_path / "out" / "x.jsonl"
        assert run(["convert", str(source), str(target)]) == 0
        assert list(read_transcripts(target)) == list(read_transcripts(source))
        assert "6 messages of 2 dialogues" in capsys.readouterr().out

    def test_join_and_index(self, source: Path, tmp_path: Path) -> None:
        """All as one, or one of all; not both."""
        joined, single = tmp_path / "j", tmp_path / "s"
        assert run(["convert", str(source), str(joined), "--join"]) == 0
        assert run(["convert", str(source), str(single), "--index", "1"]) == 0
        assert len(read_transcript(joined).messages) == 6
        assert len(read_transcript(single).messages) == 3
        assert run(["convert", str(source), str(tmp_path / "b"), "--join", "--index", "1"]) == 2

    def test_redact(self, source: Path, tmp_path: Path) -> None:
        """Without the option the log is what it was, secrets and all; with it they are gone."""
        plain, clean = tmp_path / "p", tmp_path / "c"
        assert run(["convert", str(source), str(plain)]) == 0
        assert run(["convert", str(source), str(clean), "--redact"]) == 0
        assert KEY in plain.read_text()
        assert KEY not in clean.read_text()
        assert "[redacted: access token]" in clean.read_text()

    def test_skipped_records_are_shown(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """By reason, with the first line."""
        path = tmp_path / "in"
        path.write_text("\n".join([*map(json.dumps, DIALOGUE), "{oops", '{"role": "user", "con']))
        assert run(["convert", str(path), str(tmp_path / "out")]) == 0
        shown = capsys.readouterr().out
        assert "line that is not JSON" in shown
        assert "last line, cut off" in shown

    @pytest.mark.recorded
    def test_recorded_sessions(self, sessions_dir: Path, tmp_path: Path) -> None:
        """Every recorded file converts."""
        for path in sorted(sessions_dir.glob("*[!d]")):
            assert run(["convert", str(path), str(tmp_path / path.name)]) == 0


class TestFailure:
    """One line on standard error, the exit code of the error, the target as it was."""

    def test_no_session(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An unknown format is exit code 2, one line, no secret in it, and no file."""
        path = tmp_path / f"{KEY}.txt"
        path.write_text("hello")
        assert run(["convert", str(path), str(tmp_path / "out")]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("error: ")
        assert shown.err.count("\n") == 1
        assert KEY not in shown.err
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("arguments", [["convert"], ["bogus"], ["convert", "a", "b", "--index", "-1"], ["--nope"]])
    def test_usage(self, arguments: list[str]) -> None:
        """Usage errors are exit code 2."""
        assert run(arguments) == 2

    def test_an_index_that_is_not_there(self, source: Path, tmp_path: Path) -> None:
        """Exit code 2, no file."""
        assert run(["convert", str(source), str(tmp_path / "out"), "--index", "7"]) == 2
        assert not (tmp_path / "out").exists()

    def test_nothing_is_overwritten(self, source: Path, tmp_path: Path) -> None:
        """An existing target needs --force, and the source is never the target."""
        target = tmp_path / "out"
        target.write_text("old")
        assert run(["convert", str(source), str(target)]) == 2
        assert target.read_text() == "old"
        assert run(["convert", str(source), str(target), "--force"]) == 0
        before = source.read_bytes()
        assert run(["convert", str(source), str(source), "--force"]) == 2
        assert source.read_bytes() == before

    def test_a_target_that_cannot_be_made(self, source: Path, tmp_path: Path) -> None:
        """A folder in its place, a file where a folder should be."""
        assert run(["convert", str(source), str(tmp_path), "--force"]) == 2
        assert run(["convert", str(source), str(source / "x")]) == 2


class TestCommand:
    """The entry point itself."""

    def test_version_and_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Exit code 0."""
        assert run(["--version"]) == 0
        assert capsys.readouterr().out.startswith("refold ")
        assert run(["--help"]) == 0
        assert run(["convert", "--help"]) == 0
        assert "--redact" in capsys.readouterr().out

    def test_import_is_light(self) -> None:
        """`import refold.cli` loads neither the CLI libraries nor the importers."""
        code = "import sys, refold.cli; print(sorted({'typer', 'rich', 'refold.replay'} & set(sys.modules)))"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert shown.stdout.strip() == "[]"
