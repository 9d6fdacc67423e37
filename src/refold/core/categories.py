"""What the messages of a window are: the categories by which reports add up tokens."""

from typing import Final, Literal, TypeAlias

from langchain_core.messages import BaseMessage

from refold.core.messages import REFOLD_KEY, is_record, role_of

Category: TypeAlias = Literal["system", "tools", "human", "ai", "tool", "summaries", "state"]
CATEGORIES: Final[tuple[Category, ...]] = ("system", "tools", "human", "ai", "tool", "summaries", "state")


def category_of(message: BaseMessage) -> Category:
    """What a message of a window is."""
    if is_record(message):
        return "state" if message.additional_kwargs[REFOLD_KEY].get("kind") == "state" else "summaries"
    match role_of(message):
        case "ai":
            return "ai"
        case "tool":
            return "tool"
        case "system":
            return "system"
        case _:
            return "human"
