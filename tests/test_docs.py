"""The documents say what is true: their code runs, their links lead somewhere, the README starts soon."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUNNABLE = [
    pytest.param(page, code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, code in enumerate(BLOCK.findall(page.read_text("utf-8")))
    if page.name.startswith("README")
]


@pytest.mark.parametrize(("page", "code"), RUNNABLE)
def test_the_code_of_the_readme_runs(page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block runs as written, offline, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "readme"})  # the reader's own code, from this repository


@pytest.mark.parametrize("name", ["checkpoints", "estimator", "validity"])
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, in the names of those before; files.md and migrate.md have tests of their own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": name}
    for code in BLOCK.findall((ROOT / "docs" / f"{name}.md").read_text("utf-8")):
        exec(compile(code, f"{name}.md", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file of the repository."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_starts_with_code_soon() -> None:
    """At most 120 words stand before the first block that runs."""
    before = (ROOT / "README.md").read_text("utf-8").split("```python", 1)[0]
    assert len(before.split()) <= 120
