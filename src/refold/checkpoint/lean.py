"""Messages in and out without validating again what was valid when it was stored.

Restoring a long list is bound by pydantic: 20-40 us a message through its constructor. A message of an exact
langchain-core class whose stored fields have exactly the shapes that the constructor leaves alone is rebuilt here by
setting them, in 5-10 us. Anything else (a subclass, an extra field, a tool call in an older spelling, a nested object)
takes the stock path, so both give equal objects.

`Lean` is such a message as stored. Thawed, it gives a new message each time, so no two readers share a mutable part.
(The messages of one reading have the set of given fields in common, three quarters of a kilobyte each otherwise: to set
a field adds its name, and all names are in it.) What is thawed again and again is kept with its text cut out: the text
is most of a message, and a string can be shared.
`Mark` is what a live message was like: its fields, in containers of its own.
Comparing a message with its mark tells whether it was edited since: strings are shared and compare by identity, so the
comparison costs about half a microsecond and no serialisation.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

Fields: TypeAlias = dict[str, object]
Mark: TypeAlias = tuple[Fields, dict[str, object], type[BaseMessage]]
"""(fields, extra fields, class); extra is always empty. A tuple: comparing a whole list is one call into C."""

signature: Final[Callable[[object], Mark]] = cast(
    "Callable[[object], Mark]", operator.attrgetter("__dict__", "__pydantic_extra__", "__class__")
)
"""A live message in the form of a `Mark`. Raises `AttributeError` for what is no pydantic object."""


LEAF_BYTES: Final = 1

_PYDANTIC = 5  # the ext code that LangGraph's serializer gives a pydantic object: (module, class, fields, method)
_OPTIONS = ormsgpack.OPT_NON_STR_KEYS
_CLASSES: Final = (AIMessage, ToolMessage, HumanMessage, SystemMessage)


class _Kind(NamedTuple):
    """A class of messages, and how its serialized bytes begin behind the header. All its fields count as given."""

    cls: type[BaseMessage]
    prefix: bytes
    size: int
    names: tuple[str, ...]


_PREFIXES: Final = {cls: b"\x94" + ormsgpack.packb(cls.__module__) + ormsgpack.packb(cls.__name__) for cls in _CLASSES}
_KINDS: Final = {
    prefix[1]: _Kind(cls, prefix, len(prefix), tuple(cls.model_fields)) for cls, prefix in _PREFIXES.items()
}
"""By the byte that says how long the module's name is: it differs for each."""
_TEXT: Final = "content"
_TEXT_KEY: Final = ormsgpack.packb(_TEXT)
_NIL: Final = ormsgpack.packb(None)
_SHORT_TEXT: Final = range(0xA0, 0xC0)  # msgpack's fixstr: one byte that holds the length
_LONG_TEXT: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}  # msgpack's str 8, 16 and 32: bytes of the length behind the first
_WORTH_CUTTING: Final = 64  # characters
_SUFFIX: Final = ormsgpack.packb("model_validate_json")
_SUFFIX_SIZE: Final = len(_SUFFIX)
_HEADERS: Final = {0xC7: 3, 0xC8: 4, 0xC9: 6}  # msgpack's ext 8, 16 and 32: bytes before the payload
_CALL_KEYS: Final = {"name", "args", "id", "type"}
_USAGE_COUNTS: Final = ("input_tokens", "output_tokens", "total_tokens")
_USAGE_DETAILS: Final[Mapping[str, frozenset[str]]] = {
    "input_token_details": frozenset({"audio", "cache_creation", "cache_read"}),
    "output_token_details": frozenset({"audio", "reasoning"}),
}
_new: Final[Callable[[type[BaseMessage]], BaseMessage]] = object.__new__
# The slots of pydantic's instances, written as pydantic's own `model_construct` does, without looking each up by name.
_set_fields = BaseModel.__dict__["__dict__"].__set__
_set_fields_set = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


def is_lean(data: bytes, at: int = 0) -> bool:
    """Whether serialized bytes (from a position on) are of a message that `thaw` gives as the stock path does. Looked
    at when a message is stored, and when one is read that was stored before that was noted."""
    try:
        start = at + _HEADERS[data[at]]
        kind = _KINDS[data[start + 1]]
        if data[start - 1] != _PYDANTIC or not data.startswith(kind.prefix, start) or not data.endswith(_SUFFIX):
            return False
        # Without a hook, an object in the fields (for the stock path to rebuild) raises as damage does.
        fields = ormsgpack.unpackb(data[start + kind.size : -_SUFFIX_SIZE], option=_OPTIONS)
    except (KeyError, IndexError, ValueError):
        return False
    return type(fields) is dict and tuple(fields) == kind.names and _is_settled(kind.cls, fields)


class Cut(NamedTuple):
    """A stored message whose text is cut out: all messages made of it share the text. `size` is that of the record."""

    text: str
    rest: bytes
    cls: type[BaseMessage]
    size: int


Lean: TypeAlias = bytes | Cut
"""A stored message that needs no validation: the record that it is stored as, one byte and its serialized bytes."""


class Given(dict[type[BaseMessage], set[str]]):
    """The set of given fields by class, which the messages of one reading share."""

    def __missing__(self, cls: type[BaseMessage]) -> set[str]:
        self[cls] = names = set(cls.model_fields)
        return names


