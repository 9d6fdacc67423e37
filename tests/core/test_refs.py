"""References: every form names what it says, ranges are spelled back, mistakes are told in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from refold.core.log import Log, read_log
from refold.core.refs import Target, Unresolved, resolve, spell

IDS = ["h", "run--aaaaaa", "run--bbbbbb", "m..1", "a,b c", "2d3c1a9f", "ff3c1a9f", "call 9@x"]


def log_of(ids: list[str]) -> Log:
    return read_log([HumanMessage(f"text of {name}", id=name) for name in ids])


LOG = log_of(IDS)


class TestEveryFormIsUnderstood:
    @pytest.mark.parametrize(
        ("ref", "targets"),
        [
            ("h", (0,)),
            (" run--aaaaaa ", (1,)),
            ("m..1", (3,)),  # a whole id wins over a range
            ("a,b c", (4,)),  # and over a list
            ("@aaaaaa", (1,)),
            ("bbbbbb", (2,)),
            ("@ll_9_x", (7,)),
            ("h, run--bbbbbb;@aaaaaa", (0, 2, 1)),
            ("h..run--bbbbbb", (0, 1, 2)),
            ("run--bbbbbb..h", (0, 1, 2)),
            ("@aaaaaa..@bbbbbb", (1, 2)),
            ("..run--aaaaaa", (0, 1)),
            ("2d3c1a9f..", (5, 6, 7)),
            ("h…run--aaaaaa", (0, 1)),
            ("..", tuple(range(8))),
            ("h h @aaaaaa", (0, 1)),
            ("/results/a", ("/results/a",)),
            ("/results/a, /results/b h", ("/results/a", "/results/b", 0)),
            ("/notes/my file.md", ("/notes/my file.md",)),
            ("/a/../b", ("/a/../b",)),
        ],
    )
    def test_form(self, ref: str, targets: tuple[Target, ...]) -> None:
        """The targets in order, each once."""
        assert resolve(ref, LOG) == targets

    @pytest.mark.parametrize(
        ("ref", "words"),
        [
            ("nobody", "No message 'nobody'"),
            ("", "Name a message id"),
            (" , ", "Name a message id"),
            ("3c1a9f", "2 messages have an id that ends with '3c1a9f': 2d3c1a9f, ff3c1a9f"),
            ("@^", "repeats the id of the line above"),
            ("h..nobody", "No message 'nobody'"),
            ("a@", "No message"),
        ],
    )
    def test_mistake(self, ref: str, words: str) -> None:
        """What is wrong, and what to give instead."""
        found = resolve(ref, LOG)
        assert isinstance(found, Unresolved)
        assert words in found.text

    def test_an_empty_log(self) -> None:
        """No range of nothing."""
        assert isinstance(resolve("..", read_log([])), Unresolved)

    @given(st.text(max_size=40))
    def test_any_text(self, ref: str) -> None:
        """Never raises, never gives nothing."""
        found = resolve(ref, LOG)
        assert isinstance(found, Unresolved) or found


class TestTheyAreSpelledBack:
    @given(st.lists(st.one_of(st.integers(0, 19), st.sampled_from(["/results/a", "/b"])), min_size=1, unique=True))
    def test_round_trip(self, targets: list[Target]) -> None:
        """What is spelled names the same again."""
        log = log_of([f"m{n:02}" for n in range(20)])
        assert resolve(spell(targets, log), log) == tuple(targets)

    def test_runs_are_ranges(self) -> None:
        """A long run is three words."""
        log = log_of([f"m{n:02}" for n in range(20)])
        assert spell(range(3, 18), log) == "m03..m17"
