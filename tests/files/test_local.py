"""The directory jail: nothing gets out, nothing is half-written."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from refold.errors import FileConflictError, FileMissingError, FilesUnavailableError, PathError
from refold.files import LocalFiles, Query
from refold.files import local as local_module


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    """A jail beside a secret that it must not reach."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("SECRET")
    return LocalFiles(tmp_path / "root")


class TestTheRoot:
    """Where the jail is, and who may read it."""

    def test_it_is_made_at_the_first_write_for_its_owner_only(self, files: LocalFiles) -> None:
        """Reading makes nothing; the first write makes the root with 0700, folders with 0700, files with 0600."""
        assert files.list("/") == ()
        assert not files.root.exists()
        files.write("/a/b", b"x", mode="create")
        modes = [stat.S_IMODE(p.stat().st_mode) for p in (files.root, files.root / "a", files.root / "a" / "b")]
        assert modes == [0o700, 0o700, 0o600]

    def test_a_root_that_is_a_file_is_an_error(self, tmp_path: Path) -> None:
        """The storage is unavailable, and says where."""
        (tmp_path / "f").write_text("")
        with pytest.raises((FilesUnavailableError, FileMissingError)):
            LocalFiles(tmp_path / "f").write("/a", b"", mode="create")

    def test_a_replaced_script_stays_executable(self, files: LocalFiles) -> None:
        """Replacing content keeps the permission bits."""
        files.write("/run.sh", b"old", mode="create")
        (files.root / "run.sh").chmod(0o755)
        files.write("/run.sh", b"new", mode="replace")
        assert stat.S_IMODE((files.root / "run.sh").stat().st_mode) == 0o755

    def test_absolute_paths_are_inside(self, files: LocalFiles) -> None:
        """`/etc/passwd`, and the path of the root itself, are names in the jail and nothing else."""
        with pytest.raises(FileMissingError):
            files.read("/etc/passwd")
        files.write("/etc/passwd", b"inside", mode="create")
        assert (files.root / "etc" / "passwd").read_bytes() == b"inside"
        with pytest.raises(FileMissingError):
            files.read(f"{files.root}/etc/passwd")


class TestLinksAreNotFollowed:
    """A link in the jail leads nowhere."""

    @pytest.mark.parametrize("target", ["../outside/secret", "inside"])
    def test_a_link_to_a_file(self, files: LocalFiles, target: str) -> None:
        """A link, out of the jail or within, is refused by every operation, and is not listed or searched."""
        files.write("/inside", b"SECRET", mode="create")
        os.symlink(target, files.root / "link")
        for operation in (
            lambda: files.read("/link"),
            lambda: files.stat("/link"),
            lambda: files.write("/link", b"x", mode="create"),
            lambda: files.write("/link", b"x", mode="replace"),
            lambda: files.write("/link", b"x", mode="append"),
            lambda: files.swap("/link", b"SECRET", b"x"),
            lambda: files.delete("/link"),
        ):
            with pytest.raises(PathError, match="link"):
                operation()
        assert [info.path for info in files.list("/")] == ["/inside"]
        assert [hit.path for hit in files.search(Query(pattern="SECRET")).hits] == ["/inside"]
        assert (files.root.parent / "outside" / "secret").read_text() == "SECRET"

    def test_a_link_to_a_folder(self, files: LocalFiles) -> None:
        """Nothing is read, written, listed or made through it."""
        files.write("/a", b"", mode="create")
        os.symlink(files.root.parent / "outside", files.root / "d")
        for operation in (
            lambda: files.read("/d/secret"),
            lambda: files.write("/d/new", b"x", mode="create"),
            lambda: files.write("/d/deep/new", b"x", mode="append"),
            lambda: files.delete("/d/secret"),
            lambda: files.list("/d"),
            lambda: files.folder("/d"),
        ):
            with pytest.raises(PathError, match="link"):
                operation()
        assert files.folder("/").folders == ()
        assert sorted(p.name for p in (files.root.parent / "outside").iterdir()) == ["secret"]

    def test_a_dangling_link_is_not_written_through(self, files: LocalFiles) -> None:
        """A create on a link to a missing file makes no file there."""
        files.write("/a", b"", mode="create")
        os.symlink(files.root.parent / "outside" / "new", files.root / "link")
        for mode in ("create", "append", "replace"):
            with pytest.raises(PathError, match="link"):
                files.write("/link", b"x", mode=mode)
        assert not (files.root.parent / "outside" / "new").exists()

    def test_a_folder_that_is_swapped_for_a_link_meanwhile(self, files: LocalFiles) -> None:
        """The race between check and use: a folder turns into a link and back, and nothing outside is touched."""
        files.write("/d/secret", b"inside", mode="create")
        outside = files.root.parent / "outside"
        stop = threading.Event()

        def swap_back_and_forth() -> None:
            folder, aside = files.root / "d", files.root / "e"
            while not stop.is_set():
                os.rename(folder, aside)
                # A write may make the folder anew in any gap: then there is no link, and its folder gives way.
                with contextlib.suppress(FileExistsError):
                    os.symlink(outside, folder)
                    os.unlink(folder)
                while aside.exists():
                    try:
                        os.rename(aside, folder)
                    except OSError:
                        shutil.rmtree(folder, ignore_errors=True)

        attacker = threading.Thread(target=swap_back_and_forth)
        attacker.start()
        seen = set()
        try:
            for number in range(400):
                try:
                    seen.add(files.read("/d/secret"))
                    files.write("/d/secret", b"inside", mode="replace")
                    files.write(f"/d/new{number}", b"x", mode="append")
                except (PathError, FileMissingError, FilesUnavailableError):
                    continue
        finally:
            stop.set()
            attacker.join()
        assert seen <= {b"inside"}
        assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("secret", "SECRET")]


