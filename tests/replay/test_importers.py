"""What every importer promises, on small samples of each format and on the recorded sessions."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)

from refold.core.messages import text_of
from refold.errors import ConfigurationError, SessionFormatError
from refold.replay import Transcript, detect_format, join_transcripts, read_transcript, read_transcripts

Save = Callable[[object], Path]

CHAT: Sequence[object] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read a and b."},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Both at once.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}},
            {"id": "c2", "type": "function", "function": {"name": "read", "arguments": '{"path": "b"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "A"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "B"}]},
    {"role": "assistant", "content": "Done."},
]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write values as JSON lines (a list of records), or any other value as one JSON document."""

    def write(value: object) -> Path:
        path = tmp_path / "session.bin"
        text = "\n".join(map(json.dumps, value)) + "\n" if isinstance(value, tuple) else json.dumps(value, indent=1)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def kinds(transcript: Transcript) -> list[str]:
    return [message.type for message in transcript.messages]


def skipped(transcript: Transcript) -> dict[str, int]:
    return {skip.reason: skip.count for skip in transcript.skipped}


def sound(transcript: Transcript) -> None:
    """The promises of a transcript."""
    pairing = transcript.pairing()
    ids = [message.id for message in transcript.messages]
    assert all(ids)
    assert len(ids) == len(set(ids))
    assert all(call.call.id for call in pairing.calls)
    assert all(call.answered_by is None or call.made_by < call.answered_by for call in pairing.calls)
    for before, after in zip(transcript.messages, transcript.messages[1:], strict=False):
        assert not (isinstance(before, AIMessage) and isinstance(after, AIMessage))
    assert transcript.times == () or len(transcript.times) == len(transcript.messages)


class TestRecordedSessions:
    """Seven megabytes of what users' files are like."""

    COUNTS: ClassVar = {
        "claude-code-771.jsonl": ("claude-code", 1, 457, 224),
        "codex-rollout-581.jsonl": ("codex", 1, 367, 177),
        "gemini-cli.json": ("gemini-cli", 1, 20, 9),
        "langgraph-thread-en.json": ("langchain", 1, 53, 25),
        "langgraph-thread-zh.json": ("langchain", 1, 38, 17),
        "openai-messages-airline.json": ("openai-chat", 12, 684, 175),
        "openai-messages-ko.jsonl": ("openai-chat", 46, 406, 71),
        "openai-messages-mcp-zh.json": ("openai-chat", 18, 672, 318),
        "openai-messages-zh-images.json": ("openai-chat", 1, 1, 0),
        "swe-agent-marshmallow.traj": ("swe-agent", 1, 27, 13),
    }

    @pytest.mark.recorded
    @pytest.mark.parametrize("name", COUNTS)
    def test_every_file_is_read_whole(self, sessions_dir: Path, name: str) -> None:
        """Format, dialogues, messages and calls are what a count by hand of the file gives; no result is an orphan."""
        transcripts = list(read_transcripts(sessions_dir / name))
        for transcript in transcripts:
            sound(transcript)
            assert transcript.pairing().orphans == ()
        messages = sum(len(t.messages) for t in transcripts)
        calls = sum(len(t.pairing().calls) for t in transcripts)
        assert (transcripts[0].format, len(transcripts), messages, calls) == self.COUNTS[name]

    @pytest.mark.recorded
    def test_unanswered_calls_are_those_of_the_recording(self, sessions_dir: Path) -> None:
        """One Korean dialogue ends with a call; nothing else is open, and no answer was made up for it."""
        found = {
            name: sum(len(t.pairing().unanswered()) for t in read_transcripts(sessions_dir / name))
            for name in self.COUNTS
        }
        assert {name: count for name, count in found.items() if count} == {"openai-messages-ko.jsonl": 1}

    @pytest.mark.recorded
    def test_reading_twice_gives_the_same(self, sessions_dir: Path) -> None:
        """Ids come from content and position, so two reads are equal."""
        path = sessions_dir / "codex-rollout-581.jsonl"
        assert read_transcript(path) == read_transcript(path)

    @pytest.mark.recorded
    def test_joined_dialogues_share_no_call_id(self, sessions_dir: Path) -> None:
        """The Korean file uses the id `random_id` in every dialogue; joined, each result still answers its own call."""
        path = sessions_dir / "openai-messages-ko.jsonl"
        parts = list(read_transcripts(path))
        joined = read_transcript(path, join=True)
        sound(joined)
        assert len(joined.messages) == sum(len(part.messages) for part in parts)
        assert len(joined.pairing().unanswered()) == 1
        used: list[set[str]] = []
        start = 0
        for part in parts:
            own = joined.messages[start : start + len(part.messages)]
            used.append({str(c["id"]) for m in own if isinstance(m, AIMessage) for c in m.tool_calls})
            start += len(part.messages)
        assert sum(map(len, used)) == len(set().union(*used))


