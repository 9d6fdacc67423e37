"""Search: bounded in time, hits and memory."""

import asyncio
import time

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.errors import ConfigurationError
from refold.files import MemoryFiles, Query
from refold.files.search import sieve_of


def stored(**contents: bytes) -> MemoryFiles:
    """Files by name, at the root."""
    files = MemoryFiles()
    for name, data in contents.items():
        files.write(f"/{name}", data, mode="create")
    return files


class TestTimeIsBounded:
    """No pattern holds the process."""

    @pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(?:a?){40}a{40}"])
    def test_exponential_patterns_end(self, pattern: str) -> None:
        """A pattern that would take years ends at the deadline or sooner, and says so."""
        files = stored(a=b"a" * 35 + b"!\n")
        result = files.search(Query(pattern=pattern, syntax="regex", seconds=0.2))
        assert result.ended in {"time", "all"}

    def test_the_deadline_is_reported(self) -> None:
        """What was found before the deadline is given, and `ended` is `time`."""
        files = stored(a=b"ab\n", b=b"a" * 40 + b"!\n")
        result = files.search(Query(pattern=r"(a|aa)+(b|c)", syntax="regex", seconds=0.2))
        assert ([hit.path for hit in result.hits], result.ended) == (["/a"], "time")

    def test_the_event_loop_goes_on_meanwhile(self) -> None:
        """Awaited, a slow pattern leaves the loop free for others."""
        files = stored(a=b"a" * 40 + b"!\n")

        async def both() -> tuple[str, int]:
            ticks = 0
            search = asyncio.ensure_future(
                files.asynchronous().search(Query(pattern=r"(a|aa)+b", syntax="regex", seconds=0.4))
            )
            while not search.done():
                ticks += 1
                await asyncio.sleep(0.01)
            return search.result().ended, ticks

        ended, ticks = asyncio.run(both())
        assert ended == "time"
        assert ticks > 3


class TestWhatIsFound:
    """Lines, their numbers and their context, whatever the size."""

    def test_pieces_do_not_cut_lines(self) -> None:
        """Matches and context across the 1 MiB pieces of a large file are found, at the right numbers."""
        lines = [f"line {number} {'x' * 100}" for number in range(1, 30_001)]
        files = stored(big="\n".join(lines).encode())
        for number in (1, 9_361, 9_362, 9_363, 18_724, 30_000):
            (hit,) = files.search(Query(pattern=f"line {number} ", context=1)).hits
            assert hit.line == number
            assert hit.before == tuple(lines[max(0, number - 2) : number - 1])
            assert hit.after == tuple(lines[number : number + 1])

    def test_one_long_line_is_clipped_around_the_match(self) -> None:
        """A hit in a line of 10 MB is short and shows the match."""
        files = stored(one=b"a" * 5_000_000 + "中needle文".encode() + b"b" * 5_000_000)
        (hit,) = files.search(Query(pattern="needle")).hits
        assert "中needle文" in hit.text
        assert len(hit.text) < 500
        assert (hit.text[0], hit.text[-1], hit.line) == ("…", "…", 1)

    def test_the_cap_keeps_the_last_context(self) -> None:
        """The last hit under the cap still has the lines after it."""
        files = stored(a=b"hit\none\ntwo\nhit\nthree\n")
        result = files.search(Query(pattern="hit", max_hits=1, context=2))
        assert [(hit.line, hit.after) for hit in result.hits] == [(1, ("one", "two"))]
        assert result.ended == "hits"

    def test_overlapping_context(self) -> None:
        """Neighbouring hits each have their own context, the other hit in it."""
        files = stored(a=b"one\nhit a\nhit b\ntwo\n")
        hits = files.search(Query(pattern="hit", context=1)).hits
        assert [(hit.before, hit.after) for hit in hits] == [(("one",), ("hit b",)), (("hit a",), ("two",))]

    def test_a_literal_is_a_literal(self) -> None:
        """Signs of regular expressions mean themselves, also with the case ignored."""
        files = stored(a=b"price (USD) [1] a.b\n", b=b"axb\n")
        assert [hit.path for hit in files.search(Query(pattern="a.b")).hits] == ["/a"]
        assert [hit.path for hit in files.search(Query(pattern="(usd) [1]", ignore_case=True)).hits] == ["/a"]

    def test_text_that_is_not_utf8(self) -> None:
        """A Latin-1 file is searched; its odd bytes are shown as replacement characters."""
        (hit,) = stored(a=b"caf\xe9 needle\n").search(Query(pattern="needle")).hits
        assert hit.text == "caf\ufffd needle"


