"""Messages in and out without validating again what was valid when it was stored.

Restoring a long list is bound by pydantic: 20-40 us a message through its constructor. A message of an exact
langchain-core class whose stored fields have exactly the shapes that the constructor leaves alone is rebuilt here by
setting them, in 2-8 us. Anything else (a subclass, an extra field, a tool call in an older spelling, a nested object)
takes the stock path, so both give equal objects.

`Frozen` is a message taken apart: its class and its fields in containers of their own. Thawed, it gives a new message
each time, so no two readers share a mutable part. Compared with a live message, it tells whether the message was edited
since: strings are shared and compare by identity, so the comparison costs about half a microsecond and no
serialisation.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

Fields: TypeAlias = dict[str, object]
Frozen: TypeAlias = tuple[Fields, dict[str, object], type[BaseMessage]]
"""(fields, extra fields, class): extra is always empty. A tuple, so that comparing is one call into C for a whole
list."""

signature: Final[Callable[[object], Frozen]] = cast(
    "Callable[[object], Frozen]", operator.attrgetter("__dict__", "__pydantic_extra__", "__class__")
)
"""A live message in the form of a `Frozen`. Raises `AttributeError` for what is no pydantic object."""

_PYDANTIC = 5  # the ext code that LangGraph's serializer gives a pydantic object: (module, class, fields, method)
_OPTIONS = ormsgpack.OPT_NON_STR_KEYS
_CLASSES: Final[Mapping[tuple[str, str], type[BaseMessage]]] = {
    (cls.__module__, cls.__name__): cls for cls in (HumanMessage, AIMessage, SystemMessage, ToolMessage)
}
_FIELDS: Final[Mapping[type[BaseMessage], tuple[str, ...]]] = {
    cls: tuple(cls.model_fields) for cls in _CLASSES.values()
}
_CALL_KEYS: Final = {"name", "args", "id", "type"}
_USAGE_COUNTS: Final = ("input_tokens", "output_tokens", "total_tokens")
_USAGE_DETAILS: Final[Mapping[str, frozenset[str]]] = {
    "input_token_details": frozenset({"audio", "cache_creation", "cache_read"}),
    "output_token_details": frozenset({"audio", "reasoning"}),
}
_set = object.__setattr__


class _NotLeanError(Exception):
    """A nested object: the stock path knows what to do with it."""


def freeze_bytes(data: bytes) -> Frozen | None:
    """The message in serialized bytes, or None where only the stock path is sure to be right."""
    try:
        parts = ormsgpack.unpackb(data, ext_hook=_outer, option=_OPTIONS)
    except (_NotLeanError, ValueError):
        return None
    if not isinstance(parts, _Parts):
        return None
    cls = _CLASSES.get((parts.module, parts.name))
    if cls is None or tuple(parts.fields) != _FIELDS[cls] or not _is_settled(cls, parts.fields):
        return None
    return parts.fields, {}, cls


def freeze_message(message: object) -> Frozen | None:
    """A live message taken apart, or None if it has something in it that cannot be compared or copied safely."""
    if not isinstance(message, BaseMessage) or message.__pydantic_extra__ != {}:
        return None
    fields = copy_plain(message.__dict__)
    return None if fields is _NOT_PLAIN else (cast("Fields", fields), {}, type(message))


def thaw(frozen: Frozen) -> BaseMessage:
    """A new message that shares no container with any other."""
    fields, _, cls = frozen
    message = cls.__new__(cls)
    _set(message, "__dict__", {k: _copy(v) if type(v) in (dict, list) else v for k, v in fields.items()})
    _set(message, "__pydantic_fields_set__", set(fields))
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message


def cost(frozen: Frozen) -> int:
    """About how many bytes a frozen message keeps in memory."""
    content = frozen[0].get("content")
    return 1200 + (len(content) if isinstance(content, str) else 4000)


def copy_plain(value: object) -> object:
    """A value of exact built-in types with containers of its own, or `NOT_PLAIN`."""
    kind = type(value)
    if kind is dict:
        copied: dict[object, object] = {}
        for key, item in cast("dict[object, object]", value).items():
            inner = copy_plain(item)
            if inner is _NOT_PLAIN or type(key) is not str:
                return _NOT_PLAIN
            copied[key] = inner
        return copied
    if kind is list:
        items = [copy_plain(item) for item in cast("list[object]", value)]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    return value if kind in _SCALARS else _NOT_PLAIN


def same(left: object, right: object) -> bool:
    """Equal values of equal types all the way down (1, 1.0 and True are three values), in the same order of keys."""
    if left is right:
        return True
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is dict:
        a, b = cast("dict[object, object]", left), cast("dict[object, object]", right)
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if kind is list:
        c, d = cast("list[object]", left), cast("list[object]", right)
        return len(c) == len(d) and all(map(same, c, d))
    return kind in _SCALARS and left == right


_SCALARS = frozenset({str, int, float, bool, type(None), bytes})
_NOT_PLAIN = object()
NOT_PLAIN: Final = _NOT_PLAIN


class _Parts:
    __slots__ = ("fields", "module", "name")

    def __init__(self, module: str, name: str, fields: Fields) -> None:
        self.module, self.name, self.fields = module, name, fields


def _outer(code: int, data: bytes) -> object:
    if code != _PYDANTIC:
        raise _NotLeanError
    parts = ormsgpack.unpackb(data, ext_hook=_inner, option=_OPTIONS)
    match parts:
        case [str(module), str(name), dict(fields), _]:
            return _Parts(module, name, fields)
        case _:
            raise _NotLeanError


def _inner(code: int, data: bytes) -> object:
    raise _NotLeanError


def _copy(value: object) -> object:
    kind = type(value)
    if kind is dict:
        source = cast("dict[object, object]", value)
        return {k: _copy(v) if type(v) in (dict, list) else v for k, v in source.items()} if source else {}
    return [_copy(v) if type(v) in (dict, list) else v for v in cast("list[object]", value)]


def _is_settled(cls: type[BaseMessage], fields: Fields) -> bool:
    """Whether the class's validators would leave the fields exactly as they are."""
    content, extra, response = fields["content"], fields["additional_kwargs"], fields["response_metadata"]
    if type(content) is list:
        if not all(type(part) in (str, dict) for part in cast("list[object]", content)):
            return False
    elif type(content) is not str:
        return False
    if type(extra) is not dict or type(response) is not dict:
        return False
    if not all(fields[name] is None or type(fields[name]) is str for name in ("id", "name")):
        return False
    if cls is AIMessage:
        return _is_settled_ai(fields)
    if cls is ToolMessage:
        return type(fields["tool_call_id"]) is str and fields["status"] in ("success", "error")
    return True


