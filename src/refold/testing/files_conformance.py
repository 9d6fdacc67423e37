"""The conformance suite of `Files`: what every implementation must pass, ours and yours.

    class TestMyFiles(FilesConformance):
        def make_files(self) -> Files:
            return MyFiles(...)  # empty

    class TestMyFilesAwaited(AsyncFilesConformance):
        def make_files(self) -> Files:
            return MyFiles(...)

Run it with pytest, or call its `test_*` methods. It needs no test framework itself.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from refold.core.effects import WriteMode
from refold.errors import ConfigurationError, FileConflictError, FileMissingError, PathError, RefoldError
from refold.files.protocol import AsyncFiles, FileInfo, Files, Folder, Query, SearchResult

T = TypeVar("T")

BINARY = bytes(range(256)) * 3
HOSTILE_PATHS = (
    "",
    "/",
    "notes.md",
    "../etc/passwd",
    "/../etc/passwd",
    "/a/../../etc/passwd",
    "/a/..",
    "/a/./b",
    "//a",
    "/a//b",
    "/a/",
    "/a\0b",
    "/a\nb",
    "/a\x7fb",
    "/a\u202eb",
    "/a\ud800b",
    "\\a",
    "/a\\..\\b",
    "/a.",
    "/a ",
    "/ a",
    "/a./b",
    "/nul",
    "/COM1.txt",
    "/a/Con.log",
    "/" + "x" * 256,
    "/" + "é" * 128,
    "/" + "/".join(["d" * 100] * 10),
    "/cafe\u0301",
    "/.refold-tmp-1",
    "/a/.REFOLD-TMP-1",
)
UNUSUAL_NAMES = (
    "a b",
    ".env",
    "a..b",
    "100%",
    "%2e%2e",
    "a#b?c=d&e",
    "~",
    "$HOME",
    "'\"",
    "[x]",
    "{y}",
    "*",
    "日本語.md",
    "👩‍💻",
    "a:b",
)
WRITERS = 6


class FilesConformance:
    """The promises of `Files`. A subclass says how to make empty storage.

    `unusual_names` may be narrowed where a storage refuses some, with a typed error, on its own account.
    """

    unusual_names: Sequence[str] = UNUSUAL_NAMES

    def make_files(self) -> Files:
        """Empty storage; called once per test."""
        raise NotImplementedError

    def subject(self) -> Files:
        """What the test calls."""
        return self.make_files()

    def test_bytes_come_back(self) -> None:
        """Any bytes are read back as they were written: empty, text with CRLF, binary, 1 MiB and more."""
        files = self.subject()
        for name, data in {
            "empty": b"",
            "crlf": b"a\r\nb\n\r",
            "binary": BINARY,
            "large": b"\x00\xffab" * 300_000,
        }.items():
            files.write(f"/deep/er/{name}", data, mode="create")
            assert files.read(f"/deep/er/{name}") == data
            info = files.stat(f"/deep/er/{name}")
            assert info is not None
            assert (info.path, info.size) == (f"/deep/er/{name}", len(data))

    def test_ranges(self) -> None:
        """A range is what slicing gives; past the end it is empty; negative numbers are an error."""
        files = self.subject()
        files.write("/a", BINARY, mode="create")
        for start, length in ((0, 0), (0, 10), (250, 20), (700, 500), (768, 5), (9_999, 5)):
            assert files.read("/a", start=start, length=length) == BINARY[start : start + length]
        assert files.read("/a", start=760) == BINARY[760:]
        assert files.read("/a", start=800) == b""
        with _raises(ConfigurationError):
            files.read("/a", start=-1)
        with _raises(ConfigurationError):
            files.read("/a", length=-1)

    def test_missing(self) -> None:
        """What is missing is a `FileMissingError` to read or swap, None to stat, and nothing to delete or list."""
        files = self.subject()
        files.write("/a/b", b"x", mode="create")
        for path in ("/none", "/a/none", "/none/deep", "/a"):
            with _raises(FileMissingError):
                files.read(path)
            assert files.stat(path) is None
        with _raises(FileMissingError):
            files.swap("/none", b"", b"x")
        files.delete("/none")
        files.delete("/none/deep")
        assert list(files.list("/none")) == []
        assert files.folder("/none") == Folder(path="/none", files=(), folders=())

    def test_create_never_overwrites(self) -> None:
        """Create is repeatable with the same bytes, refuses others, and leaves what is there."""
        files = self.subject()
        files.write("/a", b"one", mode="create")
        files.write("/a", b"one", mode="create")
        for other in (b"two", b"", b"one more"):
            with _raises(FileConflictError):
                files.write("/a", other, mode="create")
        assert files.read("/a") == b"one"

    def test_replace(self) -> None:
        """Replace stores the new bytes whatever was there, shorter or longer or nothing."""
        files = self.subject()
        for data in (b"first", b"a longer second", b"", BINARY, BINARY):
            files.write("/r", data, mode="replace")
            assert files.read("/r") == data

    def test_append(self) -> None:
        """Append makes the file, adds after what is there, CRLF and binary included, and is not repeatable."""
        files = self.subject()
        pieces = [b"one\r\n", b"\xff\x00", b"", b"one\r\n", "中文\n".encode()[:2], "中文\n".encode()[2:]]
        for piece in pieces:
            files.write("/log/a", piece, mode="append")
        assert files.read("/log/a") == b"".join(pieces)

    def test_swap(self) -> None:
        """Swap replaces exactly what it was made from, and nothing else."""
        files = self.subject()
        files.write("/a", b"old", mode="create")
        files.swap("/a", b"old", BINARY)
        with _raises(FileConflictError):
            files.swap("/a", b"old", b"lost update")
        assert files.read("/a") == BINARY

    def test_delete(self) -> None:
        """A deleted file is gone, a second delete is no error, its neighbours stay, and the path can be used again."""
        files = self.subject()
        for path in ("/d/a", "/d/ab", "/d/b/c"):
            files.write(path, b"x", mode="create")
        files.delete("/d/a")
        files.delete("/d/a")
        assert [info.path for info in files.list("/d")] == ["/d/ab", "/d/b/c"]
        files.write("/d/a", b"new", mode="create")
        assert files.read("/d/a") == b"new"

    def test_list_is_by_whole_segments_and_sorted(self) -> None:
        """A list holds the files below a folder, not of a folder whose name merely starts the same, by code points."""
        files = self.subject()
        paths = ["/a/b/2", "/a/b/10", "/a/b-c", "/ab/x", "/a/é", "/a/B", "/z", "/a/b/deep/er/1"]
        for path in paths:
            files.write(path, path.encode(), mode="create")
        assert [info.path for info in files.list("/")] == sorted(paths)
        assert [info.path for info in files.list("/a")] == sorted(p for p in paths if p.startswith("/a/"))
        assert [info.path for info in files.list("/a/b")] == ["/a/b/10", "/a/b/2", "/a/b/deep/er/1"]
        assert [(info.path, info.size) for info in files.list("/z")] == [("/z", 2)]
        assert list(files.list("/a/")) == list(files.list("/a"))

    def test_folder(self) -> None:
        """A folder shows its own files and the folders in it, each once."""
        files = self.subject()
        for path in ("/f/b", "/f/a", "/f/x/1", "/f/x/2", "/f/w/deep/1", "/fx/1"):
            files.write(path, b"12", mode="create")
        root, below = files.folder("/"), files.folder("/f")
        assert (root.path, root.files, root.folders) == ("/", (), ("/f", "/fx"))
        assert [(info.path, info.size) for info in below.files] == [("/f/a", 2), ("/f/b", 2)]
        assert below.folders == ("/f/w", "/f/x")

    def test_glob(self) -> None:
        """Globs match whole paths: `*` in a segment, `**` across, braces and sets, any depth without a slash."""
        files = self.subject()
        for path in ("/a.py", "/src/b.py", "/src/deep/c.py", "/src/d.ts", "/src/.hidden.py", "/src/[x].py"):
            files.write(path, b"", mode="create")
        expected = {
            "*.py": ["/a.py", "/src/.hidden.py", "/src/[x].py", "/src/b.py", "/src/deep/c.py"],
            "/*.py": ["/a.py"],
            "/src/*.{py,ts}": ["/src/.hidden.py", "/src/[x].py", "/src/b.py", "/src/d.ts"],
            "/src/**": ["/src/.hidden.py", "/src/[x].py", "/src/b.py", "/src/d.ts", "/src/deep/c.py"],
            "/src/**/c.?y": ["/src/deep/c.py"],
            "/src/[!a-c].ts": ["/src/d.ts"],
            "/none/*": [],
        }
        assert {pattern: [info.path for info in files.glob(pattern)] for pattern in expected} == expected
        with _raises(PathError):
            files.glob("/../*")

    def test_search(self) -> None:
        """Search finds lines with numbers and context, in order, skips binary files, and says when it is capped."""
        files = self.subject()
        files.write("/s/a.txt", b"one\r\ntwo needle\r\nthree\r\nfour needle\r\n", mode="create")
        files.write("/s/b.md", "前文\n这里有needle吗\n".encode(), mode="create")
        files.write("/s/c.bin", b"\x00needle", mode="create")
        files.write("/t/d.txt", b"needle", mode="create")
        found = files.search(Query(pattern="needle", under="/s", context=1))
        assert [(hit.path, hit.line, hit.text) for hit in found.hits] == [
            ("/s/a.txt", 2, "two needle"),
            ("/s/a.txt", 4, "four needle"),
            ("/s/b.md", 2, "这里有needle吗"),
        ]
        assert (found.hits[0].before, found.hits[0].after) == (("one",), ("three",))
        assert (found.ended, found.searched, found.skipped) == ("all", 2, ("/s/c.bin",))
        capped = files.search(Query(pattern="NEEDLE", ignore_case=True, glob="*.txt", max_hits=2))
        assert [(hit.path, hit.line) for hit in capped.hits] == [("/s/a.txt", 2), ("/s/a.txt", 4)]
        assert capped.ended == "hits"
        assert [h.line for h in files.search(Query(pattern=r"^(two|four)\b", syntax="regex", under="/s")).hits] == [
            2,
            4,
        ]
        with _raises(ConfigurationError):
            files.search(Query(pattern="(", syntax="regex"))

    def test_hostile_paths_are_refused(self) -> None:
        """No operation takes a path that could escape, or that some storage cannot hold; nothing is stored."""
        files = self.subject()
        for path in HOSTILE_PATHS:
            operations: tuple[Callable[[], object], ...] = (
                lambda path=path: files.read(path),  # type: ignore[misc]
                lambda path=path: files.write(path, b"x", mode="create"),  # type: ignore[misc]
                lambda path=path: files.write(path, b"x", mode="replace"),  # type: ignore[misc]
                lambda path=path: files.write(path, b"x", mode="append"),  # type: ignore[misc]
                lambda path=path: files.swap(path, b"", b"x"),  # type: ignore[misc]
                lambda path=path: files.stat(path),  # type: ignore[misc]
                lambda path=path: files.delete(path),  # type: ignore[misc]
            )
            for operation in operations:
                with _raises(PathError):
                    operation()
            if path not in {"/", "/a/"}:  # folders may be spelt so
                with _raises(PathError):
                    files.list(path)
                with _raises(PathError):
                    files.folder(path)
        assert list(files.list("/")) == []

    def test_unusual_names_are_kept(self) -> None:
        """Names that are odd but allowed come back as they are: spaces, dots, emoji, Chinese, shell and URL signs."""
        files = self.subject()
        names = self.unusual_names
        for name in names:
            files.write(f"/odd/{name}", name.encode(), mode="create")
        assert [info.path for info in files.list("/odd")] == sorted(f"/odd/{name}" for name in names)
        assert [files.read(f"/odd/{name}").decode() for name in names] == list(names)

    def test_creates_at_once(self) -> None:
        """Of several creates of one path with different bytes, one succeeds, whole, and the others are told."""
        files = self.subject()
        contents = [bytes([65 + index]) * 50_000 for index in range(WRITERS)]
        results = _at_once([_attempt(files, "/race", data) for data in contents])
        winners = [data for data, error in zip(contents, results, strict=True) if error is None]
        assert len(winners) == 1
        assert all(isinstance(error, FileConflictError) for error in results if error is not None)
        assert files.read("/race") == winners[0]

    def test_repeated_creates_at_once(self) -> None:
        """Creates of one path with the same bytes all succeed."""
        files = self.subject()
        assert _at_once([_attempt(files, "/same/path", BINARY) for _ in range(WRITERS)]) == [None] * WRITERS
        assert files.read("/same/path") == BINARY

    def test_appends_at_once(self) -> None:
        """Appends at once are all there, whole, those of one writer in order."""
        files = self.subject()
        per_writer = 5

        def writer(index: int) -> Callable[[], RefoldError | None]:
            def write() -> None:
                for number in range(per_writer):
                    files.write("/log", f"{index}:{number}:{'x' * 500}\n".encode(), mode="append")

            return write

        assert _at_once([writer(index) for index in range(WRITERS)]) == [None] * WRITERS
        lines = files.read("/log").decode().splitlines()
        assert sorted(lines) == sorted(f"{i}:{n}:{'x' * 500}" for i in range(WRITERS) for n in range(per_writer))
        for index in range(WRITERS):
            own = [line for line in lines if line.startswith(f"{index}:")]
            assert own == sorted(own)

    def test_swaps_at_once(self) -> None:
        """Of several swaps from the same content, one succeeds: no update is lost."""
        files = self.subject()
        files.write("/counter", b"0", mode="create")

        def swapper(index: int) -> Callable[[], RefoldError | None]:
            def swap() -> RefoldError | None:
                try:
                    files.swap("/counter", b"0", f"by {index}".encode())
                except FileConflictError as error:
                    return error
                return None

            return swap

        results = _at_once([swapper(index) for index in range(WRITERS)])
        winners = [index for index, error in enumerate(results) if error is None]
        assert len(winners) == 1
        assert files.read("/counter") == f"by {winners[0]}".encode()


class AsyncFilesConformance(FilesConformance):
    """The same promises through `Files.asynchronous()`, each call in an event loop of its own."""

    def subject(self) -> Files:
        """The awaited storage, called from sync tests."""
        files = self.make_files()
        return _Awaited(files, files.asynchronous())


class _Awaited:
    """`AsyncFiles` as `Files`, for the tests."""

    def __init__(self, files: Files, awaited: AsyncFiles) -> None:
        self._files = files
        self._awaited = awaited

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return _await(self._awaited.read(path, start=start, length=length))

    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        _await(self._awaited.write(path, data, mode=mode))

    def swap(self, path: str, old: bytes, new: bytes) -> None:
        _await(self._awaited.swap(path, old, new))

    def stat(self, path: str) -> FileInfo | None:
        return _await(self._awaited.stat(path))

    def list(self, folder: str) -> Sequence[FileInfo]:
        return _await(self._awaited.list(folder))

    def folder(self, path: str) -> Folder:
        return _await(self._awaited.folder(path))

    def glob(self, pattern: str) -> Sequence[FileInfo]:
        return _await(self._awaited.glob(pattern))

    def search(self, query: Query) -> SearchResult:
        return _await(self._awaited.search(query))

    def delete(self, path: str) -> None:
        _await(self._awaited.delete(path))

    def asynchronous(self) -> AsyncFiles:
        return self._awaited


def _await(call: Coroutine[object, object, T]) -> T:
    return asyncio.run(call)


def _attempt(files: Files, path: str, data: bytes) -> Callable[[], RefoldError | None]:
    def attempt() -> RefoldError | None:
        try:
            files.write(path, data, mode="create")
        except FileConflictError as error:
            return error
        return None

    return attempt


def _at_once(tasks: Sequence[Callable[[], RefoldError | None]]) -> Sequence[RefoldError | None]:
    """Run tasks in threads, each in a copy of the caller's context, as `asyncio.to_thread` does."""
    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        futures = [pool.submit(copy_context().run, task) for task in tasks]
        return [future.result() for future in futures]


@contextmanager
def _raises(kind: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, and nothing was raised")
