"""Retention never removes what something live points at."""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from refold.errors import ConfigurationError
from refold.files import (
    Collected,
    FileInfo,
    Files,
    LocalFiles,
    MemoryFiles,
    Retention,
    acollect,
    collect,
    referenced_paths,
)

Collect = Callable[..., Collected]


class Shade(enum.Enum):
    """Of an application."""

    DARK = 1


@dataclass
class Holder:
    """A state of an application's own."""

    held: object


@pytest.fixture(params=[False, True], ids=["called", "awaited"])
def collecting(request: pytest.FixtureRequest) -> Collect:
    """Both ways to collect."""

    def awaited(files: Files, live: frozenset[str], retention: Retention, *, now: float) -> Collected:
        return asyncio.run(acollect(files, live, retention, now=now))

    return awaited if request.param else collect


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def results(count: int, *, size: int = 100) -> tuple[MemoryFiles, Clock]:
    """Files with results, one per second."""
    clock = Clock()
    files = MemoryFiles(clock=clock)
    for number in range(count):
        clock.now = float(number)
        files.write(f"/results/t/{number:04d}", b"x" * size, mode="create")
    return files, clock


class TestQuotaAndAge:
    """What goes, and in which order."""

    def test_five_hundred_results_under_a_quota_of_fifty(self, collecting: Collect) -> None:
        """Fault 104: of 500 results the oldest unreferenced go, until 50 are left; the referenced stay, however old."""
        files, _ = results(500)
        live = frozenset({"/results/t/0003", "/results/t/0100"})
        done = collecting(files, live, Retention(most_files=50), now=10_000)
        left = [info.path for info in files.list("/")]
        assert left == ["/results/t/0003", "/results/t/0100"] + [f"/results/t/{n:04d}" for n in range(452, 500)]
        assert (len(done.removed), done.kept_files, done.kept_bytes) == (450, 50, 5_000)

    def test_bytes(self, collecting: Collect) -> None:
        """A quota of bytes counts what is live too, and says when that alone is over it."""
        files, _ = results(10)
        live = frozenset(f"/results/t/{number:04d}" for number in range(4))
        assert collecting(files, live, Retention(most_bytes=600), now=10_000).kept_bytes == 600
        assert collecting(files, live, Retention(most_bytes=100), now=10_000).kept_bytes == 400

    def test_age(self, collecting: Collect) -> None:
        """What is older than the bound goes, what is younger stays."""
        files, _ = results(10)
        done = collecting(files, frozenset(), Retention(older_than=95, grace=0), now=100)
        assert [info.path for info in done.removed] == [f"/results/t/{number:04d}" for number in range(6)]

    def test_the_agents_own_files_stay(self, collecting: Collect) -> None:
        """Only artifacts are collected."""
        files, _ = results(3)
        files.write("/notes/plan.md", b"", mode="create")
        files.write("/resultsx/a", b"", mode="create")
        collecting(files, frozenset(), Retention(older_than=0, grace=0), now=1e9)
        assert [info.path for info in files.list("/")] == ["/notes/plan.md", "/resultsx/a"]

    @pytest.mark.parametrize(
        "bounds", [{}, {"most_files": -1}, {"older_than": -1.0}, {"older_than": 1.0, "grace": -1.0}]
    )
    def test_no_or_bad_bounds(self, bounds: dict[str, float]) -> None:
        """A retention without a bound, or with a negative one, is a mistake."""
        with pytest.raises(ConfigurationError):
            Retention(**bounds)  # type: ignore[arg-type]


