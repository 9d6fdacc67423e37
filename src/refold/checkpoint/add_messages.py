"""LangGraph's `add_messages` at the cost of what is new.

The rules are LangGraph's, and so is the code for all but the common case: messages with ids that the log does not have.
For those the result is a `MessageLog`, which the next step and refold's savers need not look through.
"""

import uuid
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast

from langchain_core.messages import AnyMessage, BaseMessage, MessageLikeRepresentation
from langgraph.graph.message import add_messages as add_messages_of_langgraph

from refold.checkpoint.message_log import MessageLog, appended, is_reducing, origin_of
from refold.checkpoint.reducer import is_log

Messages: TypeAlias = list[MessageLikeRepresentation] | MessageLikeRepresentation


def add_messages(
    left: Messages | None = None, right: Messages | None = None, *, format: Literal["langchain-openai"] | None = None
) -> list[AnyMessage]:
    """The reducer of a messages channel, in the place of LangGraph's of the same name:

        messages: Annotated[list[AnyMessage], add_messages]

    Results, ids and errors are LangGraph's. A message is a value once it is in the log: to change one, return it, or
    another with its id. (What is edited in place and not returned is stored by refold's savers while it is one of the
    newest 256; an id that is edited in place may not be seen.) Called by anything but a channel, or with a `format`, it
    is LangGraph's function.
    """
    if left is None or right is None or format is not None or not is_reducing():
        options = {} if format is None else {"format": format}
        return cast("list[AnyMessage]", cast("Any", add_messages_of_langgraph)(left, right, **options))
    added = right if isinstance(right, list) else [right]
    if isinstance(left, list) and _is_whole(left) and _may_be_new(added):
        messages = cast("Sequence[BaseMessage]", added)
        for message in messages:
            if message.id is None:
                message.id = str(uuid.uuid4())
        grown = appended(cast("list[BaseMessage]", left), messages, by_channel=True)
        if grown is not None:
            return cast("list[AnyMessage]", grown)
    merged = cast("Any", add_messages_of_langgraph)(left, right)
    return cast("list[AnyMessage]", MessageLog.begun(merged))


def _is_whole(log: Sequence[object]) -> bool:
    """Whether nothing of a log needs LangGraph's look: a message without an id gets one there."""
    if origin_of(log) is not None:
        return True
    return is_log(log) and all(cast("BaseMessage", message).id is not None for message in log)


def _may_be_new(messages: Sequence[object]) -> bool:
    """Whether they are whole messages, and none names another by an empty id."""
    return is_log(messages) and all(cast("BaseMessage", message).id != "" for message in messages)
