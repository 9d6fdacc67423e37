"""Messages: every spelling of a thing is read as the thing."""

import base64
import gc

import pytest
from hypothesis import given
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from refold.core import messages as module
from refold.core.blocks import blocks_of, unwrapped
from refold.core.messages import (
    REFOLD_KEY,
    answers_of,
    calls_of,
    content_hash,
    is_record,
    role_of,
    text_of,
    with_content,
)
from refold.testing.samples import PNG
from refold.testing.strategies import histories

DATA = f"data:image/png;base64,{PNG}"
PICTURES = [
    {"type": "image_url", "image_url": {"url": DATA}},
    {"type": "image_url", "image_url": DATA},
    {"type": "image", "base64": PNG, "mime_type": "image/png"},
    {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    {"type": "input_image", "image_url": DATA},
    {"type": "media", "mime_type": "image/png", "data": PNG},
    {"inline_data": {"mime_type": "image/png", "data": PNG}},
    {"inlineData": {"mimeType": "image/png", "data": PNG}},
    {"type": "non_standard", "value": {"type": "image", "base64": PNG, "mime_type": "image/png"}},
    {"image": {"format": "png", "source": {"bytes": base64.b64decode(PNG)}}},
    {"type": "non_standard", "value": {"image": {"format": "png", "source": {"bytes": PNG}}}},
]
CALL_BLOCKS = [
    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    {"type": "tool_use", "id": "c", "name": "f", "input": {}, "partial_json": '{"a": 1}'},
    {"type": "tool_call", "id": "c", "name": "f", "args": {"a": 1}},
    {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
    {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}},
    {"type": "non_standard", "value": {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}},
]


def lifted(call_id: str | None = "c", name: str = "f") -> dict[str, object]:
    return {"type": "tool_call", "id": call_id, "name": name, "args": {"a": 1}}


class TestAPictureIsAPictureInEverySpelling:
    """The same bytes, mime type and size come out whatever provider wrote the block."""

    @pytest.mark.parametrize("block", PICTURES, ids=lambda block: str(block)[:40])
    def test_the_payload_is_found(self, block: dict[str, object]) -> None:
        """Each spelling gives kind, mime, base64 data and the decoded size."""
        (read,) = blocks_of(HumanMessage([block]))
        assert read.kind == "media"
        assert read.media is not None
        assert (read.media.kind, read.media.mime, read.media.data) == ("image", "image/png", PNG)
        assert read.media.size == len(base64.b64decode(PNG))

    def test_a_reference_has_no_size(self) -> None:
        """A URL or a file id is media without bytes of its own."""
        message = HumanMessage(
            [{"type": "image_url", "image_url": {"url": "https://e.com/a.png"}}, {"type": "file", "file_id": "file-1"}]
        )
        stored = {"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://b/a.pdf"}}}}
        (converse,) = blocks_of(HumanMessage([stored]))
        assert (converse.media.url, converse.media.mime) == ("s3://b/a.pdf", "application/pdf")  # type: ignore[union-attr]
        url, file = blocks_of(message)
        assert (url.media.url, url.media.size) == ("https://e.com/a.png", 0)  # type: ignore[union-attr]
        assert (file.media.file_id, file.media.size) == ("file-1", 0)  # type: ignore[union-attr]

    def test_a_file_with_a_mime_type_of_a_family_is_of_that_family(self) -> None:
        """`media` and `file` blocks with audio or video inside are audio and video; a PDF stays a file."""
        kinds = [
            blocks_of(HumanMessage([{"type": "media", "mime_type": mime, "data": "AAAA"}]))[0].media.kind  # type: ignore[union-attr]
            for mime in ("audio/wav", "video/mp4", "application/pdf")
        ]
        assert kinds == ["audio", "video", "file"]


