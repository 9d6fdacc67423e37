"""refold's own savers as a source: the same programs that the savers run, in their own snapshots.

Checkpoints that a pruning keeps unlisted, for delta channels that are rebuilt from them, are part of the index: other
savers need them just as much, and have no way to hide them.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar, cast

from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Row, Select, SelectIn, Transaction
from refold.checkpoint.migrate.databases import check_url, is_postgres
from refold.checkpoint.migrate.lossless import lossless
from refold.checkpoint.migrate.saved import Mark, Place, Saved, SavedWrite
from refold.checkpoint.read import Loaded, load_gen, tuple_of
from refold.checkpoint.rows import get_writes
from refold.checkpoint.saver import SyncSaver
from refold.checkpoint.spaces import AWAITED, Space, find_checkpoint_gen, find_space_gen, unpack_id
from refold.checkpoint.sqlite.saver import SqliteSaver
from refold.core.program import Program

T = TypeVar("T")

_PAGE: Final = 500


@contextmanager
def open_saver(url: str, serde: SerializerProtocol | None = None, *, exclusive: bool = False) -> Iterator[SyncSaver]:
    """The saver of a path or URL, with its tables."""
    if is_postgres(url):
        from refold.checkpoint import PostgresSaver  # the page that says what is missing

        check_url(url)
        with PostgresSaver.from_conn_string(url, serde=serde, exclusive=exclusive) as postgres:
            postgres.setup()
            yield postgres
    else:
        with SqliteSaver.from_conn_string(url, serde=serde, exclusive=exclusive) as sqlite:
            sqlite.setup()
            yield sqlite


class RefoldSource:
    """A database of refold's savers, read."""

    def __init__(self, saver: SyncSaver) -> None:
        self._saver = saver

    @classmethod
    @contextmanager
    def open(cls, url: str, serde: SerializerProtocol | None = None) -> Iterator["RefoldSource"]:
        """Raises what the saver raises for a database of a newer format or under another key."""
        with open_saver(url, lossless(serde)) as saver:
            yield cls(saver)

    def index(self) -> Iterator[tuple[Place, Mark]]:
        spaces = self._ask(lambda ctx: _in_snapshot(_spaces_gen))
        for space, thread, namespace in sorted(spaces, key=lambda found: found[1:]):
            for checkpoint, mark in self._marks(space):
                yield Place(thread_id=thread, checkpoint_ns=namespace, checkpoint_id=checkpoint), mark

    def read(self, place: Place) -> Saved | None:
        return self._ask(lambda ctx: _saved_gen(ctx, place))

    def history(self, place: Place, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        return dict(self._saver.get_delta_channel_history(config=place.config, channels=channels))

    def size(self) -> int:
        return self._saver.stats().database_bytes

    def _marks(self, space: Space) -> list[tuple[str, Mark]]:
        return self._ask(lambda ctx: _in_snapshot(partial(_marks_gen, space)))

    def _ask(self, procedure: Callable[[Context], Program[T]]) -> T:
        return self._saver._run(procedure)  # the saver drives the programs of its own package


def _in_snapshot(program: Callable[[], Program[T]]) -> Program[T]:
    return (yield from Transaction(program=program, write=False))


def _spaces_gen() -> Program[list[tuple[Space, str, str]]]:
    rows = yield from Select(statement="spaces_all")
    return [
        (Space(id=space, wide=bool(wide)), thread, namespace)
        for space, thread, namespace, wide in cast("list[tuple[int, str, str, int]]", rows)
    ]


def _marks_gen(space: Space) -> Program[list[tuple[str, Mark]]]:
    """Every checkpoint of a space, oldest first, with a digest of its row and its rows of writes."""
    rows = yield from Select(statement="checkpoint_keys", args={"space": space.id})
    known = [
        (seq, unpack_id(checkpoint, wide=space.wide))
        for seq, checkpoint, state, _, _ in cast("list[tuple[int, bytes, int, object, object]]", reversed(rows))
        if state != AWAITED
    ]
    marks: list[tuple[str, Mark]] = []
    for at in range(0, len(known), _PAGE):
        page = known[at : at + _PAGE]
        cells: dict[int, list[Row]] = {seq: [] for seq, _ in page}
        for row in (yield from SelectIn(statement="checkpoint_rows", keys=list(cells))):
            seq, _, _, _, _, template, data, _ = row
            cells[cast("int", seq)].append((template, data))
        for row in (yield from get_writes(cells)):
            cells[cast("int", row[0])].append(row[1:])
        marks += [(checkpoint, _digest(cells[seq])) for seq, checkpoint in page]
    return marks


def _digest(rows: Sequence[Row]) -> Mark:
    found = sorted(
        b"|".join(bytes(cell) if isinstance(cell, bytes) else repr(cell).encode() for cell in row) for row in rows
    )
    return hashlib.blake2b(b"||".join(found), digest_size=16).hexdigest()


def _saved_gen(ctx: Context, place: Place) -> Program[Saved | None]:
    loaded = yield from _in_snapshot(partial(_load_gen, ctx, place))
    if loaded is None:
        return None
    [row] = loaded.rows
    found = tuple_of(ctx, loaded, row)
    writes = [
        SavedWrite(task_id=task, task_path=held.write.path, index=held.write.idx, channel=channel, value=value)
        for held, (task, channel, value) in zip(loaded.writes.get(row.seq, ()), found.pending_writes or (), strict=True)
    ]
    return Saved(tuple=found, writes=writes)


def _load_gen(ctx: Context, place: Place) -> Program[Loaded | None]:
    space = yield from find_space_gen(place.thread_id, place.checkpoint_ns)
    row = None if space is None else (yield from find_checkpoint_gen(space, place.checkpoint_id))
    if row is None or row.state == AWAITED:
        return None
    return (yield from load_gen(ctx, place.thread_id, place.checkpoint_ns, [row]))
