"""Values that a migration must not make less of, and what it calls the same."""

import collections
import dataclasses
import enum
import http
import os
import pickle
import subprocess
import sys
import textwrap
import types
import urllib.parse
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send

from refold.checkpoint.migrate import lossless
from refold.checkpoint.migrate.compare import same

STOCK = JsonPlusSerializer()


def _module(name: str) -> types.ModuleType:
    """An application's own module under the name of one of the standard library's."""
    module = types.ModuleType(name)
    source = """
        import dataclasses, enum
        @dataclasses.dataclass
        class Profile:
            name: str
        @dataclasses.dataclass
        class Queue:
            maxsize: int
        class Kind(enum.Enum):
            A = "a"
    """
    exec(textwrap.dedent(source), module.__dict__)
    for made in ("Profile", "Queue", "Kind"):
        vars(module)[made].__module__ = name
    return module


class TestClassesOfTheApplication:
    @pytest.mark.parametrize("name", ["profile", "types", "queue", "calendar", "code", "test", "http.app", "decimal"])
    def test_in_a_module_named_as_one_of_the_standard_library(self, name: str) -> None:
        """Its values have the bytes they had, alone, in containers, in messages."""
        module = _module(name)
        profile, queue, kind = module.Profile("ann"), module.Queue(3), module.Kind.A
        message = ToolMessage("m", tool_call_id="1", artifact={"p": profile}, id="m")
        serde = lossless()
        for value in (profile, queue, kind, [profile, {"k": kind}], message, Send("n", [queue])):
            stored = STOCK.dumps_typed(value)
            assert serde.dumps_typed(serde.loads_typed(stored)) == stored

    def test_a_message_that_holds_one_is_a_message(self) -> None:
        """So it is stored once, is shown, and a delta channel can be put together with it."""
        message = ToolMessage("m", tool_call_id="1", artifact={"p": [_module("profile").Kind.A]}, id="m")
        stored = STOCK.dumps_typed([message])
        [found] = lossless().loads_typed(stored)
        assert isinstance(found, ToolMessage)
        assert (found.content, found.id) == ("m", "m")
        assert lossless().dumps_typed([found]) == stored
        assert same([found], lossless().loads_typed(stored))

    @pytest.mark.parametrize("around", [_DeltaSnapshot, Overwrite])
    def test_what_a_delta_channel_is_made_of(self, around: Any) -> None:
        """Its snapshots, and the writes that replace it, are objects whatever their messages hold."""
        stored = STOCK.dumps_typed(around([ToolMessage("m", tool_call_id="1", artifact=_module("profile").Kind.A)]))
        found = lossless().loads_typed(stored)
        assert type(found) is around
        assert isinstance(found.value[0], ToolMessage)
        assert lossless().dumps_typed(found) == stored

    @pytest.mark.parametrize("strict", ["false", "true"])
    def test_whatever_may_be_imported(self, strict: str, tmp_path: Path) -> None:
        """With LANGGRAPH_STRICT_MSGPACK, too, an enumeration or named tuple of the standard library keeps its class."""
        (tmp_path / "stored").write_bytes(
            pickle.dumps(
                [
                    STOCK.dumps_typed(value)
                    for value in (http.HTTPStatus.OK, urllib.parse.urlsplit("a:b"), Interrupt("q"))
                ]
            )
        )
        script = """
            import pickle, sys
            from refold.checkpoint.migrate import lossless
            serde = lossless()
            for stored in pickle.load(open(sys.argv[1], "rb")):
                assert serde.dumps_typed(serde.loads_typed(stored)) == stored, stored
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "stored")],
            env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": strict},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def test_code_that_bytes_name_is_not_run(self, tmp_path: Path) -> None:
        """A stored extension may name any callable; a migration calls none but the constructors that it knows."""
        made = tmp_path / "made"
        call = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "mkdir", str(made)))))
        assert lossless().dumps_typed(lossless().loads_typed(("msgpack", call))) == ("msgpack", call)
        assert not made.exists()

    def test_an_array_stays_as_it_is(self) -> None:
        """Whether numpy is installed or not: without it, LangGraph's serializer gives None."""
        array = ormsgpack.packb([ormsgpack.Ext(6, ormsgpack.packb(("<i8", [1], "C", b"\0" * 8)))])
        assert lossless().dumps_typed(lossless().loads_typed(("msgpack", array))) == ("msgpack", array)


