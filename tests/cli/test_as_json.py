"""What `refold threads --messages` prints of values that JSON has no form for."""

import enum
import json
import sys
import types
import uuid
from collections import deque
from dataclasses import make_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from refold.checkpoint import SqliteSaver
from refold.cli.as_json import in_json
from refold.cli.main import run


def _put(saver: BaseCheckpointSaver[Any], messages: object) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"messages": messages}, {"messages": 1}
    saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {"messages": 1})


@pytest.fixture(params=[SqliteSaver, LangGraphSqliteSaver])
def printed(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Puts messages into a database of either kind and prints them with the command."""

    def call(messages: object) -> list[Any]:
        with request.param.from_conn_string(str(tmp_path / "some.db")) as saver:
            _put(saver, messages)
        capsys.readouterr()
        assert run(["threads", str(tmp_path / "some.db"), "--messages", "t"]) == 0
        return [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines()]

    return call


class TestEveryValueHasAForm:
    @pytest.mark.parametrize(
        ("artifact", "form"),
        [
            (b"\xff\xfe", {"base64": "//4="}),
            (b"plain", {"base64": "cGxhaW4="}),
            ([bytearray(b"a"), {"k": b"b"}], [{"base64": "YQ=="}, {"k": {"base64": "Yg=="}}]),
            (float("nan"), {"float": "nan"}),
            ({"x": float("-inf")}, {"x": {"float": "-inf"}}),
            ({1: "a", (2, 3): "b"}, {"1": "a", "(2, 3)": "b"}),
            (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
            (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
            ("text", "text"),
            (None, None),
        ],
    )
    def test_in_an_artifact(self, artifact: object, form: object, printed: Any) -> None:
        """Bytes as base64 that says so, numbers that JSON lacks by name, the rest as pydantic writes it."""
        [row] = printed([ToolMessage("hello", tool_call_id="1", artifact=artifact)])
        assert row["artifact"] == form
        assert (row["type"], row["content"], row["tool_call_id"]) == ("tool", "hello", "1")

    def test_a_class_of_the_application(self, printed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """An object of a class that is not here is shown by its class and fields, and its message as a message."""
        module = types.ModuleType("some_app")
        vars(module)["Chart"] = make_dataclass("Chart", ["raw"], namespace={"__module__": "some_app"})
        vars(module)["Kind"] = enum.Enum("Kind", {"A": b"\xff"}, module="some_app")
        monkeypatch.setitem(sys.modules, "some_app", module)
        tool = ToolMessage("hello", tool_call_id="1", artifact=vars(module)["Kind"].A, id="m")
        row, other = printed([tool, vars(module)["Chart"](1)])
        shown = {"class": "some_app.Kind", "value": {"base64": "/w=="}}
        assert (row["content"], row["artifact"], row["id"]) == ("hello", shown, "m")
        assert other == {"value": {"class": "some_app.Chart", "value": {"raw": 1}}}

    def test_ordinary_messages_are_as_they_were(self, printed: Any) -> None:
        """As `model_dump` gives them."""
        messages = [
            HumanMessage("x", id="1", additional_kwargs={"a": [1, 2.5, True, None]}),
            AIMessage("y", tool_calls=[{"name": "f", "args": {"x": {"y": "z"}}, "id": "c", "type": "tool_call"}]),
        ]
        assert printed(messages) == [message.model_dump(mode="json") for message in messages]

    @pytest.mark.parametrize(
        ("value", "form"),
        [
            ("\ud83d", {"value": "\\ud83d"}),
            (deque([1, b"a"]), {"value": [1, {"base64": "YQ=="}]}),
            ({"role": "user", "content": "x"}, {"value": {"role": "user", "content": "x"}}),
            (make_dataclass("Local", ["raw"])(b"a"), {"value": {"raw": {"base64": "YQ=="}}}),
        ],
    )
    def test_what_is_no_message(self, value: object, form: object) -> None:
        """Any value of a channel."""
        assert in_json(value) == form
        json.dumps(in_json(value), ensure_ascii=False).encode()

    def test_any_object(self) -> None:
        """What has no form at all is shown as Python shows it."""
        assert in_json(object)["value"] == {"repr": "<class 'object'>"}  # type: ignore[index]