class TestACallIsACallInEverySpelling:
    """Calls are found in `tool_calls`, `invalid_tool_calls` and every spelling of the content (fault 71)."""

    @pytest.mark.parametrize("block", CALL_BLOCKS, ids=lambda block: str(block)[:40])
    def test_a_call_that_stands_only_in_the_content_is_found(self, block: dict[str, object]) -> None:
        """Fault 77: with `tool_calls` empty, the block is the call, with parsed arguments, and known as not lifted."""
        (call,) = calls_of(AIMessage([block]))
        assert (call.id, call.name, call.args, call.valid) == ("c", "f", {"a": 1}, True)
        assert (call.block, call.lifted, call.native) == (0, False, False)

    @pytest.mark.parametrize("block", CALL_BLOCKS, ids=lambda block: str(block)[:40])
    def test_a_call_in_both_places_is_one_call(self, block: dict[str, object]) -> None:
        """The lifted call knows the block that spells it too."""
        (call,) = calls_of(AIMessage([{"type": "text", "text": "x"}, block], tool_calls=[lifted()]))
        assert (call.lifted, call.block) == (True, 1)

    def test_two_blocks_with_one_id_are_two_calls(self) -> None:
        """Duplicates are shown, not swallowed: a validator must see them."""
        twice = AIMessage([CALL_BLOCKS[0], CALL_BLOCKS[0]])
        assert [call.id for call in calls_of(twice)] == ["c", "c"]
        assert [call.lifted for call in calls_of(AIMessage([*twice.content], tool_calls=[lifted()]))] == [True, False]

    def test_calls_without_ids_pair_with_their_blocks_in_order(self) -> None:
        """Servers without ids: the n-th block without id is the n-th lifted call without id."""
        blocks = [{"functionCall": {"name": name, "args": {}}} for name in ("f", "g")]
        calls = calls_of(AIMessage(blocks, tool_calls=[lifted(None, "f"), lifted("", "g")]))
        assert [(call.id, call.name, call.block) for call in calls] == [(None, "f", 0), (None, "g", 1)]

    def test_malformed_arguments_are_kept_as_text(self) -> None:
        """A `function_call` block, a cut-off stream and `invalid_tool_calls` keep what the model wrote, not valid."""
        block = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": '}
        stream = {"type": "tool_use", "id": "d", "name": "f", "input": {}, "partial_json": '{"b'}
        invalid = {"type": "invalid_tool_call", "id": "e", "name": None, "args": "[1]", "error": "x"}
        calls = calls_of(AIMessage([block, stream], invalid_tool_calls=[invalid]))
        assert [(call.id, call.name, call.args, call.valid) for call in calls] == [
            ("e", "", "[1]", False),
            ("c", "f", '{"a": ', False),
            ("d", "f", '{"b', False),
        ]

    def test_free_text_of_a_custom_tool_is_valid(self) -> None:
        """A custom tool's input is no JSON by definition; it has LangChain's name for it."""
        (call,) = calls_of(AIMessage([{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "do it"}]))
        assert (call.args, call.valid) == ({"__arg1": "do it"}, True)

    def test_native_tools_of_openai_are_calls(self) -> None:
        """A computer call is answered by the client, so its result is no orphan; one run by OpenAI is no call."""
        block = {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "screenshot"}}
        (call,) = calls_of(AIMessage([block]))
        assert (call.id, call.name, call.native, call.valid) == ("c", "computer_call", True, True)
        hosted = [{"type": "shell_call", "call_id": "s"}, {"type": "shell_call_output", "call_id": "s", "output": []}]
        assert calls_of(AIMessage(hosted)) == ()

    def test_only_ai_messages_call(self) -> None:
        """A `tool_use` block in another message is no call."""
        assert calls_of(HumanMessage([CALL_BLOCKS[0]])) == ()

    def test_deeply_nested_arguments_do_not_break_the_reader(self) -> None:
        """Arguments that the JSON parser cannot hold are malformed, not a crash."""
        block = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "[" * 100_000}
        assert not calls_of(AIMessage([block]))[0].valid


class TestAnswers:
    """What a message answers."""

    def test_a_tool_message_answers_its_call(self) -> None:
        """Whatever its content, a tool message answers `tool_call_id` only."""
        assert answers_of(ToolMessage([{"type": "tool_result", "tool_use_id": "x"}], tool_call_id="c")) == ("c",)

    def test_a_human_message_answers_with_result_blocks(self) -> None:
        """Anthropic's and Responses' result blocks in a user turn are answers, in order."""
        blocks = [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "text", "text": "and"},
            {"type": "function_call_output", "call_id": "b", "output": "2"},
            {"functionResponse": {"id": "c", "name": "f", "response": {}}},
        ]
        assert answers_of(HumanMessage(blocks)) == ("a", "b", "c")
        assert answers_of(HumanMessage("a")) == ()

    def test_an_ai_message_answers_nothing(self) -> None:
        """Results inside an AI message are of tools that the provider ran."""
        assert answers_of(AIMessage([{"type": "shell_call_output", "call_id": "s", "output": []}])) == ()


