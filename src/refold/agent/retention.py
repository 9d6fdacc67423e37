"""Retention over a saver's threads: which stored originals are live, and collecting the others (fault 104).

    collect_artifacts(saver, files, Retention(older_than=30 * 86_400, most_bytes=2_000_000_000))

Live is what any checkpoint that the saver still lists points at: folds, stubs and texts of every thread, namespace and
fork, not only of the heads, since every one of them may be resumed or forked from; and whatever those originals mention
in turn. Prune checkpoints first, then collect. Several databases may share one storage: give all their savers. What is
written or renewed within `Retention.grace` is left alone, since a run's newest state may not be stored yet: set it over
the time that a run may take between two checkpoints, or with `durability="exit"` over that of a whole run.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware, AgentState
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.runtime import Runtime

from refold.agent.telemetry import open_telemetry
from refold.errors import ConfigurationError, FilesError
from refold.files import Collected, Files, Retention, acollect, collect, referenced_paths
from refold.files.state import lies_in_state

Saver: TypeAlias = BaseCheckpointSaver[Any]
Savers: TypeAlias = Saver | Sequence[Saver]

_MOST_REMEMBERED: Final = 100_000
"""Messages and folds that are known to have been looked at; beyond it some are looked at again."""


def collect_artifacts(saver: Savers, files: Files, retention: Retention, *, now: float | None = None) -> Collected:
    """Remove stored originals that nothing live points at, oldest first, down to the bounds of a retention.

    Args:
        saver: The saver of the threads whose originals lie in `files`, or all savers where there are several.
        now: Seconds since 1970; the clock by default.

    May be repeated and stopped at any time, and run beside agents.
    """
    return collect(files, live_paths(saver), retention, now=now)


async def acollect_artifacts(
    saver: Savers, files: Files, retention: Retention, *, now: float | None = None
) -> Collected:
    """The same as `collect_artifacts`, awaited."""
    return await acollect(files, await alive_paths(saver), retention, now=now)


def live_paths(saver: Savers) -> frozenset[str]:
    """Every artifact path that a checkpoint of the savers points at."""
    look = _Look()
    for one in _each(saver):
        for found in one.list(None):
            look.take(found)
        for config, channels in look.unfinished():
            look.take_values(one.get_delta_channel_history(config=config, channels=channels))
    return frozenset(look.paths)


async def alive_paths(saver: Savers) -> frozenset[str]:
    """The same as `live_paths`, awaited."""
    look = _Look()
    for one in _each(saver):
        async for found in one.alist(None):
            look.take(found)
        for config, channels in look.unfinished():
            look.take_values(await one.aget_delta_channel_history(config=config, channels=channels))
    return frozenset(look.paths)


class RetentionMiddleware(AgentMiddleware[AgentState[Any], None, Any]):
    """Collects after a run, at most once in `every` seconds of a process. What the storage refuses is told, not raised.

    Arguments:
        saver: The saver of the threads, or all that share the files.
        files: Where the originals are.
        retention: The bounds.
        every: Seconds between two collections: each one reads every checkpoint of the savers.
    """

    def __init__(
        self,
        saver: Savers,
        files: Files,
        retention: Retention,
        *,
        every: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        if any(lies_in_state(files, f"{folder}/x") for folder in retention.folders):
            raise ConfigurationError(
                "what is stored in graph state goes with its thread: prune checkpoints instead of giving a retention"
            )
        self._saver, self._files, self._retention = saver, files, retention
        self._every, self._clock = every, clock
        self._last: float | None = None
        self._telemetry = open_telemetry()

    def after_agent(self, state: AgentState[Any], runtime: Runtime[None]) -> None:
        """Collect where it is time."""
        if self._is_time():
            try:
                self._tell(collect_artifacts(self._saver, self._files, self._retention), runtime)
            except FilesError as error:
                self._tell(error, runtime)

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[None]) -> None:
        """Collect where it is time."""
        if self._is_time():
            try:
                self._tell(await acollect_artifacts(self._saver, self._files, self._retention), runtime)
            except FilesError as error:
                self._tell(error, runtime)

    def _is_time(self) -> bool:
        now = self._clock()
        if self._last is not None and now - self._last < self._every:
            return False
        self._last = now
        return True

    def _tell(self, result: Collected | FilesError, runtime: Runtime[None]) -> None:
        if isinstance(result, FilesError):
            self._telemetry.event("retention_failed", {"error": repr(result)[:300]}, stream=runtime.stream_writer)
            return
        numbers = {"removed": len(result.removed), "kept": result.kept_files, "kept_bytes": result.kept_bytes}
        self._telemetry.event("collected", numbers, stream=runtime.stream_writer)


@dataclass(kw_only=True)
class _Look:
    """One look over the checkpoints of savers. Messages and folds that many checkpoints hold are read once."""

    paths: set[str] = field(default_factory=set)
    _seen: dict[str, object] = field(default_factory=dict)
    _listed: set[str] = field(default_factory=set)
    _open: dict[str, tuple[str | None, RunnableConfig, list[str]]] = field(default_factory=dict)

    def take(self, found: CheckpointTuple) -> None:
        """Take in a checkpoint and its writes."""
        values = found.checkpoint["channel_values"]
        self.take_values(values)
        self.take_values([write[2] for write in found.pending_writes or ()])
        here = _identity(found.config)
        self._listed.add(here)
        if deltas := [name for name in found.checkpoint["channel_versions"] if name not in values]:
            parent = None if found.parent_config is None else _identity(found.parent_config)
            self._open[here] = (parent, found.config, deltas)

    def take_values(self, value: object) -> None:
        """Take in what a checkpoint holds, nested in lists and mappings."""
        self.paths |= referenced_paths(*(piece for piece in _pieces(value) if self._is_new(piece)))

    def unfinished(self) -> Sequence[tuple[RunnableConfig, Sequence[str]]]:
        """Checkpoints whose delta channels begin before what is listed: a value is its parent's and the parent's
        writes, but where the parent was pruned the saver has to put it together."""
        left = [(config, channels) for parent, config, channels in self._open.values() if parent not in self._listed]
        self._open.clear()
        return left

    def _is_new(self, piece: object) -> bool:
        name = _name(piece)
        if name is None:
            return True
        if self._seen.get(name) == piece:
            return False
        if len(self._seen) < _MOST_REMEMBERED or name in self._seen:
            self._seen[name] = piece
        return True


def _each(saver: Savers) -> Sequence[Saver]:
    return [saver] if isinstance(saver, BaseCheckpointSaver) else saver


def _identity(config: RunnableConfig) -> str:
    place = config["configurable"]
    return "\0".join((str(place["thread_id"]), str(place.get("checkpoint_ns", "")), str(place["checkpoint_id"])))


def _pieces(value: object) -> Iterator[object]:
    """The messages and folds in a value one by one, and what else there is."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case list() | tuple() as items:
                waiting += items
            case Mapping() as mapping if "id" not in mapping:
                waiting += mapping.values()
                yield list(mapping)
            case piece:
                yield piece


def _name(piece: object) -> str | None:
    """Under which a piece is remembered; an equal one under the same name need not be read again."""
    if isinstance(piece, BaseMessage):
        return piece.id
    identity = piece.get("id") if isinstance(piece, Mapping) else None
    return identity if isinstance(identity, str) else None
