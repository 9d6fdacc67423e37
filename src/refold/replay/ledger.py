"""What checkpoints cost: stored by our saver, and counted as LangGraph's own SQLite saver would store them.

LangGraph's saver writes the whole state at every superstep and each new message once more as a pending write. The sum
of that needs no second database: the size of a message list is the sum of the sizes of its messages.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from refold.checkpoint import SqliteSaver

_FRAME: Final = 700
"""Bytes of a checkpoint row besides its channel values: versions, metadata, ids, keys."""
_WRITE_FRAME: Final = 150
"""Bytes of a row of pending writes besides its value."""


@dataclass(kw_only=True)
class Ledger:
    """Adds up whole copies. Each value is serialised once."""

    checkpoints: int = 0
    whole_copies: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _serde: JsonPlusSerializer = field(default_factory=JsonPlusSerializer)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is stored, whole."""
        size = _FRAME + sum(self._size(value) for value in checkpoint["channel_values"].values())
        with self._lock:
            self.checkpoints += 1
            self.whole_copies += size

    def writes(self, writes: Sequence[tuple[str, Any]]) -> None:
        """Pending writes are stored."""
        size = sum(_WRITE_FRAME + self._size(value) for _, value in writes)
        with self._lock:  # LangGraph stores checkpoint and writes from threads of its own
            self.whole_copies += size

    def _size(self, value: object) -> int:
        if isinstance(value, list):
            return 3 + sum(self._size(item) for item in value)
        key = _identity(value)
        if key is None:
            return self._measured(value)
        if key not in self._sizes:
            self._sizes[key] = self._measured(value)
        return self._sizes[key]

    def _measured(self, value: object) -> int:
        return len(self._serde.dumps_typed(value)[1])


def _identity(value: object) -> str | None:
    """The id of a message or fold, by which its size is kept: a replay changes neither."""
    if isinstance(value, BaseMessage):
        return value.id
    return f"fold {value['id']}" if isinstance(value, dict) and "pass" in value and "id" in value else None


class LedgerSaver(SqliteSaver):
    """Our saver, with a ledger of what whole copies would take."""

    ledger: Ledger

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        self.ledger.checkpoint(checkpoint)
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task."""
        self.ledger.writes(writes)
        super().put_writes(config, writes, task_id, task_path)
