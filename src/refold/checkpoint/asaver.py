"""Savers that are awaited. The sync methods, called from another thread, run on the saver's event loop."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.checkpoint.caches import DEFAULT_CACHE_BYTES
from refold.checkpoint.collect import Collected, collect_gen, collect_if_due_gen
from refold.checkpoint.compact import Compacted, compact_gen
from refold.checkpoint.copies import copy_thread_gen
from refold.checkpoint.listing import listing_of, next_gen
from refold.checkpoint.put import put_gen
from refold.checkpoint.put_writes import put_writes_gen
from refold.checkpoint.read import delta_history_gen, get_tuple_gen
from refold.checkpoint.removal import delete_for_runs_gen
from refold.checkpoint.retention import prune_gen, retention_of
from refold.checkpoint.saver import BaseSaver, Procedure, list_of, names_of
from refold.checkpoint.threads import delete_thread_gen
from refold.checkpoint.verify import Stats, Verification, stats_gen, verify_gen
from refold.errors import ConfigurationError

T = TypeVar("T")


class AsyncSaver(BaseSaver):
    """A saver whose database calls are awaited. Made inside the event loop that it belongs to."""

    def __init__(
        self, *, serde: SerializerProtocol | None, exclusive: bool, cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> None:
        super().__init__(serde=serde, exclusive=exclusive, cache_bytes=cache_bytes)
        self.loop = asyncio.get_running_loop()

    @abstractmethod
    async def _arun(self, procedure: "Procedure[T]") -> T:
        """Set the database up if needed, and drive a procedure to its end."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace; None if there is none."""
        return await self._arun(lambda ctx: get_tuple_gen(ctx, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints newest first, read a page at a time. `filter` compares metadata fields for equality."""
        listing = listing_of(config, filter, before, limit)
        while batch := await self._arun(lambda ctx: next_gen(ctx, listing)):
            for item in batch:
                yield item

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint after the one that `config` names; see `SqliteSaver.put`."""
        return await self._arun(lambda ctx: put_gen(ctx, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, under the checkpoint that `config` names. Repeating it changes nothing."""
        await self._arun(lambda ctx: put_writes_gen(ctx, config, writes, task_id, task_path))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Per channel: the nearest stored value among the ancestors, and the writes since, oldest first."""
        return await self._arun(lambda ctx: delta_history_gen(ctx, config, list_of(channels)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread: checkpoints, writes, every namespace; see `SqliteSaver.delete_thread`."""
        removed = await self._arun(lambda ctx: delete_thread_gen(ctx, str(thread_id)))
        await self._collect_if_due(removed)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints whose metadata has one of these run ids, with their writes."""
        removed = await self._arun(lambda ctx: delete_for_runs_gen(ctx, list_of(run_ids)))
        await self._collect_if_due(removed)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its whole history. Values are shared. The target must have no checkpoints."""
        await self._arun(lambda ctx: copy_thread_gen(ctx, str(source_thread_id), str(target_thread_id)))

    async def aprune(
        self,
        thread_ids: Sequence[str] | None,
        *,
        strategy: str = "keep_latest",
        keep: int = 1,
        before: datetime | None = None,
        batch_size: int = 100,
    ) -> None:
        """Remove old checkpoints of threads (None: of all); see `SqliteSaver.prune`."""
        retention = retention_of(strategy, keep, before)
        threads = None if thread_ids is None else names_of(thread_ids)
        removed = await self._arun(lambda ctx: prune_gen(ctx, threads, retention, batch_size))
        await self._collect_if_due(removed)

    async def agc(self) -> Collected:
        """Free every value that no checkpoint leads to any more. Readers and writers go on."""
        return await self._arun(lambda ctx: collect_gen(ctx, datetime.now(UTC)))

    async def acompact(self) -> Compacted:
        """Pack values that were stored one by one."""
        return await self._arun(compact_gen)

    async def averify(self) -> Verification:
        """Derive every hash again and follow every pointer. Finds damage, does not raise for it."""
        return await self._arun(verify_gen)

    async def astats(self) -> Stats:
        """Count threads, checkpoints, values and bytes."""
        return await self._arun(lambda ctx: stats_gen())

    async def _collect_if_due(self, removed: int) -> None:
        await self._arun(lambda ctx: collect_if_due_gen(ctx, removed, datetime.now(UTC)))

    # --- the same from a thread that is not the loop's ---

    def _wait(self, work: "Coroutine[Any, Any, T]") -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            work.close()
            raise ConfigurationError(
                "a sync method was called on the saver's own event loop, where it would wait for itself: use the async "
                "method (aget_tuple, ainvoke, ...)"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple`, waited for."""
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist`, waited for a page at a time."""
        listing = listing_of(config, filter, before, limit)
        while batch := self._wait(self._arun(lambda ctx: next_gen(ctx, listing))):
            yield from batch

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput`, waited for."""
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`aput_writes`, waited for."""
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history`, waited for."""
        return self._wait(self.aget_delta_channel_history(config=config, channels=channels))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread`, waited for."""
        self._wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`adelete_for_runs`, waited for."""
        self._wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`acopy_thread`, waited for."""
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(
        self,
        thread_ids: Sequence[str] | None,
        *,
        strategy: str = "keep_latest",
        keep: int = 1,
        before: datetime | None = None,
        batch_size: int = 100,
    ) -> None:
        """`aprune`, waited for."""
        self._wait(self.aprune(thread_ids, strategy=strategy, keep=keep, before=before, batch_size=batch_size))
