"""Anthropic Messages, as langchain-anthropic sends it.

Sources: the conversion in langchain-anthropic 1.7 (`_merge_messages` puts the results and human messages of one run
into one user turn; `_format_messages` drops blank texts and places system messages) and Anthropic's API
documentation: `tool_result` blocks come first in the user turn after their `tool_use`; tool use ids are unique in a
request; texts hold more than white space; thinking comes back whole and signed, before the calls that it led to, and
never last.

System messages: those at the beginning join the system prompt. Later ones are sent in place by models that take them,
where they follow a human or tool message and come last or before an AI message; anywhere else langchain-anthropic
raises as soon as there is a system prompt too, so it is a violation (`system-position`).

Not to be seen from outside: whether a signature matches its text (fault 66). Never change a signed block; drop it
whole.
"""

from collections.abc import Iterator, Sequence

from refold.core.blocks import Block
from refold.core.messages import awaits_server_result
from refold.core.validate.common import check_blank, check_first, check_void
from refold.core.validate.pairing import check_pairing
from refold.core.validate.shape import (
    Shape,
    Violation,
    is_signed_thinking,
    is_unsigned_thinking,
    is_void,
    made_by,
    trailing_reasoning,
)


def check(shapes: Sequence[Shape], *, continues: bool) -> Iterator[Violation]:
    """The violations, not in order."""
    yield from check_pairing(shapes, sent=frozenset({"tool_use"}), results=frozenset({"tool_result"}), unique=True)
    yield from check_void(shapes)
    yield from check_blank(shapes)
    if not continues:
        yield from check_first(shapes)
    yield from _check_system(shapes, continues=continues)
    yield from _check_server_tools(shapes)
    for index, shape in enumerate(shapes):
        if shape.role == "ai" and shape.blocks:
            yield from _check_thinking(index, shape)


def _check_system(shapes: Sequence[Shape], *, continues: bool) -> Iterator[Violation]:
    leading, before = not continues, "human"
    for index, shape in enumerate(shapes):
        if shape.role != "system":
            leading, before = False, shape.role
            continue
        after = next((later.role for later in shapes[index + 1 : index + 2]), None)
        if not leading and (before not in ("human", "tool") or after not in (None, "ai", "system")):
            detail = "a later system message must follow a human or tool message and come last or before an AI message"
            yield Violation(rule="system-position", index=index, detail=detail)


def _check_server_tools(shapes: Sequence[Shape]) -> Iterator[Violation]:
    for index, block in loose_server_blocks(shapes):
        if block.kind == "server_call":
            detail = f"server tool use {block.call_id!r} has no result in its turn"
            yield Violation(rule="unanswered-server-tool", index=index, detail=detail)
        else:
            detail = f"a {block.type!r} block without its server tool use {block.call_id!r}"
            yield Violation(rule="orphan-server-result", index=index, detail=detail)


def loose_server_blocks(shapes: Sequence[Shape]) -> Iterator[tuple[int, Block]]:
    """Server tool uses without their result, and results without their use (fault 64), with the message's index.

    A result follows its use before the next human message; the last turn may still be running.
    """
    running: dict[str, tuple[int, Block]] = {}
    for index, shape in enumerate(shapes):
        if shape.role == "human" and not shape.answers:
            yield from running.values()
            running = {}
        if shape.role != "ai":
            continue
        for block in shape.blocks:
            if block.call_id is None:
                continue
            if awaits_server_result(shape.message, block):
                if block.call_id in running:
                    yield running[block.call_id]
                running[block.call_id] = (index, block)
            elif _is_server_result(block, shape) and running.pop(block.call_id, None) is None:
                yield index, block


def _is_server_result(block: Block, shape: Shape) -> bool:
    standard = block.type == "server_tool_result"
    return block.kind == "server_result" and (
        made_by(shape.message) == "anthropic" if standard else block.type.endswith("_tool_result")
    )


def _check_thinking(index: int, shape: Shape) -> Iterator[Violation]:
    for block in shape.blocks:
        if is_unsigned_thinking(shape.message, block):
            detail = "a thinking block without a signature"
            yield Violation(rule="unsigned-thinking", index=index, detail=detail)
    thoughts = [block.index for block in shape.blocks if is_signed_thinking(block)]
    if not thoughts or is_void(shape.message, shape.blocks, shape.calls):
        return
    called = [call.block for call in shape.calls if call.block is not None]
    if called and min(called) < thoughts[0]:
        detail = "a call comes before the thinking that it belongs to"
        yield Violation(rule="thinking-after-call", index=index, detail=detail)
    if any(is_signed_thinking(shape.blocks[at]) for at in trailing_reasoning(shape)):
        detail = "a message must not end with thinking"
        yield Violation(rule="thinking-last", index=index, detail=detail)
