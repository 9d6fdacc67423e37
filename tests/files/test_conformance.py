"""Every implementation of `Files` passes the public conformance suite, called and awaited."""

from pathlib import Path

import pytest

from refold.files import Files, LocalFiles, MemoryFiles
from refold.testing.files_conformance import AsyncFilesConformance, FilesConformance


class InMemory:
    def make_files(self) -> Files:
        return MemoryFiles()


class InADirectory:
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.root = tmp_path / "not" / "made" / "yet"

    def make_files(self) -> Files:
        return LocalFiles(self.root)


class TestMemoryFiles(InMemory, FilesConformance):
    """In memory, called."""


class TestMemoryFilesAwaited(InMemory, AsyncFilesConformance):
    """In memory, awaited."""


class TestLocalFiles(InADirectory, FilesConformance):
    """In a directory, called."""


class TestLocalFilesAwaited(InADirectory, AsyncFilesConformance):
    """In a directory, awaited."""