class TestDetection:
    """The content decides, not the ending; the particular formats win over the general ones."""

    @pytest.mark.parametrize("ending", ["json", "jsonl", "traj", "txt"])
    def test_ending_does_not_matter(self, tmp_path: Path, ending: str) -> None:
        """The same bytes are the same session under any name."""
        path = tmp_path / f"x.{ending}"
        path.write_text(json.dumps(CHAT))
        assert detect_format(path) == "openai-chat"

    @pytest.mark.parametrize(
        "text",
        ["", "  \n\n", "hello", "[]", "{}", "[1, 2]", '{"a": 1}\n{"b": 2}\n', "null", '{"messages": []}', "\x00"],
    )
    def test_what_is_no_session_is_refused(self, tmp_path: Path, text: str) -> None:
        """A file of anything else raises the one typed error."""
        path = tmp_path / "x"
        path.write_text(text)
        with pytest.raises(SessionFormatError):
            read_transcript(path)

    def test_refusal_names_the_formats(self, save: Save) -> None:
        """The message tells what would do."""
        with pytest.raises(SessionFormatError, match=r"known formats: .*Codex.*LangGraph.*OpenAI"):
            read_transcript(save({"a": 1}))

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        """Neither is a bare OSError."""
        for path in (tmp_path / "none", tmp_path):
            with pytest.raises(SessionFormatError, match="cannot read"):
                read_transcript(path)

    def test_index_out_of_range_says_what_there_is(self, save: Save) -> None:
        """The error names the number of dialogues."""
        with pytest.raises(ConfigurationError, match="holds 2 dialogues, numbered from 0 to 1"):
            read_transcript(save([CHAT, CHAT]), index=2)


