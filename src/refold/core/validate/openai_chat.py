"""OpenAI Chat Completions, as langchain-openai sends it, and as the servers of the same dialect take it.

Sources: the conversion in langchain-openai 1.7 (`_convert_message_to_dict`: `tool_calls` and `invalid_tool_calls` are
sent, call blocks of the content are not) and OpenAI's API reference ("an assistant message with tool_calls must be
followed by tool messages responding to each tool_call_id"). OpenAI itself takes arguments that are no JSON; servers
that render them through a chat template (vLLM among them) do not, so the rule is here too. A call id may come again
in a later round. System messages may stand anywhere but between a call and its results.
"""

from collections.abc import Iterator, Sequence

from refold.core.validate.common import check_void
from refold.core.validate.pairing import check_pairing
from refold.core.validate.shape import Shape, Violation


def check(shapes: Sequence[Shape]) -> Iterator[Violation]:
    """The violations, not in order."""
    yield from check_pairing(shapes, sent=frozenset(), results=frozenset(), unique=False)
    yield from check_void(shapes)
