"""How full the window was that an answer was given in, kept with the answer.

Tools that size their results by the free room run after the model's step was saved, perhaps in another process than the
one that measured the window, perhaps in a fork. What they go by must come back with the log, or the same result would
enter it as a stub in one run and whole in another. It stands in the answer's `response_metadata`, which no provider is
sent, no stream shows as an update of its own, and no content hash covers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from langchain.agents.middleware.types import ModelResponse
from langchain_core.messages import AIMessage, BaseMessage

from refold.core.messages import REFOLD_KEY

_WINDOW: Final = "window"


def marked(response: ModelResponse[object], *, used: int, budget: int) -> ModelResponse[object]:
    """A response whose answers say how many tokens of messages their window had, of which budget."""
    return replace(response, result=[_marked(message, [used, budget]) for message in response.result])


def occupancy_of(messages: Sequence[BaseMessage]) -> tuple[int, int] | None:
    """(used, budget) of the window that the newest answer of a log was given in; None where it does not say."""
    newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    mark = newest.response_metadata.get(REFOLD_KEY) if newest is not None else None
    match mark:
        case {"window": [int(used), int(budget)]}:
            return used, budget
        case _:
            return None


def _marked(message: BaseMessage, window: Sequence[int]) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    metadata = {**message.response_metadata, REFOLD_KEY: {_WINDOW: list(window)}}
    return message.model_copy(update={"response_metadata": metadata})
