"""A serializer that loses nothing: what it cannot rebuild stays as the bytes it was.

LangGraph's serializer imports the application's classes to rebuild their objects, and gives the bare fields when it
cannot: written again, such a value would have lost its class for ever. A migration runs outside the application, where
those classes are often missing, and has no business running their code. So values of the standard library, LangChain
and LangGraph are rebuilt, and any other is kept as the extension it is stored as; written again, it gives the same
bytes.
"""

import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

_CONSTRUCTED: Final = frozenset(range(6))
"""The extension codes whose payload begins with a module and a name."""
_OPTION: Final = ormsgpack.OPT_NON_STR_KEYS
_PACKAGES: Final = frozenset({"langchain", "langchain_core", "langgraph"})


def lossless(serde: SerializerProtocol | None = None) -> SerializerProtocol:
    """The serializer that a migration reads and writes with, in place of `serde`, of the same format.

    An `EncryptedSerializer` keeps its cipher. A serializer of another kind is left as it is.
    """
    if isinstance(serde, EncryptedSerializer):
        return EncryptedSerializer(serde.cipher, lossless(serde.serde))
    if serde is None or type(serde) is JsonPlusSerializer:
        return JsonPlusSerializer(__unpack_ext_hook__=_rebuild)
    return serde


# A pure cache. A list of N messages is read N times, in every checkpoint anew, on both sides of the comparison: the
# same bytes give the same object, which also makes comparing them a matter of identity. Nobody edits what was read.
@lru_cache(maxsize=16_384)
def _rebuild(code: int, data: bytes) -> object:
    packed = ormsgpack.packb(ormsgpack.Ext(code, data))
    if all(_is_known(module) for module in _modules(code, data)):
        return _STOCK.loads_typed(("msgpack", packed))
    return ormsgpack.Ext(code, data)


_STOCK: Final = JsonPlusSerializer()


def _is_known(module: str) -> bool:
    package = module.partition(".")[0]
    return package in _PACKAGES or package in sys.stdlib_module_names


def _modules(code: int, data: bytes) -> Iterator[str]:
    """The modules of the classes in an extension, itself and whatever is nested in it."""
    nested: list[tuple[int, bytes]] = []

    def note(inner: int, payload: bytes) -> None:
        nested.append((inner, payload))

    payload = ormsgpack.unpackb(data, ext_hook=note, option=_OPTION)
    if code in _CONSTRUCTED and isinstance(payload, list | tuple) and payload:
        yield str(payload[0])
    for inner, inside in nested:
        yield from _modules(inner, inside)