class TestBlocks:
    """Reading content as blocks."""

    def test_plain_text_is_one_block_and_empty_text_none(self) -> None:
        """String content is a text block at index 0."""
        assert [block.text for block in blocks_of(HumanMessage("hi"))] == ["hi"]
        assert blocks_of(HumanMessage("")) == ()

    @pytest.mark.parametrize(
        ("block", "kind", "text"),
        [
            ("bare", "text", "bare"),
            ({"type": "output_text", "text": "o"}, "text", "o"),
            ({"type": "refusal", "refusal": "no"}, "text", "no"),
            ({"text": "gemini"}, "text", "gemini"),
            ({"type": "thinking", "thinking": "t", "signature": "s"}, "reasoning", "t"),
            ({"type": "redacted_thinking", "data": "x"}, "reasoning", ""),
            (
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"text": "b"}]},
                "reasoning",
                "a\nb",
            ),
            ({"type": "reasoning_content", "reasoning_content": {"text": "r"}}, "reasoning", "r"),
            ({"type": "server_tool_use", "id": "x", "name": "web_search"}, "server_call", ""),
            ({"type": "web_search_call", "id": "ws_1"}, "server_call", ""),
            ({"type": "web_search_tool_result", "tool_use_id": "x"}, "server_result", ""),
            ({"type": "server_tool_result", "tool_call_id": "x"}, "server_result", ""),
            ({"type": "compaction", "content": "c"}, "compaction", ""),
            ({"type": "image"}, "opaque", ""),
            ({"type": "something_new", "x": 1}, "opaque", ""),
            ({}, "opaque", ""),
        ],
    )
    def test_kinds(self, block: object, kind: str, text: str) -> None:
        """Each spelling has its kind, and the text that the model reads of it; unknown ones are opaque."""
        (read,) = blocks_of(AIMessage([block]))  # type: ignore[list-item]
        assert (read.kind, read.text) == (kind, text)

    def test_text_of_joins_text_alone(self) -> None:
        """Reasoning, calls and media are not text."""
        message = AIMessage(["a", {"type": "thinking", "thinking": "no"}, {"type": "text", "text": "b"}, PICTURES[0]])
        assert text_of(message) == "a\nb"

    def test_unwrapped_opens_the_wrapper(self) -> None:
        """`non_standard` blocks give their value, bare strings a text block, others themselves."""
        message = HumanMessage([{"type": "non_standard", "value": {"type": "x"}}, "s", {"type": "y"}])
        assert [unwrapped(block) for block in blocks_of(message)] == [
            {"type": "x"},
            {"type": "text", "text": "s"},
            {"type": "y"},
        ]

    @given(histories(max_turns=2))
    def test_indexes_point_into_the_content(self, history: list[BaseMessage]) -> None:
        """Each block's raw form is the very object at its index, so that copies can change one block."""
        for message in history:
            if not isinstance(message.content, str):
                assert all(block.raw is message.content[block.index] for block in blocks_of(message))


class TestRolesAndRecords:
    """Who speaks."""

    def test_roles(self) -> None:
        """A chunk has the role of its message; what LangChain no longer uses is `other`."""
        messages = [SystemMessage("s"), HumanMessage("h"), AIMessage("a"), AIMessageChunk("a")]
        assert [role_of(m) for m in messages] == ["system", "human", "ai", "ai"]
        assert role_of(ToolMessage("t", tool_call_id="c")) == "tool"
        assert role_of(FunctionMessage("f", name="f")) == "other"

    def test_a_record_is_a_marked_human_message(self) -> None:
        """Only refold's mark makes a record, and only on a human message."""
        assert is_record(HumanMessage("x", additional_kwargs={REFOLD_KEY: {"kind": "summary"}}))
        assert not is_record(HumanMessage("x"))
        assert not is_record(AIMessage("x", additional_kwargs={REFOLD_KEY: {}}))


