"""The messages of a long coding agent, made of the source files of the Python that runs the benchmark.

Every message is a function of (seed, index): two runs on one machine store the same bytes. The sizes are those measured
on real traffic: an AI message with one tool call serialises to about 910 bytes, a tool message to about 2.3 kB, with
lognormal lengths between 0.5 and 8 kB. Results are file reads with line numbers, searches, logs and JSON. No text
repeats before the standard library is used up (30 MB with its tests).
"""

import json
import random
import sysconfig
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path

from langchain_core.messages import AIMessage
from langchain_core.messages.tool import ToolCall

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass(frozen=True, kw_only=True)
class Line:
    path: str
    number: int
    text: str


class Traffic:
    """AI messages and tool results, by index."""

    def __init__(self, *, seed: int = 1) -> None:
        self.seed = seed
        self._results: list[str] = []
        self._result_source = self._make_results()

    @cached_property
    def files(self) -> list[Path]:
        root = Path(sysconfig.get_paths()["stdlib"])
        skip = {"site-packages", "dist-packages", "__pycache__", "lib2to3"}
        found = sorted(path for path in root.rglob("*.py") if not skip.intersection(path.parts))
        random.Random(self.seed).shuffle(found)
        return found

    @cached_property
    def remarks(self) -> list[str]:
        """Sentences that people wrote: the comments of the first files."""
        lines = [
            line.strip().lstrip("#").strip()
            for path in self.files[:300]
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
            if line.lstrip().startswith("# ")
        ]
        return [line for line in lines if len(line) > 30]

    def result(self, index: int) -> str:
        """The text of the tool result with this index, 2,056 characters on average."""
        while len(self._results) <= index:
            self._results.append(next(self._result_source))
        return self._results[index]

    def call(self, index: int) -> AIMessage:
        """The AI message that asks for the result with this index."""
        rng = random.Random(f"{self.seed}/{index}")
        path = self.files[rng.randrange(len(self.files))]
        arguments = {
            "path": "/srv/project/" + "/".join(path.parts[-3:]),
            "pattern": rng.choice(self.remarks)[:60],
            "offset": index,
        }
        text = " ".join(rng.choice(self.remarks) for _ in range(4))[:230]
        call = ToolCall(name="inspect_source", args=arguments, id="toolu_01" + _token(rng, 22))
        return self._message(rng, index, text, [call])

    def delegation(self, index: int, *, subagent: str) -> AIMessage:
        """An AI message that hands work to a sub-agent."""
        rng = random.Random(f"{self.seed}/task/{index}")
        arguments = {
            "description": " ".join(rng.choice(self.remarks) for _ in range(4)),
            "subagent_type": subagent,
        }
        call = ToolCall(name="task", args=arguments, id="toolu_01" + _token(rng, 22))
        return self._message(rng, index, "I hand this part over.", [call])

    def answer(self, index: int) -> AIMessage:
        """A final answer, without a call."""
        rng = random.Random(f"{self.seed}/answer/{index}")
        return self._message(rng, index, " ".join(rng.choice(self.remarks) for _ in range(6)), [])

    def question(self, index: int) -> str:
        rng = random.Random(f"{self.seed}/question/{index}")
        return "Please check this: " + " ".join(rng.choice(self.remarks) for _ in range(3))

    def _message(self, rng: random.Random, index: int, text: str, calls: list[ToolCall]) -> AIMessage:
        read, written = 4_000 + 640 * index, rng.randrange(40, 400)
        return AIMessage(
            text,
            id="lc_run--" + str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            tool_calls=calls,
            usage_metadata={
                "input_tokens": read,
                "output_tokens": written,
                "total_tokens": read + written,
                "input_token_details": {"cache_read": read - 640, "cache_creation": 640},
            },
            response_metadata={
                "id": "msg_01" + _token(rng, 22),
                "model": "example-model-4-20260101",
                "model_name": "example-model-4-20260101",
                "model_provider": "example",
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
            },
        )

    def _lines(self) -> Iterator[Line]:
        for path in cycle(self.files):
            name = "/".join(path.parts[-2:])
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                if line.strip():
                    yield Line(path=name, number=number, text=line[:200])

    def _make_results(self) -> Iterator[str]:
        rng = random.Random(f"{self.seed}/results")
        lines = self._lines()
        for index in cycle((0, 2, 1, 0, 2, 3, 0, 2)):
            wanted = int(min(8_000, max(500, rng.lognormvariate(7.45, 0.6))))
            if index == 3:
                yield _as_json(lines, wanted)
                continue
            shown: list[str] = []
            size = 0
            while size < wanted:
                shown.append(_show(next(lines), index, rng))
                size += len(shown[-1]) + 1
            yield "\n".join(shown)[:wanted]


def _show(line: Line, kind: int, rng: random.Random) -> str:
    match kind:
        case 0:
            return f"{line.number:6}\t{line.text}"
        case 1:
            return f"{line.path}:{line.number}:{line.text.strip()}"
        case _:
            return f"{rng.randrange(10**6):06} {rng.random():.3f}s {line.text.strip()}"


def _as_json(lines: Iterator[Line], wanted: int) -> str:
    rows: list[dict[str, object]] = []
    size = 0
    while size < wanted:
        line = next(lines)
        rows.append({"file": line.path, "line": line.number, "match": line.text.strip()})
        size += len(line.path) + len(line.text.strip()) + 36
    return json.dumps(rows, ensure_ascii=False)[:wanted]


def _token(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(_ALPHABET, k=length))
