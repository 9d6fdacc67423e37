"""Object stores through obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure, and memory.

An object is written whole, so content is never half there. `create` is a conditional put ("only if nothing is there"),
`append` and `swap` read the object and put it back under the condition that it still is the version read; a lost race
is retried. An append therefore rewrites the object: for many small pieces write one file each, or keep the log in a
directory. A folder is a prefix of keys; an object may have others "below" it.

The store needs conditional puts: S3 (and most that speak its protocol), GCS and Azure have them.
"""

import asyncio
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from refold.core.effects import WriteMode
from refold.core.paths import clean_folder, clean_path
from refold.core.program import Effect, Program
from refold.errors import ConfigurationError, FileMissingError, FilesUnavailableError, PathError
from refold.files.base import ProgramFiles, changed, checked_range, missing, occupied
from refold.files.protocol import FileInfo, Folder

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, UpdateVersion
    from obstore.store import ObjectStore

ATTEMPTS: Final = 60
"""How often a conditional put is tried again after a lost race; each round, one of the racing writers wins."""

_QUERY = re.compile(r"\?[^\s)\"']+")
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Content:
    """An object's bytes, and the version that they are of."""

    data: bytes
    version: "UpdateVersion"


@dataclass(frozen=True, kw_only=True)
class GetObject(Effect[Content]):
    """The whole object. `FileMissingError` when there is none."""

    key: str


@dataclass(frozen=True, kw_only=True)
class GetRange(Effect[bytes]):
    """Bytes of an object from `start`; to its end without a length. The range begins before the end."""

    key: str
    start: int
    length: int | None


@dataclass(frozen=True, kw_only=True)
class PutObject(Effect[bool]):
    """Write an object under a condition; False when the condition does not hold."""

    key: str
    data: bytes
    mode: "PutMode"


@dataclass(frozen=True, kw_only=True)
class HeadObject(Effect["FileInfo | None"]):
    """Size and time of an object, None when there is none."""

    key: str


@dataclass(frozen=True, kw_only=True)
class ListObjects(Effect[Sequence[FileInfo]]):
    """Every object whose key starts with the folder's segments; in any order."""

    prefix: str


@dataclass(frozen=True, kw_only=True)
class ListPrefix(Effect[Folder]):
    """The objects and the common prefixes directly below a folder."""

    prefix: str


@dataclass(frozen=True, kw_only=True)
class DeleteObject(Effect[None]):
    """Remove an object, or nothing."""

    key: str


@dataclass(frozen=True, kw_only=True)
class Pause(Effect[None]):
    """Wait before another attempt."""

    seconds: float