class TestDamage:
    """Damage costs what it touches and nothing else, and it is counted."""

    def lines(self) -> list[bytes]:
        return [json.dumps(message, ensure_ascii=False).encode() for message in CHAT]

    def read(self, tmp_path: Path, data: bytes) -> Transcript:
        path = tmp_path / "session.bin"
        path.write_bytes(data)
        transcript = read_transcript(path)
        sound(transcript)
        return transcript

    @pytest.mark.parametrize("join", [b"\n", b"\r\n", b"\n\n  \n"])
    def test_line_ends(self, tmp_path: Path, join: bytes) -> None:
        """LF, CRLF and blank lines give the same messages, with or without a last line end."""
        expected = self.read(tmp_path, b"\n".join(self.lines()))
        assert self.read(tmp_path, join.join(self.lines()) + join) == expected

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
    def test_byte_order_marks(self, tmp_path: Path, encoding: str) -> None:
        """Files saved by Windows tools are read."""
        text = "\n".join(line.decode() for line in self.lines())
        mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
        assert kinds(self.read(tmp_path, mark + text.encode(encoding))) == ["human", "ai", "tool", "tool", "ai"]

    def test_gzip(self, tmp_path: Path) -> None:
        """A compressed file is the same session, in one member or several."""
        lines = self.lines()
        whole = self.read(tmp_path, b"\n".join(lines))
        packed = gzip.compress(b"\n".join(lines[:3]) + b"\n") + gzip.compress(b"\n".join(lines[3:]))
        assert self.read(tmp_path, packed) == whole

    def test_gzip_that_breaks_off_gives_what_it_has(self, tmp_path: Path) -> None:
        """A download that stopped gives every message before the break."""
        lines = [json.dumps({"role": "user", "content": f"{n} {n * 7919}"}).encode() for n in range(4000)]
        packed = gzip.compress(b"\n".join(lines))
        transcript = self.read(tmp_path, packed[: len(packed) // 2])
        assert 1000 < len(transcript.messages) < 3000
        assert "compressed data that breaks off" in skipped(transcript)

    def test_bad_lines_are_counted_with_the_first(self, tmp_path: Path) -> None:
        """Three bad lines in the middle: their number, and where the first stands."""
        lines = self.lines()
        lines[3:3] = [b"{oops", b"\xff\xfe\xfd", b'{"role": "user", "content": "cut']
        transcript = self.read(tmp_path, b"\n".join(lines))
        bad = next(skip for skip in transcript.skipped if skip.reason == "line that is not JSON")
        assert (bad.count, bad.first_line) == (3, 4)
        assert kinds(transcript) == ["human", "ai", "tool", "tool", "ai"]

    def test_last_line_cut_off(self, tmp_path: Path) -> None:
        """The writer died in the middle of a line."""
        transcript = self.read(tmp_path, b"\n".join(self.lines())[:-4])
        assert skipped(transcript) == {"last line, cut off": 1}
        assert kinds(transcript) == ["human", "ai", "tool", "tool"]

    def test_first_line_damaged(self, tmp_path: Path) -> None:
        """Detection does not hang on the first line."""
        assert kinds(self.read(tmp_path, b"{{{\n" + b"\n".join(self.lines()))) == ["human", "ai", "tool", "tool", "ai"]

    def test_nul_bytes(self, tmp_path: Path) -> None:
        """A crash left a block of zeroes inside a line and one between lines."""
        lines = self.lines()
        lines[1] = lines[1][:10] + b"\0" * 64 + lines[1][10:]
        lines.insert(2, b"\0" * 4096)
        transcript = self.read(tmp_path, b"\n".join(lines))
        assert skipped(transcript) == {"NUL bytes, removed": 2}
        assert text_of(transcript.messages[0]) == "Read a and b."

    def test_bytes_that_are_not_utf8(self, tmp_path: Path) -> None:
        """The message is kept, the byte is replaced and counted."""
        data = b"\n".join(self.lines()).replace(b"Done.", b"Don\xe9.")
        transcript = self.read(tmp_path, data)
        assert text_of(transcript.messages[-1]) == "Don\ufffd."
        assert skipped(transcript) == {"bytes that are not UTF-8, replaced": 1}

    def test_half_characters(self, tmp_path: Path) -> None:
        """JavaScript cut an emoji in two: the rest of the text is kept, and can be written as UTF-8."""
        data = b"\n".join(self.lines()).replace(b"Done.", b"\\ud83d\\ude00 \\ud83d")
        transcript = self.read(tmp_path, data)
        assert text_of(transcript.messages[-1]) == "\U0001f600 \ufffd"
        assert skipped(transcript) == {"text with half a character, replaced": 1}

    @pytest.mark.parametrize("cut", [1, 30, 70, 140])
    def test_document_that_breaks_off(self, tmp_path: Path, cut: int) -> None:
        """Every whole message before the break is read, and none that is half."""
        whole = json.dumps({"id": 7, "messages": [*CHAT, *CHAT[1:]]}, indent=2).encode()
        transcript = self.read(tmp_path, whole[:-cut])
        full = self.read(tmp_path, whole)
        assert 5 <= len(transcript.messages) <= len(full.messages)
        assert transcript.messages == full.messages[: len(transcript.messages)]
        assert "the rest of a document that breaks off or is damaged" in skipped(transcript)

    def test_document_damaged_in_the_middle(self, tmp_path: Path) -> None:
        """What stands before the damage is read."""
        whole = json.dumps(CHAT, indent=1).encode()
        at = whole.index(b'"c2"', whole.index(b'"tool_call_id"'))
        transcript = self.read(tmp_path, whole[:at] + b"@@" + whole[at:])
        assert kinds(transcript) == ["human", "ai", "tool"]
        assert [call.call.id for call in transcript.pairing().unanswered()] == ["c2"]

    def test_huge_line(self, tmp_path: Path) -> None:
        """Ten megabytes in one line are one message."""
        text = "x" * 10_000_000
        transcript = self.read(tmp_path, json.dumps([{"role": "user", "content": text}]).encode())
        assert text_of(transcript.messages[0]) == text

    def test_deep_nesting(self, tmp_path: Path) -> None:
        """A line nested a hundred thousand deep is a bad line, not a crash."""
        deep = b'{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        transcript = self.read(tmp_path, b"\n".join([deep, *self.lines()]))
        assert skipped(transcript) == {"line that is not JSON": 1}

    def test_other_line_separators_inside_text(self, tmp_path: Path) -> None:
        """U+2028 and U+0085 are text, not line ends."""
        message = {"role": "user", "content": "a\u2028b\u0085c\x0bd"}
        data = "\n".join([json.dumps(message, ensure_ascii=False)] * 2).encode()
        assert len(self.read(tmp_path, data).messages) == 2

    def test_fields_of_wrong_types(self, save: Save) -> None:
        """Anything in any field: read as absent, or kept as text where it is content."""
        odd: list[object] = [None, 7, 1e999, True, "x", [], ["x", 3, None, {"type": 5}], {}, {"type": []}, {"text": 4}]
        lines = [{"role": "user", "content": "start"}]
        for value in odd:
            lines += [
                {"role": "assistant", "content": value, "tool_calls": value, "id": value, "name": value},
                {"role": "assistant", "content": "x", "tool_calls": [value, {"id": value, "function": value}]},
                {
                    "role": "assistant",
                    "content": "x",
                    "tool_calls": [{"function": {"name": value, "arguments": value}}],
                },
                {"role": "tool", "content": value, "tool_call_id": value, "name": value},
                {"role": "user", "content": value, "name": value, "timestamp": value},
                {"role": value, "content": "y"},
            ]
        sound(read_transcript(save(tuple(lines))))


class TestChat:
    """OpenAI chat messages in every wrapping and spelling."""

    @pytest.mark.parametrize(
        "wrapped",
        [
            CHAT,
            tuple(CHAT),
            {"messages": CHAT},
            {"task": 1, "traj": CHAT},
            {"a": {"b": {"conversation": CHAT}}},
            ({"messages": CHAT, "tools": []},),
            {"custom_id": "1", "body": {"model": "m", "messages": CHAT}},
        ],
    )
    def test_wrappings(self, save: Save, wrapped: object) -> None:
        """The same messages come out of an array, lines, and objects around it."""
        transcript = read_transcript(save(wrapped))
        sound(transcript)
        assert transcript.system == "Be brief."
        assert kinds(transcript) == ["human", "ai", "tool", "tool", "ai"]
        first = transcript.messages[1]
        assert isinstance(first, AIMessage)
        assert [call["args"] for call in first.tool_calls] == [{"path": "a"}, {"path": "b"}]
        assert first.additional_kwargs["reasoning_content"] == "Both at once."

    def test_many_dialogues(self, save: Save) -> None:
        """A list of dialogues, or one per line, streams as transcripts with numbered names."""
        for value in ([CHAT, CHAT], ({"messages": CHAT}, {"messages": CHAT}), (CHAT, CHAT)):
            assert [t.name for t in read_transcripts(save(value))] == ["session#0", "session#1"]

    def test_logged_response_ends_the_dialogue(self, save: Save) -> None:
        """A request log holds the answer and its usage beside the messages."""
        record = {
            "request": {
                "model": "m",
                "messages": CHAT[:2],
                "tools": [{"function": {"name": "read", "parameters": {}}}],
            },
            "response": {
                "choices": [{"message": {"role": "assistant", "content": "Hi."}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            },
        }
        transcript = read_transcript(save((record, record)))
        assert kinds(transcript) == ["human", "ai"]
        assert transcript.model == "m"
        assert [tool.name for tool in transcript.tools] == ["read"]
        usage = transcript.usages[1]
        assert usage is not None
        assert (usage["input_tokens"], usage["input_token_details"]) == (9, {"cache_read": 4})

    def test_function_calls_of_the_older_api(self, save: Save) -> None:
        """`function_call` and role `function` have no ids; each result answers the oldest open call of its name."""
        call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        answer = {"role": "function", "name": "f", "content": "1"}
        transcript = read_transcript(save([{"role": "user", "content": "go"}, call, answer, call, answer]))
        sound(transcript)
        assert kinds(transcript) == ["human", "ai", "tool", "ai", "tool"]
        assert transcript.pairing().unanswered() == ()
        assert transcript.pairing().orphans == ()

    def test_arguments_that_do_not_parse_are_kept(self, save: Save) -> None:
        """The call is invalid, its text is whole, and its result still answers it."""
        call = {"id": "c", "function": {"name": "f", "arguments": '{"a": '}}
        lines = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "bad arguments"},
        ]
        transcript = read_transcript(save(lines))
        message = transcript.messages[1]
        assert isinstance(message, AIMessage)
        assert message.invalid_tool_calls[0]["args"] == '{"a": '
        assert transcript.pairing().orphans == ()

    def test_roles_parts_and_refusals(self, save: Save) -> None:
        """Developer messages are system messages, images keep their data, a refusal is text of the answer."""
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        link = {"type": "input_image", "image_url": "https://example.com/a.png"}
        lines = [
            {"role": "developer", "content": [{"type": "text", "text": "Rules."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}, image, link]},
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "developer", "content": "New rule."},
        ]
        transcript = read_transcript(save(lines))
        assert transcript.system == "Rules."
        assert transcript.messages[0].content == [
            {"type": "text", "text": "Look."},
            image,
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ]
        assert text_of(transcript.messages[1]) == "No."
        assert isinstance(transcript.messages[2], SystemMessage)

    def test_anthropic_blocks(self, save: Save) -> None:
        """`tool_use` becomes a call, `tool_result` a result of its own, before the text beside it."""
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        answer = {
            "type": "tool_result",
            "tool_use_id": "t",
            "is_error": True,
            "content": [{"type": "image", "source": source}],
        }
        lines = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "text", "text": "and"}, answer]},
        ]
        transcript = read_transcript(save(lines))
        assert kinds(transcript) == ["human", "ai", "tool", "human"]
        result = transcript.messages[2]
        assert isinstance(result, ToolMessage)
        assert result.status == "error"
        assert result.content == [{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]

    def test_growing_turns_are_read_once(self, save: Save) -> None:
        """Each turn repeats the dialogue so far; one that goes elsewhere is a dialogue of its own."""
        user, other = {"role": "user", "content": "a"}, {"role": "user", "content": "z"}
        said = {"role": "assistant", "content": "b"}
        turns = [
            {"query": [user], "ground_truth": said},
            {"query": [user, said, user], "ground_truth": said},
            {"query": [other], "ground_truth": said},
        ]
        assert [len(t.messages) for t in read_transcripts(save({"turns": turns}))] == [4, 2]


class TestLogOrder:
    """The order is mended, the content never."""

    def test_adjacent_replies_are_one(self, save: Save) -> None:
        """Fault 57: a call must follow a user turn or a result, so the two replies become one message."""
        call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
        lines = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "First."},
            {"role": "assistant", "content": "Then.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ]
        transcript = read_transcript(save(lines))
        assert kinds(transcript) == ["human", "ai", "tool"]
        assert text_of(transcript.messages[1]) == "First.\nThen."

    def test_late_and_early_results_go_behind_their_call(self, save: Save) -> None:
        """A result before its call, and one after a human message, both end up right behind the call."""
        lines = [
            {"role": "user", "content": "go"},
            {"role": "tool", "tool_call_id": "b", "content": "early"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": i, "function": {"name": "f"}} for i in "ab"]},
            {"role": "user", "content": "wait"},
            {"role": "tool", "tool_call_id": "a", "content": "late"},
        ]
        transcript = read_transcript(save(lines))
        sound(transcript)
        assert [(m.type, text_of(m)) for m in transcript.messages] == [
            ("human", "go"),
            ("ai", ""),
            ("tool", "early"),
            ("tool", "late"),
            ("human", "wait"),
        ]
        assert transcript.pairing().unanswered() == ()

    def test_orphans_and_open_calls_stay(self, save: Save) -> None:
        """Nothing is invented for them and nothing is dropped."""
        lines = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "open", "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": "nobody", "content": "r"},
        ]
        pairing = read_transcript(save(lines)).pairing()
        assert [call.call.id for call in pairing.unanswered()] == ["open"]
        assert pairing.orphans == ((2, "nobody"),)

    def test_repeated_ids_become_unique(self, save: Save) -> None:
        """Two messages with one id would be one in LangGraph's reducer; the first keeps it."""
        message = {"role": "user", "content": "same", "id": "m"}
        ids = [m.id for m in read_transcript(save([message, message, message])).messages]
        assert ids[0] == "m"
        assert len(set(ids)) == 3

    def test_join_of_nothing(self) -> None:
        """There is no session without a dialogue."""
        with pytest.raises(ConfigurationError, match="no dialogue"):
            join_transcripts([])


