"""Any damage to any recording: a transcript that keeps its promises, or the one typed error."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from refold.errors import SessionFormatError
from refold.replay import read_transcripts

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "content", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
GEMINI_CALL = {"id": "c", "name": "f", "args": {}, "result": [{"functionResponse": {"response": {"output": "r"}}}]}
LANGCHAIN = [
    {"type": "human", "content": "go", "id": "1"},
    {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c"}], "id": "2"},
]


def claude(uuid: str, parent: str | None, role: str, content: object, *, side: bool = False) -> object:
    """One record of a Claude Code session."""
    message = {"id": uuid, "role": role, "content": content}
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "type": role, "isSidechain": side, "message": message}


def lines(*records: object) -> bytes:
    """JSON lines."""
    return b"\n".join(json.dumps(record).encode() for record in records)


SAMPLES: dict[str, bytes] = {
    "chat": lines(
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "问题"}]},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "r"},
            ]
        }
    ),
    "claude": lines(
        claude("1", None, "user", "go"),
        claude("2", "1", "assistant", [{"type": "tool_use", "id": "c", "name": "f", "input": {"prompt": "x"}}]),
        claude("3", None, "user", "x", side=True),
        claude("4", "3", "assistant", [{"type": "text", "text": "y"}], side=True),
        claude("5", "2", "user", [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]),
    ),
    "codex": lines(
        *(
            {"type": "response_item", "payload": payload}
            for payload in (
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "e"},
                {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "r"},
            )
        )
    ),
    "gemini": lines(
        {
            "sessionId": "s",
            "projectHash": "p",
            "messages": [
                {"id": "1", "type": "user", "content": "go"},
                {"id": "2", "type": "gemini", "content": "", "toolCalls": [GEMINI_CALL]},
            ],
        }
    ),
    "langchain": lines({"values": {"messages": LANGCHAIN}}),
    "swe": lines(
        {
            "history": [
                {"role": "user", "content": "go", "agent": "a"},
                {"role": "assistant", "content": "t", "action": "ls", "agent": "a"},
            ],
            "trajectory": [],
        }
    ),
    "refold": lines(
        {"refold_session": 1, "name": "n"},
        {"type": "human", "content": "go", "id": "1"},
        {"subagent": 1, "parent": 0},
        {"type": "ai", "content": "x", "agent": 1},
    ),
}


def reads_or_refuses(path: Path) -> None:
    try:
        for transcript in read_transcripts(path):
            ids = [message.id for message in transcript.messages]
            assert all(ids)
            assert len(ids) == len(set(ids))
            for before, after in zip(transcript.messages, transcript.messages[1:], strict=False):
                assert (
                    not (isinstance(before, AIMessage) and isinstance(after, AIMessage))
                    or transcript.format == "refold"
                )
    except SessionFormatError:
        pass


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "session"


class TestNothingButTheTypedError:
    """`SessionFormatError` is the only thing that a file can raise."""

    @pytest.mark.parametrize("name", SAMPLES)
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(
        edits=st.lists(
            st.tuples(
                st.integers(0, 999),
                st.integers(0, 40),
                st.sampled_from([b"", b"\0", b'"', b"}", b"[", b"\n", b"\xff", b"null", b"7"]),
            ),
            min_size=1,
            max_size=6,
        ),
        cut=st.integers(0, 1200),
    )
    def test_damaged_bytes(self, target: Path, name: str, edits: list[tuple[int, int, bytes]], cut: int) -> None:
        """Bytes removed, replaced, inserted, the end cut off."""
        data = SAMPLES[name][: cut or None]
        for at, length, new in edits:
            data = data[:at] + new + data[at + length :]
        target.write_bytes(data)
        reads_or_refuses(target)

    @pytest.mark.parametrize("name", SAMPLES)
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(data=st.data())
    def test_wrong_values(self, target: Path, name: str, data: st.DataObject) -> None:
        """Some fields anywhere hold some other JSON value."""
        records = [json.loads(line) for line in SAMPLES[name].splitlines()]
        for _ in range(data.draw(st.integers(1, 3))):
            self.change(data.draw(st.sampled_from(records)), data)
        target.write_bytes(b"\n".join(json.dumps(record).encode() for record in records))
        reads_or_refuses(target)

    def change(self, value: object, data: st.DataObject) -> None:
        """Replace one field somewhere below a value."""
        while isinstance(value, dict | list) and value:
            key = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
            inner = value[key]  # type: ignore[index]
            if not (isinstance(inner, dict | list) and inner) or data.draw(st.integers(0, 3)) == 0:
                value[key] = data.draw(json_values)  # type: ignore[index]
                return
            value = inner

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
    @given(data=st.binary(max_size=300))
    def test_any_bytes(self, target: Path, data: bytes) -> None:
        """Files that never were a session."""
        target.write_bytes(data)
        reads_or_refuses(target)

    @pytest.mark.recorded
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
    @given(at=st.floats(0, 1), length=st.integers(1, 3000), pick=st.integers(0, 99))
    def test_recorded_sessions(self, target: Path, sessions_dir: Path, at: float, length: int, pick: int) -> None:
        """A hole in a real file, and its end cut off."""
        small = sorted(p for p in sessions_dir.iterdir() if p.suffix != ".md" and p.stat().st_size < 400_000)
        data = small[pick % len(small)].read_bytes()
        hole = int(at * len(data))
        target.write_bytes(data[:hole] + data[hole + length : -length])
        reads_or_refuses(target)
