"""Finding the message list inside whatever object a program wrapped around it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from refold.replay.fields import mapping, sequence

_KEYS: Final = (
    *("messages", "traj", "trajectory", "history", "conversation", "dialog"),
    *("values", "channel_values", "state", "input", "body", "request"),
)
"""Asked first, in this order, because objects often hold a second, partial list under another name."""
_DEPTH: Final = 4
"""Objects around a message list in the dumps that we know: at most `checkpoint`, `channel_values`, `messages`."""


def is_list_of(value: object, is_message: Callable[[object], bool]) -> bool:
    """Whether a value is a list with a message among its first elements."""
    return isinstance(value, list) and any(is_message(item) for item in value[:5])


def held_list(value: Mapping[str, object], is_message: Callable[[object], bool]) -> Sequence[object] | None:
    """The message list in an object: known keys first, then any other, then one object deeper; None without one."""
    level = [value]
    for _ in range(_DEPTH):
        for holder in level:
            for key in _ordered(holder):
                if is_list_of(holder[key], is_message):
                    return sequence(holder[key])
        level = [mapping(holder[key]) for holder in level for key in _ordered(holder) if isinstance(holder[key], dict)]
    return None


def dialogues(
    value: object, is_message: Callable[[object], bool]
) -> Iterator[tuple[Sequence[object], Mapping[str, object]]]:
    """(messages, the object that holds them) of every dialogue in a value."""
    if is_list_of(value, is_message):
        yield sequence(value), {}
    elif isinstance(value, list):
        for item in value:
            yield from dialogues(item, is_message)
    elif (messages := held_list(mapping(value), is_message)) is not None:
        yield messages, mapping(value)


def _ordered(holder: Mapping[str, object]) -> list[str]:
    return [*(key for key in _KEYS if key in holder), *(key for key in holder if key not in _KEYS)]
