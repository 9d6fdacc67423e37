"""The shape of the code, checked: sizes, what is imported where, and that nothing prints or reads the environment."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "refold"
MODULES = sorted(SOURCE.rglob("*.py"))

LONGEST_MODULE = 600
LONGEST_FUNCTION = 60
LONGEST_HOOK = 10
HOOKS = {
    f"{prefix}{name}"
    for prefix in ("", "a")
    for name in ("before_agent", "before_model", "after_model", "after_agent", "wrap_model_call", "wrap_tool_call")
}
HEAVY = (
    "typer",
    "rich",
    "psycopg",
    "obstore",
    "fsspec",
    "deepagents",
    "pydantic_settings",
    "opentelemetry",
    "starlette",
)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
class TestSizes:
    def test_a_module_fits_its_purpose(self, path: Path) -> None:
        """No module outgrows what a reader can hold."""
        assert len(path.read_text("utf-8").splitlines()) <= LONGEST_MODULE

    def test_functions_are_short(self, path: Path) -> None:
        """Functions do one thing; hooks of a host only adapt."""
        long = {
            f"{node.name}:{node.lineno}": body_lines(node)
            for node in functions(path)
            if body_lines(node) > (LONGEST_HOOK if node.name in HOOKS else LONGEST_FUNCTION)
        }
        assert long == {}

    def test_a_module_says_what_it_is(self, path: Path) -> None:
        """Every module with code opens with its theory of operation."""
        tree = ast.parse(path.read_text("utf-8"))
        assert not tree.body or ast.get_docstring(tree) is not None


class TestImports:
    def test_the_facade_is_light(self) -> None:
        """What agents import from refold brings in nothing that only the command line or an extra needs, beyond what
        LangChain's agents bring in themselves."""
        script = (
            "import sys, langchain.agents; before = set(sys.modules); "
            "from refold import WindowMiddleware, create_agent; "
            f"print([m for m in {HEAVY!r} if m in set(sys.modules) - before])"
        )
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "[]"

    def test_every_public_name_is_there(self) -> None:
        """What `__all__` promises can be imported."""
        import refold

        assert sorted(refold.__all__) == sorted(set(refold.__all__))
        for name in refold.__all__:
            assert hasattr(refold, name)

    def test_the_library_never_prints(self) -> None:
        """Only the command line talks to a terminal."""
        talkers = [
            f"{path.relative_to(SOURCE)}:{node.lineno}"
            for path in MODULES
            if path.relative_to(SOURCE).parts[0] != "cli"
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "input")
        ]
        assert talkers == []

    def test_the_library_reads_no_environment(self) -> None:
        """Environment and home are the command line's to read."""
        readers = [
            str(path.relative_to(SOURCE))
            for path in MODULES
            if path.relative_to(SOURCE).parts[0] != "cli"
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv", "expanduser", "home")
            and isinstance(node.value, ast.Name)
            and node.value.id in ("os", "Path")
        ]
        assert readers == []


class TestRepository:
    def test_no_registry_or_machine_is_named(self) -> None:
        """The repository speaks of the project alone."""
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
        if tracked.returncode != 0:
            pytest.skip("not a git checkout")
        hosts = ("files.pythonhosted.org", "pypi.org/simple", "registry.npmjs.org", "deb.debian.org")
        named = [
            name
            for name in tracked.stdout.splitlines()
            if name.endswith((".toml", ".lock", ".txt", ".md", ".py", ".cfg", "Makefile", "run"))
            and name != "tests/test_architecture.py"
            and any(host in (ROOT / name).read_text("utf-8", "replace") for host in hosts)
        ]
        assert named == []
