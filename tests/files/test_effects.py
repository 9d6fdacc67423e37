"""Programs over files: one program, both drivers, the same answers."""

import asyncio
from functools import partial

import pytest

from refold.core.program import Effect, Program, arun, run
from refold.errors import FileConflictError
from refold.files import (
    DeleteFile,
    FileInfo,
    GlobFiles,
    ListFiles,
    ListFolder,
    MemoryFiles,
    Query,
    ReadFile,
    ReadRange,
    SearchFiles,
    StatFile,
    SwapFile,
    WriteFile,
    aanswer,
    answer,
)


def everything_gen() -> Program[list[object]]:
    """Ask for each effect once, and catch one that fails."""
    seen: list[object] = []
    yield from WriteFile(path="/a/b", data=b"one\ntwo\n", mode="create")
    try:
        yield from WriteFile(path="/a/b", data=b"other", mode="create")
    except FileConflictError:
        seen.append("refused")
    yield from SwapFile(path="/a/b", old=b"one\ntwo\n", new=b"one\n2\n")
    seen.append((yield from ReadFile(path="/a/b")))
    seen.append((yield from ReadRange(path="/a/b", start=4, length=1)))
    seen.append((yield from StatFile(path="/a/b")))
    seen.append((yield from ListFiles(folder="/")))
    seen.append((yield from ListFolder(path="/")).folders)
    seen.append((yield from GlobFiles(pattern="/a/*")))
    seen.append([hit.line for hit in (yield from SearchFiles(query=Query(pattern="2"))).hits])
    yield from DeleteFile(path="/a/b")
    seen.append((yield from StatFile(path="/a/b")))
    return seen


class TestBothDriversAgree:
    """`answer` and `aanswer` perform the same effects."""

    @pytest.mark.parametrize("awaited", [False, True])
    def test_each_effect(self, awaited: bool) -> None:
        """Each effect has its answer, and a failed one is thrown into the program."""
        files = MemoryFiles(clock=lambda: 7.0)
        if awaited:
            seen = asyncio.run(arun(everything_gen(), partial(aanswer, files.asynchronous())))
        else:
            seen = run(everything_gen(), partial(answer, files))
        info = FileInfo(path="/a/b", size=6, modified=7.0)
        assert seen == ["refused", b"one\n2\n", b"2", info, (info,), ("/a",), (info,), [2], None]

    def test_other_effects_are_refused(self) -> None:
        """An effect that is not about files is a `TypeError`, not None."""

        class Other(Effect[None]):
            pass

        files = MemoryFiles()
        with pytest.raises(TypeError, match="Other"):
            answer(files, Other())
        with pytest.raises(TypeError, match="Other"):
            asyncio.run(aanswer(files.asynchronous(), Other()))
