"""Rules about calls and results that all four providers share."""

from collections import Counter
from collections.abc import Iterator, Sequence

from refold.core.messages import Call
from refold.core.validate.shape import TOOL_NAME, Shape, Violation


def check_pairing(
    shapes: Sequence[Shape], *, sent: frozenset[str], results: frozenset[str], unique: bool
) -> Iterator[Violation]:
    """Every call is well-formed and answered exactly once, directly after its message; every result answers a call.

    `sent` names the content blocks that the provider's LangChain package sends as calls even where `tool_calls` lacks
    them, `results` the result blocks that it sends from a message that is no `ToolMessage`. `unique` says that a call
    id may occur once in the whole request.
    """
    used: set[str] = set()
    owner, open_calls, done = -1, Counter[str](), Counter[str]()
    for index, shape in enumerate(shapes):
        for call_id in shape.answers:
            if open_calls[call_id] > 0:
                open_calls[call_id] -= 1
                done[call_id] += 1
            elif done[call_id]:
                yield Violation(rule="duplicate-result", index=index, detail=f"call {call_id!r} is answered already")
            else:
                yield Violation(rule="orphan-result", index=index, detail=_orphan(call_id, known=call_id in used))
        if shape.role == "tool":
            continue
        yield from _foreign_results(index, shape, results)
        yield from _unanswered(owner, open_calls)
        owner, open_calls, done = index, Counter(call.id or "" for call in shape.calls), Counter()
        yield from _ids(index, shape.calls, used if unique else set())
        used.update(call.id for call in shape.calls if call.id is not None)
        for call in shape.calls:
            yield from _form(index, call, shape, sent)
    yield from _unanswered(owner, open_calls)


def _orphan(call_id: str, *, known: bool) -> str:
    if known:
        return f"the call {call_id!r} is further back: its result must follow it directly"
    return f"no call {call_id!r} comes before this result"


def _unanswered(owner: int, open_calls: Counter[str]) -> Iterator[Violation]:
    for call_id, count in open_calls.items():
        if count > 0:
            detail = f"call {call_id!r} has no result directly after its message"
            yield Violation(rule="unanswered-call", index=owner, detail=detail)


def _foreign_results(index: int, shape: Shape, results: frozenset[str]) -> Iterator[Violation]:
    if not shape.answers:
        return
    for block in shape.blocks:
        if block.kind == "answer" and block.type not in results:
            detail = f"a {block.type!r} block outside a ToolMessage is not sent as a result"
            yield Violation(rule="result-spelling", index=index, detail=detail)


def _ids(index: int, calls: Sequence[Call], used: set[str]) -> Iterator[Violation]:
    here: set[str] = set()
    for call in calls:
        if call.id is None:
            detail = f"a call of {call.name!r} has no id"
            yield Violation(rule="call-without-id", index=index, detail=detail)
        elif call.id in here:
            detail = f"two calls of one message have the id {call.id!r}"
            yield Violation(rule="duplicate-call-id", index=index, detail=detail)
        elif call.id in used:
            detail = f"an earlier message has a call with the id {call.id!r} too"
            yield Violation(rule="reused-call-id", index=index, detail=detail)
        if call.id is not None:
            here.add(call.id)


def _form(index: int, call: Call, shape: Shape, sent: frozenset[str]) -> Iterator[Violation]:
    if not TOOL_NAME.fullmatch(call.name):
        detail = f"call {call.id!r} names the tool {call.name[:80]!r}"
        yield Violation(rule="call-name", index=index, detail=detail)
    if not call.valid:
        detail = f"the arguments of call {call.id!r} are no JSON object"
        yield Violation(rule="call-arguments", index=index, detail=detail)
    if not call.lifted and not call.native:
        kind = next((block.type for block in shape.blocks if block.index == call.block), "")
        if kind not in sent:
            detail = f"call {call.id!r} is only in the content, as {kind!r}: it would not be sent, its result would"
            yield Violation(rule="unlifted-call", index=index, detail=detail)
