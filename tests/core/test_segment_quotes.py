"""User words in a segment: verbatim, previewed, or named, and bounded."""

from langchain_core.messages import HumanMessage

from refold.core.passes.base import tokens_of
from refold.core.segment import Recall, segment_text

RECALL = Recall(path="/history/t/0000-abc.md", file_reader="read_history", log_reader="read_history")


def segment(count: int, *, budget: int, words: str = "please look at the booking of row") -> str:
    quoted = [(f"h{n}", HumanMessage(f"{words} {n}", id=f"h{n}")) for n in range(count)]
    return segment_text(
        "done", appendix="", quoted=quoted, quote_budget=budget, messages=count, recall=RECALL, floor=False
    )


class TestQuotesAreBounded:
    """A segment does not grow with the number of user messages."""

    def test_many_messages_take_no_more_than_twice_the_budget(self) -> None:
        """300 user messages and 30 differ by nothing but numbers."""
        few, many = tokens_of(segment(30, budget=200)), tokens_of(segment(300, budget=200))
        assert many <= few + 30
        assert many < 800

    def test_the_newest_are_verbatim_and_the_rest_is_named(self) -> None:
        """What is not shown is counted, from its first id to its last, with the place where it is whole."""
        text = segment(300, budget=200)
        assert 'id="h299">\nplease look at the booking of row 299\n' in text
        assert "of the user, from h0 to h" in text
        assert "whole in /history/t/0000-abc.md" in text

    def test_order_is_kept(self) -> None:
        """Whatever is shown stands in the order of the log."""
        text = segment(6, budget=10_000)
        places = [text.index(f'id="h{n}"') for n in range(6)]
        assert places == sorted(places)
        assert "not shown" not in text