LOG: Sequence[BaseMessage] = [
    HumanMessage("请看一下。", id="h"),
    AIMessage(
        content=[{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "ok"}],
        tool_calls=[{"name": "f", "args": {"a": [1, {"b": None}]}, "id": "c"}],
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "name": "g", "args": "{", "id": "d", "error": "no JSON"},
        ],
        usage_metadata={
            "input_tokens": 5,
            "output_tokens": 2,
            "total_tokens": 7,
            "input_token_details": {"cache_read": 3},
        },
        response_metadata={"model_name": "m", "finish_reason": "tool_calls"},
        additional_kwargs={"x": 1},
        id="a",
    ),
    ToolMessage("r", tool_call_id="c", id="t", name="f", artifact={"k": [1]}, status="error"),
    AIMessage("done", id="z"),
]


class TestLangChain:
    """Dumps of LangChain's own objects give back the same messages."""

    FLAT: ClassVar = [{**message.model_dump()} for message in LOG]

    @pytest.mark.parametrize(
        "value",
        [
            [dumpd(message) for message in LOG],
            messages_to_dict(LOG),
            FLAT,
            tuple(FLAT),
            {"values": {"messages": FLAT, "todos": []}, "next": []},
            {"checkpoint": {"channel_values": {"messages": FLAT}}},
            {"messages": [dumpd(message) for message in LOG]},
        ],
    )
    def test_every_form(self, save: Save, value: object) -> None:
        """Content, calls, reasoning, usage, artifact, status, ids: all of it."""
        transcript = read_transcript(save(value))
        assert transcript.format == "langchain"
        assert list(transcript.messages) == list(LOG)

    def test_states_of_one_thread(self, save: Save) -> None:
        """A history of states, newest or oldest first, is one dialogue: the longest."""
        states = [{"values": {"messages": self.FLAT[:n]}} for n in range(5)]
        for value in (states, states[::-1], tuple(states[1:])):
            transcript = read_transcript(save(value))
            assert len(transcript.messages) == len(LOG)
            assert skipped(transcript)["earlier state of the same thread"] == 3

    def test_nothing_is_imported(self, save: Save) -> None:
        """A constructor of something else is no message, and is not constructed."""
        evil = {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"content": "x"}}
        transcript = read_transcript(save([dumpd(LOG[0]), evil]))
        assert skipped(transcript) == {"element that is no message": 1}

    def test_old_dumps_hold_calls_aside(self, save: Save) -> None:
        """Before `tool_calls` there was `additional_kwargs.tool_calls`; chat and function messages are read too."""
        call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
        value = [
            {"type": "chat", "data": {"role": "user", "content": "go"}},
            {"type": "ai", "data": {"content": "", "additional_kwargs": {"tool_calls": [call]}}},
            {"type": "function", "data": {"name": "f", "content": "r"}},
        ]
        transcript = read_transcript(save(value))
        assert kinds(transcript) == ["human", "ai", "tool"]
        assert transcript.pairing().unanswered() == ()
