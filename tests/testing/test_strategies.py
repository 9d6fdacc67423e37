"""Strategies: generated histories are what their options say, and as odd as real ones."""

import base64
import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.graph.message import add_messages

from refold.core.blocks import blocks_of
from refold.core.messages import calls_of, text_of
from refold.core.repair import repair
from refold.core.rounds import pair
from refold.core.validate import all_violations
from refold.testing.samples import PNG
from refold.testing.strategies import FAULTY, ODDITIES, SOUND, STYLES, Oddity, applied, damages, edits, histories


def ids_of(history: list[BaseMessage]) -> list[str]:
    return [call.id for message in history for call in calls_of(message) if call.id is not None]


def repaired(*kinds: str) -> Callable[[list[BaseMessage]], bool]:
    return lambda history: bool({done.kind for done in repair(history).repairs} & set(kinds))


SIGNS: dict[Oddity, Callable[[list[BaseMessage]], bool]] = {
    "media": lambda h: any(b.kind == "media" for m in h for b in blocks_of(m)),
    "reasoning": lambda h: any(b.kind == "reasoning" for m in h for b in blocks_of(m)),
    "server_tools": lambda h: any(b.kind in ("server_call", "server_result") for m in h for b in blocks_of(m)),
    "scripts": lambda h: any(not text_of(m).isascii() for m in h),
    "long": lambda h: any(len(text_of(m)) > 1_000 for m in h),
    "todos": lambda h: any(c.name == "write_todos" for m in h for c in calls_of(m)),
    "system": lambda h: any(isinstance(m, SystemMessage) for m in h),
    "invalid_calls": lambda h: any(isinstance(m, AIMessage) and m.invalid_tool_calls for m in h),
    "dangling": repaired("answered"),
    "late_results": repaired("moved"),
    "interleaved": repaired("moved"),
    "duplicate_results": repaired("duplicate-dropped"),
    "orphan_results": repaired("orphan-dropped"),
    "human_results": repaired("result-lifted"),
    "missing_call_ids": lambda h: any(c.id is None for m in h for c in calls_of(m)),
    "duplicate_call_ids": lambda h: any(len({c.id for c in calls_of(m)}) < len(calls_of(m)) for m in h),
    "reused_call_ids": lambda h: len(set(ids_of(h))) < len(ids_of(h)),
    "missing_message_ids": lambda h: any(m.id is None for m in h),
    "duplicate_message_ids": lambda h: len({m.id for m in h if m.id}) < sum(m.id is not None for m in h),
    "empty": lambda h: any(
        not calls_of(m) and all(b.kind == "text" and not b.text.strip() for b in blocks_of(m)) for m in h
    ),
}
"""How each oddity shows in a history."""

LOOK = settings(
    max_examples=2_000,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=True,
)


class TestOptions:
    """Each oddity can be had and can be switched off."""

    @pytest.mark.parametrize("kind", sorted(ODDITIES))
    def test_it_occurs_where_it_is_on(self, kind: Oddity) -> None:
        """With all others off, some history shows it."""
        found = find(histories(without=ODDITIES - {kind}, max_turns=2), SIGNS[kind], settings=LOOK)
        assert SIGNS[kind](found)

    @given(st.data())
    def test_it_never_occurs_where_it_is_off(self, data: st.DataObject) -> None:
        """Switched off, with all others that do not bring it about on, no history shows it."""
        kind = data.draw(st.sampled_from(sorted(ODDITIES)))
        related: dict[str, set[Oddity]] = {
            "late_results": {"interleaved"},
            "interleaved": {"late_results"},
            "dangling": {"invalid_calls", "duplicate_call_ids", "reused_call_ids", "missing_call_ids"},
        }
        ids: set[Oddity] = {"duplicate_call_ids", "reused_call_ids", "missing_call_ids", "human_results"}
        results: set[Oddity] = {"dangling", "late_results", "interleaved", "duplicate_results", "orphan_results"}
        off = {kind, *related.get(kind, set())} | (ids | results | {"invalid_calls"} if kind in results else set())
        off |= ids if kind in ids else set()
        assert not SIGNS[kind](data.draw(histories(without=off)))

    @pytest.mark.parametrize("style", STYLES)
    @given(data=st.data())
    def test_every_style_is_valid_without_faults(self, style: str, data: st.DataObject) -> None:
        """`FAULTY` switched off, the history breaks no provider's rule, with every id of a call its own."""
        history = data.draw(histories(without=FAULTY, styles=[style]))  # type: ignore[list-item]
        assert all_violations(history) == {}
        assert pair(history).unanswered() == ()

    def test_the_two_sets_are_all(self) -> None:
        """Each oddity is sound or faulty."""
        assert SOUND | FAULTY == ODDITIES
        assert not SOUND & FAULTY

    @given(histories(min_turns=2, max_turns=2, without=ODDITIES))
    def test_turns(self, history: list[BaseMessage]) -> None:
        """As many human messages as turns; the first message is one."""
        assert sum(isinstance(m, HumanMessage) for m in history) == 2
        assert isinstance(history[0], HumanMessage)


class TestDamages:
    """Results are removed, doubled and moved; nothing else happens."""

    @given(histories(without=FAULTY).flatmap(lambda h: st.tuples(st.just(h), damages(h))))
    def test_other_messages_stay(self, both: tuple[list[BaseMessage], list[BaseMessage]]) -> None:
        """The messages that are no results are the same objects in the same order; no result is new."""
        history, damaged = both
        others = [[m for m in side if not isinstance(m, ToolMessage)] for side in (history, damaged)]
        assert all(a is b for a, b in zip(*others, strict=True))
        known = {id(m) for m in history}
        assert all(id(m) in known for m in damaged)


class TestEdits:
    """What users do to a thread."""

    @given(histories(without={"duplicate_message_ids"}).flatmap(lambda h: st.tuples(st.just(h), edits(h))))
    def test_applied_is_what_the_channel_does(self, both: tuple[list[BaseMessage], list[BaseMessage]]) -> None:
        """LangGraph's `add_messages` gives the same list."""
        history, writes = both
        named = [m if m.id else m.model_copy(update={"id": f"x{n}"}) for n, m in enumerate(history)]
        assert applied(named, writes) == add_messages(list(named), list(writes))  # type: ignore[arg-type]

    @given(histories().flatmap(lambda h: st.tuples(st.just(h), edits(h))))
    def test_writes_name_messages_of_the_history(self, both: tuple[list[BaseMessage], list[BaseMessage]]) -> None:
        """Removals and updates are of known ids; other writes are new human messages."""
        history, writes = both
        known = {m.id for m in history}
        for write in writes:
            assert write.id is not None
            assert write.id in known or (isinstance(write, HumanMessage) and not isinstance(write, RemoveMessage))


class TestSamples:
    """What histories are made of is real."""

    def test_the_picture_is_a_picture(self) -> None:
        """The PNG has its signature, sound checksums, and as many pixels as its header says."""
        data = base64.b64decode(PNG)
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        chunks: dict[bytes, bytes] = {}
        at = 8
        while at < len(data):
            (size,) = struct.unpack_from(">I", data, at)
            kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
            assert struct.unpack_from(">I", data, at + 8 + size) == (zlib.crc32(kind + body),)
            chunks[kind] = body
            at += 12 + size
        width, height = struct.unpack_from(">II", chunks[b"IHDR"])
        assert (width, height) == (2, 2)
        assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + 3 * width)