class TestTheSieve:
    """Passing over lines that cannot match changes nothing but the time."""

    @given(st.text(alphabet="ab.?*+{}2,()[]^$\\d:", min_size=1, max_size=10), st.text(alphabet="ab2,:\\", max_size=8))
    @settings(max_examples=400)
    def test_no_match_is_sieved_out(self, pattern: str, line: str) -> None:
        """For any pattern and line: where the pattern matches, the sieve stands in the line."""
        try:
            found = regex.search(pattern, line, timeout=0.5)
        except (regex.error, TimeoutError):
            return
        if found is not None:
            assert sieve_of(Query(pattern=pattern, syntax="regex")) in line

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            (r"no\w+re", "no"),
            (r"def \w+\(self", "def "),
            (r"^import (os|sys)", ""),
            (r"^import (?:os)? x", "import "),
            (r"abc+d", "abc"),
            (r"abc?d", "ab"),
            (r"abc{2}{3}xyz", "xyz"),
            (r"\x41bcd", ""),
            (r"(?i)abc", ""),
            (r"[abc]defg[^]x]hi", "defg"),
            (r"[[:alpha:]]xy", ""),
            (r"a\.bcd", "bcd"),
        ],
    )
    def test_examples(self, pattern: str, expected: str) -> None:
        """What is taken from usual patterns."""
        assert sieve_of(Query(pattern=pattern, syntax="regex")) == expected

    @pytest.mark.parametrize("context", [0, 1, 3])
    def test_context_and_numbers_across_passed_pieces(self, context: int) -> None:
        """A hit after megabytes of passed lines has its number and the lines before it, as without the sieve."""
        lines = [f"filler {number} {'x' * 80}" for number in range(40_000)] + ["the needle\r", "end"]
        files = stored(a="\n".join(lines).encode())
        literal = files.search(Query(pattern="needle", context=context)).hits
        unsieved = files.search(Query(pattern="(?:needle|nadel)", syntax="regex", context=context, seconds=60)).hits
        assert literal == unsieved
        assert literal[0].line == 40_001
        assert len(literal[0].before) == context


class TestBadQueries:
    """Each is a typed error before anything is read."""

    @pytest.mark.parametrize(
        "query",
        [
            Query(pattern=""),
            Query(pattern="x" * 1_001),
            Query(pattern="[", syntax="regex"),
            Query(pattern="(?P<a>x)(?P<a>y", syntax="regex"),
            Query(pattern="a{5,2}", syntax="regex"),
            Query(pattern="a", max_hits=0),
            Query(pattern="a", context=-1),
            Query(pattern="a", seconds=0),
        ],
    )
    def test_refused(self, query: Query) -> None:
        """The message says what would do."""
        with pytest.raises(ConfigurationError):
            stored(a=b"a\n").search(query)

    def test_huge_repeats_do_not_eat_memory(self) -> None:
        """A pattern of nested huge repeats is refused or ends in time; it does not take the process with it."""
        started = time.monotonic()
        query = Query(pattern="((a{1,1000}){1,1000}){1,1000}b", syntax="regex", seconds=0.3)
        assert stored(a=b"a" * 60 + b"\n").search(query).ended in {"time", "all"}
        assert time.monotonic() >= started