class TestCopies:
    """Changed copies leave the original alone."""

    def test_with_content_keeps_every_other_field(self) -> None:
        """The copy differs in content only; the original is as it was."""
        result = ToolMessage("long", tool_call_id="c", status="error", artifact={"k": 1}, name="f", id="m")
        copy = with_content(result, "short")
        assert result.content == "long"
        assert copy == ToolMessage("short", tool_call_id="c", status="error", artifact={"k": 1}, name="f", id="m")


class TestContentHash:
    """The hash names what the model sees."""

    def test_golden(self) -> None:
        """The hash is part of a stored format (folds name messages by it): it must not change unnoticed."""
        assert content_hash(HumanMessage("hello")) == "9b22ad01567872557311ccfb52398ce8"
        assert content_hash(AIMessage("x", tool_calls=[lifted()])) == "5ff9b882e6bdde22d04caf851a5d4a5a"

    def test_ids_usage_and_key_order_do_not_count(self) -> None:
        """Two messages that a model cannot tell apart have one hash."""
        one = AIMessage("x", id="a", tool_calls=[{"id": "c", "name": "f", "args": {"p": 1, "q": 2}}])
        other = AIMessage(
            "x",
            id="b",
            tool_calls=[{"id": "c", "name": "f", "args": {"q": 2, "p": 1}}],
            usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        )
        assert content_hash(one) == content_hash(other)

    def test_what_the_model_sees_counts(self) -> None:
        """Role, text, name, calls, call id and status each change the hash."""
        variants: list[BaseMessage] = [
            HumanMessage("x"),
            HumanMessage("y"),
            AIMessage("x"),
            HumanMessage("x", name="n"),
            AIMessage("x", tool_calls=[lifted()]),
            AIMessage("x", tool_calls=[lifted("d")]),
            ToolMessage("x", tool_call_id="c"),
            ToolMessage("x", tool_call_id="d"),
            ToolMessage("x", tool_call_id="c", status="error"),
            HumanMessage(["x"]),
        ]
        assert len({content_hash(message) for message in variants}) == len(variants)

    def test_a_chunk_hashes_as_its_message(self) -> None:
        """A streamed answer and the same answer read back are one message."""
        assert content_hash(AIMessageChunk("x")) == content_hash(AIMessage("x"))

    def test_a_field_set_anew_is_noticed(self) -> None:
        """The cache follows the fields, not the object alone."""
        message = AIMessage(["a" * 1000])
        before = content_hash(message)
        assert content_hash(message) == before
        message.content.append("b")  # type: ignore[union-attr]
        grown = content_hash(message)
        message.tool_calls = [lifted()]  # type: ignore[list-item]
        called = content_hash(message)
        message.content = "other"
        assert len({before, grown, called, content_hash(message)}) == 4

    def test_what_is_read_follows_the_message(self) -> None:
        """Blocks, calls and hash are remembered per object, and read anew when a field or an element changes."""
        message = AIMessage([{"type": "text", "text": "a"}])
        first = blocks_of(message), content_hash(message)
        assert blocks_of(message)[0] is first[0][0]
        message.content[0] = {"type": "text", "text": "b"}  # type: ignore[index]
        assert [block.text for block in blocks_of(message)] == ["b"]
        assert content_hash(message) != first[1]
        message.tool_calls = [lifted("one")]  # type: ignore[list-item]
        assert [c.id for c in calls_of(message)] == ["one"]
        message.tool_calls[0] = lifted("two")  # type: ignore[call-overload]
        assert [c.id for c in calls_of(message)] == ["two"]
        answer = ToolMessage("r", tool_call_id="c")
        before = content_hash(answer)
        answer.status = "error"
        assert content_hash(answer) != before

    def test_the_cache_forgets_dead_messages(self) -> None:
        """A hash lives as long as its message: no growth in a long process."""
        size = len(module._hashes)
        for number in range(50):
            content_hash(HumanMessage(f"short-lived {number}"))
        gc.collect()
        assert len(module._hashes) <= size

    def test_lone_surrogates_hash(self) -> None:
        """Broken text from a terminal or a JSON escape does not raise."""
        assert content_hash(HumanMessage("\ud800")) != content_hash(HumanMessage("\ud801"))
