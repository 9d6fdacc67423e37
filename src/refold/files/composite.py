"""Storages mounted under path prefixes, as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from refold.core.effects import ReadFile, WriteFile, WriteMode
from refold.core.paths import clean_folder, clean_path, is_under
from refold.core.program import Effect, Program
from refold.errors import ConfigurationError, FileConflictError, PathError
from refold.files.base import ProgramFiles, missing
from refold.files.effects import (
    DeleteFile,
    ListFiles,
    ListFolder,
    ReadRange,
    StatFile,
    SwapFile,
    aanswer,
    answer,
)
from refold.files.protocol import FileInfo, Files, Folder

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OnPart(Effect[object]):
    """An effect on one of the mounted storages."""

    files: Files
    effect: Effect[object]


class CompositeFiles(ProgramFiles):
    """`Files` that send each path to the storage mounted at its longest prefix, else to `default`.

        CompositeFiles(LocalFiles(".refold"), {"/memories": open_files("s3://team/memories"), "/skills": skills})

    A mounted storage sees paths without its prefix: `/memories/a.md` is its `/a.md`. What `default` holds under a
    prefix is hidden. Raises `ConfigurationError` for a prefix that is no folder path or is `/`.
    """

    def __init__(self, default: Files, mounts: Mapping[str, Files]) -> None:
        for prefix in mounts:
            try:
                clean_path(prefix)
            except PathError as error:
                raise ConfigurationError(f"cannot mount storage at {prefix!r}: {error}") from error
        self._default = default
        self._mounts = dict(sorted(mounts.items(), key=lambda mount: -len(mount[0])))

    def parts(self) -> Sequence[Files]:
        """Every storage, the default first."""
        return (self._default, *self._mounts.values())

    def part(self, path: str) -> tuple[Files, str]:
        """The storage of a path, and the path in it."""
        _, files, below = self._route(path)
        return files, below

    def read_gen(self, path: str, start: int, length: int | None) -> Program[bytes]:
        """Ask the storage of the path."""
        if clean_path(path) in self._mounts:
            raise missing(path)
        _, files, below = self._route(path)
        if start == 0 and length is None:
            return (yield from _on(files, ReadFile(path=below)))
        return (yield from _on(files, ReadRange(path=below, start=start, length=length)))

    def write_gen(self, path: str, data: bytes, mode: WriteMode) -> Program[None]:
        """Ask the storage of the path."""
        _, files, below = self._route(path)
        yield from _on(files, WriteFile(path=below, data=data, mode=mode))

    def swap_gen(self, path: str, old: bytes, new: bytes) -> Program[None]:
        """Ask the storage of the path."""
        if clean_path(path) in self._mounts:
            raise missing(path)
        _, files, below = self._route(path)
        yield from _on(files, SwapFile(path=below, old=old, new=new))

    def delete_gen(self, path: str) -> Program[None]:
        """Ask the storage of the path."""
        _, files, below = self._route(path)
        yield from _on(files, DeleteFile(path=below))

    def stat_gen(self, path: str) -> Program[FileInfo | None]:
        """Ask the storage of the path; a mount itself is a folder."""
        if clean_path(path) in self._mounts:
            return None
        prefix, files, below = self._route(path)
        info = yield from _on(files, StatFile(path=below))
        return None if info is None else replace(info, path=prefix + info.path)

    def list_gen(self, folder: str) -> Program[Sequence[FileInfo]]:
        """Join the listings of the storage of the folder and of those mounted below it."""
        folder = clean_folder(folder)
        prefix, files, below = self._folder_route(folder)
        own = yield from _on(files, ListFiles(folder=below))
        found = [replace(info, path=prefix + info.path) for info in own]
        found = [info for info in found if self._prefix_of(info.path) == prefix]
        for mount, mounted in self._mounts.items():
            if mount != prefix and is_under(mount, folder):
                inner = yield from _on(mounted, ListFiles(folder="/"))
                found += [
                    replace(info, path=mount + info.path)
                    for info in inner
                    if self._prefix_of(mount + info.path) == mount
                ]
        return tuple(sorted(found, key=lambda info: info.path))

    def folder_gen(self, path: str) -> Program[Folder]:
        """The folder in its storage, and the mounts below it that hold something."""
        path = clean_folder(path)
        prefix, files, below = self._folder_route(path)
        own = yield from _on(files, ListFolder(path=below))
        inside = [replace(info, path=prefix + info.path) for info in own.files]
        folders = {prefix + name for name in own.folders} - set(self._mounts)
        for mount, mounted in self._mounts.items():
            if mount != prefix and mount != path and is_under(mount, path):
                top = yield from _on(mounted, ListFolder(path="/"))
                if top.files or top.folders:
                    start = "" if path == "/" else path
                    folders.add(f"{start}/{mount[len(start) + 1 :].partition('/')[0]}")
        files_here = tuple(info for info in inside if self._prefix_of(info.path) == prefix)
        return Folder(path=path, files=files_here, folders=tuple(sorted(folders)))

    def handle(self, effect: Effect[object]) -> object:
        """Ask the storage of an effect."""
        match effect:
            case OnPart(files=files, effect=inner):
                return answer(files, inner)
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect on mounted storage")

    async def ahandle(self, effect: Effect[object]) -> object:
        """Ask the storage of an effect, awaited."""
        match effect:
            case OnPart(files=files, effect=inner):
                return await aanswer(files.asynchronous(), inner)
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect on mounted storage")

    def _prefix_of(self, path: str) -> str:
        """The longest mounted prefix of a path; empty for the default storage."""
        return next((mount for mount in self._mounts if is_under(path, mount)), "")

    def _route(self, path: str) -> tuple[str, Files, str]:
        """The prefix, the storage and the path within it, for a file's path."""
        path = clean_path(path)
        if path in self._mounts:
            raise FileConflictError(f"{path} is a folder, where other storage is mounted: name a file in it")
        return self._folder_route(path)

    def _folder_route(self, path: str) -> tuple[str, Files, str]:
        prefix = self._prefix_of(path)
        return prefix, self._mounts.get(prefix, self._default), path[len(prefix) :] or "/"


def _on(files: Files, effect: Effect[T]) -> Program[T]:
    return cast("T", (yield from OnPart(files=files, effect=effect)))
