"""What all savers have in common: LangGraph's contract, answered by the programs of this room.

`SyncSaver` drives them with `run` and offers the async methods through threads; `AsyncSaver` drives them with `arun`
and offers the sync methods through its event loop. A method is one line: which program.
"""

import asyncio
import contextvars
import random
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.caches import DEFAULT_CACHE_BYTES, Caches, ListState, Lru
from refold.checkpoint.collect import Collected, collect_gen, collect_if_due_gen
from refold.checkpoint.compact import Compacted, compact_gen
from refold.checkpoint.copies import copy_thread_gen
from refold.checkpoint.drafts import Context
from refold.checkpoint.lean import cost
from refold.checkpoint.listing import listing_of, next_gen
from refold.checkpoint.put import put_gen
from refold.checkpoint.put_writes import put_writes_gen
from refold.checkpoint.read import delta_history_gen, get_tuple_gen
from refold.checkpoint.removal import delete_for_runs_gen
from refold.checkpoint.retention import prune_gen, retention_of
from refold.checkpoint.seal import Sealer
from refold.checkpoint.serde import Serde
from refold.checkpoint.threads import delete_thread_gen
from refold.checkpoint.verify import Stats, Verification, stats_gen, verify_gen
from refold.core.program import Program

T = TypeVar("T")
P = ParamSpec("P")
Procedure = Callable[[Context], Program[T]]

_THREADS = 4  # a database is one lock to them; what is done outside it is serializing
_LISTS = 4  # times the bytes for values: without what it remembers of a list, each step serializes the whole list
_GOING_ON = 4  # lists that stay, whatever they weigh: those of the runs that go on


def _weight(states: Collection[ListState]) -> int:
    return sum(state.weight for state in states)


class Shared:
    """What a saver and its clones (`with_allowlist` makes shallow copies) have in common."""

    def __init__(self, *, cache_bytes: int) -> None:
        lists = Lru[int, ListState](_LISTS * cache_bytes, _weight, keep=_GOING_ON)
        self.caches = Caches(lean=Lru(cache_bytes, cost), lists=lists)
        self.sealer: Sealer | None = None
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def threads(self) -> ThreadPoolExecutor:
        """Threads for the calls of coroutines. Not the event loop's own: LangGraph runs nodes there, which may wait for
        the saver."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="refold-saver")
            return self._threads

    def end_threads(self) -> None:
        """Let the threads end once what they do is done."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


def _now() -> datetime:
    return datetime.now(UTC)


