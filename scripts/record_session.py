"""Record the session that the project ships, `sessions/repository-tour.jsonl`.

    python scripts/record_session.py                      # over the files of the working tree
    python scripts/record_session.py --revision HEAD      # over the files of a commit: the same bytes for everyone

A LangChain agent with real tools walks through this repository in several turns, half in Chinese, half in English. Only
the model is scripted: each of its replies is computed from the results that it got. The tools work on a copy of the
files in a temporary folder, shown to the agent as `/repo`; nothing of the machine gets into the session, and the same
files give the same session, byte for byte. No usage is recorded, because no model was asked.
"""

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr
from tour_script import ROOT, Script, Tour, turns

from refold.replay import ToolSchema, Transcript, write_jsonl
from refold.replay.transcript import with_ids

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET = REPOSITORY / "sessions" / "repository-tour.jsonl"
PARTS = ("LICENSE", "README.md", "pyproject.toml", "Makefile", "docs", "src", "tests")
"""What is copied. The session itself is not, or it would grow into itself."""
ENDINGS = ("", ".py", ".md", ".toml", ".sql")
LARGEST = 60_000
"""Bytes; larger files are tables and binaries, in which there is nothing to read."""

SYSTEM = """You are a careful engineer who explores a repository with tools.

- Work through the todo list; keep it up to date.
- Read before you claim. Every claim in a note names a path and a line.
- Change nothing outside /repo/notes.
- Answer in the language of the question. 用户用中文提问时用中文回答。"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--revision", help="take the files of this commit instead of the working tree")
    options.add_argument("--source", type=Path, default=REPOSITORY, help="the tree to walk through")
    options.add_argument("--out", type=Path, default=TARGET)
    chosen = options.parse_args()
    files = committed_files(chosen.revision) if chosen.revision else working_files(chosen.source)
    transcript = record(files, reading_budget=520_000)
    count = write_jsonl(chosen.out, transcript)
    sys.stdout.write(f"{count} messages, {chosen.out.stat().st_size} bytes in {chosen.out}\n")


def record(files: dict[str, bytes], *, reading_budget: int) -> Transcript:
    """The session over the given files (path to content). `reading_budget` bounds the characters read in turn one."""
    with tempfile.TemporaryDirectory(prefix="repository-tour-") as folder:
        root = Path(folder)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        tools = tools_over(root)
        model = ScriptedModel()
        agent = create_agent(model, tools, system_prompt=SYSTEM)
        log: list[AnyMessage] = []
        for question, script in turns(Tour(sorted(files), reading_budget)):
            model.follow(script)
            state = agent.invoke({"messages": [*log, HumanMessage(question)]}, {"recursion_limit": 10_000})
            log = state["messages"]
    return Transcript(
        name="repository-tour",
        format="refold",
        system=SYSTEM,
        tools=tuple(_schema(each) for each in tools),
        messages=with_ids([message.model_copy(update={"id": None}) for message in log]),
        model="scripted",
    )


# --- the files ---------------------------------------------------------------------------------------------------


def working_files(root: Path) -> dict[str, bytes]:
    """The parts of the working tree that the tour is over."""
    found = (path for part in PARTS for path in (sorted((root / part).rglob("*")) or [root / part]))
    return dict(_wanted((path.relative_to(root).as_posix(), path.read_bytes()) for path in found if path.is_file()))


def committed_files(revision: str) -> dict[str, bytes]:
    """The same parts as they are in a commit."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=REPOSITORY, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        contents = ((member.name, archive.extractfile(member)) for member in members)
        return dict(_wanted((name, stream.read()) for name, stream in contents if stream is not None))


