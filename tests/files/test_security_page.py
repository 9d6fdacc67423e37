"""docs/security.md: every line of the threat model has a test."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = [
    line
    for line in (REPOSITORY / "docs" / "security.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| Threat"))
]


class TestEachThreatHasATest:
    """The page cannot promise what is not tested."""

    @pytest.mark.parametrize("row", ROWS)
    def test_a_row_names_a_test_that_exists(self, row: str) -> None:
        """The last column is the id of a test with a body."""
        found = re.search(r"`([\w/.]+)::(\w+)::(test_\w+)` \|$", row)
        assert found is not None, row
        file, cls, test = found.groups()
        path = REPOSITORY / (file if file.startswith("tests/") else f"src/{file}")
        classes = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
        assert test in {node.name for node in classes[cls].body if isinstance(node, ast.FunctionDef)}
