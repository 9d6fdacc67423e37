"""The day's work: what the model says at each round, what its tools return, and what the human asks, all by number.

The model goes by the newest message alone, so that it answers alike however its window is folded.
"""

import base64
import random
import struct
import zlib
from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool

from refold.core.messages import is_record, text_of

TURN = 50
"""Rounds between two human messages."""
SUMMARY = (
    "The services were built one after the other; each log was read and its failing cases were noted. 各服务依次构建，"
    "日志已检查，失败用例已记录。 The work goes on with the next one."
)
_CHINESE = (
    "第{n}号服务部署完成，耗时{t}毫秒，配置文件位于 /etc/服务/{n}.yaml，日志写入 /var/log/svc-{n}.log，"
    "共处理请求 {m} 次，其中失败 {t} 次，已经重试并记录。"
)
_ENGLISH = (
    "service {n} deployed in {t} ms, config at /etc/svc/{n}.yaml, log in /var/log/svc-{n}.log, {m} requests, {t} failed"
)


def is_summary_request(messages: Sequence[BaseMessage]) -> bool:
    """Whether a request asks for a summary, in the live prefix or on its own."""
    first = messages[0]
    alone = isinstance(first, SystemMessage) and "records of agent transcripts" in str(first.text)
    return alone or text_of(messages[-1]).startswith("Stop here for a moment")


def asked(turn: int) -> HumanMessage:
    """What the human says at the start of a turn."""
    words = (
        f"Deploy batch {turn} and keep every error code; never touch /etc/shadow-{turn}."
        if turn % 2
        else f"请部署第{turn}批服务，保留所有错误代码，不要修改 /etc/shadow-{turn}。"
    )
    return HumanMessage(words, id=f"h{turn}")


def answer(messages: Sequence[BaseMessage]) -> AIMessage:
    """The model's answer to a window."""
    if is_summary_request(messages):
        return AIMessage(SUMMARY)
    number = round_after(messages)
    if number % TURN == 0 and not isinstance(messages[-1], HumanMessage):
        return AIMessage(f"Batch {number // TURN} is deployed. 本批已完成。", id=f"end{number}")
    words = f"Round {number}: next is svc-{number}." if number % 2 else f"第{number}轮：检查 svc-{number}。"
    calls = [
        {"type": "tool_call", "id": f"c-{number}-{place}", "name": name, "args": args}
        for place, (name, args) in enumerate(calls_of_round(number))
    ]
    return AIMessage(words, id=f"a{number}", tool_calls=calls)


def round_after(messages: Sequence[BaseMessage]) -> int:
    """The number of the round that comes next, from 0 on; after the last one of a turn, the next turn's first."""
    last = next(message for message in reversed(messages) if not is_record(message))
    if isinstance(last, ToolMessage):
        return int(last.tool_call_id.split("-")[1]) + 1
    return int(str(last.id)[1:]) * TURN


def calls_of_round(number: int) -> list[tuple[str, Mapping[str, object]]]:
    """The tools that a round calls."""
    rare: list[tuple[int, str, Mapping[str, object]]] = [
        (97, "screenshot", {"number": number}),
        (89, "task", {"subagent": "reader", "description": f"Read all of batch {number} and report."}),
        (31, "report", {"number": number}),
        (23, "search_history", {"query": f"svc-{max(0, number - 40)}"}),
        (19, "read_history", {"ref": f"a{max(1, number - number % 17)}"}),
        (13, "flaky", {"number": number}),
        (7, "write_note", {"path": f"/notes/{number}.md", "content": lines(number, 12)}),
    ]
    for every, name, args in rare:
        if number % every == every - 1:
            return [(name, args)]
    twice = [("run", {"number": number, "part": 1})] if number % 9 == 0 else []
    return [("run", {"number": number, "part": 0}), *twice]


def lines(number: int, count: int) -> str:
    """Output of a deployment, in Chinese or English."""
    form = _ENGLISH if number % 2 else _CHINESE
    return "\n".join(form.format(n=number, t=37 * (number + i) % 997, m=number * i) for i in range(count))


@tool
def run(number: int, part: int) -> str:
    """Deploy a service."""
    return lines(number + part, 6)


@tool
def report(number: int) -> str:
    """All lines of a batch."""
    return lines(number, 400)


@tool
def write_note(path: str, content: str) -> str:
    """Keep a note."""
    return f"wrote {len(content)} characters to {path}"


@tool
def flaky(number: int) -> str:
    """Fails."""
    raise ToolException(f"ECONNREFUSED: svc-{number} answered HTTP 503 at 10.0.{number % 256}.7:8443")


flaky.handle_tool_error = True


@tool
def screenshot(number: int) -> list[dict[str, object]]:
    """See the dashboard."""
    data = base64.b64encode(png(number)).decode("ascii")
    return [
        {"type": "text", "text": f"dashboard {number}"},
        {"type": "image", "base64": data, "mime_type": "image/png"},
    ]


def png(number: int, side: int = 48) -> bytes:
    """A picture of noise."""
    dice = random.Random(number)
    rows = b"".join(b"\0" + dice.randbytes(3 * side) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


TOOLS: Sequence[BaseTool] = (run, report, write_note, flaky, screenshot)
