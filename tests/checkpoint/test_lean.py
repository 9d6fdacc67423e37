"""Messages rebuilt without validation are the messages that LangGraph's serializer gives."""

import gc
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from refold.checkpoint import SqliteSaver
from refold.checkpoint.lean import (
    NOT_PLAIN,
    Given,
    copy_plain,
    cut_text,
    is_lean,
    mark_of_message,
    same,
    signature,
    thaw,
)
from refold.checkpoint.serde import Serde
from refold.errors import CorruptionError

texts = st.text(max_size=30)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(texts, plain, max_size=3)
content = texts | st.lists(texts | st.fixed_dictionaries({"type": st.just("text"), "text": texts}), max_size=3)
common: dict[str, Any] = {
    "content": content,
    "additional_kwargs": fields | st.just({"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}),
    "response_metadata": fields | st.just({"output_version": "v1"}),
    "id": st.none() | texts,
    "name": st.none() | texts,
}
calls = st.lists(
    st.fixed_dictionaries(
        {"name": texts, "args": fields, "id": st.none() | texts}, optional={"type": st.just("tool_call")}
    ),
    max_size=2,
)
counts = st.integers(0, 10**6)
usage = st.none() | st.fixed_dictionaries(
    {"input_tokens": counts, "output_tokens": counts, "total_tokens": counts},
    optional={
        "input_token_details": st.fixed_dictionaries({"cache_read": counts}),
        "output_token_details": st.just({}),
    },
)
invalid = st.lists(
    st.fixed_dictionaries(
        {"name": texts, "args": texts, "id": texts, "error": texts, "type": st.just("invalid_tool_call")}
    ),
    max_size=1,
)
messages: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, **common),
    st.builds(SystemMessage, **common),
    st.builds(AIMessage, **common, tool_calls=calls, invalid_tool_calls=invalid, usage_metadata=usage),
    st.builds(
        ToolMessage,
        **common,
        tool_call_id=texts,
        status=st.sampled_from(("success", "error")),
        artifact=plain | st.just({1: 2}),
    ),
)
SERDE = JsonPlusSerializer()


def everything(message: BaseMessage) -> Any:
    """All that a message consists of, types and order of fields included."""
    return (
        type(message),
        [(name, repr(value)) for name, value in message.__dict__.items()],
        message.__pydantic_fields_set__,
        message.__pydantic_extra__,
        message.__pydantic_private__,
    )


class TestLeanEqualsStock:
    @given(message=messages)
    def test_any_message(self, message: BaseMessage) -> None:
        """Where the lean path is taken, it gives what validation gives, down to which fields count as set, and dumps to
        the same bytes."""
        data = SERDE.dumps_typed(message)[1]
        if is_lean(data):
            stock, lean = SERDE.loads_typed(("msgpack", data)), thaw(data, Given(), 0)
            assert everything(lean) == everything(stock)
            assert lean == stock
            assert SERDE.dumps_typed(lean)[1] == data

    def test_common_messages_take_it(self) -> None:
        """What agents store most does take the lean path."""
        call = {"name": "read", "args": {"path": "/a"}, "id": "c", "type": "tool_call"}
        for message in (
            HumanMessage("hello", id="1"),
            AIMessage("", id="2", tool_calls=[call], response_metadata={"model_name": "m"}),
            AIMessage([{"type": "text", "text": "a"}]),
            AIMessage("", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
            ToolMessage("result", tool_call_id="c", name="read"),
            SystemMessage("be brief"),
        ):  # fmt: skip
            assert is_lean(SERDE.dumps_typed(message)[1]), message

    @pytest.mark.parametrize(
        "message",
        [
            AIMessageChunk("part"),
            ChatMessage("x", role="critic"),
            RemoveMessage(id="1"),
            HumanMessage("x", extra_field=1),
            ToolMessage("x", tool_call_id="c", artifact={1, 2}),
            AIMessage("x", additional_kwargs={"when": {1, 2}}),
        ],
        ids=lambda message: type(message).__name__,
    )
    def test_unusual_messages_go_through_the_serializer(self, message: BaseMessage) -> None:
        """Subclasses, chunks, extra fields and nested objects are left to validation."""
        assert not is_lean(SERDE.dumps_typed(message)[1])

    @given(data=st.binary(max_size=60))
    def test_no_bytes_crash_it(self, data: bytes) -> None:
        """Bytes that are no message are no message."""
        assert not is_lean(data)

    def test_a_serializer_with_a_hook_of_its_own_is_trusted_alone(self) -> None:
        """A serde that would give something else is never bypassed."""

        class Upper(JsonPlusSerializer):
            def loads_typed(self, data: tuple[str, bytes]) -> Any:
                found = super().loads_typed(data)
                return HumanMessage(found.content.upper()) if isinstance(found, HumanMessage) else found

        hooked = JsonPlusSerializer(__unpack_ext_hook__=lambda code, data: None)
        assert not Serde(Upper()).lean
        assert not Serde(hooked).lean
        assert Serde(JsonPlusSerializer()).lean


class TestMarksShowEdits:
    @given(message=messages)
    def test_an_untouched_message_matches_its_mark(self, message: BaseMessage) -> None:
        """A mark equals its message until that is edited."""
        mark = mark_of_message(message)
        if mark is not None:
            assert signature(message) == mark

    def test_nested_edits_show(self) -> None:
        """Edits of any depth, in any field, also of fields that the class does not declare."""

        def edits() -> list[Any]:
            return [
                lambda m: setattr(m, "content", "other"),
                lambda m: m.tool_calls[0]["args"]["deep"].append(2),
                lambda m: m.response_metadata.update(a=1),
                lambda m: m.additional_kwargs.setdefault("k", []).append(1),
                lambda m: setattr(m, "brand_new", 1),
                lambda m: m.usage_metadata.update(total_tokens=4),
            ]

        for edit in edits():
            message = AIMessage(
                "x",
                tool_calls=[{"name": "f", "args": {"deep": [1]}, "id": "1"}],
                usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            )
            mark = mark_of_message(message)
            edit(message)
            assert signature(message) != mark

    def test_same_tells_numbers_apart(self) -> None:
        """1, 1.0 and True are three values."""
        assert not same({"a": [1]}, {"a": [True]})
        assert not same(1, 1.0)
        assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
        assert same({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]})

    def test_objects_are_not_copied(self) -> None:
        """What is no built-in container has no mark."""
        assert copy_plain({"a": [object()]}) is NOT_PLAIN
        assert mark_of_message(ToolMessage("x", tool_call_id="1", artifact=object())) is None


