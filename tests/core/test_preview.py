"""Typed previews: always within the budget, verbatim but for marked notes, in bounded work."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.preview import Preview, preview


def tokens(text: str) -> int:
    """A plain counter: a token for every four ASCII characters and for every other character."""
    wide = sum(1 for char in text if ord(char) > 127)
    return wide + (len(text) - wide + 3) // 4


PYTHON = "import os\n\n" + "\n".join(
    f"class Thing{n}:\n    def method_{n}(self, x: int) -> int:\n        value = x + {n}\n        return value\n"
    for n in range(200)
)
LOG = "\n".join(
    f"2026-01-02 10:{n // 60 % 60:02d}:{n % 60:02d} INFO worker {n} polled the queue"
    if n != 700
    else "2026-01-02 10:11:40 ERROR disk /dev/sda1 is full: write refused"
    for n in range(1500)
)
CSV = "id,name,score\n" + "\n".join(f"{n},name-{n},{n * 1.5}" for n in range(3000))
JSON = json.dumps({"total": 900, "ratio": 1.0, "items": [{"id": n, "text": "x" * 300} for n in range(900)]})
JSONL = "\n".join(json.dumps({"id": n, "event": "click", "path": f"/p/{n}"}) for n in range(2000))
DIFF = "".join(
    f"diff --git a/src/f{n}.py b/src/f{n}.py\n--- a/src/f{n}.py\n+++ b/src/f{n}.py\n"
    f"@@ -1,3 +1,4 @@\n line\n-old {n}\n+new {n}\n+more\n"
    for n in range(80)
)
PROSE = "The first sentence is here. " + "Then many more words follow in the middle. " * 400 + "This is the very end."
CHINESE = "第一句话在这里。" + "中间还有很多内容，没有空格。" * 600 + "这是最后一句。"
ALIGNED = "NAME        READY   STATUS    AGE\n" + "\n".join(f"pod-{n:<6}  1/1     Running   {n}d" for n in range(400))
SAMPLES = {
    "code": PYTHON, "log": LOG, "table": CSV, "json": JSON, "jsonl": JSONL, "diff": DIFF, "text": PROSE,
}  # fmt: skip

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda values: st.lists(values, max_size=9) | st.dictionaries(st.text(max_size=9), values, max_size=9),
    max_leaves=60,
)


class TestTheBudgetHolds:
    """Whatever the text and the budget, the preview is never over it."""

    @pytest.mark.parametrize("budget", [0, 1, 2, 3, 5, 8, 13, 30, 100, 700, 5000])
    @pytest.mark.parametrize("kind", SAMPLES)
    def test_of_every_kind(self, kind: str, budget: int) -> None:
        """From nothing to plenty."""
        assert tokens(preview(SAMPLES[kind], budget=budget, count=tokens).text) <= budget

    @given(st.text(max_size=2000), st.integers(min_value=0, max_value=200))
    def test_of_any_text(self, content: str, budget: int) -> None:
        """Arbitrary Unicode, also under a counter that is not additive."""
        for count in (tokens, len, lambda text: len(text.encode("utf-8", "surrogatepass"))):
            assert count(preview(content, budget=budget, count=count).text) <= budget

    @given(json_values, st.integers(min_value=0, max_value=90))
    def test_of_any_json(self, value: object, budget: int) -> None:
        """Any shape of JSON."""
        assert tokens(preview(json.dumps(value, ensure_ascii=False), budget=budget, count=tokens).text) <= budget

    def test_a_tiny_budget_gives_something(self) -> None:
        """One token is enough for an ellipsis; none is enough for nothing."""
        assert preview(LOG, budget=1, count=tokens).text == "…"
        assert preview(LOG, budget=0, count=tokens).text == ""

    def test_room_is_used(self) -> None:
        """With a budget for a part, most of it is spent."""
        for kind, content in SAMPLES.items():
            used = tokens(preview(content, budget=800, count=tokens).text)
            assert used > 480, (kind, used)


class TestVerbatim:
    """A preview invents nothing."""

    def test_a_text_that_fits_is_its_own_preview(self) -> None:
        """Byte for byte, line ends included."""
        for content in ("a\r\nb", "", '{"a": 1.0}', "id,a,b\n1,2,3\n4,5,6\n"):
            assert preview(content, budget=100, count=tokens).text == content

    @pytest.mark.parametrize("kind", ["log", "table", "diff", "text", "jsonl"])
    def test_every_line_is_of_the_source_or_a_note(self, kind: str) -> None:
        """Lines are verbatim, but for notes in brackets and line numbers."""
        content = SAMPLES[kind]
        for line in preview(content, budget=400, count=tokens).text.split("\n"):
            bare = re.sub(r"^\d+: | ?\[[^\[\]]*\]$", "", line)
            assert bare in content, line

    def test_numbers_of_json_keep_their_spelling(self) -> None:
        """1.0, 1e5 and a number of thirty digits are not rewritten; duplicate keys stay."""
        content = '{"a": 1.0, "a": 1e5, "b": 123456789012345678901234567890, "pad": "' + "x" * 2000 + '"}'
        shown = preview(content, budget=100, count=tokens)
        assert shown.kind == "json"
        for piece in ('"a": 1.0', '"a": 1e5', "123456789012345678901234567890", "more characters]"):
            assert piece in shown.text

    @given(st.text(alphabet="ab \n,.。é中\r", max_size=3000), st.integers(min_value=20, max_value=120))
    def test_prose_begins_and_ends_as_the_source_does(self, content: str, budget: int) -> None:
        """What stands before the note of omission is a prefix, what stands behind it a suffix."""
        shown = preview(content, budget=budget, count=tokens)
        if shown.kind != "text" or shown.text == content or "[…" not in shown.text:
            return
        head, tail = re.split(r"\n?\[…[^\]]*\]\n?", shown.text.split("\n", 1)[1], maxsplit=1)
        assert content.startswith(head)
        assert content.endswith(tail)

    def test_it_is_deterministic(self) -> None:
        """The same arguments give the same preview."""
        for content in SAMPLES.values():
            assert preview(content, budget=300, count=tokens) == preview(content, budget=300, count=tokens)


class TestKinds:
    """Each kind shows what its reader needs first."""

    @pytest.mark.parametrize("kind", SAMPLES)
    def test_it_is_told_from_content(self, kind: str) -> None:
        """Without a hint."""
        assert preview(SAMPLES[kind], budget=300, count=tokens).kind == kind

    def test_json_shows_shape_and_lengths(self) -> None:
        """Keys, the number of items, the first item, how long strings are."""
        text = preview(JSON, budget=200, count=tokens).text
        assert text.startswith("[JSON object with 3 keys, ")
        assert '"total": 900' in text
        assert '"ratio": 1.0' in text
        assert "more items]" in text
        assert '"id": 0' in text
        assert "more characters]" in text

    def test_json_below_a_preamble_is_json(self) -> None:
        """A tool's own lines before it are kept."""
        shown = preview("Exit code: 0\nOutput:\n" + JSON, budget=200, count=tokens)
        assert shown.kind == "json"
        assert shown.text.startswith("Exit code: 0\nOutput:\n[JSON object with 3 keys")

    def test_a_numbered_file_is_code(self) -> None:
        """The line numbers that a reader put there are the outline's."""
        content = "\n".join(f"{n:6}\u2192{line}" for n, line in enumerate(PYTHON.split("\n"), start=1))
        shown = preview(content, budget=400, count=tokens)
        assert shown.kind == "code"
        assert "\n3\u2192class Thing0:" in shown.text

    def test_json_lines_show_keys_first_and_last(self) -> None:
        """The number of records, the keys, the first and the last record."""
        text = preview(JSONL, budget=200, count=tokens).text
        assert text.startswith("[JSON lines: 2,000 records")
        assert "keys id, event, path" in text
        assert '"id": 0,' in text
        assert '"id": 1999,' in text

    @pytest.mark.parametrize("content", [CSV, CSV.replace(",", "\t"), ALIGNED])
    def test_a_table_keeps_heading_first_and_last_rows(self, content: str) -> None:
        """Whatever separates the columns."""
        shown = preview(content, budget=120, count=tokens)
        lines = content.split("\n")
        assert shown.kind == "table"
        assert lines[0] in shown.text
        assert lines[1] in shown.text
        assert lines[-1] in shown.text
        assert f"{len(lines):,} lines with the heading" in shown.text

    def test_a_log_shows_the_error_in_its_middle(self) -> None:
        """One error among 1,500 lines is in view, with its line number."""
        text = preview(LOG, budget=300, count=tokens).text
        assert "701: 2026-01-02 10:11:40 ERROR disk /dev/sda1 is full: write refused" in text
        assert LOG.split("\n")[0] in text
        assert LOG.split("\n")[-1] in text

    def test_the_same_error_many_times_is_one_line(self) -> None:
        """Kinds of errors are shown once and counted."""
        content = "\n".join(f"2026-01-02 10:00:00 ERROR request {n} failed after {n} ms" for n in range(1, 901))
        content = content.replace("ERROR request 450 failed", "ERROR database 450 refused")
        text = preview(content, budget=200, count=tokens).text
        assert "900 look like errors (2 kinds)" in text
        assert "database 450 refused" in text

    def test_code_shows_an_outline_with_line_numbers(self) -> None:
        """Outer definitions come before inner ones when room is short."""
        text = preview(PYTHON, budget=600, count=tokens).text
        assert "400 definitions" in text
        assert "3: class Thing0:" in text
        assert re.search(r"^\d+: class Thing1\d:", text, re.MULTILINE)
        assert "inner ones left out" in text

    def test_a_hint_tells_code(self) -> None:
        """A path's extension decides where the content does not."""
        content = "x = 1\n" * 2000
        assert preview(content, budget=50, count=tokens, hint="src/app.py").kind == "code"
        assert preview(content, budget=50, count=tokens).kind == "text"

    def test_a_diff_lists_files_and_counts(self) -> None:
        """Each file with the lines added and removed."""
        text = preview(DIFF, budget=500, count=tokens).text
        assert text.startswith("[diff: 80 files, 160 lines added, 80 removed;")
        assert "src/f0.py [+2 -1]" in text

    def test_chinese_is_cut_at_sentences(self) -> None:
        """No blank is needed to find a boundary."""
        text = preview(CHINESE, budget=120, count=tokens).text
        head = text.split("\n")[1]
        assert head.startswith("第一句话在这里。")
        assert head.endswith(("。", "，"))
        assert text.endswith("这是最后一句。")