def _wanted(files: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    for name, content in files:
        path = Path(name)
        if path.parts[0] in PARTS and path.suffix in ENDINGS and len(content) <= LARGEST:
            yield name, content


# --- the tools ---------------------------------------------------------------------------------------------------


def tools_over(root: Path) -> list[BaseTool]:
    """Real tools on a folder that they show as `/repo`."""

    def real(path: str) -> Path:
        place = (root / path.removeprefix(ROOT).lstrip("/")).resolve()
        if not place.is_relative_to(root.resolve()):
            raise ToolException(f"{path} is outside {ROOT}")
        return place

    def shown(place: Path) -> str:
        return f"{ROOT}/{place.relative_to(root).as_posix()}".removesuffix("/.")

    @tool
    def list_files(path: str, depth: int = 1) -> str:
        """List files below a folder, with their size in bytes; folders end with a slash."""
        base = real(path)
        if not base.is_dir():
            raise ToolException(f"{path}: no such folder")
        found = [p for p in sorted(base.rglob("*")) if len(p.relative_to(base).parts) <= depth]
        return "\n".join(f"{shown(p)}/" if p.is_dir() else f"{shown(p)} {p.stat().st_size}" for p in found)

    @tool
    def read_file(path: str, start: int = 1, lines: int = 80) -> str:
        """Read lines of a text file, numbered, from line `start` (from 1)."""
        place = real(path)
        if not place.is_file():
            raise ToolException(f"{path}: no such file")
        text = place.read_text(encoding="utf-8").splitlines()
        page = islice(enumerate(text, 1), start - 1, start - 1 + lines)
        body = "\n".join(f"{number:5}\t{line}" for number, line in page)
        return f"{path} (lines {start}-{min(start + lines - 1, len(text))} of {len(text)})\n{body}"

    @tool
    def grep(pattern: str, path: str = ROOT, limit: int = 40) -> str:
        """Lines that match a regular expression, as path:line: text, in files below a folder."""
        hits: list[str] = []
        for place in sorted(p for p in real(path).rglob("*") if p.is_file()):
            for number, line in enumerate(place.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if re.search(pattern, line):
                    hits.append(f"{shown(place)}:{number}: {line.strip()[:160]}")
        more = f"\n... {len(hits) - limit} more, narrow the pattern" if len(hits) > limit else ""
        return "\n".join(hits[:limit]) + more if hits else "no match"

    @tool
    def run_python(code: str) -> str:
        """Run a Python program in /repo and return what it prints, then its exit code."""
        done = subprocess.run(
            [sys.executable, "-I", "-X", "utf8", "-"],
            input=code,
            cwd=root,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        output = (done.stdout + done.stderr).replace(str(root.resolve()), ROOT).replace(str(root), ROOT)
        return f"{output.rstrip()}\n[exit code {done.returncode}]"

    @tool
    def write_note(path: str, text: str) -> str:
        """Write a note (a Markdown file below /repo/notes), replacing what is there."""
        if not path.startswith(f"{ROOT}/notes/"):
            raise ToolException(f"{path}: notes stand below {ROOT}/notes")
        real(path).parent.mkdir(parents=True, exist_ok=True)
        real(path).write_text(text, encoding="utf-8")
        return f"wrote {len(text)} characters to {path}"

    @tool
    def edit_note(path: str, old: str, new: str) -> str:
        """Replace a text in a note. The old text must stand there exactly once."""
        text = real(path).read_text(encoding="utf-8")
        if (count := text.count(old)) != 1:
            raise ToolException(f"{path}: the old text stands there {count} times, not once; read the note again")
        real(path).write_text(text.replace(old, new), encoding="utf-8")
        return f"replaced {len(old)} characters by {len(new)} in {path}"

    @tool
    def write_todos(todos: list[dict[str, str]]) -> str:
        """Replace the todo list. Each item has `content` and `status` (pending, in_progress, completed)."""
        done = sum(item.get("status") == "completed" for item in todos)
        return f"{done} of {len(todos)} done"

    tools: list[BaseTool] = [list_files, read_file, grep, run_python, write_note, edit_note, write_todos]
    for each in tools:
        each.handle_tool_error = True
    return tools


def _schema(each: BaseTool) -> ToolSchema:
    function = convert_to_openai_tool(each)["function"]
    return ToolSchema(name=each.name, description=function["description"], parameters=function["parameters"])


# --- the model ---------------------------------------------------------------------------------------------------


class ScriptedModel(BaseChatModel):
    """A chat model whose replies come from a script that reads the tool results."""

    _script: Script | None = PrivateAttr(default=None)
    _started: bool = PrivateAttr(default=False)

    def follow(self, script: Script) -> None:
        self._script, self._started = script, False

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[object], **kwargs: object) -> "ScriptedModel":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        assert self._script is not None
        results: list[str] = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            results.insert(0, str(message.content))
        reply = self._script.send(results) if self._started else next(self._script)
        self._started = True
        return ChatResult(generations=[ChatGeneration(message=reply)])


if __name__ == "__main__":
    main()
