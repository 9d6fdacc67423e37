"""Files in the state of a graph: they live, fork and rewind with the thread.

A write is a delta: the channel gets what changed (the new content, the appended piece, a removal), and a reducer
applies it. With LangGraph's `DeltaChannel`, which `FilesState` uses, a checkpoint then stores only that, and never a
copy of all files.

State can be changed only by what a node returns. So work happens in a session over the state that a hook or tool was
given, and its `update()` goes into what that hook or tool returns:

    with files.session(runtime.state) as session:
        files.write("/notes.md", data, mode="replace")
        files.read("/notes.md")  # its own writes are seen
    return Command(update={"messages": [...], **session.update()})

`files_session` does the same for any `Files`: for those that are not in state the update is empty.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Annotated, Final, Literal, NotRequired, cast

from langgraph.channels.delta import DeltaChannel
from typing_extensions import TypedDict  # the kind that LangChain's and LangGraph's own states can be combined with

from refold.core.paths import clean_path
from refold.errors import ConfigurationError
from refold.files.composite import CompositeFiles
from refold.files.keyed import KeyedFiles
from refold.files.pieces import cut, pack, unpack
from refold.files.protocol import FileInfo, Files

CHANNEL: Final = "refold_files"
"""The state key. Deep Agents has its own `files`, of another form."""


class StoredFile(TypedDict):
    """A file in state, as plain JSON: `pieces` as `refold.files.pieces.pack` writes them."""

    size: int
    modified: float
    pieces: Sequence[Mapping[str, str]]


class FileDelta(TypedDict):
    """One change of one file. `put` stores, `append` adds, `create` stores unless the path is taken, `drop` removes."""

    op: Literal["put", "append", "create", "drop"]
    path: str
    size: int
    modified: float
    pieces: Sequence[Mapping[str, str]]


def reduce_files(
    state: Mapping[str, StoredFile] | None, writes: Sequence[Sequence[FileDelta]]
) -> Mapping[str, StoredFile]:
    """Apply deltas in order. Pure; batches may be split or joined without changing the result."""
    files = dict(state or {})
    for write in writes:
        for delta in write:
            _apply(files, delta)
    return files


class FilesState(TypedDict):
    """The channel, to inherit from or to name in `state_schema`."""

    refold_files: NotRequired[Annotated[dict[str, StoredFile], DeltaChannel(reduce_files, dict)]]


class FilesSession:
    """The files of one hook or tool call: the state that it was given, and its own changes."""

    def __init__(self, state: Mapping[str, StoredFile]) -> None:
        self.files: dict[str, StoredFile] = dict(state)
        self._deltas: list[FileDelta] = []
        self._lock = threading.Lock()

    def change(self, delta: FileDelta) -> None:
        """Apply a delta, and keep it for the update."""
        with self._lock:
            _apply(self.files, delta)
            self._deltas.append(delta)

    def update(self) -> dict[str, object]:
        """What to put into the state update; empty when nothing changed."""
        return {CHANNEL: list(self._deltas)} if self._deltas else {}


class StateFiles(KeyedFiles):
    """`Files` in graph state, within a `session`. `clock`: seconds since 1970, read at a write, never in the reducer.

    Two tool calls of the same step each see the state before it: of two that replace the same file, the later one wins;
    appends of both stay. Outside of a session every method raises `ConfigurationError`.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._clock = clock
        self._session: ContextVar[FilesSession | None] = ContextVar("refold_files_session", default=None)

    @contextmanager
    def session(self, state: Mapping[str, object]) -> Iterator[FilesSession]:
        """Work on the files of a state, in this context and in the threads and tasks that are started from it.

        Within a session of the same object, the outer one goes on.
        """
        outer = self._session.get()
        if outer is not None:
            yield outer
            return
        session = FilesSession(cast("Mapping[str, StoredFile]", state.get(CHANNEL) or {}))
        token = self._session.set(session)
        try:
            yield session
        finally:
            self._session.reset(token)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Outside of any session: for a graph that runs inside a tool call, with a state and sessions of its own."""
        token = self._session.set(None)
        try:
            yield
        finally:
            self._session.reset(token)

    def load(self, path: str) -> bytes | None:
        """The pieces of the file in the session."""
        stored = self._current().files.get(path)
        return None if stored is None else b"".join(unpack(piece, path=path) for piece in stored["pieces"])

    def save(self, path: str, data: bytes) -> None:
        """A delta with the new content."""
        self._change("put", path, data)

    def make(self, path: str, data: bytes) -> None:
        """A delta with the content, which the reducer drops when another call of the step made the file first."""
        self._change("create", path, data)

    def renew(self, path: str, data: bytes) -> None:
        """Nothing: a thread's state keeps its files as long as itself."""

    def extend(self, path: str, data: bytes) -> None:
        """A delta with the appended bytes alone."""
        self._change("append", path, data)

    def drop(self, path: str) -> None:
        """A delta that removes the file."""
        if path in self._current().files:
            self._change("drop", path, b"")

    def info(self, path: str) -> FileInfo | None:
        """From the state."""
        stored = self._current().files.get(path)
        return None if stored is None else FileInfo(path=path, size=stored["size"], modified=stored["modified"])

    def found(self, folder: str) -> Iterable[FileInfo]:
        """From the state."""
        for path, stored in list(self._current().files.items()):
            yield FileInfo(path=clean_path(path), size=stored["size"], modified=stored["modified"])

    def _current(self) -> FilesSession:
        session = self._session.get()
        if session is None:
            raise ConfigurationError(
                "files in graph state work only inside `with files.session(state)`: open one around the call, and put "
                "its update() into what the node returns"
            )
        return session

    def _change(self, op: Literal["put", "append", "create", "drop"], path: str, data: bytes) -> None:
        pieces = [pack(piece) for piece in cut(data)]
        self._current().change(
            FileDelta(op=op, path=path, size=len(data), modified=self._clock(), pieces=pieces),
        )


