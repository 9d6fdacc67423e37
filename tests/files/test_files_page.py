"""docs/files.md: its examples run as written."""

import re
from pathlib import Path

import pytest

from refold.testing.files_conformance import FilesConformance

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "files.md").read_text()


class TestTheExamplesRun:
    """One after the other, in an empty directory."""

    def test_every_block(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each Python block runs in the names of those before it."""
        monkeypatch.chdir(tmp_path)
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        names: dict[str, object] = {"__name__": "files_page"}
        for number, block in enumerate(blocks):
            exec(compile(block, f"docs/files.md block {number}", "exec"), names)
        assert len(blocks) >= 6
        mine = names["TestMine"]
        assert isinstance(mine, type)
        assert issubclass(mine, FilesConformance)
        mine().test_creates_at_once()
