"""Hypothesis strategies: agent histories as they really look, and what users do to them between calls.

    @given(histories(without={"media"}))
    def test_windows_are_valid(history): ...

A history is a list of LangChain messages: turns of a human message, rounds of tool calls with their results, and an
answer, in the spelling of one provider. All the ways in which real logs are odd are switched on by default; `FAULTY`
names those that break a provider's rules, for tests that want them off. Needs Hypothesis.
"""

from collections.abc import Collection, Sequence
from typing import Final, Literal, TypeAlias, get_args

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from refold.testing.building import Builder, Style

Oddity: TypeAlias = Literal[
    "media",
    "reasoning",
    "server_tools",
    "scripts",
    "long",
    "todos",
    "system",
    "invalid_calls",
    "dangling",
    "late_results",
    "interleaved",
    "duplicate_results",
    "orphan_results",
    "human_results",
    "missing_call_ids",
    "duplicate_call_ids",
    "reused_call_ids",
    "missing_message_ids",
    "duplicate_message_ids",
    "empty",
]
"""What a history may contain besides plain turns: the first seven are ordinary, most others are faults of real logs."""

ODDITIES: Final[frozenset[Oddity]] = frozenset(get_args(Oddity))
SOUND: Final[frozenset[Oddity]] = frozenset(
    {"media", "reasoning", "server_tools", "scripts", "long", "todos", "system", "missing_message_ids"}
)
"""The oddities that leave a history valid for the provider that made it."""

FAULTY: Final[frozenset[Oddity]] = ODDITIES - SOUND

STYLES: Final[tuple[Style, ...]] = get_args(Style)


def histories(
    *,
    without: Collection[Oddity] = (),
    styles: Collection[Style] = STYLES,
    min_turns: int = 1,
    max_turns: int = 3,
) -> st.SearchStrategy[list[BaseMessage]]:
    """Random agent histories. `without` switches oddities off; `styles` are the spellings to draw from.

    `histories(without=FAULTY)` are valid as they are. Message ids are `m0`, `m1`, ... where there are any; call ids are
    `call_0`, ...; both are new in each history, not across histories.
    """
    kinds = ODDITIES - frozenset(without)
    return _histories(kinds=kinds, styles=tuple(styles), turns=(min_turns, max_turns))


@st.composite
def _histories(
    draw: st.DrawFn, *, kinds: frozenset[Oddity], styles: tuple[Style, ...], turns: tuple[int, int]
) -> list[BaseMessage]:
    # Half of the oddities at a time, so that many histories show one of them alone.
    chosen = int.from_bytes(draw(st.binary(min_size=3, max_size=3)), "big")
    active = frozenset(kind for bit, kind in enumerate(get_args(Oddity)) if kind in kinds and chosen >> bit & 1)
    builder = Builder(draw=draw, kinds=active, style=draw(st.sampled_from(styles)))
    messages: list[BaseMessage] = []
    if builder.some("system", 1, 4):
        messages.append(SystemMessage(builder.text(), id=builder.message_id()))
    count = draw(st.integers(*turns))
    for number in range(count):
        messages += builder.turn(last=number == count - 1)
    messages = _disturbed(builder, messages)
    if builder.some("duplicate_message_ids", 1, 6) and len(messages) > 1:
        donor, taker = builder.at(messages), builder.at(messages)
        messages[taker] = messages[taker].model_copy(update={"id": messages[donor].id})
    return messages


def _disturbed(builder: Builder, messages: list[BaseMessage]) -> list[BaseMessage]:
    """Results lost, late, doubled or out of nowhere."""
    out: list[BaseMessage] = []
    late: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if builder.some("dangling", 1, 6):
                continue
            if builder.some("late_results", 1, 8):
                late.append(message)
                continue
            if builder.some("duplicate_results", 1, 10):
                out.append(message.model_copy(update={"id": builder.message_id()}))
        out.append(message)
        if late and builder.some("late_results", 1, 2):
            out.append(late.pop())
    out += late
    if builder.some("orphan_results", 1, 6):
        out.insert(builder.at(out), ToolMessage("left over", tool_call_id="call_gone", id=builder.message_id()))
    return out


def damages(history: Sequence[BaseMessage]) -> st.SearchStrategy[list[BaseMessage]]:
    """The history with any of its results removed, doubled or put elsewhere; other messages stay as they are."""
    results = [index for index, message in enumerate(history) if isinstance(message, ToolMessage)]
    fates = st.lists(
        st.tuples(st.sampled_from(["keep", "keep", "remove", "double", "move"]), st.integers(0, len(history))),
        min_size=len(results),
        max_size=len(results),
    )
    return fates.map(lambda drawn: _damaged(history, dict(zip(results, drawn, strict=True))))


def _damaged(history: Sequence[BaseMessage], fates: dict[int, tuple[str, int]]) -> list[BaseMessage]:
    out: list[BaseMessage] = []
    astray: list[tuple[int, BaseMessage]] = []
    for index, message in enumerate(history):
        fate, place = fates.get(index, ("keep", 0))
        if fate in ("double", "move"):
            astray.append((place, message))
        if fate not in ("remove", "move"):
            out.append(message)
    for place, message in astray:
        out.insert(min(place, len(out)), message)
    return out


def edits(history: Sequence[BaseMessage], *, max_size: int = 3) -> st.SearchStrategy[list[BaseMessage]]:
    """What a user does to a thread between two calls, as a write to LangGraph's `messages` channel.

    `RemoveMessage`s, messages with an id of the history and other content, and new human messages. Messages without an
    id are not touched. `applied` does to a list what the channel does.
    """
    known = {message.id: message for message in history if message.id is not None}
    appended = st.integers(0, 10**6).map(lambda n: HumanMessage(f"and another thing, number {n}", id=f"edit_{n}"))
    if not known:
        return st.lists(appended, max_size=max_size)
    chosen = st.sampled_from(sorted(known))
    removed = chosen.map(lambda message_id: RemoveMessage(id=message_id))
    edited = chosen.map(lambda message_id: _reworded(known[message_id]))
    one: st.SearchStrategy[BaseMessage] = st.one_of(removed, edited, appended)
    return st.lists(one, max_size=max_size, unique_by=lambda write: write.id)


def applied(history: Sequence[BaseMessage], writes: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The history after a write: updates by id in place, removals, the rest appended."""
    out = list(history)
    for write in writes:
        places = [index for index, message in enumerate(out) if write.id is not None and message.id == write.id]
        if isinstance(write, RemoveMessage):
            out = [message for message in out if message.id != write.id]
        elif places:
            out[places[-1]] = write
        else:
            out.append(write)
    return out


def _reworded(message: BaseMessage) -> BaseMessage:
    """Another text, with the calls of an AI message kept."""
    if isinstance(message, AIMessage) and not isinstance(message.content, str):
        return message.model_copy(update={"content": [*message.content, {"type": "text", "text": "(edited)"}]})
    return message.model_copy(update={"content": "(edited)"})
