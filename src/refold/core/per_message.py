"""Pure functions of a message, computed once per message object.

A model call looks at every message of a long log; nearly all are the objects that it looked at before. What is
remembered lives as long as its message and is never shared between messages. It is a cache, not state: losing it
changes nothing but time.

Fields that are set anew and lists that grow, shrink or get another element in place are noticed. An edit deep inside a
block or an argument is not: messages are values, change them by copying.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Generic, TypeVar
from weakref import finalize

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Remembered(Generic[T]):
    """A value with what it was made of: the very objects, and sizes, which show what was added in place."""

    parts: tuple[object, ...]
    sizes: tuple[int, ...]
    value: T


class PerMessage(Generic[T]):
    """A pure function of a message that remembers its values. Safe to call from several threads."""

    def __init__(self, make: Callable[[BaseMessage], T]) -> None:
        self._make = make
        self._known: dict[int, _Remembered[T]] = {}

    def __call__(self, message: BaseMessage) -> T:
        """The value for the message as it is now."""
        parts, sizes = _made_of(message)
        known = self._known.get(id(message))
        if known is not None and known.sizes == sizes and all(map(is_, known.parts, parts)):
            return known.value
        value = self._make(message)
        if known is None:
            finalize(message, self._known.pop, id(message), None).atexit = False
        self._known[id(message)] = _Remembered(parts, sizes, value)
        return value

    def __len__(self) -> int:
        """How many living messages have a value."""
        return len(self._known)


def _made_of(message: BaseMessage) -> tuple[tuple[object, ...], tuple[int, ...]]:
    content, extra = message.content, message.additional_kwargs
    elements = (content,) if isinstance(content, str) else tuple(content)
    if isinstance(message, AIMessage):
        calls, invalid = message.tool_calls, message.invalid_tool_calls
        parts = (*elements, *calls, *invalid, message.name, extra)
        return parts, (len(elements), len(calls), len(invalid), len(extra))
    if isinstance(message, ToolMessage):
        return (*elements, message.tool_call_id, message.status, message.name, extra), (len(elements), len(extra))
    return (*elements, message.name, extra), (len(elements), len(extra))
