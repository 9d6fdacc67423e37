"""From values to plain bytes with cuts, through LangGraph's own serializer.

`dump` serializes with the saver's serde, so what is stored is what LangGraph would store, byte for byte. Then it looks
for the parts that are worth a blob of their own (every message wherever it stands, sends, large members of a dict):
each is serialized alone, and where those bytes stand inside the whole, the whole is cut. No hook into the serializer
is used, and a part that is not found in the whole is simply not cut out. Only the bytes of LangGraph's msgpack format
are cut; what another serializer makes is kept whole, with its tag.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from refold.checkpoint.lean import Given, is_lean, thaw
from refold.checkpoint.message_log import MessageLog

MSGPACK: Final = "msgpack"
_PART: Final = 128  # bytes: a smaller part costs more as a row than as a repetition
_MEMBER: Final = 512  # bytes: the same for a member of a dict, which seldom repeats elsewhere
_DEPTH: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain:
    """A serialized value: its type tag, all its bytes, and the parts of them that are values of their own."""

    tag: str
    data: bytes
    cuts: Sequence["Cut"] = ()

    def pieces(self) -> Sequence[bytes]:
        """The bytes between the cuts: one more than there are cuts."""
        found: list[bytes] = []
        at = 0
        for cut in self.cuts:
            found.append(self.data[at : cut.start])
            at = cut.start + len(cut.part.data)
        return [*found, self.data[at:]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    start: int
    part: Plain


class Serde:
    """The saver's serializer without its encryption, and what may be assumed about it."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde.serde if isinstance(serde, EncryptedSerializer) else serde
        self.cipher: CipherProtocol | None = serde.cipher if isinstance(serde, EncryptedSerializer) else None
        self.cuts = isinstance(self._serde, JsonPlusSerializer)
        self.lean = type(self._serde) is JsonPlusSerializer and _is_stock(self._serde)

    def dump(self, value: object) -> Plain:
        """Serialize a value. Raises what the serializer raises."""
        tag, data = self._serde.dumps_typed(value)
        if not self.cuts or tag != MSGPACK or len(data) < _PART:
            return Plain(tag=tag, data=data)
        return Plain(tag=tag, data=data, cuts=self._cuts(value, data))

    def load(self, tag: str, data: bytes) -> object:
        """The value again. Raises what the serializer raises."""
        return self._serde.loads_typed((tag, data))

    def _cuts(self, value: object, data: bytes) -> Sequence[Cut]:
        cuts: list[Cut] = []
        at = 0
        for part in parts_of(value):
            plain = self.dump(part)
            least = _PART if isinstance(part, BaseMessage | Send) else _MEMBER
            if (len(plain.data) < least and not plain.cuts) or plain.tag != MSGPACK or len(plain.data) == len(data):
                continue
            start = data.find(plain.data, at)
            if start >= 0:
                cuts.append(Cut(start=start, part=plain))
                at = start + len(plain.data)
        return tuple(cuts)


def parts_of(value: object) -> Iterator[object]:
    """The parts of a value that are worth storing on their own, in the order in which they are serialized."""
    if isinstance(value, BaseMessage | str | bytes):
        return
    yield from _members(value, 0)


def _members(value: object, depth: int) -> Iterator[object]:
    """The parts inside a container. A member of a dict is a part of its own if it is a container or a long text."""
    if depth > _DEPTH:
        return
    if isinstance(value, _DeltaSnapshot):
        yield from _members(value.value, depth)
    elif type(value) is dict:
        for item in cast("Mapping[object, object]", value).values():
            if (type(item) is str and len(item) >= _MEMBER) or (type(item) in _CONTAINERS and item):
                yield item
            else:
                yield from _parts(item, depth + 1)
    elif type(value) in (list, tuple, MessageLog):
        for item in cast("Sequence[object]", value):
            if type(item) in _SCALARS:
                continue
            yield from _parts(item, depth + 1)
    elif isinstance(value, Send):
        yield from _parts(value.arg, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name), depth + 1)


def _parts(value: object, depth: int) -> Iterator[object]:
    if isinstance(value, BaseMessage | Send):
        yield value
    else:
        yield from _members(value, depth)


_CONTAINERS = frozenset({dict, list, MessageLog})
_SCALARS = frozenset({str, int, float, bool, type(None), bytes})


def _is_stock(serde: SerializerProtocol) -> bool:
    """Whether the serializer gives back what `thaw` gives: one with a hook of its own may not."""
    samples: Sequence[BaseMessage] = (
        HumanMessage("a", id="1"),
        AIMessage("b", id="2", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]),
        SystemMessage("c", id="3"),
        ToolMessage("d", id="4", tool_call_id="c"),
    )
    for sample in samples:
        tag, data = serde.dumps_typed(sample)
        restored = serde.loads_typed((tag, data))
        if tag != MSGPACK or not is_lean(data) or type(restored) is not type(sample):
            return False
        if restored != thaw(data, Given(), 0):
            return False
    return True