def _is_settled_ai(fields: Fields) -> bool:
    extra = cast("dict[str, object]", fields["additional_kwargs"])
    response = cast("dict[str, object]", fields["response_metadata"])
    calls, invalid = fields["tool_calls"], fields["invalid_tool_calls"]
    if "tool_calls" in extra or response.get("output_version") == "v1" or invalid != [] or type(calls) is not list:
        return False
    for call in cast("list[object]", calls):
        if type(call) is not dict:
            return False
        known = cast("dict[str, object]", call)
        if set(known) != _CALL_KEYS or known["type"] != "tool_call" or type(known["name"]) is not str:
            return False
        if type(known["args"]) is not dict or not (known["id"] is None or type(known["id"]) is str):
            return False
    return fields["usage_metadata"] is None or _is_settled_usage(fields["usage_metadata"])


def _is_settled_usage(usage: object) -> bool:
    if type(usage) is not dict:
        return False
    known = cast("dict[str, object]", usage)
    if tuple(known)[:3] != _USAGE_COUNTS or not all(type(known[name]) is int for name in _USAGE_COUNTS):
        return False
    for name in tuple(known)[3:]:
        details = known[name]
        if name not in _USAGE_DETAILS or type(details) is not dict:
            return False
        for key, count in cast("dict[str, object]", details).items():
            if key not in _USAGE_DETAILS[name] or type(count) is not int:
                return False
    return True
