"""Gemini, as langchain-google-genai sends it.

Sources: the conversion in langchain-google-genai 4.4 (`_parse_chat_history`: `tool_calls` are sent, call blocks of
the content are not; each AI message takes the *first* result with its call's id in the whole list, so a reused id
shows the wrong result; system messages join the system instruction wherever they stand) and the API's refusals:
"function call turn comes immediately after a user turn or after a function response turn", "the number of function
response parts is equal to the number of function call parts", empty text parameters, a call that "is missing a
thought_signature".

Gemini 3 signs the first call of each step of a turn. langchain-google-genai puts a bypass where a signature is
missing, so what is checked is only that a turn whose calls are signed has lost none (fault 67).
"""

from collections.abc import Iterator, Sequence

from refold.core.validate.common import check_blank, check_first, check_void
from refold.core.validate.pairing import check_pairing
from refold.core.validate.shape import Shape, Violation, thought_signed


def check(shapes: Sequence[Shape], *, continues: bool) -> Iterator[Violation]:
    """The violations, not in order."""
    yield from check_pairing(shapes, sent=frozenset(), results=frozenset(), unique=True)
    yield from check_void(shapes)
    yield from check_blank(shapes)
    if not continues:
        yield from check_first(shapes)
    yield from _check_turns(shapes)
    yield from _check_signatures(shapes)
    for index, shape in enumerate(shapes):
        blanks = [block for block in shape.blocks if block.kind == "text" and not block.text]
        if shape.role == "human" and blanks and len(blanks) < len(shape.blocks):
            yield Violation(rule="empty-text", index=index, detail="an empty text block in a human message")


def _check_turns(shapes: Sequence[Shape]) -> Iterator[Violation]:
    before: Shape | None = None
    for index, shape in enumerate(shapes):
        if shape.role == "system":
            continue
        if shape.role == "ai" and shape.calls and before is not None and before.role == "ai" and not before.calls:
            detail = "a call must follow a human message or a result, not another AI message"
            yield Violation(rule="call-after-model-turn", index=index, detail=detail)
        before = shape


def _check_signatures(shapes: Sequence[Shape]) -> Iterator[Violation]:
    signed, unsigned = False, list[int]()
    for index, shape in enumerate((*shapes, None)):
        if shape is None or (shape.role == "human" and not shape.answers):
            if signed:
                for lost in unsigned:
                    detail = "a call without thought signature, in a turn whose other calls have theirs"
                    yield Violation(rule="missing-thought-signature", index=lost, detail=detail)
            signed, unsigned = False, []
        elif shape.role == "ai" and shape.calls:
            if thought_signed(shape):
                signed = True
            else:
                unsigned.append(index)
