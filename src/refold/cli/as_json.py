"""Values of a checkpoint as JSON for people and scripts: every value has a form, and none is cut short.

What JSON has no form for becomes an object with one key: `{"base64": ...}` for bytes, `{"float": "nan"}` for numbers
that JSON lacks, `{"class": "module.Name", "value": ...}` for an object of a class that is not here, `{"repr": ...}` for
anything else. A text that is no Unicode (half a surrogate pair) is written with the escape of Python.
"""

import base64
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import ormsgpack
from langchain_core.messages import BaseMessage
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from refold.checkpoint.migrate.lossless import Extension, taken_apart


def in_json(value: object) -> object:
    """A message of a channel: its fields, or `{"value": ...}` for what is no message."""
    if isinstance(value, BaseMessage):
        return _form(value)
    if isinstance(value, ormsgpack.Ext):
        held = taken_apart(value)
        if held.named is not None and held.named[0].startswith("langchain_core.messages."):
            return _form(held.payload[2])
    return {"value": _form(value)}


def _form(value: object) -> object:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(value).decode()}
        case Mapping():
            return {_key(key): _form(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() | deque():
            return [_form(item) for item in value]
        case BaseModel():
            shown = type(value).model_fields
            return {**{name: _form(getattr(value, name)) for name in shown}, **_extra(value)}
        case ormsgpack.Ext():
            return _form(taken_apart(value))
        case Extension():
            return _extension(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _form(getattr(value, field.name)) for field in fields(value)}
        case _:
            return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings", fallback=_repr)


def _extra(value: BaseModel) -> dict[str, object]:
    return {name: _form(item) for name, item in (value.__pydantic_extra__ or {}).items()}


def _repr(value: object) -> object:
    return {"repr": _form(repr(value))}


def _key(key: object) -> str:
    return str(_form(key)) if isinstance(key, str) else repr(key)


def _extension(value: Extension) -> object:
    """A value that a migration keeps as it is stored."""
    if value.named is None:
        return {"extension": value.code, "base64": base64.b64encode(value.data).decode()}
    return {"class": ".".join(value.named), "value": _form(value.payload[2])}
