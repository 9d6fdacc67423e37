"""Mounted storage: which part a path goes to."""

import pytest

from refold.errors import ConfigurationError, FileConflictError, FileMissingError
from refold.files import CompositeFiles, MemoryFiles, Query


class TestRouting:
    """The longest prefix decides, by whole segments."""

    def test_parts_see_paths_without_the_prefix(self) -> None:
        """`/m/a` is the mounted storage's `/a`; `/ma` stays with the default."""
        default, outer, inner = MemoryFiles(), MemoryFiles(), MemoryFiles()
        files = CompositeFiles(default, {"/m": outer, "/m/deep": inner})
        for path in ("/m/a", "/m/deep/b", "/ma"):
            files.write(path, path.encode(), mode="create")
        assert [[info.path for info in part.list("/")] for part in (default, outer, inner)] == [["/ma"], ["/a"], ["/b"]]
        assert [info.path for info in files.list("/")] == ["/m/a", "/m/deep/b", "/ma"]
        assert [info.path for info in files.list("/m/deep")] == ["/m/deep/b"]
        assert [hit.path for hit in files.search(Query(pattern="/m")).hits] == ["/m/a", "/m/deep/b", "/ma"]

    def test_what_lies_under_a_mount_is_hidden(self) -> None:
        """The default's own files at a mounted prefix are not seen in lists or folders, nor read."""
        default = MemoryFiles()
        default.write("/m/hidden", b"x", mode="create")
        default.write("/m2/seen", b"x", mode="create")
        files = CompositeFiles(default, {"/m": MemoryFiles()})
        assert [info.path for info in files.list("/")] == ["/m2/seen"]
        assert files.folder("/").folders == ("/m2",)
        with pytest.raises(FileMissingError):
            files.read("/m/hidden")

    def test_mounts_show_as_folders_when_they_hold_something(self) -> None:
        """Also through folders that exist only as a part of a prefix."""
        mounted = MemoryFiles()
        files = CompositeFiles(MemoryFiles(), {"/a/b/c": mounted})
        assert files.folder("/").folders == ()
        mounted.write("/x", b"", mode="create")
        assert files.folder("/").folders == ("/a",)
        assert files.folder("/a").folders == ("/a/b",)
        assert files.folder("/a/b").folders == ("/a/b/c",)
        assert [info.path for info in files.folder("/a/b/c").files] == ["/a/b/c/x"]

    def test_a_mount_is_a_folder(self) -> None:
        """Its own path cannot be written or read as a file."""
        files = CompositeFiles(MemoryFiles(), {"/m": MemoryFiles()})
        assert files.stat("/m") is None
        with pytest.raises(FileMissingError):
            files.read("/m")
        with pytest.raises(FileConflictError):
            files.write("/m", b"x", mode="create")

    @pytest.mark.parametrize("prefix", ["/", "m", "/m/", "/../m", ""])
    def test_bad_prefixes(self, prefix: str) -> None:
        """A prefix is an absolute folder, not the root."""
        with pytest.raises(ConfigurationError):
            CompositeFiles(MemoryFiles(), {prefix: MemoryFiles()})
