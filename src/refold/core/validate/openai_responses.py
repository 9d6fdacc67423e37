"""OpenAI Responses, as langchain-openai sends it.

Sources: the conversion in langchain-openai 1.7 (`_construct_responses_api_input`) and the API's refusals as users
report them: a reasoning item "was provided without its required following item", a message or function call "was
provided without its required 'reasoning' item" (fault 62), "duplicate item found with id". langchain-openai looks for
a call id in all items so far, so an id that comes again in a later round loses its call; and it merges texts with the
same item id. System messages may stand anywhere but between a call and its results.
"""

from collections.abc import Iterator, Sequence

from refold.core.blocks import Block
from refold.core.names import Seen
from refold.core.validate.common import check_void
from refold.core.validate.pairing import check_pairing
from refold.core.validate.shape import Shape, Violation, is_reasoning_item, item_id, lacks_reasoning, trailing_reasoning

_SENT = frozenset({"function_call", "custom_tool_call", "tool_call"})
_RESULTS = frozenset({"apply_patch_call_output", "shell_call_output", "local_shell_call_output"})


def check(shapes: Sequence[Shape]) -> Iterator[Violation]:
    """The violations, not in order."""
    yield from check_pairing(shapes, sent=_SENT, results=_RESULTS, unique=True)
    yield from check_void(shapes)
    seen = Seen()
    for index, shape in enumerate(shapes):
        if shape.role != "ai" or not shape.blocks:
            continue
        if any(is_reasoning_item(shape.blocks[at]) for at in trailing_reasoning(shape)):
            detail = "a reasoning item is not followed by the item that it led to"
            yield Violation(rule="reasoning-without-item", index=index, detail=detail)
        if lacks_reasoning(shape):
            detail = "item ids are kept, but the reasoning item that they belong to is gone"
            yield Violation(rule="item-without-reasoning", index=index, detail=detail)
        for repeated in repeated_items(shape.blocks, seen):
            detail = f"the item id {repeated!r} occurs twice"
            yield Violation(rule="duplicate-item-id", index=index, detail=detail)


def repeated_items(blocks: Sequence[Block], seen: Seen) -> tuple[str, ...]:
    """The item ids of a message that occurred before; adds its own to `seen`.

    Texts of one message item share its id, and so do the parts of one reasoning item when they stand together.
    """
    repeated: list[str] = []
    here: set[str] = set()
    before: str | None = None
    for block in blocks:
        identity = item_id(block)
        if identity is not None and identity != before:
            parts = block.kind == "text" and identity in here
            if not parts and (identity in seen or identity in here):
                repeated.append(identity)
            here.add(identity)
        before = identity
    seen.add(here)
    return tuple(repeated)