class BaseSaver(BaseCheckpointSaver[Any]):
    """The part of a saver that does not depend on how it waits."""

    def __init__(
        self, *, serde: SerializerProtocol | None, exclusive: bool, cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> None:
        super().__init__(serde=serde)
        self.exclusive = exclusive
        self._shared = Shared(cache_bytes=cache_bytes)
        self._context: tuple[SerializerProtocol, Context] | None = None

    def _context_with(self, sealer: Sealer) -> Context:
        """The context for this saver's serde; a clone with another serde makes its own."""
        known = self._context
        if known is not None and known[0] is self.serde and known[1].sealer is sealer:
            return known[1]
        context = Context(
            serde=Serde(self.serde), sealer=sealer, caches=self._shared.caches, exclusive=self.exclusive, clock=_now
        )
        self._context = (self.serde, context)
        return context

    def get_next_version(self, current: str | float | None, channel: None) -> Any:
        """Integers, counting up. A thread that came with string versions goes on with strings of LangGraph's form."""
        if current is None:
            return 1
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"
        return current + 1


class SyncSaver(BaseSaver):
    """A saver whose database calls block. The async methods run them in threads."""

    @abstractmethod
    def _run(self, procedure: "Procedure[T]") -> T:
        """Set the database up if needed, and drive a procedure to its end."""

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace; None if there is none."""
        return self._run(lambda ctx: get_tuple_gen(ctx, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints newest first, read a page at a time. `filter` compares metadata fields for equality."""
        listing = listing_of(config, filter, before, limit)
        while batch := self._run(lambda ctx: next_gen(ctx, listing)):
            yield from batch

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint after the one that `config` names; the config of the new one.

        A late checkpoint of a thread that was deleted meanwhile is not stored. Raises `HeadMovedError` in an exclusive
        saver when another writer extended the thread first.
        """
        return self._run(lambda ctx: put_gen(ctx, config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, under the checkpoint that `config` names. Repeating it changes nothing."""
        self._run(lambda ctx: put_writes_gen(ctx, config, writes, task_id, task_path))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Per channel: the nearest stored value among the ancestors, and the writes since, oldest first."""
        return self._run(lambda ctx: delta_history_gen(ctx, config, list_of(channels)))

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread: checkpoints, writes, every namespace. Late writes of a run that is still going are dropped.

        Values that other threads share stay. The rest is freed at once when it is a large part of the database, and by
        the next `gc` otherwise.
        """
        removed = self._run(lambda ctx: delete_thread_gen(ctx, str(thread_id)))
        self._collect_if_due(removed)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints whose metadata has one of these run ids, with their writes. What a delta channel of a
        later checkpoint is rebuilt from stays, unlisted."""
        removed = self._run(lambda ctx: delete_for_runs_gen(ctx, list_of(run_ids)))
        self._collect_if_due(removed)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its whole history. Values are shared. The target must have no checkpoints,
        in whatever namespace: `ConfigurationError` otherwise."""
        self._run(lambda ctx: copy_thread_gen(ctx, str(source_thread_id), str(target_thread_id)))

    def prune(
        self,
        thread_ids: Sequence[str] | None,
        *,
        strategy: str = "keep_latest",
        keep: int = 1,
        before: datetime | None = None,
        batch_size: int = 100,
    ) -> None:
        """Remove old checkpoints of threads (None: of all, `batch_size` names at a time). What stays reads as before.

        `strategy` is "keep_latest", "keep_last" (the newest `keep` of each namespace), "older_than" (those made before
        `before`, but never the newest of a namespace) or "delete" (whole threads; with `before`, those idle since).
        Pending writes and interrupts of what stays are kept, and so is what its delta channels are rebuilt from.
        Raises `ConfigurationError` for what cannot be meant: an unknown strategy, nothing to keep, an empty batch.
        """
        retention = retention_of(strategy, keep, before)
        threads = None if thread_ids is None else names_of(thread_ids)
        removed = self._run(lambda ctx: prune_gen(ctx, threads, retention, batch_size))
        self._collect_if_due(removed)

    def gc(self) -> Collected:
        """Free every value that no checkpoint leads to any more. Readers and writers go on."""
        return self._run(lambda ctx: collect_gen(ctx, datetime.now(UTC)))

    def compact(self) -> Compacted:
        """Pack values that were stored one by one, about a fifth smaller, and shrink the file where the backend can."""
        return self._run(compact_gen)

    def verify(self) -> Verification:
        """Derive every hash again and follow every pointer. Finds damage, does not raise for it."""
        return self._run(verify_gen)

    def stats(self) -> Stats:
        """Count threads, checkpoints, values and bytes."""
        return self._run(lambda ctx: stats_gen())

    def _collect_if_due(self, removed: int) -> None:
        self._run(lambda ctx: collect_if_due_gen(ctx, removed, datetime.now(UTC)))

    # --- the same from a coroutine ---

    async def _in_thread(self, work: "Callable[P, T]", *args: "P.args", **kwargs: "P.kwargs") -> T:
        call = partial(contextvars.copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._shared.threads, call)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple` in a thread."""
        return await self._in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list` in threads, a page at a time."""
        listing = listing_of(config, filter, before, limit)
        while batch := await self._in_thread(self._run, lambda ctx: next_gen(ctx, listing)):
            for item in batch:
                yield item

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put` in a thread."""
        return await self._in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes` in a thread."""
        await self._in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history` in a thread."""
        return await self._in_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread` in a thread."""
        await self._in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs` in a thread."""
        await self._in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread` in a thread."""
        await self._in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(
        self,
        thread_ids: Sequence[str] | None,
        *,
        strategy: str = "keep_latest",
        keep: int = 1,
        before: datetime | None = None,
        batch_size: int = 100,
    ) -> None:
        """`prune` in a thread."""
        await self._in_thread(
            self.prune, thread_ids, strategy=strategy, keep=keep, before=before, batch_size=batch_size
        )

    async def agc(self) -> Collected:
        """`gc` in a thread."""
        return await self._in_thread(self.gc)

    async def acompact(self) -> Compacted:
        """`compact` in a thread."""
        return await self._in_thread(self.compact)

    async def averify(self) -> Verification:
        """`verify` in a thread."""
        return await self._in_thread(self.verify)

    async def astats(self) -> Stats:
        """`stats` in a thread."""
        return await self._in_thread(self.stats)


def names_of(thread_ids: Sequence[str]) -> Sequence[str]:
    """Thread ids as text. Raises `TypeError` for a single string, which would be taken for a list of letters."""
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids is a sequence of thread ids, not a str: pass [thread_id]")
    return [str(thread_id) for thread_id in thread_ids]


def list_of(items: Collection[str]) -> list[str]:
    """A list, under a name that the savers' own `list` does not hide. Raises `TypeError` for a single string."""
    if isinstance(items, str):
        raise TypeError(f"a sequence of names is wanted, not a str: pass [{items!r}]")
    return cast("list[str]", [*items])
