"""The migration: read, write, read back, compare; again until nothing is new.

It works on live databases. The source is only read, each checkpoint in one short snapshot; what others write meanwhile
is found in the next pass, by the marks of the index. Every step may be repeated to the same result, so a run that was
killed, and a last run after the writers have stopped, are the same thing: run it again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, CheckpointTuple

from refold.checkpoint.migrate.compare import differences, history_differences
from refold.checkpoint.migrate.ledger import Ledger
from refold.checkpoint.migrate.saved import Mark, Place, Saved, SavedWrite, Source
from refold.checkpoint.migrate.versions import Versions, with_text_versions

_BATCH: Final = 50
_COUNTERS: Final = "counters_since_delta_snapshot"


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A checkpoint that does not read back as the source has it."""

    place: Place
    difference: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a migration did. Counts are of checkpoints but for `writes`, `threads` and `histories`."""

    found: int
    """in the source, at the last pass"""
    threads: int
    copied: int
    """written and compared in this run; one that changed meanwhile counts again"""
    unchanged: int
    """finished by an earlier run"""
    gone: int
    """deleted from the source while it ran"""
    writes: int
    histories: int
    """of delta channels, compared from a tip back to its seed"""
    caught_up: bool
    """whether the last pass found nothing new"""
    mismatches: Sequence[Mismatch] = ()

    @property
    def proved(self) -> bool:
        """Whether every checkpoint that was copied reads back as the source has it."""
        return not self.mismatches


@dataclass(kw_only=True)
class _Run:
    source: Source
    target: BaseCheckpointSaver[str]
    reader: BaseCheckpointSaver[str]
    ledger: Ledger
    to_langgraph: bool
    progress: Callable[[Place], None]
    found: int = 0
    copied: int = 0
    unchanged: int = 0
    gone: int = 0
    writes: int = 0
    histories: int = 0
    threads: set[str] = field(default_factory=set)
    mismatches: dict[Place, str] = field(default_factory=dict)

    def check_ledger(self) -> None:
        """Forgets a ledger whose target is gone, or was made anew: the newest checkpoint of a namespace that is done,
        which no prune removes, is not there."""
        for _, chain in groupby(self.source.index(), key=lambda entry: (entry[0].thread_id, entry[0].checkpoint_ns)):
            done = [place for place, mark in chain if self.ledger.mark_of(place) == mark]
            if done:
                if self.reader.get_tuple(done[-1].config) is None:
                    self.ledger.forget()
                return

    def one_pass(self) -> int:
        """Copies what is new or changed; how many checkpoints that was."""
        before = self.copied
        self.found = 0
        for _, chain in groupby(self.source.index(), key=lambda entry: (entry[0].thread_id, entry[0].checkpoint_ns)):
            self._copy_chain(chain)
        return self.copied - before

    def _copy_chain(self, chain: Iterable[tuple[Place, Mark]]) -> None:
        """One namespace of one thread, oldest first, then the histories of the tips that are new."""
        tips: dict[str, CheckpointTuple] = {}
        batch: list[tuple[Place, Mark]] = []
        for place, mark in chain:
            self.found += 1
            self.threads.add(place.thread_id)
            if self.ledger.mark_of(place) == mark:
                self.unchanged += 1
                continue
            saved = self.source.read(place)
            if saved is None:
                self.gone += 1
                continue
            self._copy(place, saved, tips)
            if place not in self.mismatches:
                batch.append((place, mark))
            if len(batch) >= _BATCH:
                self.ledger.enter(batch)
                batch.clear()
            self.progress(place)
        self._compare_histories(tips)
        self.ledger.enter(entry for entry in batch if entry[0] not in self.mismatches)

    def _copy(self, place: Place, saved: Saved, tips: dict[str, CheckpointTuple]) -> None:
        expected = self._with_versions(place, saved.tuple)
        parent = _parent_id(expected)
        _put(self.target, place, expected, saved.writes, to_langgraph=self.to_langgraph)
        self.copied += 1
        self.writes += len(saved.writes)
        found = "; ".join(
            differences(expected, self.reader.get_tuple(place.config), carries_snapshots=self.to_langgraph)
        )
        if found:
            self.mismatches[place] = found
        else:
            self.mismatches.pop(place, None)
        tips.pop(parent or "", None)
        tips[place.checkpoint_id] = saved.tuple

    def _with_versions(self, place: Place, saved: CheckpointTuple) -> CheckpointTuple:
        if not self.to_langgraph:
            return saved
        parent = _parent_id(saved)
        if parent is None:
            return with_text_versions(saved, None)
        above = Place(thread_id=place.thread_id, checkpoint_ns=place.checkpoint_ns, checkpoint_id=parent)
        before, after = self.source.read(above), self.reader.get_tuple(above.config)
        if before is None or after is None:
            return with_text_versions(saved, None)
        return with_text_versions(saved, Versions.of(before.tuple.checkpoint, after.checkpoint))

    def _compare_histories(self, tips: dict[str, CheckpointTuple]) -> None:
        for saved in tips.values():
            channels = _delta_channels(saved)
            if not channels:
                continue
            place = _place_of(saved)
            source = self.source.history(place, channels)
            target = self.reader.get_delta_channel_history(config=place.config, channels=channels)
            self.histories += 1
            found = "; ".join(history_differences(source, target))
            if found:
                self.mismatches[place] = found

    def report(self, *, caught_up: bool) -> Report:
        return Report(
            found=self.found,
            threads=len(self.threads),
            copied=self.copied,
            unchanged=self.unchanged,
            gone=self.gone,
            writes=self.writes,
            histories=self.histories,
            caught_up=caught_up,
            mismatches=[Mismatch(place=place, difference=text) for place, text in sorted(self.mismatches.items())],
        )


def migrate(
    source: Source,
    target: BaseCheckpointSaver[str],
    *,
    ledger: Ledger,
    reader: BaseCheckpointSaver[str] | None = None,
    to_langgraph: bool = False,
    passes: int = 5,
    progress: Callable[[Place], None] = lambda place: None,
) -> Report:
    """Copies every checkpoint of `source` into `target`, with its writes, and proves each by reading it back.

    Repeats until a pass finds nothing new, `passes` times at most: with busy writers a rest remains, which the report
    says (`caught_up`), and a later run with the same ledger copies. `reader` is a second saver on the target, for the
    proof: what it reads comes from the database, not from what the first one remembers. `to_langgraph` says that the
    target is one of LangGraph's own savers, which need versions of another kind. `progress` is told each copied place.
    A checkpoint that does not read back as it was is reported and tried again by the next run; it does not stop this
    one. Raises what the databases raise.
    """
    run = _Run(
        source=source,
        target=target,
        reader=reader or target,
        ledger=ledger,
        to_langgraph=to_langgraph,
        progress=progress,
    )
    run.check_ledger()
    unchanged = 0
    for at in range(passes):
        copied = run.one_pass()
        if at == 0:
            unchanged = run.unchanged
        run.unchanged = unchanged
        if not copied:
            return run.report(caught_up=True)
        if run.mismatches:
            break
    return run.report(caught_up=False)


def _put(
    target: BaseCheckpointSaver[str],
    place: Place,
    saved: CheckpointTuple,
    writes: Sequence[SavedWrite],
    *,
    to_langgraph: bool,
) -> None:
    configurable: dict[str, str] = {"thread_id": place.thread_id, "checkpoint_ns": place.checkpoint_ns}
    if (parent := _parent_id(saved)) is not None:
        configurable["checkpoint_id"] = parent
    # All versions count as new: LangGraph's SqliteSaver may hold a value that changed although its version did not, and
    # none where the parent, of the same version, has one. Its PostgresSaver would store "none" under the version.
    new: ChannelVersions = {
        channel: version
        for channel, version in saved.checkpoint["channel_versions"].items()
        if not to_langgraph or channel in saved.checkpoint["channel_values"]
    }
    config: RunnableConfig = {"configurable": configurable}
    target.put(config, saved.checkpoint, saved.metadata, new)
    for (task_path, task_id), own in groupby(writes, key=lambda write: (write.task_path, write.task_id)):
        for call in calls_of(list(own)):
            target.put_writes(place.config, call, task_id, task_path)


def calls_of(writes: Sequence[SavedWrite]) -> Iterator[list[tuple[str, object]]]:
    """The `put_writes` calls that give one task's writes the places that they have.

    A call numbers its ordinary writes by position and gives the special channels fixed negative numbers. So ordinary
    and special writes go in calls of their own, unless the special ones stood between the others and fill their gaps.
    """
    ordinary = sorted((write for write in writes if write.index >= 0), key=lambda write: write.index)
    special = [write for write in writes if write.index < 0]
    gaps = sorted(set(range(ordinary[-1].index + 1)) - {write.index for write in ordinary}) if ordinary else []
    if gaps and len(gaps) == len(special):
        by_place = {write.index: write for write in ordinary} | dict(zip(gaps, special, strict=True))
        yield [(by_place[at].channel, by_place[at].value) for at in sorted(by_place)]
        return
    if ordinary:
        yield [(write.channel, write.value) for write in ordinary]
    if special:
        yield [(write.channel, write.value) for write in special]


def _parent_id(saved: CheckpointTuple) -> str | None:
    return saved.parent_config["configurable"].get("checkpoint_id") if saved.parent_config else None


def _place_of(saved: CheckpointTuple) -> Place:
    configurable = saved.config["configurable"]
    return Place(
        thread_id=str(configurable["thread_id"]),
        checkpoint_ns=configurable.get("checkpoint_ns", ""),
        checkpoint_id=configurable["checkpoint_id"],
    )


def _delta_channels(saved: CheckpointTuple) -> list[str]:
    """The delta channels without a value of their own, by the counters that LangGraph keeps of them."""
    counters = dict(saved.metadata).get(_COUNTERS)
    if not isinstance(counters, dict):
        return []
    return sorted(channel for channel in counters if channel not in saved.checkpoint["channel_values"])