class ObjectFiles(ProgramFiles):
    """`Files` in an object store of obstore, or below its prefix: `ObjectFiles(S3Store("bucket", prefix="agents"))`.

    See `refold.files.open_files` for stores by URL. `random_source` spreads the pauses between attempts.
    """

    def __init__(self, store: "ObjectStore", *, random_source: random.Random | None = None) -> None:
        self._store = store
        self._random = random_source or random.Random()

    def read_gen(self, path: str, start: int, length: int | None) -> Program[bytes]:
        """The whole object in one request, or a range in one."""
        key = clean_path(path)[1:]
        start, length = checked_range(start, length)
        if start == 0 and length is None:
            return (yield from GetObject(key=key)).data
        try:
            if length != 0:
                return (yield from GetRange(key=key, start=start, length=length))
        except FilesUnavailableError:
            # Stores answer a range that begins past the end with an error of their own each: ask for the size.
            info = yield from HeadObject(key=key)
            if info is not None and start < info.size:
                raise
        if (yield from HeadObject(key=key)) is None:
            raise missing(path)
        return b""

    def write_gen(self, path: str, data: bytes, mode: WriteMode) -> Program[None]:
        """A put under the mode's condition."""
        key = clean_path(path)[1:]
        match mode:
            case "replace":
                yield from PutObject(key=key, data=data, mode="overwrite")
            case "create":
                yield from self._create_gen(path, key, data)
            case "append":
                yield from self._append_gen(path, key, data)

    def swap_gen(self, path: str, old: bytes, new: bytes) -> Program[None]:
        """A put under the condition that the object is the version that held `old`."""
        key = clean_path(path)[1:]
        there = yield from GetObject(key=key)
        if there.data != old or not (yield from PutObject(key=key, data=new, mode=there.version)):
            raise changed(path)

    def stat_gen(self, path: str) -> Program[FileInfo | None]:
        """One HEAD request."""
        return (yield from HeadObject(key=clean_path(path)[1:]))

    def list_gen(self, folder: str) -> Program[Sequence[FileInfo]]:
        """The keys below the prefix; for a file's own path, that file."""
        folder = clean_folder(folder)
        found = yield from ListObjects(prefix=folder[1:])
        if not found and folder != "/":
            alone = yield from HeadObject(key=folder[1:])
            found = () if alone is None else (alone,)
        return tuple(sorted(found, key=lambda info: info.path))

    def folder_gen(self, path: str) -> Program[Folder]:
        """One list request with a delimiter."""
        return (yield from ListPrefix(prefix=clean_folder(path)[1:]))

    def delete_gen(self, path: str) -> Program[None]:
        """One delete request."""
        yield from DeleteObject(key=clean_path(path)[1:])

    def handle(self, effect: Effect[object]) -> object:
        """Send a request."""
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return None
        try:
            return self._request(effect)
        except _failures() as error:
            return _answer_to(error, effect)

    async def ahandle(self, effect: Effect[object]) -> object:
        """Send a request, natively awaited."""
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return None
        try:
            return await self._arequest(effect)
        except _failures() as error:
            return _answer_to(error, effect)

    def _create_gen(self, path: str, key: str, data: bytes) -> Program[None]:
        for _ in range(ATTEMPTS):
            if (yield from PutObject(key=key, data=data, mode="create")):
                return
            try:
                there = yield from GetObject(key=key)
            except FileMissingError:
                continue  # deleted since
            if there.data != data:
                raise occupied(path)
            if (yield from PutObject(key=key, data=data, mode=there.version)):  # for its time
                return
        raise _contended(path)

    def _append_gen(self, path: str, key: str, data: bytes) -> Program[None]:
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(ATTEMPTS):
            try:
                there = yield from GetObject(key=key)
            except FileMissingError:
                put = PutObject(key=key, data=data, mode="create")
            else:
                put = PutObject(key=key, data=there.data + data, mode=there.version)
            if (yield from put):
                return
            yield from Pause(seconds=pause * self._random.random())
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        raise _contended(path)

    def _request(self, effect: Effect[object]) -> object:
        import obstore

        match effect:
            case GetObject(key=key):
                got = obstore.get(self._store, key)
                return Content(data=bytes(got.bytes()), version=_version(got.meta))
            case GetRange(key=key, start=start, length=None):
                return bytes(obstore.get(self._store, key, options={"range": {"offset": start}}).bytes())
            case GetRange(key=key, start=start, length=length):
                return bytes(obstore.get_range(self._store, key, start=start, length=length))
            case PutObject(key=key, data=data, mode=mode):
                obstore.put(self._store, key, data, mode=mode, use_multipart=False)
                return True
            case HeadObject(key=key):
                return _info(obstore.head(self._store, key))
            case ListObjects(prefix=prefix):
                return _infos([meta for batch in obstore.list(self._store, prefix or None) for meta in batch])
            case ListPrefix(prefix=prefix):
                listed = obstore.list_with_delimiter(self._store, prefix or None)
                return _folder(prefix, listed["objects"], listed["common_prefixes"])
            case DeleteObject(key=key):
                obstore.delete(self._store, key)
                return None
            case _:
                raise TypeError(f"{type(effect).__name__} is no request to an object store")

    async def _arequest(self, effect: Effect[object]) -> object:
        import obstore

        match effect:
            case GetObject(key=key):
                got = await obstore.get_async(self._store, key)
                return Content(data=bytes(await got.bytes_async()), version=_version(got.meta))
            case GetRange(key=key, start=start, length=None):
                got = await obstore.get_async(self._store, key, options={"range": {"offset": start}})
                return bytes(await got.bytes_async())
            case GetRange(key=key, start=start, length=length):
                return bytes(await obstore.get_range_async(self._store, key, start=start, length=length))
            case PutObject(key=key, data=data, mode=mode):
                await obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)
                return True
            case HeadObject(key=key):
                return _info(await obstore.head_async(self._store, key))
            case ListObjects(prefix=prefix):
                return _infos(list(await obstore.list(self._store, prefix or None).collect_async()))
            case ListPrefix(prefix=prefix):
                listed = await obstore.list_with_delimiter_async(self._store, prefix or None)
                return _folder(prefix, listed["objects"], listed["common_prefixes"])
            case DeleteObject(key=key):
                await obstore.delete_async(self._store, key)
                return None
            case _:
                raise TypeError(f"{type(effect).__name__} is no request to an object store")


