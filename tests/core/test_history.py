"""The archive of a span: nothing is lost, whatever the content looks like."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.history import HistoryEntry, parse_history, render_history
from refold.errors import IntegrityError

HOSTILE = [
    '## 2 human {"id": "x"}',
    "### text {}\n```\nforged\n```",
    "```",
    "````\n```",
    "\r\n",
    "line\r\nline\r",
    "# refold history 1 {}",
    "\u2028\x85\x0b\x0c",
    "</record>",
    "中文。\n日本語、한국어",
    "",
    "\n\n",
    "\ud83d",
    "`" * 7,
]
texts = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(HOSTILE), max_size=5).map("\n".join))
leaves = st.one_of(texts, st.integers(), st.booleans(), st.none())
arguments = st.dictionaries(
    st.text(max_size=8),
    st.recursive(leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3)),
    max_size=3,
)
ids = st.one_of(st.none(), st.text(min_size=1, max_size=20), st.sampled_from([text for text in HOSTILE if text]))


@st.composite
def ai_messages(draw: st.DrawFn) -> AIMessage:
    calls = [
        {"name": draw(st.text(min_size=1, max_size=9)), "args": draw(arguments), "id": f"c{number}"}
        for number in range(draw(st.integers(0, 2)))
    ]
    blocks = [{"type": "reasoning", "reasoning": draw(texts)}, {"type": "text", "text": draw(texts), "index": 1}]
    content = draw(st.one_of(texts, st.just(blocks)))
    return AIMessage(content=content, tool_calls=calls, id=draw(ids))


messages = st.one_of(
    st.builds(HumanMessage, content=texts, id=ids),
    st.builds(SystemMessage, content=texts, id=ids),
    st.builds(ToolMessage, content=texts, tool_call_id=texts, id=ids, name=st.one_of(st.none(), texts)),
    ai_messages(),
)
spans = st.lists(messages, max_size=6)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def parts(entry: HistoryEntry, kind: str) -> list[str]:
    return [part.text for part in entry.parts if part.kind == kind]


class TestNothingIsLost:
    """Every text and every leaf of every argument is found in the parsed archive, byte for byte."""

    @given(spans)
    def test_texts_and_arguments_come_back(self, span: list[BaseMessage]) -> None:
        """Content that looks like headings, fences or other line ends included."""
        entries = parse_history(render_history(span, thread="t\n## 1", seq=4))
        assert [message.id for message in span] == [entry.id for entry in entries]
        for message, entry in zip(span, entries, strict=True):
            if isinstance(message.content, str):
                assert entry.body == message.content
            else:
                assert parts(entry, "reasoning") == [message.content[0]["reasoning"]]  # type: ignore[index]
                assert parts(entry, "text") == [message.content[1]["text"]]  # type: ignore[index]
            if isinstance(message, AIMessage):
                assert [json.loads(text) for text in parts(entry, "call")] == [
                    call["args"] for call in message.tool_calls
                ]
                found = {text for part in parts(entry, "call") for text in strings(json.loads(part))}
                assert found == {text for call in message.tool_calls for text in strings(call["args"])}

    def test_crlf_is_kept(self) -> None:
        """Fault 106: an archive of text with CRLF holds it unchanged."""
        span = [HumanMessage(content="a\r\nb\r", id="m1"), ToolMessage(content="\r\n", tool_call_id="c", id="m2")]
        assert [entry.body for entry in parse_history(render_history(span, thread="t", seq=1))] == ["a\r\nb\r", "\r\n"]

    def test_malformed_arguments_are_kept_raw(self) -> None:
        """A call that never parsed keeps what the model wrote."""
        call = {"name": "bash", "args": '{"command": "ls', "id": "c1", "error": "cut", "type": "invalid_tool_call"}
        (entry,) = parse_history(render_history([AIMessage(content="", invalid_tool_calls=[call])], thread="t", seq=1))
        assert parts(entry, "call") == ['{"command": "ls']
        assert entry.parts[-1].attributes["valid"] is False

    def test_results_in_blocks_and_citations_are_kept(self) -> None:
        """Blocks that are no plain text are archived as JSON, the extra fields of text blocks as attributes."""
        answer = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42 files"}]}
        text = {"type": "text", "text": "see", "citations": [{"cited_text": "page 3"}]}
        (entry,) = parse_history(render_history([HumanMessage(content=[answer, text])], thread="t", seq=1))
        assert json.loads(parts(entry, "answer")[0]) == answer
        assert entry.parts[1].attributes == {"citations": [{"cited_text": "page 3"}]}

    def test_reasoning_beside_the_content_is_kept(self) -> None:
        """Some servers put it into `reasoning_content`."""
        message = AIMessage(content="ok", additional_kwargs={"reasoning_content": "because\n```"})
        (entry,) = parse_history(render_history([message], thread="t", seq=1))
        assert parts(entry, "reasoning") == ["because\n```"]

    def test_inline_media_is_a_reference_and_keeps_its_other_fields(self) -> None:
        """The payload is not archived again; type, size and digest are."""
        block = {"type": "image", "base64": "QUJD" * 5000, "mime_type": "image/png", "title": "plot of losses"}
        text = render_history([HumanMessage(content=[block])], thread="t", seq=1)
        assert len(text) < 1000
        assert "image/png, 15000 bytes: /media/" in text
        assert "plot of losses" in text

    def test_recorded_sessions_round_trip(self, sessions_dir: object) -> None:
        """Real traffic: every text of two recorded threads."""
        from pathlib import Path

        from langchain_core.messages import messages_from_dict

        for name in ("langgraph-thread-en.json", "langgraph-thread-zh.json"):
            raw = json.loads((Path(str(sessions_dir)) / name).read_text(encoding="utf-8"))["values"]["messages"]
            span = messages_from_dict([{"type": item["type"], "data": item} for item in raw])
            entries = parse_history(render_history(span, thread="t", seq=1))
            assert len(entries) == len(span)
            for message, entry in zip(span, entries, strict=True):
                if isinstance(message.content, str):
                    assert entry.body == message.content


class TestDamageIsNoticed:
    """A text that was cut or edited is a typed error, never a shorter history."""

    def test_a_cut_archive_is_refused(self) -> None:
        """Wherever it is cut, but behind its last fence."""
        span = [HumanMessage(content="a\nb"), AIMessage(content="c", tool_calls=[{"name": "f", "args": {}, "id": "1"}])]
        text = render_history(span, thread="t", seq=1).rstrip("\n")
        assert len(parse_history(text)) == 2
        for cut in range(len(text)):
            with pytest.raises(IntegrityError):
                parse_history(text[:cut])

    def test_another_format_is_refused(self) -> None:
        """A newer format and a text that is none."""
        for text in ("# refold history 2 {}", "hello", ""):
            with pytest.raises(IntegrityError):
                parse_history(text)

    def test_it_is_deterministic(self) -> None:
        """Equal messages give equal archives."""
        span = [HumanMessage(content="a", id="1")]
        assert render_history(span, thread="t", seq=1) == render_history([*span], thread="t", seq=1)
