"""Virtual paths and the names that are made from ids."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.paths import MAX_PATH_BYTES, MAX_SEGMENT_BYTES, clean_folder, clean_path, is_under, safe_name
from refold.errors import PathError
from refold.testing.files_conformance import HOSTILE_PATHS


class TestPathsAreRefusedOrKept:
    """A path is never rewritten."""

    @pytest.mark.parametrize("path", HOSTILE_PATHS)
    def test_hostile_paths_are_refused(self, path: str) -> None:
        """Each hostile path raises an error that says what to do, and is short whatever the path."""
        with pytest.raises(PathError) as caught:
            clean_path(path)
        assert any(hint in str(caught.value) for hint in (": ", "use ", "write "))
        assert len(str(caught.value)) < 400

    @given(st.text(max_size=60))
    def test_any_text_is_kept_or_refused(self, text: str) -> None:
        """For any text the result is the text itself or a `PathError`; what is kept has no way out and is in NFC."""
        try:
            kept = clean_path(f"/{text}")
        except PathError:
            return
        assert kept == f"/{text}"
        assert unicodedata.normalize("NFC", kept) == kept
        assert not {"", ".", ".."} & set(kept[1:].split("/"))
        assert "\\" not in kept
        assert "\0" not in kept

    def test_lengths_are_bytes(self) -> None:
        """255 bytes of a segment are kept, 256 refused, counted in UTF-8; the same at 900 for the whole path."""
        assert clean_path("/" + "é" * 127 + "x") == "/" + "é" * 127 + "x"
        with pytest.raises(PathError, match=str(MAX_SEGMENT_BYTES)):
            clean_path("/" + "é" * 128)
        whole = "/" + "/".join(["d" * 99] * 9)
        assert len(whole) == MAX_PATH_BYTES
        assert clean_path(whole) == whole
        with pytest.raises(PathError, match=str(MAX_PATH_BYTES)):
            clean_path(whole + "/d")

    def test_device_names_in_any_case_and_with_any_extension(self) -> None:
        """Windows opens devices under these names whatever follows the dot; longer names are ordinary."""
        for name in ("nul", "NUL", "Con.txt", "com1.tar.gz", "LPT9", "com¹", "aux .c", "CONIN$"):
            with pytest.raises(PathError, match="device"):
                clean_path(f"/a/{name}")
        for name in ("null", "console", "com10", "com", ".nul", "auxiliary.c"):
            assert clean_path(f"/a/{name}") == f"/a/{name}"

    def test_folders(self) -> None:
        """A folder may be the root or end in one slash."""
        assert (clean_folder("/"), clean_folder("/a/"), clean_folder("/a/b")) == ("/", "/a", "/a/b")
        for path in ("", "//", "/a//", "a/"):
            with pytest.raises(PathError):
                clean_folder(path)

    def test_under_is_by_segments(self) -> None:
        """`/ab` is not under `/a`."""
        assert [is_under(path, "/a") for path in ("/a", "/a/b", "/ab", "/", "/b/a")] == [
            True,
            True,
            False,
            False,
            False,
        ]
        assert is_under("/x", "/")


class TestSafeNames:
    """Any id gives a name that every storage holds, and no two ids the same (fault 102)."""

    @given(st.lists(st.text(max_size=80), min_size=1, max_size=3))
    def test_any_parts_give_an_allowed_name(self, parts: list[str]) -> None:
        """The name is one segment of at most 61 lower-case ASCII bytes that `clean_path` accepts."""
        name = safe_name(*parts)
        assert clean_path(f"/{name}") == f"/{name}"
        assert name == name.casefold()
        assert name.isascii()
        assert len(name) <= 61

    @given(st.lists(st.text(max_size=6), min_size=1, max_size=3), st.lists(st.text(max_size=6), min_size=1, max_size=3))
    def test_names_are_equal_only_for_equal_parts(self, left: list[str], right: list[str]) -> None:
        """Another case, another split or an empty part is another name."""
        assert (safe_name(*left) == safe_name(*right)) == (left == right)

    def test_hard_ids(self) -> None:
        """Fault 102: ids that are empty, 1,400 characters long, hostile, or differ only at the end or in case."""
        ids = [
            "",
            " ",
            "..",
            "../../etc/passwd",
            "NUL",
            "call_a",
            "CALL_A",
            "call_a ",
            "x" * 1_400,
            "x" * 1_399 + "y",
            "呼び出し",
            "\ud800",
            "a\0b",
        ]
        names = [safe_name(item) for item in ids]
        assert len(set(names)) == len(ids)
        assert all(clean_path(f"/results/{name}") for name in names)

    def test_names_are_stable(self) -> None:
        """A name is a file format: the same in every process and release."""
        assert safe_name("call_abc", "0f3a") == "call-abc-0f3a-50f49ac9684db0dcb535"
        assert safe_name("") == "x-625af97a964125a29a65"
