"""A list of messages that knows what it grew from."""

import copy
import gc
import pickle
from collections.abc import Callable, Sequence
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage

from refold.checkpoint.message_log import MessageLog, appended


def said(*names: str) -> list[BaseMessage]:
    return [HumanMessage(name, id=name) for name in names]


def log_of(*names: str) -> MessageLog:
    log = appended([], said(*names))
    assert log is not None
    return log


def grown(log: Sequence[BaseMessage], *names: str) -> MessageLog:
    result = appended(log, said(*names))
    assert result is not None
    return result


class TestAppending:
    def test_keeps_the_messages_and_adds_the_new_ones(self) -> None:
        """The result is a new list of the same objects and the new ones; the log is as it was."""
        log = log_of("a", "b")
        more = grown(log, "c")
        assert [message.id for message in more] == ["a", "b", "c"]
        assert [message.id for message in log] == ["a", "b"]
        assert more[0] is log[0]

    @pytest.mark.parametrize("names", [("a",), ("c", "c"), ("c", "b")])
    def test_refuses_an_id_that_is_known(self, names: tuple[str, ...]) -> None:
        """An id of the log, or the same id twice, is no appending."""
        assert appended(log_of("a", "b"), said(*names)) is None

    def test_messages_without_an_id_are_new(self) -> None:
        """No id equals no other."""
        log = appended(log_of("a"), [HumanMessage("x"), HumanMessage("x")])
        assert log is not None
        assert len(log) == 3

    def test_an_id_of_another_way_on_is_not_known(self) -> None:
        """What another log appended to the same beginning is not in this one."""
        log = log_of("a")
        grown(log, "b")
        assert [message.id for message in grown(log, "c")] == ["a", "c"]
        assert appended(grown(log, "c"), said("b")) is not None


class TestNothingIsShared:
    def test_the_same_twice_is_two_lists(self) -> None:
        """What an edge was given before a step ended is not the list that the step ends with: both may be edited."""
        log, new = log_of("a"), said("b")
        first = appended(log, new)
        assert first is not None
        second = appended(log, new)
        first.append(HumanMessage("mine", id="mine"))
        assert [message.id for message in second or ()] == ["a", "b"]

    def test_an_early_log_keeps_no_later_one_alive(self) -> None:
        """Who keeps the first list of a long run keeps messages, and not a list of each step."""
        first = log_of("a")
        grown(grown(first, "b"), "c")
        assert not any(isinstance(held, MessageLog) for held in gc.get_referents(first))


class TestChannels:
    """What LangGraph makes before a conditional edge is what it makes again when the step ends."""

    @staticmethod
    def step(log: MessageLog, new: list[BaseMessage]) -> MessageLog:
        made = appended(log, new, by_channel=True)
        assert made is not None
        return made

    def test_the_second_time_costs_no_copy(self) -> None:
        """Where the first one was let go; the third time is another step's."""
        log, new = log_of("a"), said("b")
        first = id(self.step(log, new))
        second = self.step(log, new)
        assert id(second) == first
        assert self.step(log, new) is not second
        assert [message.id for message in second] == ["a", "b"]

    @pytest.mark.parametrize("holder", [lambda made: made, lambda made: {"messages": made}, iter, lambda made: [made]])
    def test_one_that_somebody_has_is_not_given_again(self, holder: Callable[[MessageLog], object]) -> None:
        """As it is, in a state, in a `Send`, as an iterator."""
        log, new = log_of("a"), said("b")
        held = holder(self.step(log, new))
        second = self.step(log, new)
        assert all(second is not other for other in gc.get_referents(held))
        assert second is not held

    def test_one_that_was_edited_is_not_given_again(self) -> None:
        """An edge that edits the list that it was given edits its own."""
        log, new = log_of("a"), said("b")
        self.step(log, new).append(HumanMessage("mine", id="mine"))
        assert [message.id for message in self.step(log, new)] == ["a", "b"]

    def test_other_messages_are_another_log(self) -> None:
        """Of two ways on, each gets its own; equal messages that are other objects are another way."""
        log = log_of("a")
        first = self.step(log, said("b"))[1]
        assert self.step(log, said("b"))[1] is not first

    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_an_early_log_keeps_no_late_ones_alive(self, times: int) -> None:
        """However often a channel asks: no edge, one, two."""
        first = log = log_of("a")
        alive = []
        for name in "bcdefgh":
            new = said(name)
            for _ in range(times):
                made = self.step(log, new)
            log = made
            alive.append(ref(log))
            del made
        del log
        gc.disable()
        try:
            assert sum(log() is not None for log in alive) <= 1
        finally:
            gc.enable()
        assert [message.id for message in first] == ["a"]


