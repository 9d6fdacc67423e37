"""The batch reducer of the message log, for LangGraph's `DeltaChannel`.

A delta channel stores the writes of each step and, on every load, folds the writes since the last snapshot in one call.
What is folded must therefore not depend on how it was cut: `reduce(reduce(s, xs), ys) == reduce(s, xs + ys)`, for every
cut. `add_messages` does not hold to this (a removal and a new message of the same id, in one call, keep the old place;
in two calls they do not) and gives random ids, which on replay would differ from those of the live run. The rules here:

- A write is a list (or tuple) of messages or one message; anything that LangChain coerces to a message is one. `None`
  is no change. Chunks become messages.
- A message whose id the log knows replaces that message where it stands. Any other message goes to the end. An empty id
  counts as none.
- `RemoveMessage` removes every message of its id. An unknown id is no error: on replay it would make the thread
  unreadable, and two tasks may remove the same message. A message written after its removal goes to the end.
- `RemoveMessage(REMOVE_ALL_MESSAGES)` and an `Overwrite` (also the two dict forms that JSON leaves of one) reset the
  log: only what follows the last of them counts, an overwrite's own value included.
- No id, time or counter is made here, and neither the state nor a message is edited: the result is a new list.

A batch of plain appends costs one copy of the list (see `MessageLog`); only a write that changes what is there looks
for the places of the ids that it names.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias, cast

from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    MessageLikeRepresentation,
    RemoveMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from refold.checkpoint.message_log import appended, is_reducing, origin_of

Write: TypeAlias = "Sequence[MessageLikeRepresentation] | MessageLikeRepresentation | Overwrite | None"
"""One write to the messages channel."""

_OVERWRITE: Final = "__overwrite__"


def reduce_messages(state: Sequence[MessageLikeRepresentation] | None, writes: Sequence[Write]) -> list[AnyMessage]:
    """The log after a batch of writes, oldest first; the rules are on this module's page.

    `state` is the log so far: `None`, or a list that may hold raw input (an overwrite's value is stored as it came).
    Raises LangChain's `ValueError` or `NotImplementedError` for what is no message.

        reduce_messages([HumanMessage("hi", id="1")], [[AIMessage("yes?", id="2")], RemoveMessage(id="1")])
        # [AIMessage("yes?", id="2")]
    """
    counts, pending = _since_overwrite(writes)
    log: list[BaseMessage] = []
    if counts and state and is_log(state):
        log = cast("list[BaseMessage]", state)
    elif counts and state:  # raw input or removals: such a state is itself a write, folded from nothing
        pending = [*_messages_of(list(state)), *pending]
    if removed := _removed_up_to(pending):
        log, pending = [], pending[removed:]
    removes = any(isinstance(message, RemoveMessage) for message in pending)
    grown = None if removes else appended(log, pending)
    merged = _merge(log, pending) if grown is None else grown
    return cast("list[AnyMessage]", merged if is_reducing() else list(merged))


def _since_overwrite(writes: Sequence[Write]) -> tuple[bool, list[BaseMessage]]:
    """Whether the state still counts, and the messages written since the last overwrite."""
    last = next((at for at in range(len(writes) - 1, -1, -1) if is_overwrite(writes[at])), None)
    if last is None:
        return True, [message for write in writes for message in _messages_of(write)]
    kept = [overwritten(writes[last]), *writes[last + 1 :]]
    return False, [message for write in kept for message in _messages_of(write)]


def is_overwrite(write: object) -> bool:
    """Whether a write replaces all that was there: an `Overwrite`, or a dict that JSON leaves of one."""
    match write:
        case Overwrite():
            return True
        case dict():
            return (len(write) == 1 and _OVERWRITE in write) or (write.get("type") == _OVERWRITE and "value" in write)
        case _:
            return False


def overwritten(write: object) -> Write:
    """What an overwrite puts in the place of all that was there."""
    if isinstance(write, Overwrite):
        return cast("Write", write.value)
    fields = cast("dict[str, Write]", write)
    return fields[_OVERWRITE] if _OVERWRITE in fields else fields["value"]


def _messages_of(write: object) -> Iterator[BaseMessage]:
    match write:
        case None:
            return
        case list():
            items: Iterable[object] = write
        case tuple() if any(isinstance(item, BaseMessage) for item in write):
            items = write  # a tuple of messages is a list; ("user", "text") is one message
        case _:
            items = (write,)
    for item in items:
        yield _message(item)


def _message(item: object) -> BaseMessage:
    if not isinstance(item, BaseMessage):
        [item] = convert_to_messages([cast("MessageLikeRepresentation", item)])
    return message_chunk_to_message(item) if isinstance(item, BaseMessageChunk) else item


def is_log(state: Sequence[object]) -> bool:
    """Whether a list is what a reducer returns: whole messages, no removals. Looks at the few distinct types."""
    return origin_of(state) is not None or all(
        issubclass(kind, BaseMessage) and not issubclass(kind, BaseMessageChunk | RemoveMessage)
        for kind in set(map(type, state))
    )


def _removed_up_to(pending: Sequence[BaseMessage]) -> int:
    """How many messages the last removal of everything takes, itself included; 0 without one."""
    for at in range(len(pending) - 1, -1, -1):
        if isinstance(pending[at], RemoveMessage) and pending[at].id == REMOVE_ALL_MESSAGES:
            return at + 1
    return 0


def _merge(log: Sequence[BaseMessage], pending: Sequence[BaseMessage]) -> list[BaseMessage]:
    merged: list[BaseMessage | None] = list(log)
    touched = {message.id for message in pending if message.id}
    places: dict[str, list[int]] = {}
    for place, message in enumerate(log):
        if message.id in touched and message.id:
            # A log that another reducer wrote may hold an id twice; a removal must take them all.
            places.setdefault(message.id, []).append(place)
    for message in pending:
        if isinstance(message, RemoveMessage):
            for place in places.pop(message.id or "", ()):
                merged[place] = None
        elif message.id and message.id in places:
            merged[places[message.id][-1]] = message
        else:
            if message.id:
                places[message.id] = [len(merged)]
            merged.append(message)
    return [message for message in merged if message is not None]