class TestThaw:
    def test_messages_are_their_own(self) -> None:
        """Two messages of the same bytes share no container: an edit of one is not in the other."""
        data = SERDE.dumps_typed(AIMessage("a", id="1", additional_kwargs={"k": [1]}, response_metadata={"m": {}}))[1]
        first, second = thaw(data, Given(), 0), thaw(data, Given(), 0)
        assert isinstance(first, AIMessage)
        first.content = "b"
        first.additional_kwargs["k"].append(2)
        first.response_metadata["m"]["x"] = 1
        first.note = "extra"
        first.tool_calls.append({"name": "f", "args": {}, "id": "c", "type": "tool_call"})
        assert everything(second) == everything(SERDE.loads_typed(("msgpack", data)))

    @given(
        message=messages,
        length=st.sampled_from((0, 31, 64, 255, 256, 65_535, 65_536)),
        letter=st.sampled_from("aé中😀"),
    )
    def test_a_cut_form_gives_the_same_message(self, message: BaseMessage, length: int, letter: str) -> None:
        """A message made of a form whose text was cut out equals one of the whole record, whatever its text's length
        in bytes, and shares the text alone."""
        message.content = letter * length
        record = b"\x00" + SERDE.dumps_typed(message)[1]
        if not is_lean(record, 1):
            return
        whole = thaw(record, Given())
        assert whole is not None
        cut = cut_text(record, whole)
        assert (cut is None) == (length < 64)
        if cut is not None:
            assert len(cut.rest) < len(record)
            first, second = thaw(cut, Given()), thaw(cut, Given())
            assert first is not None
            assert second is not None
            assert first.content is second.content is whole.content
            assert everything(first) == everything(whole)
            first.additional_kwargs["k"] = 1
            first.name = "edited"
            assert everything(second) == everything(whole)

    @pytest.mark.parametrize("content", [[{"type": "text", "text": "a" * 100}], ["a" * 100], []])
    def test_what_is_no_text_is_not_cut(self, content: Any) -> None:
        """Content of blocks stays in its record: the blocks are mutable."""
        record = b"\x00" + SERDE.dumps_typed(HumanMessage(content, id="1"))[1]
        message = thaw(record, Given())
        assert message is not None
        assert cut_text(record, message) is None

    def test_an_edit_adds_no_field_to_another_message(self) -> None:
        """The messages of one reading share the set of given fields, which no edit changes; those of two readings do
        not even share that."""
        data, given = SERDE.dumps_typed(HumanMessage("a", id="1"))[1], Given()
        first, second, other = thaw(data, given, 0), thaw(data, given, 0), thaw(data, Given(), 0)
        assert first is not None
        assert other is not None
        before = everything(second)
        first.content = "b"
        first.brand_new = 1
        del first.brand_new
        first.model_copy(update={"unheard_of": 1})
        assert everything(second) == before
        assert first.model_fields_set is not other.model_fields_set

    @given(message=messages, place=st.integers(0, 10_000), byte=st.integers(0, 255))
    def test_damaged_bytes_are_no_message_or_another_one(self, message: BaseMessage, place: int, byte: int) -> None:
        """A flipped byte never crashes it."""
        data = bytearray(SERDE.dumps_typed(message)[1])
        data[place % len(data)] = byte
        assert thaw(bytes(data), Given(), 0) is None or isinstance(thaw(bytes(data), Given(), 0), BaseMessage)


class TestTheCollectorWaits:
    """Python's cycle collector is paused while a long list is rebuilt, and only then."""

    @pytest.mark.parametrize("switch", [gc.enable, gc.disable])
    def test_it_is_left_as_it_was(self, switch: Callable[[], None]) -> None:
        """After a list is read, and after one could not be, the collector is on or off as it was."""
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        log = [HumanMessage(f"message {at}", id=str(at)) for at in range(2_000)]
        with closing(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)) as connection:
            saver = SqliteSaver(connection, cache_bytes=1)
            checkpoint = empty_checkpoint() | {"channel_values": {"log": log}, "channel_versions": {"log": 1}}
            saver.put(config, checkpoint, {}, {"log": 1})  # type: ignore[arg-type]
            switch()
            expected = gc.isenabled()
            try:
                read = saver.get_tuple(config)
                assert read is not None
                assert read.checkpoint["channel_values"]["log"] == log
                assert gc.isenabled() == expected
                connection.execute("UPDATE refold_blob SET data = x'00' WHERE id = 900")
                with pytest.raises(CorruptionError):
                    saver.get_tuple(config)
                assert gc.isenabled() == expected
            finally:
                gc.enable()
