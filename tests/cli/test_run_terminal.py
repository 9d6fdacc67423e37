"""`refold run` on a pseudo-terminal: the command in a process of its own, keys typed when it asks for them."""

import io
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.cli.main import run

Piped = Callable[..., tuple[int, str, str]]
MODELS = Path(__file__).parent / "models_for_run.py"
START = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from refold.cli import main; main()"
"""Takes the terminal as its own, so that Ctrl-C typed there is a signal to it."""
COMMAND = [sys.executable, "-c", START, "run"]
CTRL_C, CTRL_D = "\x03", "\x04"
UNHEARD = """
import signal, threading, time
from refold.cli.terminal.screen import Terminal

def press():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=press).start()
try:
    Terminal().ask("name? ")
except KeyboardInterrupt:
    print("heard")
"""
"""Awaits a line while the signal comes to another thread: like one that comes between the prompt and the wait, it does
not interrupt the wait."""
PROMPT = "\x1b[2K> "
PATIENCE = 120.0


def on_a_terminal(folder: Path, *arguments: str, model: str, steps: list[tuple[str, str]]) -> tuple[int, str]:
    """Run on a terminal of its own: for each step, wait until its first part has been shown, then type its second. The
    exit code, and all that was shown."""
    return typed(folder, [*COMMAND, *arguments, "--model", f"{MODELS}:{model}"], steps)


def typed(folder: Path, command: list[str], steps: list[tuple[str, str]]) -> tuple[int, str]:
    """The same for any command."""
    terminal, theirs = os.openpty()
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm-256color"}
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown, read_to, waiting = b"", 0, list(steps)
    until = time.monotonic() + PATIENCE
    try:
        while True:
            if not select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
                pytest.fail(f"nothing came for {waiting[:1]}: {shown.decode(errors='replace')}")
            try:
                piece = os.read(terminal, 65_536)
            except OSError:  # the terminal is closed on the other side
                break
            if not piece:
                break
            shown += piece
            while waiting and (at := shown.find(waiting[0][0].encode(), read_to)) >= 0:
                expected, keys = waiting.pop(0)
                read_to = at + len(expected.encode())
                os.write(terminal, keys.encode())
    finally:
        os.close(terminal)
        if waiting:
            child.kill()
        child.wait(PATIENCE)
    assert [step[0] for step in waiting] == []
    return child.returncode, shown.decode()


@pytest.fixture
def piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Piped:
    """Runs the command in this process, which is another one than that at the terminal, and without one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def call(*arguments: str, model: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["run", *arguments, "--model", f"{MODELS}:{model}"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


class TestTerminal:
    def test_approval_and_status(self, tmp_path: Path) -> None:
        """The call that waits is shown with its arguments; approved, it runs. The status line is redrawn in place."""
        code, shown = on_a_terminal(tmp_path, "write a note", model="writer", steps=[("[a]pprove, [r]eject? ", "a\n")])
        assert code == 0
        assert (tmp_path / "note.txt").read_text() == "hello\n"
        assert 'write_file({"path": "/work/note.txt", "content": "hello\\n", "mode": "replace"})' in shown
        assert "\r\x1b[2K" in shown
        assert "window " in shown.splitlines()[-1]

    def test_edit(self, tmp_path: Path) -> None:
        """A confirmed tool's arguments can be changed; it runs with the new ones."""
        steps = [("[e]dit", "e\n"), ("new arguments", '{"a": 20, "b": 30}\n')]
        options = ("--tools", f"{MODELS}:TOOLS", "--confirm", "add")
        code, shown = on_a_terminal(tmp_path, "add", *options, model="adds", steps=steps)
        assert code == 0
        assert "50" in shown.split("It is:")[1]

    def test_a_thread_that_waits_is_asked_for_in_another_process(self, tmp_path: Path, piped: Piped) -> None:
        """What one process left waiting, the next one on the thread asks for at once; the answer reaches the tool."""
        options = ("--thread", "t", "--tools", f"{MODELS}:TOOLS")
        code, _, err = piped("paint it", *options, model="asks")
        assert code == 8
        assert "waits for you: Which colour?" in err
        code, shown = on_a_terminal(tmp_path, *options, model="asks", steps=[("answer> ", "blue\n"), (PROMPT, CTRL_D)])
        assert code == 0
        assert "the agent asks: Which colour?" in shown
        assert "You said: blue" in shown


class TestInterruption:
    def test_ctrl_c_stops_and_the_thread_goes_on(self, tmp_path: Path, piped: Piped) -> None:
        """One Ctrl-C while the model is awaited: exit code 130 and the command that goes on; it does, elsewhere."""
        code, shown = on_a_terminal(
            tmp_path, "wait for me", "--thread", "t", model="hangs", steps=[("(called)", CTRL_C)]
        )
        assert code == 130
        assert "nothing is lost. Go on with: refold run --thread t --model" in shown
        assert "Traceback" not in shown
        code, out, err = piped("--thread", "t", model="echo")
        assert (code, out) == (0, "message 1: wait for me\n")
        assert "stopped in the middle" in err

    def test_the_prompt(self, tmp_path: Path) -> None:
        """Without a task there is a prompt. Ctrl-C there stops the run and not the session, which ends with Ctrl-D."""
        steps = [
            (PROMPT, "hello\n"),
            ("message", ""),
            (PROMPT, "/status\n"),
            ("tokens", ""),
            (PROMPT, "wait\n"),
            ("(called)", CTRL_C),
            ("stopped; nothing is lost", ""),
            (PROMPT, CTRL_D),
        ]
        code, shown = on_a_terminal(tmp_path, "--thread", "t", model="hangs", steps=steps)
        assert code == 0
        assert "go on later with: refold run --thread t" in shown

    def test_ctrl_c_at_a_question_leaves_it_waiting(self, tmp_path: Path, piped: Piped) -> None:
        """Nothing is decided by leaving."""
        code, _ = on_a_terminal(
            tmp_path, "write", "--thread", "t", model="writer", steps=[("[a]pprove, [r]eject? ", CTRL_C)]
        )
        assert code == 130
        code, out, _ = piped("--thread", "t", "--json", model="writer")
        assert code == 8
        assert json.loads(out.splitlines()[0])["waits"] != []
        assert not (tmp_path / "note.txt").exists()

    def test_ctrl_c_that_does_not_interrupt_the_wait(self, tmp_path: Path) -> None:
        """One that comes before the wait for keys has begun is heard without another key."""
        code, shown = typed(tmp_path, [sys.executable, "-c", UNHEARD], [("name? ", "")])
        assert (code, shown.endswith("name? heard\r\n")) == (0, True)
