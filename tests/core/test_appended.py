"""A sequence that shares its beginning with what it grew from: like a tuple, and cheap to grow."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from refold.core.appended import Appended


@given(first=st.lists(st.integers(), max_size=40), parts=st.lists(st.lists(st.integers(), max_size=300), max_size=6))
def test_is_the_sequence_of_its_parts(first: list[int], parts: Sequence[list[int]]) -> None:
    """However it came about; what it grew from stays as it was."""
    grown, plain = Appended(first), list(first)
    for part in parts:
        before, kept = grown, list(grown)
        grown, plain = grown.plus(part), plain + part
        assert list(before) == kept
    assert (len(grown), list(grown), [grown[at] for at in range(len(grown))]) == (len(plain), plain, plain)
    assert [grown[at] for at in range(-len(plain), 0)] == plain
    assert grown == Appended(plain)
    assert hash(grown) == hash(Appended(plain))


@given(parts=st.lists(st.lists(st.integers(), min_size=1, max_size=300), max_size=4), window=st.slices(1_300))
def test_slices_are_those_of_a_list(parts: Sequence[list[int]], window: slice) -> None:
    """Within the beginning, within the rest, and across."""
    grown, plain = Appended[int](), list[int]()
    for part in parts:
        grown, plain = grown.plus(part), plain + part
    assert grown[window] == plain[window]


def test_two_ways_on_are_two() -> None:
    """What grew from the same beginning does not show in each other."""
    begin = Appended(range(600)).plus([1])
    assert (begin.plus([2])[-1], begin.plus([3])[-1], begin[-1]) == (2, 3, 1)


class TestBegins:
    """Whether a list begins with the same messages or equal ones."""

    def test_a_list_that_grew(self) -> None:
        """Also one of the same length."""
        messages = [HumanMessage(str(number), id=str(number)) for number in range(700)]
        for known in (0, 1, 500, 512, 600, 700):
            assert Appended(messages[:known]).begins(messages)
            assert Appended(messages[:500]).plus(messages[500:known]).begins(messages)

    def test_an_equal_message_counts_and_another_does_not(self) -> None:
        """Wherever it stands."""
        messages = [HumanMessage(str(number), id=str(number)) for number in range(20)]
        known = Appended(messages[:10]).plus(messages[10:])
        for place in (0, 9, 10, 19):
            copied = HumanMessage(str(place), id=str(place))
            assert known.begins([*messages[:place], copied, *messages[place + 1 :]])
            edited = HumanMessage("edited", id=str(place))
            assert not known.begins([*messages[:place], edited, *messages[place + 1 :]])

    def test_a_shorter_list(self) -> None:
        """Does not begin with a longer one."""
        messages = [HumanMessage(str(number), id=str(number)) for number in range(4)]
        assert not Appended(messages).begins(messages[:3])
        assert not Appended(messages[:2]).plus(messages[2:]).begins(messages[:3])
        assert not Appended(messages[:2]).plus(messages[2:]).begins(messages[:1])