class TestBoundedWork:
    """One line of ten megabytes is no harder than many lines."""

    @pytest.mark.parametrize(
        "content",
        [
            "x" * 10_000_000,
            "a b, " * 2_000_000,
            '{"a":' * 100_000,
            "[" * 1_000_000 + "]" * 1_000_000,
            '{"k": "' + "v" * 10_000_000 + '"}',
            "中" * 3_000_000,
            "\n" * 3_000_000,
            "error " * 1_500_000,
            "<div>" * 1_000_000,
            "=" * 5_000_000,
        ],
        ids=[
            "one-word",
            "words",
            "open-braces",
            "deep-list",
            "long-string",
            "han",
            "blank-lines",
            "errors",
            "tags",
            "rule",
        ],
    )
    def test_a_huge_text_gives_a_small_preview(self, content: str) -> None:
        """Within the budget, with the size said, and counting only small texts."""
        counted: list[int] = []

        def count(text: str) -> int:
            counted.append(len(text))
            return tokens(text)

        shown = preview(content, budget=200, count=count)
        assert tokens(shown.text) <= 200
        assert f"{len(content):,} characters" in shown.text
        assert sum(counted) < 100_000

    def test_a_clipped_line_says_so(self) -> None:
        """How much of a long line is not shown."""
        content = "short\n" + "y" * 100_000 + "\nend"
        text = preview(content, budget=100, count=tokens).text
        assert isinstance(preview(content, budget=100, count=tokens), Preview)
        assert re.search(r"\[… (99|100),\d{3} (more )?characters", text)