class TestNothingLiveIsRemoved:
    """Under any bounds."""

    @given(
        st.sets(st.integers(0, 11)), st.integers(0, 12), st.integers(0, 1_200), st.one_of(st.none(), st.integers(0, 50))
    )
    def test_any_bounds(self, live: set[int], most_files: int, most_bytes: int, older_than: int | None) -> None:
        """For any live set and bounds: live files stay, and a bound is met or only live files are left."""
        files, _ = results(12)
        paths = frozenset(f"/results/t/{number:04d}" for number in live)
        retention = Retention(most_files=most_files, most_bytes=most_bytes, older_than=older_than, grace=0)
        done = collect(files, paths, retention, now=100)
        left = {info.path for info in files.list("/")}
        assert paths <= left
        assert left == paths or (done.kept_files <= most_files and done.kept_bytes <= most_bytes)
        assert collect(files, paths, retention, now=100).removed == ()

    def test_what_a_live_artifact_mentions(self, collecting: Collect) -> None:
        """A live history names a result, that names nothing: both stay; so does a chain of any length."""
        files, _ = results(4)
        files.write("/history/t/0-ab.md", b"stored at /results/t/0001.\nand (/history/t/1-cd.md)", mode="create")
        files.write("/history/t/1-cd.md", b"see `/results/t/0002`", mode="create")
        files.write("/history/t/9-ef.md", b"/results/t/0003", mode="create")
        live = referenced_paths({"folds": [{"path": "/history/t/0-ab.md"}]})
        collecting(files, live, Retention(older_than=0, grace=0), now=1e9)
        assert [info.path for info in files.list("/")] == [
            "/history/t/0-ab.md",
            "/history/t/1-cd.md",
            "/results/t/0001",
            "/results/t/0002",
        ]

    def test_values_of_any_class(self) -> None:
        """Paths are found in sends, in objects of the application, and in values of classes that are not here."""
        path = "/results/t/0001"
        message = ToolMessage(f"see {path}", tool_call_id="1", artifact=Shade.DARK)
        stored = ormsgpack.unpackb(JsonPlusSerializer().dumps_typed(message)[1], ext_hook=ormsgpack.Ext)
        odd = ormsgpack.Ext(90, b"\xc1 /results/t/0001 ")
        for value in (stored, odd, Send("n", {"m": [message]}), Holder([path]), [{"deep": (Holder(stored),)}]):
            assert referenced_paths({"messages": [value]}) == {path}

    def test_what_is_young_or_without_a_time(self, collecting: Collect) -> None:
        """A file whose state is not stored yet, or whose age is not known, stays."""
        files, _ = results(3)
        done = collecting(files, frozenset(), Retention(older_than=0, grace=10), now=11.0)
        assert [info.path for info in done.removed] == ["/results/t/0000", "/results/t/0001"]
        timeless = Timeless()
        timeless.write("/results/a", b"", mode="create")
        assert collecting(timeless, frozenset(), Retention(older_than=0, grace=0), now=1e9).removed == ()

    def test_what_is_stored_again_meanwhile(self) -> None:
        """An old file that a new fold stores again during the collection, is kept."""
        files, clock = results(3)
        clock.now = 50.0
        racing = Racing(files)
        done = collect(racing, frozenset(), Retention(older_than=0, grace=0), now=100)
        assert [info.path for info in files.list("/")] == ["/results/t/0001"]
        assert len(done.removed) == 2

    def test_a_repeated_create_renews_the_time(self, tmp_path: object) -> None:
        """That is what protects it."""
        files = LocalFiles(f"{tmp_path}/root")
        files.write("/results/a", b"x", mode="create")
        before = files.stat("/results/a")
        files.write("/results/a", b"x", mode="create")
        after = files.stat("/results/a")
        assert before is not None
        assert after is not None
        assert after.modified is not None
        assert before.modified is not None
        assert after.modified > before.modified


class TestMentions:
    """Paths are found wherever they stand in a state."""

    def test_in_messages_folds_and_nested_values(self) -> None:
        """In content, blocks, arguments, extras, artifacts, keys and bytes; at the end of a sentence, in quotes."""
        state = {
            "messages": [
                HumanMessage("see /inputs/t/a-1.md."),
                AIMessage(
                    content=[{"type": "text", "text": "'/media/ab12.png'"}],
                    tool_calls=[{"name": "read", "args": {"deep": ["/results/t/b-2"]}, "id": "1"}],
                ),
                ToolMessage("(/results/t/c-3)", tool_call_id="1", artifact={"path": "/results/t/d-4"}),
            ],
            "folds": ({"show": "/history/t/1-e.md", "/summaries/f.json": None},),
            "blob": b"/results/t/g-5\n",
        }
        assert referenced_paths(state) == {
            "/inputs/t/a-1.md",
            "/media/ab12.png",
            "/results/t/b-2",
            "/results/t/c-3",
            "/results/t/d-4",
            "/history/t/1-e.md",
            "/summaries/f.json",
            "/results/t/g-5",
        }


class Timeless(MemoryFiles):
    """Storage that knows no times."""

    def list(self, folder: str) -> tuple[FileInfo, ...]:
        return tuple(FileInfo(path=info.path, size=info.size) for info in super().list(folder))


class Racing(MemoryFiles):
    """Storage in which one file is stored again after the listing."""

    def __init__(self, files: MemoryFiles) -> None:
        super().__init__()
        self._inner = files

    def list(self, folder: str) -> object:
        listed = self._inner.list(folder)
        if listed:
            self._inner.write("/results/t/0001", b"x" * 100, mode="create")
        return listed

    def stat(self, path: str) -> FileInfo | None:
        return self._inner.stat(path)

    def delete(self, path: str) -> None:
        self._inner.delete(path)
