"""Globs over virtual paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import PathError
from refold.files.patterns import compile_glob, match_segment


class TestMeaning:
    """What a pattern matches."""

    @pytest.mark.parametrize(
        ("pattern", "path", "expected"),
        [
            ("/a/*.md", "/a/x.md", True),
            ("/a/*.md", "/a/b/x.md", False),
            ("/a/**/*.md", "/a/x.md", True),
            ("/a/**/*.md", "/a/b/c/x.md", True),
            ("/a/**", "/a", True),
            ("/a/**", "/ab", False),
            ("/**", "/anything/at/all", True),
            ("*", "/deep/er/x", True),
            ("src/*.py", "/lib/src/x.py", True),
            ("/src/*.py", "/lib/src/x.py", False),
            ("/[a-c]?[!0-9]", "/bxx", True),
            ("/[a-c]?[!0-9]", "/bx7", False),
            ("/[]]", "/]", True),
            ("/[!]]", "/]", False),
            ("/[", "/[", True),
            ("/a**b", "/axyb", True),
            ("/{a,b/{c,d}}.x", "/b/d.x", True),
            ("/{a,b/{c,d}}.x", "/b.x", False),
            ("/x{,.bak}", "/x", True),
            ("/A", "/a", False),
            ("/a/**/b/**/c", "/a/b/b/x/c", True),
            ("/a/**/b/**/c", "/a/x/c", False),
        ],
    )
    def test_table(self, pattern: str, path: str, expected: bool) -> None:
        """One line per rule."""
        assert compile_glob(pattern).matches(path) is expected

    def test_case_can_be_folded(self) -> None:
        """With `fold_case` names are compared as case-insensitive storage does: ß and ss are one name."""
        assert compile_glob("/Secrets/**").matches("/sECRETS/Straße", fold_case=True)
        assert compile_glob("/STRASSE").matches("/straße", fold_case=True)

    def test_the_folder_holds_every_match(self) -> None:
        """The listing that a glob starts from."""
        expected = {"/a/b/*.md": "/a/b", "/a/*/c": "/a", "*.md": "/", "/a/{b,c}/x": "/a", "/a/b": "/a", "/{a,b}": "/"}
        assert {pattern: compile_glob(pattern).folder() for pattern in expected} == expected

    @given(st.text(alphabet="ab/", min_size=1, max_size=8), st.text(alphabet="ab*?/", min_size=1, max_size=8))
    def test_every_match_is_under_the_folder(self, path: str, pattern: str) -> None:
        """Listing only the folder of a glob loses no match."""
        try:
            glob = compile_glob(f"/{pattern}")
        except PathError:
            return
        if glob.matches(f"/{path}"):
            folder = glob.folder()
            assert folder == "/" or f"/{path}".startswith(f"{folder}/") or f"/{path}" == folder


class TestHostilePatterns:
    """A model writes the pattern."""

    @pytest.mark.parametrize("pattern", ["", "/..", "/a/../b", "/", "{", "/{a,{b}", "x" * 2_001, "{a,b}" * 9])
    def test_bad_patterns_are_refused(self, pattern: str) -> None:
        """Empty, escaping, unbalanced, over-long, or with too many alternatives: a typed error."""
        with pytest.raises(PathError):
            compile_glob(pattern)

    def test_many_stars_take_little_work(self) -> None:
        """A pattern that makes a backtracking regular expression take years is answered at once."""
        assert not match_segment("*a" * 120 + "b", "a" * 250)
        assert not compile_glob("/" + "**/a/" * 150 + "b").matches("/" + "/".join("a" * 400))
