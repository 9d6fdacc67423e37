"""refold's own session format: what is written comes back, or is refused."""

import json
from datetime import UTC, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from refold.errors import SessionFormatError
from refold.replay import (
    Compaction,
    Skipped,
    ToolSchema,
    Transcript,
    read_transcript,
    read_transcripts,
    write_jsonl,
)
from refold.replay.jsonl import message_fields, message_from

words = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, json_values, max_size=3)
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": words}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": words, "signature": words}),
    st.fixed_dictionaries({"type": st.just("image"), "base64": words, "mime_type": st.just("image/png")}),
    words,
)
content = words | st.lists(blocks, max_size=3)
calls = st.lists(
    st.builds(
        lambda name, args, id_: {"name": name, "args": args, "id": id_, "type": "tool_call"}, words, objects, words
    ),
    max_size=3,
)
usages = st.none() | st.builds(
    lambda a, b: {
        "input_tokens": a,
        "output_tokens": b,
        "total_tokens": a + b,
        "input_token_details": {"cache_read": a},
    },
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
names = st.none() | words
messages = st.one_of(
    st.builds(HumanMessage, content=content, name=names, additional_kwargs=objects),
    st.builds(SystemMessage, content=content, additional_kwargs=objects),
    st.builds(
        AIMessage, content=content, tool_calls=calls, usage_metadata=usages, response_metadata=objects, name=names
    ),
    st.builds(
        ToolMessage,
        content=content,
        tool_call_id=words,
        artifact=json_values,
        status=st.sampled_from(["success", "error"]),
        name=names,
    ),
)
moments = st.none() | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=8))]))
schemas = st.builds(ToolSchema, name=st.text(min_size=1, max_size=6), description=words, parameters=objects)


@st.composite
def transcripts(draw: st.DrawFn, *, depth: int = 2) -> Transcript:
    """Transcripts with everything that one can hold."""
    listed = draw(st.lists(messages, max_size=5))
    chosen = tuple(message.model_copy(update={"id": f"m{at}"}) for at, message in enumerate(listed))
    times = tuple(draw(moments) for _ in chosen)
    return Transcript(
        name=draw(st.text(min_size=1, max_size=8)),
        format=draw(st.sampled_from(["codex", "refold"])),
        system=draw(st.none() | st.text(min_size=1, max_size=9)),
        model=draw(st.none() | st.just("m")),
        call_id=draw(st.none() | st.just("c")),
        tools=tuple({tool.name: tool for tool in draw(st.lists(schemas, max_size=2))}.values()),
        messages=chosen,
        times=times if any(times) else (),
        compactions=tuple(
            draw(
                st.lists(
                    st.builds(Compaction, position=st.integers(0, 5), summary=words, tokens_before=st.none()),
                    max_size=2,
                )
            )
        ),
        skipped=(Skipped(reason="r", count=2, first_line=draw(st.none() | st.integers(1, 9))),),
        subagents=tuple(draw(st.lists(transcripts(depth=depth - 1), max_size=2))) if depth else (),
    )


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jsonl") / "session.jsonl"