def thaw(form: Lean, given: Given, at: int = LEAF_BYTES) -> BaseMessage | None:
    """A new message of bytes that are lean, which shares no container with any other (but see `Given`). None for
    damaged bytes.

    Reading a thread is mostly this.
    """
    if isinstance(form, Cut):
        fields, cls = ormsgpack.unpackb(form.rest, option=_OPTIONS), form.cls
        fields[_TEXT] = form.text
    else:
        try:
            start = at + _HEADERS[form[at]]
            cls, prefix, size, names = _KINDS[form[start + 1]]
            if not form.startswith(prefix, start):
                return None
            fields = ormsgpack.unpackb(form[start + size : -_SUFFIX_SIZE], option=_OPTIONS)
        except (KeyError, IndexError, ValueError):
            return None
        if type(fields) is not dict or tuple(fields) != names:
            return None
    message = _new(cls)
    _set_fields(message, fields)
    _set_fields_set(message, given[cls])
    _set_extra(message, {})
    _set_private(message, None)
    return message


def cut_text(form: bytes, message: BaseMessage) -> Cut | None:
    """The record that a message was just made of, cut. None where there is little to gain."""
    text = message.content
    if type(text) is not str or len(text) < _WORTH_CUTTING:
        return None
    start = LEAF_BYTES + _HEADERS[form[LEAF_BYTES]]
    fields = start + _KINDS[form[start + 1]].size
    at = fields + 1 + len(_TEXT_KEY)  # behind the byte that says how many fields there are
    code = form[at]
    if not form.startswith(_TEXT_KEY, fields + 1):
        return None
    if code in _SHORT_TEXT:
        end = at + 1 + (code - _SHORT_TEXT.start)
    elif code in _LONG_TEXT:
        begin = at + 1 + _LONG_TEXT[code]
        end = begin + int.from_bytes(form[at + 1 : begin])
    else:
        return None
    return Cut(text, form[fields:at] + _NIL + form[end:-_SUFFIX_SIZE], type(message), len(form))


def mark_of_lean(lean: Lean) -> Mark | None:
    """What a message was like when it was stored."""
    message = thaw(lean, Given())
    return None if message is None else signature(message)


def mark_of_message(message: object) -> Mark | None:
    """What a live message is like, or None if something in it cannot be compared or copied safely."""
    if not isinstance(message, BaseMessage) or message.__pydantic_extra__ != {}:
        return None
    fields = copy_plain(message.__dict__)
    return None if fields is _NOT_PLAIN else (cast("Fields", fields), {}, type(message))


def cost(forms: Collection[Lean]) -> int:
    """About how many bytes lean messages keep in memory."""
    return 150 * len(forms) + sum(form.size if isinstance(form, Cut) else len(form) for form in forms)


def copy_plain(value: object) -> object:
    """A value of exact built-in types in containers of its own, for comparing only, or `NOT_PLAIN`."""
    kind = type(value)
    if kind in (dict, list) and not value:  # one for all marks: less memory to go through when they are compared
        return _NO_ITEMS[kind]
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
_NO_ITEMS: Mapping[type, object] = {dict: {}, list: []}
NOT_PLAIN: Final = _NOT_PLAIN


def _is_settled(cls: type[BaseMessage], fields: Fields) -> bool:
    """Whether the class's validators would leave the fields exactly as they are. Runs for every message read."""
    content = fields["content"]
    if type(content) is not str and not (
        isinstance(content, list) and all(type(part) in (str, dict) for part in content)
    ):
        return False
    if type(fields["additional_kwargs"]) is not dict or type(fields["response_metadata"]) is not dict:
        return False
    message_id, name = fields["id"], fields["name"]
    if (message_id is not None and type(message_id) is not str) or (name is not None and type(name) is not str):
        return False
    if cls is AIMessage:
        return _is_settled_ai(fields)
    if cls is ToolMessage:
        return type(fields["tool_call_id"]) is str and fields["status"] in ("success", "error")
    return True


def _is_settled_ai(fields: Mapping[str, Any]) -> bool:
    calls, usage = fields["tool_calls"], fields["usage_metadata"]
    if "tool_calls" in fields["additional_kwargs"] or fields["response_metadata"].get("output_version") == "v1":
        return False
    if fields["invalid_tool_calls"] != [] or type(calls) is not list:
        return False
    for call in calls:
        if type(call) is not dict or call.keys() != _CALL_KEYS or call["type"] != "tool_call":
            return False
        call_id = call["id"]
        if type(call["name"]) is not str or type(call["args"]) is not dict:
            return False
        if call_id is not None and type(call_id) is not str:
            return False
    return usage is None or (type(usage) is dict and _is_settled_usage(usage))


def _is_settled_usage(usage: Mapping[str, Any]) -> bool:
    names = tuple(usage)
    if names[:3] != _USAGE_COUNTS:
        return False
    into, out, total = usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]
    if type(into) is not int or type(out) is not int or type(total) is not int:
        return False
    for name in names[3:]:
        details = usage[name]
        if name not in _USAGE_DETAILS or type(details) is not dict or not details.keys() <= _USAGE_DETAILS[name]:
            return False
        if any(type(count) is not int for count in details.values()):
            return False
    return True