class TestWhatIsRebuilt:
    @pytest.mark.parametrize(
        "value",
        [
            HumanMessage("x", id="1"),
            Document(page_content="x", metadata={"a": 1}),
            Send("n", {"messages": [AIMessage("y", id="2")]}),
            Interrupt(value="q", id="i"),
            Command(update={"x": 1}, goto="b"),
            {"a", "b", "c"},
            collections.deque([1, 2]),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_values_of_langchain_and_langgraph(self, value: object) -> None:
        """They come as objects, so that messages are stored once each and shown as messages."""
        assert lossless().loads_typed(STOCK.dumps_typed(value)) == value

    def test_messages_of_an_older_langchain(self) -> None:
        """They lack fields that came since, and are messages all the same; an unknown field is kept."""
        named = ("langchain_core.messages.ai", "AIMessage")
        fields = {"content": "hello", "type": "ai", "id": "1", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}
        stored = ormsgpack.packb(ormsgpack.Ext(5, ormsgpack.packb((*named, fields, "model_validate_json"))))
        found = lossless().loads_typed(("msgpack", stored))
        assert isinstance(found, AIMessage)
        assert found.tool_calls[0]["name"] == "f"

    def test_a_class_that_would_drop_a_field(self) -> None:
        """A newer LangChain's field that this one does not know stays, as the bytes it is."""
        named = ("langchain_core.documents.base", "Document")
        fields = {"page_content": "x", "metadata": {}, "id": None, "type": "Document", "rank": 3}
        stored = ormsgpack.packb(ormsgpack.Ext(5, ormsgpack.packb((*named, fields, "model_validate_json"))))
        assert lossless().dumps_typed(lossless().loads_typed(("msgpack", stored))) == ("msgpack", stored)

    def test_options_of_a_serializer_are_kept(self) -> None:
        """Pickles are read where the application's serializer reads them."""

        value = dataclasses.make_dataclass("Local", [])  # a class, which msgpack cannot hold
        serde = lossless(JsonPlusSerializer(pickle_fallback=True))
        stored = ("pickle", pickle.dumps({"c": Shade}))
        assert serde.loads_typed(stored) == {"c": Shade}
        assert serde.dumps_typed({"c": Shade})[0] == "pickle"
        assert value is not None
        with pytest.raises(NotImplementedError):
            lossless().loads_typed(stored)


class Shade(enum.Enum):
    DARK = "dark"


@dataclasses.dataclass
class Point:
    x: object


NAN = float("nan")


class TestWhatIsTheSame:
    @pytest.mark.parametrize(
        ("left", "right"),
        [
            (-0.0, 0.0),
            (1, True),
            (1, 1.0),
            ({1}, {True}),
            ({1.0}, {1}),
            ({0.0}, {-0.0}),
            ({1: "a"}, {True: "a"}),
            ({"a": {2: 1}}, {"a": {2.0: 1}}),
            (Point(0.0), Point(-0.0)),
            (Point(1), Point(True)),
            (HumanMessage("x", additional_kwargs={"n": 1}), HumanMessage("x", additional_kwargs={"n": 1.0})),
            (HumanMessage("x", additional_kwargs={"n": 0.0}), HumanMessage("x", additional_kwargs={"n": -0.0})),
            (collections.deque([0.0]), collections.deque([-0.0])),
            (Send("n", 1), Send("n", True)),
            ((1,), [1]),
            (b"a", bytearray(b"a")),
            (frozenset({1}), frozenset({True})),
            ({"a": 1}, {"a": 1, "b": 2}),
            (ormsgpack.Ext(0, b"a"), ormsgpack.Ext(0, b"b")),
        ],
    )
    def test_different(self, left: Any, right: Any) -> None:
        """Values that Python calls equal, or nearly, and that are stored as different ones."""
        assert not same(left, right)
        assert not same([left], [right])

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            (NAN, float("nan")),
            ({"a": [NAN]}, {"a": [float("nan")]}),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
            ({"a", "b", "c", "d"}, {"d", "c", "b", "a"}),
            (Point({"a": 1, "b": 2}), Point({"b": 2, "a": 1})),
            (
                HumanMessage("x", additional_kwargs={"a": 1, "b": {"c": {"x", "y"}}}),
                HumanMessage("x", additional_kwargs={"b": {"c": {"y", "x"}}, "a": 1}),
            ),
            (Send("n", {"a": 1, "b": 2}), Send("n", {"b": 2, "a": 1})),
            (ormsgpack.Ext(0, b"a"), ormsgpack.Ext(0, b"a")),
            (Shade.DARK, Shade.DARK),
            ({NAN}, {float("nan")}),
            ({NAN: 1, 2: 3}, {2: 3, float("nan"): 1}),
        ],
    )
    def test_the_same(self, left: Any, right: Any) -> None:
        """Whatever is stored the same but for the order of mappings and sets."""
        assert same(left, right)