class TestOnlyRegularFiles:
    """Devices, pipes and sockets are never opened in a way that waits or acts."""

    def test_a_pipe_a_socket_and_a_folder(
        self, files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pipe without a writer does not hang a read; neither it nor a socket is listed."""
        files.write("/folder/a", b"", mode="create")
        os.mkfifo(files.root / "pipe")
        monkeypatch.chdir(files.root)  # a socket's own path has a short limit
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
            for path in ("/pipe", "/socket"):
                for operation in (
                    lambda path=path: files.read(path),
                    lambda path=path: files.stat(path),
                    lambda path=path: files.write(path, b"x", mode="replace"),
                    lambda path=path: files.delete(path),
                ):
                    with pytest.raises((PathError, FilesUnavailableError)):
                        operation()
            assert [info.path for info in files.list("/")] == ["/folder/a"]
        for mode in ("create", "replace", "append"):
            with pytest.raises(FileConflictError, match="folder"):
                files.write("/folder", b"x", mode=mode)
        with pytest.raises(FileConflictError, match="folder"):
            files.delete("/folder")
        with pytest.raises(FileConflictError):
            files.write("/folder/a/below", b"x", mode="create")

    def test_names_that_no_path_can_spell_are_not_listed(self, files: LocalFiles) -> None:
        """Files put there by others under such names do not break a listing."""
        files.write("/a", b"", mode="create")
        for name in (b"back\\slash", b"new\nline", b"\xff", b"trailing.", b"nul"):
            (Path(os.fsdecode(os.fsencode(files.root) + b"/" + name))).write_text("x")
        assert [info.path for info in files.list("/")] == ["/a"]
        assert [info.path for info in files.folder("/").files] == ["/a"]

    def test_what_may_not_be_read(self, files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        """A folder without rights is left out of lists; such a file is an error to read, skipped in a search."""
        for path in ("/closed/a", "/b", "/c"):
            files.write(path, b"needle", mode="create")
        opened = os.open

        def denied(name: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if name in {"closed", "b"}:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return opened(name, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(local_module.os, "open", denied)  # root may read everything, so rights alone do not show it
        assert [info.path for info in files.list("/")] == ["/b", "/c"]
        with pytest.raises(FilesUnavailableError):
            files.read("/b")
        found = files.search(Query(pattern="needle"))
        assert ([hit.path for hit in found.hits], found.skipped) == (["/c"], ("/b",))


class TestNothingIsHalfWritten:
    """Old content or new content, never a part."""

    def test_killed_writers(self, files: LocalFiles) -> None:
        """Writers killed at any point leave every file whole; `sweep` removes what they left unfinished."""
        script = (
            "import sys; from refold.files import LocalFiles\n"
            "files = LocalFiles(sys.argv[1])\n"
            "for n in range(10**6):\n"
            "    data = str(n).encode() * 200_000\n"
            "    files.write('/replaced', data, mode='replace')\n"
            "    files.write(f'/created/{sys.argv[2]}-{n}', data, mode='create')\n"
            "    print(n, flush=True)\n"
        )
        for kill in range(6):
            writer = subprocess.Popen(
                [sys.executable, "-c", script, str(files.root), str(kill)], stdout=subprocess.PIPE, text=True
            )
            assert writer.stdout is not None
            for _ in range(1 + kill):
                writer.stdout.readline()
            time.sleep(0.003 * kill)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
        for info in files.list("/"):
            data = files.read(info.path)
            number = data[: len(data) // 200_000]
            assert data == number * 200_000
        files.sweep(older_than=-1)
        assert not [name for _, _, names in os.walk(files.root) for name in names if name.startswith(".refold-tmp-")]

    def test_a_full_disk(self, files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the disk is full in the middle of a write, the old content stays, no part of the new, and no litter."""
        files.write("/log", b"old\n", mode="create")
        written = os.write

        def full(file: int, data: memoryview) -> int:
            if len(data) > 5:
                return written(file, data[:5])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(local_module.os, "write", full)
        for mode in ("append", "replace"):
            with pytest.raises(FilesUnavailableError, match="space") as caught:
                files.write("/log", b"0123456789", mode=mode)
            assert isinstance(caught.value.__cause__, OSError)
        with pytest.raises(FilesUnavailableError):
            files.write("/new", b"0123456789", mode="create")
        assert files.read("/log") == b"old\n"
        assert os.listdir(files.root) == ["log"]

    def test_storage_without_hard_links(self, files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        """On FAT and the like a create is a rename under the lock: it still never overwrites."""

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(local_module.os, "link", refuse)
        files.write("/a", b"one", mode="create")
        with pytest.raises(FileConflictError):
            files.write("/a", b"two", mode="create")
        assert files.read("/a") == b"one"
        assert os.listdir(files.root) == ["a"]

    def test_writers_in_other_processes(self, files: LocalFiles) -> None:
        """Fault 106's cousin: appends and swaps of several processes all arrive."""
        files.write("/counter", b"0", mode="create")
        script = (
            "import sys; from refold.files import LocalFiles; from refold.errors import FileConflictError\n"
            "files = LocalFiles(sys.argv[1])\n"
            "for n in range(20):\n"
            "    files.write('/log', b'x' * 10_000 + b'\\r\\n', mode='append')\n"
            "    while True:\n"
            "        old = files.read('/counter')\n"
            "        try:\n"
            "            files.swap('/counter', old, str(int(old) + 1).encode()); break\n"
            "        except FileConflictError: pass\n"
        )
        writers = [subprocess.Popen([sys.executable, "-c", script, str(files.root)]) for _ in range(3)]
        assert [writer.wait() for writer in writers] == [0, 0, 0]
        assert files.read("/counter") == b"60"
        assert files.read("/log") == (b"x" * 10_000 + b"\r\n") * 60

    def test_sweep_leaves_what_is_young(self, files: LocalFiles) -> None:
        """A write that is going on now is not swept away."""
        files.write("/a", b"", mode="create")
        (files.root / ".refold-tmp-young").write_text("half")
        assert files.sweep(older_than=3_600) == 0
        assert files.sweep(older_than=-1) == 1