@contextmanager
def files_session(files: Files, state: Mapping[str, object]) -> Iterator[FilesSession]:
    """A session over a state for any files: the state storage among them is opened, others need none.

    Raises `ConfigurationError` when there are two, since both would be the same files under two prefixes.
    """
    found = list(_state_files(files))
    if len(set(map(id, found))) > 1:
        raise ConfigurationError(
            "two StateFiles are mounted, and there is one channel: mount one, and use folders in it"
        )
    if not found:
        yield FilesSession({})
        return
    with found[0].session(state) as session:
        yield session


@contextmanager
def outside_sessions(files: Files) -> Iterator[None]:
    """Outside of any session of the state storage among some files."""
    with ExitStack() as stack:
        for found in _state_files(files):
            stack.enter_context(found.outside())
        yield


def uses_state(files: Files) -> bool:
    """Whether some of the files live in graph state."""
    return any(True for _ in _state_files(files))


def lies_in_state(files: Files, path: str) -> bool:
    """Whether what is stored at a path lives in graph state."""
    while isinstance(files, CompositeFiles):
        files, path = files.part(path)
    return isinstance(files, StateFiles)


def _state_files(files: Files) -> Iterator[StateFiles]:
    match files:
        case StateFiles():
            yield files
        case CompositeFiles():
            for part in files.parts():
                yield from _state_files(part)
        case _:
            return


def _apply(files: dict[str, StoredFile], delta: FileDelta) -> None:
    path, there = delta["path"], files.get(delta["path"])
    if delta["op"] == "drop":
        files.pop(path, None)
    elif delta["op"] == "append" and there is not None:
        files[path] = StoredFile(
            size=there["size"] + delta["size"],
            modified=delta["modified"],
            pieces=[*there["pieces"], *delta["pieces"]],
        )
    elif delta["op"] != "create" or there is None:
        files[path] = StoredFile(size=delta["size"], modified=delta["modified"], pieces=delta["pieces"])
