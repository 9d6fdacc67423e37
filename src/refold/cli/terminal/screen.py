"""What a run shows: text as it comes, tools, the window's occupancy.

On a terminal everything is in one place, and the last line is the status, redrawn. Piped, standard output has the
agent's words alone, and standard error the rest, in plain lines. With `--json` standard output is one JSON object per
line. Control characters in what models and tools say are shown, never sent: a file that is read must not be able to
steer the terminal.
"""

import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final, Protocol, TextIO

from rich.console import Console
from rich.text import Text

from refold.cli.terminal.ctrl_c import heard
from refold.replay.secrets import redact

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What acts on a terminal instead of standing in it; the last ones reorder what a person is asked to approve."""
_LONGEST_ARGUMENT: Final = 60
_LONGEST_LINE: Final = 200


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """How full the window was at the last model call, in tokens of messages, and how often it was folded."""

    used: int = 0
    budget: int = 0
    folds: int = 0

    @property
    def line(self) -> str:
        """For people."""
        passes = f"{self.folds} fold{'' if self.folds == 1 else 's'}"
        if not self.budget:
            return f"window not used yet · {passes}"
        share = f"{self.used / self.budget:.0%}"
        return f"window {self.used:,} of {self.budget:,} tokens ({share}) · {passes}"


class Screen(Protocol):
    """Where a run is shown."""

    def text(self, piece: str) -> None:
        """A piece of the agent's answer."""

    def end_text(self) -> None:
        """The answer, or this part of it, is complete."""

    def tool_call(self, name: str, arguments: Mapping[str, object]) -> None:
        """The model calls a tool."""

    def tool_result(self, name: str, text: str, *, tokens: int, status: str) -> None:
        """A tool answered, with `success` or `error`."""

    def occupancy(self, now: Occupancy) -> None:
        """The window as it was sent."""

    def note(self, words: str, **data: object) -> None:
        """Something about the run itself, for people; `data` is the same for programs."""

    def ask(self, prompt: str) -> str:
        """A line from the person. Raises `EOFError` where there are no more."""

    def finish(self, ending: str) -> None:
        """The run is over: `answered`, `waiting`, `stopped` or `failed`."""


class Terminal:
    """For people: standard output for the answer, standard error for everything else."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._console = Console(file=err or sys.stderr, soft_wrap=True, highlight=False)
        self._live = self._console.is_terminal
        self._together = self._out.isatty() and self._live
        self._now = Occupancy()
        self._open = False
        self._drawn: Occupancy | None = None

    def text(self, piece: str) -> None:
        """As it comes."""
        shown = visible(piece)
        if not shown:
            return
        self._erase()
        self._out.write(shown)
        self._out.flush()
        self._open = not shown.endswith("\n")

    def end_text(self) -> None:
        """Onto a line of its own."""
        if self._open:
            self._out.write("\n")
            self._out.flush()
            self._open = False
        self._draw()

    def tool_call(self, name: str, arguments: Mapping[str, object]) -> None:
        """One line, long values cut."""
        inner = ", ".join(f"{key}={_short(value)}" for key, value in arguments.items())
        self._line(Text.assemble(("● ", "cyan"), (visible(name), "bold"), f"({inner})"))

    def tool_result(self, name: str, text: str, *, tokens: int, status: str) -> None:
        """The size; of an error what it says."""
        if status == "error":
            self._line(Text(f"  └ {visible(name)} failed: {_one_line(text)}", style="red"))
        else:
            self._line(Text(f"  └ {visible(name)}: {tokens:,} tokens", style="dim"))

    def occupancy(self, now: Occupancy) -> None:
        """In the status line; piped, it is said at the end."""
        self._now = now
        if not self._open:
            self._draw()

    def note(self, words: str, **data: object) -> None:
        """A dim line."""
        self._line(Text(visible(words), style="dim"))

    def ask(self, prompt: str) -> str:
        """With line editing where both sides are the terminal."""
        self.end_text()
        self._erase()
        if not self._together:
            return _ask_plainly(prompt, self._console.file)
        with suppress(ImportError):
            import readline  # noqa: F401 - input() edits with it
        with heard():
            return input(prompt)

    def finish(self, ending: str) -> None:
        """The last state of the window stays on the screen."""
        self.end_text()
        self._erase()
        self._console.print(Text(self._now.line, style="dim"))

    def _line(self, line: Text) -> None:
        if self._open and self._together:
            self._out.write("\n")
            self._out.flush()
            self._open = False
        self._erase()
        self._console.print(line)
        self._draw()

    def _draw(self) -> None:
        if not self._live or self._drawn == self._now:
            return
        self._erase()
        line = Text(self._now.line, style="dim")
        line.truncate(max(10, self._console.width - 1), overflow="ellipsis")
        self._console.print(line, end="")
        self._console.file.flush()
        self._drawn = self._now

    def _erase(self) -> None:
        if self._drawn is not None:
            self._console.file.write("\r\x1b[2K")
            self._console.file.flush()
            self._drawn = None


class JsonLines:
    """For programs: one JSON object per line, `event` first. docs/run.md lists them."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._now = Occupancy()
        self._said: list[str] = []

    def text(self, piece: str) -> None:
        """`text`."""
        self._said.append(piece)
        self._event("text", text=piece)

    def end_text(self) -> None:
        """`message`, the whole text of one answer of the model."""
        if self._said:
            self._event("message", text="".join(self._said))
            self._said.clear()

    def tool_call(self, name: str, arguments: Mapping[str, object]) -> None:
        """`tool_call`."""
        self._event("tool_call", name=name, arguments=dict(arguments))

    def tool_result(self, name: str, text: str, *, tokens: int, status: str) -> None:
        """`tool_result`."""
        self._event("tool_result", name=name, text=text, tokens=tokens, status=status)

    def occupancy(self, now: Occupancy) -> None:
        """`window`."""
        self._now = now
        self._event("window", used=now.used, budget=now.budget, folds=now.folds)

    def note(self, words: str, **data: object) -> None:
        """`note`, or the event that `data` names."""
        self._event(str(data.pop("event", "note")), text=words, **data)

    def ask(self, prompt: str) -> str:
        """On standard error."""
        return _ask_plainly(prompt, sys.stderr)

    def finish(self, ending: str) -> None:
        """`end`."""
        self.end_text()
        now = self._now
        self._event("end", ending=ending, used=now.used, budget=now.budget, folds=now.folds)

    def _event(self, event: str, **fields: object) -> None:
        self._out.write(json.dumps({"event": event, **fields}, ensure_ascii=False, default=str) + "\n")
        self._out.flush()


def _ask_plainly(prompt: str, err: IO[str]) -> str:
    err.write(prompt)
    err.flush()
    with heard():
        line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def visible(text: str) -> str:
    """The text with its control characters as pictures; line breaks and tabs stay."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _one_line(text: str) -> str:
    line = visible(redact(" ".join(text.split())))
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _short(value: object) -> str:
    """A value on one line; the middle of what is long is cut out, so that both ends of a path are seen."""
    text = _one_line(json.dumps(value, ensure_ascii=False, default=str))
    if len(text) <= _LONGEST_ARGUMENT:
        return text
    half = (_LONGEST_ARGUMENT - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