class TestOrigin:
    def test_a_log_grew_from_what_it_was(self) -> None:
        """A log, and each that it grew from, is a beginning of it."""
        first = log_of("a")
        second = grown(first, "b")
        third = grown(second, "c", "d")
        assert first.origin is not None
        assert second.origin is not None
        assert third.grew_from(first.origin)
        assert third.grew_from(second.origin)
        assert not first.grew_from(second.origin)

    def test_the_newer_of_two_ways_on_keeps_the_growth(self) -> None:
        """Of two logs from one beginning the older is a plain list from then on."""
        log = log_of("a")
        origin = log.origin
        assert origin is not None
        older = grown(log, "b")
        newer = grown(log, "c")
        assert older.origin is None
        assert not older.grew_from(origin)
        assert newer.grew_from(origin)

    def test_the_same_messages_again_are_the_same_way_on(self) -> None:
        """LangGraph applies a write once for the edges of a node and once for good: one growth serves both."""
        log = log_of("a")
        new = said("b")
        first, second = appended(log, new), appended(log, new)
        assert first is not None
        assert second is not None
        assert first.origin == second.origin

    def test_a_list_in_another_place_did_not_grow_from_it(self) -> None:
        """Equal messages are not the same ones."""
        origin = log_of("a").origin
        assert origin is not None
        assert not grown(log_of("a"), "b").grew_from(origin)

    @pytest.mark.parametrize(
        "edit",
        [
            lambda log: log.append(HumanMessage("x")),
            lambda log: log.extend(said("x")),
            lambda log: log.insert(0, HumanMessage("x")),
            lambda log: log.pop(),
            lambda log: log.remove(log[0]),
            lambda log: log.clear(),
            lambda log: log.sort(key=lambda message: message.id),
            lambda log: log.reverse(),
            lambda log: log.__setitem__(0, HumanMessage("x")),
            lambda log: log.__delitem__(0),
            lambda log: log.__iadd__(said("x")),
            lambda log: log.__imul__(2),
        ],
    )
    def test_a_log_that_is_edited_as_a_list_leaves_its_growth(self, edit: Callable[[MessageLog], object]) -> None:
        """Whatever method edits it, nothing is claimed of it any more; others that grew from it are as they were."""
        log = log_of("a", "b")
        more = grown(log, "c")
        origin = log.origin
        assert origin is not None
        edit(log)
        assert log.origin is None
        assert more.grew_from(origin)

    def test_copies(self) -> None:
        """A shallow copy keeps the growth; a deep one and a pickle are plain lists."""
        log = log_of("a")
        assert copy.copy(log).origin == log.origin
        assert type(copy.deepcopy(log)) is list
        assert type(pickle.loads(pickle.dumps(log))) is list
        assert copy.deepcopy(log) == log


class TestAnyTree:
    @given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.sampled_from("abcdefgh"), max_size=3)), max_size=25))
    def test_says_of_a_log_only_what_is_true(self, steps: list[tuple[int, list[str]]]) -> None:
        """However logs branch: each has its own messages, a refusal means a known id, and where one is said to have
        grown from another it begins with it."""
        logs: list[tuple[MessageLog, list[BaseMessage]]] = [(log_of("root"), [])]
        logs = [(logs[0][0], list(logs[0][0]))]
        origins = [(logs[0][0].origin, logs[0][1])]
        pool = {name: HumanMessage(name, id=name) for name in "abcdefgh"}
        for pick, names in steps:
            log, messages = logs[pick % len(logs)]
            added = [pool[name] for name in names]
            known = {message.id for message in messages}
            result = appended(log, added)
            clash = len(set(names)) < len(names) or not known.isdisjoint(names)
            assert (result is None) == clash
            if result is not None:
                logs.append((result, [*messages, *added]))
                origins.append((result.origin, [*messages, *added]))
        for log, messages in logs:
            assert list(log) == messages
            for origin, then in origins:
                if origin is not None and log.grew_from(origin):
                    assert all(ours is theirs for ours, theirs in zip(log, then, strict=False))
                    assert len(log) >= len(then)
