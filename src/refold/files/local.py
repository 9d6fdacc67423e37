"""A local directory as a jail.

What keeps a path inside: every operation opens the root, then each folder relative to the handle of the one before it,
never following a link (`openat` with `O_NOFOLLOW`). There is no path that is checked first and used later, so a folder
that is swapped for a link in between changes nothing: the handle still is the folder. Only regular files are opened,
and never in a way that waits (a FIFO, a device).

What keeps content whole: new content is written to a file of its own, forced to disk, then linked (create) or renamed
(replace, swap) into place, and the folder is forced to disk. A process that is killed leaves the old content or the
new, and at worst a file named `.refold-tmp-…`, which no path can name and `sweep` removes.

What orders writers: every change holds an advisory lock (`flock`) on the folder, so an append does not go to a file
that is being replaced, and a swap compares what it replaces. Readers never wait.
"""

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.core.effects import WriteMode
from refold.core.paths import MAX_PATH_BYTES, TEMPORARY_PREFIX, clean_folder, clean_path
from refold.errors import FileConflictError, FileMissingError, FilesUnavailableError, PathError
from refold.files.base import BaseFiles, changed, checked_range, folder_of, missing, occupied
from refold.files.protocol import FileInfo, Folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
_READ_BYTES = 1 << 20


class LocalFiles(BaseFiles):
    """`Files` in a local directory, which is made at the first write, readable by its owner only.

    Needs a POSIX system with `openat` and `flock` (Linux, macOS). Folders that the process may not read are not listed.
    Locks are those of the file system: on a network mount without them, writers on different machines are not ordered.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        start, length = checked_range(start, length)
        with _storage(path), self._parent(clean_path(path)) as (folder, name), _opened(path, folder, name) as file:
            return _read_all(file, start, length)

    def write(self, path: str, data: bytes, *, mode: WriteMode) -> None:
        """See `Files.write`."""
        with _storage(path), self._parent(clean_path(path), make=True) as (folder, name), _locked(folder):
            match mode:
                case "create":
                    _create(path, folder, name, data)
                case "replace":
                    _replace(path, folder, name, data)
                case "append":
                    _append(path, folder, name, data)

    def swap(self, path: str, old: bytes, new: bytes) -> None:
        """See `Files.swap`."""
        with _storage(path), self._parent(clean_path(path)) as (folder, name), _locked(folder):
            if not _holds(path, folder, name, old):
                raise changed(path)
            _replace(path, folder, name, new)

    def stat(self, path: str) -> FileInfo | None:
        """See `Files.stat`."""
        try:
            with _storage(path), self._parent(clean_path(path)) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileMissingError:
            return None
        if stat.S_ISDIR(found.st_mode):
            return None
        _check_regular(path, found.st_mode)
        return FileInfo(path=path, size=found.st_size, modified=found.st_mtime)

    def list(self, folder: str) -> Sequence[FileInfo]:
        """See `Files.list`."""
        folder = clean_folder(folder)
        if folder != "/" and (alone := self.stat(folder)) is not None:
            return (alone,)
        try:
            with _storage(folder), self._open_folder(folder) as handle:
                return tuple(sorted(_walk(handle, "" if folder == "/" else folder), key=lambda info: info.path))
        except FileMissingError:
            return ()

    def folder(self, path: str) -> Folder:
        """See `Files.folder`; folders without files are listed too."""
        path = clean_folder(path)
        start = "" if path == "/" else path
        try:
            with _storage(path), self._open_folder(path) as handle:
                names = list(_entries(handle, start))
        except FileMissingError:
            return Folder(path=path, files=(), folders=())
        files = sorted((info for info, is_folder in names if not is_folder), key=lambda info: info.path)
        folders = tuple(sorted(info.path for info, is_folder in names if is_folder))
        return Folder(path=path, files=folder_of(path, files).files, folders=folders)

    def delete(self, path: str) -> None:
        """See `Files.delete`."""
        try:
            with _storage(path), self._parent(clean_path(path)) as (folder, name), _locked(folder):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    raise FileConflictError(f"{path} is a folder: delete the files in it by their paths")
                _check_regular(path, found.st_mode)
                os.unlink(name, dir_fd=folder)
                os.fsync(folder)
        except FileMissingError:
            return

    def sweep(self, *, older_than: float = 86_400.0) -> int:
        """Remove what killed processes left unfinished, when it is older than so many seconds; how many files."""
        latest = time.time() - older_than
        try:
            with _storage("/"), self._open_folder("/") as handle:
                return _sweep(handle, latest)
        except FileMissingError:
            return 0

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a path, and the name in it."""
        folder, _, name = path.rpartition("/")
        with self._open_folder(folder or "/", make=make) as handle:
            yield handle, name

    @contextmanager
    def _open_folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        handle = self._open_root(make=make)
        try:
            reached = ""
            for segment in path.split("/")[1:] if path != "/" else ():
                reached = f"{reached}/{segment}"
                below = _enter(reached, handle, segment, make=make)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def _open_root(self, *, make: bool) -> int:
        if make and not self.root.is_dir():
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _enter(path: str, handle: int, segment: str, *, make: bool) -> int:
    """Open a folder relative to an open one; `make` creates it. A link or a file in its place is refused."""
    try:
        return os.open(segment, _FOLDER, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        found = os.stat(segment, dir_fd=handle, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            if make:
                raise FileConflictError(f"{path} is a file, so nothing can be stored below it") from error
            raise missing(path) from error
        _check_regular(path, found.st_mode)
        raise
    with suppress(FileExistsError):  # another writer made it first
        os.mkdir(segment, 0o700, dir_fd=handle)
        os.fsync(handle)
    return os.open(segment, _FOLDER, dir_fd=handle)


@contextmanager
def _opened(path: str, folder: int, name: str) -> Iterator[int]:
    """A regular file, opened for reading."""
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK}:
            raise _link(path) from error
        raise
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise FileMissingError(f"{path} is a folder, not a file: list it")
        _check_regular(path, mode)
        yield file
    finally:
        os.close(file)


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _create(path: str, folder: int, name: str, data: bytes) -> None:
    if _exists(folder, name):
        if not _holds(path, folder, name, data):
            raise occupied(path)
        os.utime(name, dir_fd=folder, follow_symlinks=False)
        os.fsync(folder)  # whoever made it may not have come to this yet
        return
    with _temporary(folder, data, 0o600) as temporary:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:  # made by a writer that holds no lock
            if not _holds(path, folder, name, data):
                raise occupied(path) from None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)  # the lock keeps our own writers out
    os.fsync(folder)


