"""Small rules that two or three providers share."""

from collections.abc import Iterator, Sequence

from refold.core.validate.shape import Shape, Violation, is_blank, is_void


def check_void(shapes: Sequence[Shape]) -> Iterator[Violation]:
    """An AI message says or asks something. (OpenAI takes an empty one in places, servers of its dialect do not.)"""
    for index, shape in enumerate(shapes):
        if is_void(shape.message, shape.blocks, shape.calls):
            detail = "an AI message without text and calls"
            yield Violation(rule="empty-message", index=index, detail=detail)


def check_blank(shapes: Sequence[Shape]) -> Iterator[Violation]:
    """A human message shows something."""
    for index, shape in enumerate(shapes):
        if shape.role == "human" and is_blank(shape.message, shape.blocks):
            yield Violation(rule="empty-message", index=index, detail="a human message without content")


def check_first(shapes: Sequence[Shape]) -> Iterator[Violation]:
    """The first message that is no system message is a human one, and there is one."""
    for index, shape in enumerate(shapes):
        if shape.role == "system":
            continue
        if shape.role != "human":
            detail = f"the conversation must start with a human message, not with {shape.role!r}"
            yield Violation(rule="first-message", index=index, detail=detail)
        return
    yield Violation(rule="no-messages", index=0, detail="there is no message besides system messages")


def check_prefill(shapes: Sequence[Shape]) -> Iterator[Violation]:
    """The last message is not the model's own: newer models refuse to go on from the beginning of an answer."""
    last = next((i for i in range(len(shapes) - 1, -1, -1) if shapes[i].role != "system"), None)
    if last is not None and shapes[last].role == "ai" and not shapes[last].calls:
        detail = "the conversation ends with an AI message"
        yield Violation(rule="prefill", index=last, detail=detail)
