"""What a migration asks of a target besides the methods of a saver: which checkpoints are there, read as ids alone."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from refold.checkpoint.deletions import deletion_key
from refold.checkpoint.effects import Select, SelectEach, Transaction
from refold.checkpoint.meta import read_meta_gen
from refold.checkpoint.migrate.saved import Place, SavedWrite
from refold.checkpoint.rows import get_writes
from refold.checkpoint.saver import SyncSaver
from refold.checkpoint.spaces import AWAITED, find_checkpoint_gen, find_space_gen, unpack_id
from refold.core.program import Program

if TYPE_CHECKING:
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.sqlite import SqliteSaver

T = TypeVar("T")

_ALL: Final = 1_000_000

Held: TypeAlias = dict[str, set[str]]
"""Ids of checkpoints by namespace; no namespace without any."""


class Target(Protocol):
    """A database that checkpoints are written to."""

    drops_writes_of_metadata: bool
    """whether its saver leaves `metadata["writes"]` out, which LangGraph's wrote until 2025"""

    def held(self, thread: str) -> Held:
        """The checkpoints of a thread, unlisted ones too."""

    def writes_at(self, place: Place) -> int:
        """Rows of writes of a checkpoint that is held."""

    def rows_of(self, writes: Sequence[SavedWrite]) -> int:
        """Rows that these writes of one checkpoint take."""

    def welcome(self, thread: str) -> None:
        """Lets a thread in again that was deleted."""

    def remembers_deletion(self, thread: str) -> bool:
        """Whether it drops old checkpoints of a thread, since that was deleted."""


def target_of(saver: BaseCheckpointSaver[Any]) -> Target:
    """What the database of a saver is asked through."""
    if isinstance(saver, SyncSaver):
        return _Ours(saver)
    if _is_one_of(saver, "langgraph.checkpoint.sqlite", "SqliteSaver"):
        return _TheirSqlite(cast("SqliteSaver", saver))
    if _is_one_of(saver, "langgraph.checkpoint.postgres", "PostgresSaver"):
        return _TheirPostgres(cast("PostgresSaver", saver))
    return _Any(saver)


def _is_one_of(saver: object, module: str, name: str) -> bool:
    """Without importing what may not be installed: of a saver that is here, the module is loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(saver, vars(loaded)[name])


class _Any:
    """Any saver, by its listing."""

    drops_writes_of_metadata = False

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver

    def held(self, thread: str) -> Held:
        found: Held = {}
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        for saved in self._saver.list(config):
            configurable = saved.config["configurable"]
            found.setdefault(configurable.get("checkpoint_ns", ""), set()).add(configurable["checkpoint_id"])
        return found

    def writes_at(self, place: Place) -> int:
        saved = self._saver.get_tuple(place.config)
        return 0 if saved is None else len(saved.pending_writes or ())

    def rows_of(self, writes: Sequence[SavedWrite]) -> int:
        return len(writes)

    def welcome(self, thread: str) -> None:
        """Others do not remember deletions."""

    def remembers_deletion(self, thread: str) -> bool:
        return False


class _TheirSqlite(_Any):
    """LangGraph's `SqliteSaver`."""

    def __init__(self, saver: "SqliteSaver") -> None:
        super().__init__(saver)
        self._sqlite = saver

    def held(self, thread: str) -> Held:
        with self._sqlite.cursor(transaction=False) as cursor:
            rows = cursor.execute(
                "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?", (thread,)
            ).fetchall()
        return _by_namespace(rows)

    def writes_at(self, place: Place) -> int:
        with self._sqlite.cursor(transaction=False) as cursor:
            [count] = cursor.execute(
                "SELECT count(*) FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                (place.thread_id, place.checkpoint_ns, place.checkpoint_id),
            ).fetchone()
        return int(count)


class _TheirPostgres(_Any):
    """LangGraph's `PostgresSaver`."""

    drops_writes_of_metadata = True

    def __init__(self, saver: "PostgresSaver") -> None:
        super().__init__(saver)
        self._postgres = saver

    def held(self, thread: str) -> Held:
        with self._postgres._cursor() as cursor:
            rows = cursor.execute(
                "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s", (thread,)
            ).fetchall()
        return _by_namespace([(row["checkpoint_ns"], row["checkpoint_id"]) for row in rows])

    def writes_at(self, place: Place) -> int:
        with self._postgres._cursor() as cursor:
            rows = cursor.execute(
                "SELECT 1 FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
                (place.thread_id, place.checkpoint_ns, place.checkpoint_id),
            ).fetchall()
        return len(rows)


class _Ours(_Any):
    """refold's savers."""

    def __init__(self, saver: SyncSaver) -> None:
        super().__init__(saver)
        self._ours = saver

    def held(self, thread: str) -> Held:
        return self._ours._run(lambda ctx: _in_snapshot(partial(_held_gen, thread)))

    def writes_at(self, place: Place) -> int:
        return self._ours._run(lambda ctx: _in_snapshot(partial(_writes_at_gen, place)))

    def rows_of(self, writes: Sequence[SavedWrite]) -> int:
        return len({write.task_id for write in writes})

    def welcome(self, thread: str) -> None:
        self._ours._run(lambda ctx: _welcome_gen(thread))

    def remembers_deletion(self, thread: str) -> bool:
        return self._ours._run(lambda ctx: _deletion_gen(thread)) is not None


def _by_namespace(rows: Sequence[tuple[str, str]]) -> Held:
    found: Held = {}
    for namespace, checkpoint in rows:
        found.setdefault(namespace, set()).add(checkpoint)
    return found


def _in_snapshot(program: Callable[[], Program[T]]) -> Program[T]:
    return (yield from Transaction(program=program, write=False))


def _held_gen(thread: str) -> Program[Held]:
    spaces = yield from Select(statement="spaces_of_thread", args={"thread": thread})
    found: Held = {}
    for space, _, namespace, wide in cast("list[tuple[int, str, str, int]]", spaces):
        rows = yield from Select(statement="checkpoint_keys", args={"space": space})
        keys = cast("list[tuple[int, bytes, int, object, object]]", rows)
        ids = {unpack_id(key, wide=bool(wide)) for _, key, state, _, _ in keys if state != AWAITED}
        if ids:
            found[namespace] = ids
    return found


def _writes_at_gen(place: Place) -> Program[int]:
    space = yield from find_space_gen(place.thread_id, place.checkpoint_ns)
    row = None if space is None else (yield from find_checkpoint_gen(space, place.checkpoint_id))
    return 0 if row is None else len((yield from get_writes([row.seq])))


def _deletion_gen(thread: str) -> Program[bytes | None]:
    return (yield from _in_snapshot(partial(read_meta_gen, deletion_key(thread))))


def _welcome_gen(thread: str) -> Program[None]:
    """Forget that it was deleted; nothing is written where nothing is remembered."""
    if (yield from _deletion_gen(thread)) is not None:
        yield from Transaction(program=partial(_forget_gen, thread), write=True)


def _forget_gen(thread: str) -> Program[None]:
    """With the late steps of it that were dropped, whose keys begin with the same."""
    key = deletion_key(thread)
    rows = yield from Select(statement="meta_from", args={"start": key, "stop": f"{key}~", "count": _ALL})
    yield from SelectEach(statement="meta_delete", rows=[{"key": found} for found, _ in rows])