def _replace(path: str, folder: int, name: str, data: bytes) -> None:
    mode = 0o600
    with suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(found):
            raise FileConflictError(f"{path} is a folder: write to a path in it")
        _check_regular(path, found)
        mode = stat.S_IMODE(found) & 0o777  # a script stays executable
    with _temporary(folder, data, mode) as temporary:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _append(path: str, folder: int, name: str, data: bytes) -> None:
    try:
        file = os.open(name, _APPEND, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK}:
            raise _link(path) from error
        if error.errno == errno.EISDIR:
            raise FileConflictError(f"{path} is a folder: write to a path in it") from error
        raise
    try:
        found = os.fstat(file)
        _check_regular(path, found.st_mode)
        try:
            _write_all(file, data)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, found.st_size)  # a full disk leaves no part of the piece
            raise
        os.fsync(folder)
    finally:
        os.close(file)


@contextmanager
def _temporary(folder: int, data: bytes, mode: int) -> Iterator[str]:
    """A complete, durable file under a name of its own, which is gone afterwards unless it was renamed."""
    name = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    file = os.open(name, _CREATE, 0o600, dir_fd=folder)
    try:
        try:
            _write_all(file, data)
            os.fchmod(file, mode)
            os.fsync(file)
        finally:
            os.close(file)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _holds(path: str, folder: int, name: str, data: bytes) -> bool:
    try:
        with _opened(path, folder, name) as file:
            return os.fstat(file).st_size == len(data) and _read_all(file, 0, None) == data
    except FileMissingError as error:
        raise FileConflictError(f"{path} is a folder: write to a path in it") from error


def _read_all(file: int, start: int, length: int | None) -> bytes:
    pieces: list[bytes] = []
    remaining = length
    while remaining is None or remaining > 0:
        piece = os.pread(file, _READ_BYTES if remaining is None else min(remaining, _READ_BYTES), start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
        remaining = None if remaining is None else remaining - len(piece)
    return b"".join(pieces)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _walk(handle: int, path: str) -> Iterator[FileInfo]:
    """Every regular file below an open folder. The depth is bounded by the length of a path."""
    for info, is_folder in _entries(handle, path):
        if not is_folder:
            yield info
            continue
        try:
            below = os.open(info.path.rpartition("/")[2], _FOLDER, dir_fd=handle)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # gone or replaced since, or not ours to read
        try:
            yield from _walk(below, info.path)
        finally:
            os.close(below)


def _entries(handle: int, path: str) -> Iterator[tuple[FileInfo, bool]]:
    """The files and folders directly in an open folder whose paths are allowed; whether each is a folder."""
    with os.scandir(handle) as entries:
        for entry in entries:
            try:
                clean_path(f"/{entry.name}")
                found = entry.stat(follow_symlinks=False)
            except (PathError, FileNotFoundError):
                continue  # a name that no path can spell, or a file that is gone since
            below = f"{path}/{entry.name}"
            if len(below.encode()) > MAX_PATH_BYTES or not stat.S_ISREG(found.st_mode) | stat.S_ISDIR(found.st_mode):
                continue
            yield FileInfo(path=below, size=found.st_size, modified=found.st_mtime), stat.S_ISDIR(found.st_mode)


def _sweep(handle: int, latest: float) -> int:
    removed = 0
    with os.scandir(handle) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    for name, status in found:
        if stat.S_ISDIR(status.st_mode):
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                below = os.open(name, _FOLDER, dir_fd=handle)
                try:
                    removed += _sweep(below, latest)
                finally:
                    os.close(below)
        elif name.startswith(TEMPORARY_PREFIX) and status.st_mtime < latest:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
                removed += 1
    return removed


def _check_regular(path: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise _link(path)
    if not stat.S_ISREG(mode):
        raise PathError(f"{path} is no regular file (a device, socket or pipe): it is not opened")


def _link(path: str) -> PathError:
    return PathError(f"{path} is a link, and links are not followed: use the path that it points at, inside the root")


@contextmanager
def _storage(path: str) -> Iterator[None]:
    """Errors of the operating system as ours."""
    try:
        yield
    except FileMissingError:
        raise
    except FileConflictError:
        raise
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise PathError(f"{path} is too long for the file system: use a shorter name") from error
        if error.errno == errno.ENOTDIR:
            raise missing(path) from error
        raise FilesUnavailableError(
            f"the directory behind {path} failed ({error.strerror}): check its rights, its space and its mount"
        ) from error
