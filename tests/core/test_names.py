"""Names: sets that grow cheaply and stay as they were."""

from hypothesis import given
from hypothesis import strategies as st

from refold.core.names import NO_NAMES, Seen

batches = st.lists(st.lists(st.text("abc", max_size=3), max_size=8), max_size=12)


class TestNames:
    """A set like any other, but shared."""

    @given(batches)
    def test_it_is_the_set_of_what_was_added(self, added: list[list[str]]) -> None:
        """Members and size are those of a plain set, after every step, and earlier sets stay as they were."""
        names, plain = NO_NAMES, set[str]()
        earlier = []
        for batch in added:
            earlier.append((names, len(plain)))
            names = names.plus(batch)
            plain.update(batch)
            assert len(names) == len(plain)
            assert all(name in names for name in plain)
            assert "absent" not in names
        assert [len(old) for old, _ in earlier] == [size for _, size in earlier]

    def test_few_layers(self) -> None:
        """A thousand single additions leave at most log2 of a thousand layers to look through."""
        names = NO_NAMES
        for number in range(1_000):
            names = names.plus([str(number)])
        assert len(names) == 1_000
        assert len(names._layers) <= 10

    def test_nothing_new_is_the_same_set(self) -> None:
        """Adding known names copies nothing."""
        names = NO_NAMES.plus(["a", "b"])
        assert names.plus(["b", "a"]) is names

    def test_seen_adds_to_what_was_before(self) -> None:
        """A pass over messages sees both, and leaves the set before it alone."""
        before = NO_NAMES.plus(["a"])
        seen = Seen(before=before)
        seen.add(["b"])
        assert ("a" in seen, "b" in seen, "c" in seen) == (True, True, False)
        assert (len(before), len(seen.all())) == (1, 2)
