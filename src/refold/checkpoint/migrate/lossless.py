"""A serializer that loses nothing: what it cannot rebuild stays as the bytes it was.

LangGraph's serializer imports the application's classes to rebuild their objects, and gives the bare fields when it
cannot, or may not: written again, such a value would have lost its class for ever. A migration runs outside the
application, where those classes are often missing, and has no business running their code. So the values that
LangGraph's serializer itself has a form for, and those of LangChain and LangGraph, are rebuilt; any other is kept as
the extension it is stored as. And what was rebuilt must say, written again, all that the stored bytes say. (It may say
more: a message of an older LangChain gets the fields that came since.) An extension gives the same bytes again.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import ormsgpack
from langchain_core.messages import (
    AIMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite
from pydantic import ValidationError

_CONSTRUCTED: Final = frozenset(range(6))
"""The extension codes whose payload begins with a module and a name."""
_KEYWORDS, _PYDANTIC, _SNAPSHOT = 2, 5, 7
_CODES: Final = frozenset({*_CONSTRUCTED, _SNAPSHOT})
"""Those that are rebuilt. An array of numpy, 6, stays as it is."""
_OPTION: Final = ormsgpack.OPT_NON_STR_KEYS
_PACKAGES: Final = frozenset({"langchain", "langchain_core", "langgraph"})
_STANDARD: Final = frozenset(
    {
        *(("datetime", name) for name in ("datetime", "date", "time", "timedelta", "timezone")),
        *(("ipaddress", f"IPv{version}{kind}") for version in (4, 6) for kind in ("Address", "Interface", "Network")),
        *((module, name) for module in ("pathlib", "pathlib._local") for name in ("Path", "PosixPath", "WindowsPath")),
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("collections", "deque"),
        ("decimal", "Decimal"),
        ("re", "compile"),
        ("uuid", "UUID"),
        ("zoneinfo", "ZoneInfo"),
    }
)
"""What LangGraph's serializer writes of the standard library by itself. A class of any other of its modules may just as
well be of an application's module of that name (profile, types, queue, ...)."""
_UNORDERED: Final = frozenset({("builtins", "set"), ("builtins", "frozenset")})


def lossless(serde: SerializerProtocol | None = None) -> SerializerProtocol:
    """The serializer that a migration reads and writes with, in place of `serde`, of the same format.

    An `EncryptedSerializer` keeps its cipher, a `JsonPlusSerializer` its `pickle_fallback` and `allowed_json_modules`.
    A serializer of another kind is left as it is.
    """
    if isinstance(serde, EncryptedSerializer):
        return EncryptedSerializer(serde.cipher, lossless(serde.serde))
    if serde is None:
        return JsonPlusSerializer(__unpack_ext_hook__=_rebuild)
    if type(serde) is JsonPlusSerializer:
        return JsonPlusSerializer(
            pickle_fallback=serde.pickle_fallback,
            allowed_json_modules=serde._allowed_json_modules,
            __unpack_ext_hook__=_rebuild,
        )
    return serde


# A pure cache. A list of N messages is read N times, in every checkpoint anew, on both sides of the comparison: the
# same bytes give the same object, which also makes comparing them a matter of identity. Nobody edits what was read.
@lru_cache(maxsize=16_384)
def _rebuild(code: int, data: bytes) -> object:
    kept = ormsgpack.Ext(code, data)
    packed = ormsgpack.packb(kept)
    if code in _CODES and all(_is_known(*named) for named in _classes(code, data)):
        rebuilt = _STOCK.loads_typed(("msgpack", packed))
    elif (around := _around(code, data)) is not None:
        rebuilt = around
    else:
        return kept
    try:
        _, again = _STOCK.dumps_typed(rebuilt)
    except TypeError:  # an object that it can make and not write
        return kept
    return rebuilt if again == packed or _says_all(_unpacked(again), _unpacked(packed)) else kept


_STOCK: Final = JsonPlusSerializer()
_AROUND: Final[Mapping[tuple[object, ...], Callable[..., object]]] = {
    (kind.__module__, kind.__name__): kind
    for kind in (AIMessage, FunctionMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage, Overwrite)
}


def _around(code: int, data: bytes) -> object:
    """A message, or what a delta channel is put together from, that holds a value of the application's, in an artifact
    say: an object all the same, with that value kept as it is stored. None for anything else."""
    if code not in (_KEYWORDS, _PYDANTIC, _SNAPSHOT):
        return None
    payload = ormsgpack.unpackb(data, ext_hook=_rebuild, option=_OPTION)
    if code == _SNAPSHOT:
        return _DeltaSnapshot(payload)
    kind = _AROUND.get(tuple(payload[:2])) if isinstance(payload, list | tuple) and len(payload) > 2 else None
    if kind is None or not isinstance(payload[2], dict):
        return None
    try:
        return kind(**payload[2])
    except (ValidationError, TypeError):
        return None


def _is_known(module: str, name: str) -> bool:
    return module.partition(".")[0] in _PACKAGES or (module, name) in _STANDARD


def _classes(code: int, data: bytes) -> Iterator[tuple[str, str]]:
    """The classes in an extension, itself and whatever is nested in it, by module and name."""
    nested: list[tuple[int, bytes]] = []

    def note(inner: int, payload: bytes) -> None:
        nested.append((inner, payload))

    payload = ormsgpack.unpackb(data, ext_hook=note, option=_OPTION)
    if code in _CONSTRUCTED and isinstance(payload, list | tuple) and len(payload) > 1:
        yield str(payload[0]), str(payload[1])
    for inner, inside in nested:
        if inner not in _CODES:
            yield "", ""  # nothing that is known
        yield from _classes(inner, inside)


class Extension:
    """A value that was kept as it is stored, taken apart: its code and what its payload says, None where that is no
    msgpack."""

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data
        try:
            self.payload = _unpacked(data)
        except ormsgpack.MsgpackDecodeError:
            self.payload = None

    @property
    def named(self) -> tuple[str, str] | None:
        """Module and name of the class that it is of."""
        held = self.payload
        if self.code not in _CONSTRUCTED or not isinstance(held, list | tuple) or len(held) < 3:
            return None
        return str(held[0]), str(held[1])


def taken_apart(value: ormsgpack.Ext) -> Extension:
    """What a value that was kept as it is stored says, at any depth."""
    return cast("Extension", _unpacked(ormsgpack.packb(value)))


def _unpacked(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=Extension, option=_OPTION)


def _says_all(again: object, stored: object) -> bool:
    """Whether everything of `stored` is in `again`, at its place; a mapping may have more, a set another order."""
    match stored, again:
        case dict(), dict():
            held = cast("Mapping[object, object]", again)
            return all(key in held and _says_all(held[key], value) for key, value in stored.items())
        case list() | tuple(), list() | tuple():
            return len(stored) == len(again) and all(map(_says_all, again, stored))
        case Extension(), Extension() if stored.named in _UNORDERED:
            return stored.code == again.code and _members(stored) == _members(again)
        case Extension(), Extension():
            return stored.code == again.code and _says_all(again.payload, stored.payload)
        case _:
            return type(stored) is type(again) and ormsgpack.packb(stored) == ormsgpack.packb(again)


def _members(held: Extension) -> tuple[object, list[str]]:
    return held.payload[:2], sorted(map(_text, held.payload[2]))


def _text(value: object) -> str:
    """Members of sets are plain values and nested extensions; enough to compare two of them."""
    if isinstance(value, Extension):
        return f"{value.code}:{_text(value.payload)}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    return f"{type(value).__name__}:{value!r}"