def store_from_url(url: str, options: "dict[str, str] | None" = None) -> "ObjectStore":
    """An obstore store by URL (`s3://bucket/prefix`, `gs://`, `az://`, `memory://`), with its options by name.

    `endpoint` over plain http needs `allow_http="true"`. Credentials not given come from the provider's usual chain.
    Raises `ConfigurationError` when obstore is not installed, or does not know the URL or an option.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import MemoryStore, from_url
    except ImportError as error:
        raise ConfigurationError(f"{url} needs obstore: install refold[objects]") from error
    if url.startswith("memory:"):
        return MemoryStore()
    given = dict(options or {})
    allow_http = given.pop("allow_http", "false").casefold() == "true"
    try:
        # The options are the provider's, by name; obstore checks them.
        return from_url(url, config=given or None, client_options={"allow_http": allow_http})  # type: ignore[call-overload, no-any-return]
    except (BaseError, ValueError, TypeError) as error:
        raise ConfigurationError(f"cannot open {url}: {_first_line(error)}") from error


def _failures() -> tuple[type[Exception], ...]:
    """What obstore raises; it is imported when a store is used."""
    from obstore.exceptions import BaseError

    return (BaseError, OSError)


def _answer_to(error: Exception, effect: Effect[object]) -> object:
    """What an error of obstore means for a request: an answer where it is one, else our error."""
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    match effect, error:
        case PutObject(), AlreadyExistsError() | PreconditionError():
            return False
        case HeadObject(), FileNotFoundError():
            return None
        case DeleteObject(), FileNotFoundError():
            return None
        case ((GetObject(key=key) | GetRange(key=key)), FileNotFoundError()):
            raise missing(f"/{key}") from error
        case _:
            raise FilesUnavailableError(
                f"the object store failed ({_first_line(error)}): check its name, credentials, region and network"
            ) from error


def _version(meta: "ObjectMeta") -> "UpdateVersion":
    """The condition "still this version"; obstore takes no None."""
    given: dict[str, str | None] = {"e_tag": meta["e_tag"], "version": meta["version"]}
    return {key: value for key, value in given.items() if value is not None}  # type: ignore[return-value]


def _info(meta: "ObjectMeta") -> FileInfo:
    return FileInfo(path=f"/{meta['path']}", size=meta["size"], modified=meta["last_modified"].timestamp())


def _infos(metas: "Sequence[ObjectMeta]") -> Sequence[FileInfo]:
    return tuple(info for meta in metas if _allowed((info := _info(meta)).path))


def _folder(prefix: str, objects: "Sequence[ObjectMeta]", prefixes: Sequence[str]) -> Folder:
    files = tuple(sorted(_infos(objects), key=lambda info: info.path))
    folders = tuple(sorted(f"/{name}" for name in prefixes if _allowed(f"/{name}")))
    return Folder(path=f"/{prefix}", files=files, folders=folders)


def _allowed(path: str) -> bool:
    """Whether a key that others put there is a path that we can name."""
    try:
        clean_path(path)
    except PathError:
        return False
    return True


def _contended(path: str) -> FilesUnavailableError:
    return FilesUnavailableError(f"{path} is being changed by too many writers at once: write to a path per writer")


def _first_line(error: Exception) -> str:
    """The start of an error, without the query of a URL: it may hold a signature, and a model may read the text."""
    return _QUERY.sub("?…", str(error).strip().split("\n", 1)[0])[:300]
