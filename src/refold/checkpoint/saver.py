"""What all savers have in common: LangGraph's contract, answered by the programs of this room.

`SyncSaver` drives them with `run` and offers the async methods through threads; `AsyncSaver` drives them with `arun` and
offers the sync methods through its event loop. A method is one line: which program.
"""

import asyncio
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    SerializerProtocol,
)

from refold.checkpoint.caches import DEFAULT_CACHE_BYTES, Caches, Lru
from refold.checkpoint.drafts import Context
from refold.checkpoint.lean import cost
from refold.checkpoint.listing import listing_of, next_gen
from refold.checkpoint.put import put_gen, put_writes_gen
from refold.checkpoint.read import delta_history_gen, get_tuple_gen
from refold.checkpoint.seal import Sealer
from refold.checkpoint.serde import Serde
from refold.core.program import Program

T = TypeVar("T")
Procedure = Callable[[Context], Program[T]]

_LIST_ELEMENTS = 200_000


class Shared:
    """What a saver and its clones (`with_allowlist` makes shallow copies) have in common."""

    def __init__(self, *, cache_bytes: int) -> None:
        self.caches = Caches(
            frozen=Lru(cache_bytes, cost), lists=Lru(_LIST_ELEMENTS, lambda state: len(state.entries) + 1)
        )
        self.sealer: Sealer | None = None


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
            serde=Serde(self.serde), sealer=sealer, caches=self._shared.caches, exclusive=self.exclusive
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

    # --- the same from a coroutine ---

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple` in a thread."""
        return await asyncio.to_thread(self.get_tuple, config)

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
        while batch := await asyncio.to_thread(self._run, lambda ctx: next_gen(ctx, listing)):
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
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes` in a thread."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history` in a thread."""
        return await asyncio.to_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))


def list_of(items: Collection[str]) -> list[str]:
    """A list, under a name that the savers' own `list` does not hide."""
    return cast("list[str]", [*items])