class TestNothingIsLost:
    """Writing and reading is the identity."""

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
    @given(written=st.lists(transcripts(), min_size=1, max_size=3).filter(lambda all_: all(t.messages for t in all_)))
    def test_round_trip(self, target: Path, written: list[Transcript]) -> None:
        """Messages, ids, usage, media, schemas, times, compactions, skips and subagents of any depth."""
        write_jsonl(target, written)
        assert list(read_transcripts(target)) == written

    @given(message=messages)
    def test_message_round_trip(self, message: BaseMessage) -> None:
        """Also through JSON text."""
        assert message_from(json.loads(json.dumps(message_fields(message)))) == message

    @pytest.mark.recorded
    def test_recorded_sessions(self, sessions_dir: Path, target: Path) -> None:
        """Every recorded file, in one go, comes back equal."""
        for path in sorted(sessions_dir.glob("*[!d]")):
            read = list(read_transcripts(path))
            write_jsonl(target, read)
            assert list(read_transcripts(target)) == read

    def test_the_same_bytes_every_time(self, tmp_path: Path) -> None:
        """A session that is read and written again is the same file."""
        transcript = Transcript(
            name="n", format="refold", messages=(HumanMessage("你好", id="1"), AIMessage("x", id="2"))
        )
        write_jsonl(tmp_path / "a", transcript)
        write_jsonl(tmp_path / "b", read_transcripts(tmp_path / "a"))
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        assert "你好" in (tmp_path / "a").read_text(encoding="utf-8")

    def test_a_chunk_is_written_as_its_message(self) -> None:
        """Chunks are parts of a stream; a log holds messages."""
        assert message_from(message_fields(AIMessageChunk("x", id="1"))) == AIMessage("x", id="1")

    def test_golden_lines(self, tmp_path: Path) -> None:
        """The format is a promise: these bytes are read for ever, and written so."""
        golden = (
            '{"refold_session":1,"name":"n","format":"codex","system":"s","tools":[{"name":"f","description":"d","parameters":{"type":"object"}}]}\n'
            '{"type":"human","content":"a","id":"1","time":"2026-01-01T00:00:00+00:00"}\n'
            '{"type":"ai","content":"","id":"2","tool_calls":[{"name":"f","args":{"x":1},"id":"c","type":"tool_call"}]}\n'
            '{"type":"tool","content":"r","id":"3","tool_call_id":"c","status":"error"}\n'
            '{"subagent":1,"parent":0,"name":"n/1","format":"codex","call_id":"c"}\n'
            '{"type":"human","content":"b","id":"4","agent":1}\n'
        )
        path = tmp_path / "golden"
        path.write_text(golden, encoding="utf-8")
        [transcript] = read_transcripts(path)
        assert [t.name for t in (transcript, *transcript.subagents)] == ["n", "n/1"]
        assert write_jsonl(path, transcript) == 4
        assert path.read_text(encoding="utf-8") == golden


class TestRefused:
    """What cannot come back the same is not written."""

    @pytest.mark.parametrize(
        "artifact",
        [b"bytes", (1, 2), float("nan"), float("inf"), {1: "x"}, {"a": {2, 3}}, "\ud800", object()],
    )
    def test_values_that_json_changes(self, tmp_path: Path, artifact: object) -> None:
        """The error names the message, and no file appears."""
        message = ToolMessage("r", tool_call_id="c", id="m7", artifact=artifact)
        with pytest.raises(SessionFormatError, match="message m7"):
            write_jsonl(tmp_path / "x", Transcript(name="n", format="f", messages=(message,)))
        assert list(tmp_path.iterdir()) == []

    def test_a_failed_write_keeps_the_old_file(self, tmp_path: Path) -> None:
        """The target is replaced whole or not at all."""
        path = tmp_path / "x"
        path.write_text("old")
        bad = ToolMessage("r", tool_call_id="c", artifact=b"x")
        with pytest.raises(SessionFormatError):
            write_jsonl(path, Transcript(name="n", format="f", messages=(HumanMessage("a"), bad)))
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_class_of_someone_else(self) -> None:
        """Its fields may mean anything."""

        class Mine(HumanMessage):
            pass

        with pytest.raises(SessionFormatError, match="Mine"):
            message_fields(Mine("x"))

    @pytest.mark.parametrize(
        "fields",
        [{}, {"type": "robot"}, {"type": "human"}, {"type": "tool", "content": "x"}, {"type": "ai", "content": 5}],
    )
    def test_fields_that_are_no_message(self, fields: dict[str, object]) -> None:
        """Refused with the typed error."""
        with pytest.raises(SessionFormatError):
            message_from(fields)

    def test_a_newer_version(self, tmp_path: Path) -> None:
        """A later refold may mean something else by the same words."""
        path = tmp_path / "x"
        path.write_text('{"refold_session":2}\n{"type":"human","content":"a"}')
        with pytest.raises(SessionFormatError, match="version 2"):
            read_transcript(path)

    def test_bad_lines_are_counted(self, tmp_path: Path) -> None:
        """Our own files get damaged too."""
        path = tmp_path / "x"
        path.write_text(
            '{"refold_session":1,"name":"n"}\n{"type":"human","content":"a"}\n{"type":"robot"}\n'
            '{"type":"ai","content":"b","agent":3}\n{"type":"remove","id":"9","content":""}\n{"type":"hu'
        )
        transcript = read_transcript(path)
        assert [type(m) for m in transcript.messages] == [HumanMessage, RemoveMessage]
        assert {s.reason: s.count for s in transcript.skipped} == {
            "line that is no message": 1,
            "message whose header is lost": 1,
            "last line, cut off": 1,
        }
