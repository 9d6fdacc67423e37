"""The migration: read, write, read back, compare; again until nothing is new.

It works on live databases. The source is only read, each checkpoint in one short snapshot; what others write meanwhile
is found in the next pass, by the marks of the index. Every step may be repeated to the same result, so a run that was
killed, and a last run after the writers have stopped, are the same thing: run it again.

What an earlier run finished is not taken on the ledger's word: the first pass asks the target for the ids that it has
(see `standing`). A checkpoint that cannot be moved is noted and does not stop the others (see `troubles`).
"""

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, cast

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, CheckpointTuple

from refold.checkpoint.migrate.compare import differences, history_differences
from refold.checkpoint.migrate.ledger import Entry, Ledger
from refold.checkpoint.migrate.puts import parent_id, put
from refold.checkpoint.migrate.report import Mismatch, Report
from refold.checkpoint.migrate.saved import Mark, Place, Saved, Source
from refold.checkpoint.migrate.standing import Standing, standing_of
from refold.checkpoint.migrate.targets import Held, Target, target_of
from refold.checkpoint.migrate.troubles import answer_of, database_errors, one_checkpoint
from refold.checkpoint.migrate.versions import Versions, with_text_versions

_BATCH: Final = 50
_COUNTERS: Final = "counters_since_delta_snapshot"
_DELETED: Final = (
    "the thread was deleted in the target and has gone on there since, so what is older is dropped; delete it there "
    "once more and run this again, or copy into another target"
)


@dataclass(kw_only=True)
class _Run:
    source: Source
    target: BaseCheckpointSaver[str]
    reader: BaseCheckpointSaver[str]
    shelf: Target
    ledger: Ledger
    to_langgraph: bool
    progress: Callable[[Place], None]
    found: int = 0
    copied: int = 0
    unchanged: int = 0
    gone: int = 0
    writes: int = 0
    histories: int = 0
    lacked: int = 0
    without_writes: set[Place] = field(default_factory=set)
    pruned: set[Place] = field(default_factory=set)
    left: dict[str, int] = field(default_factory=dict)
    threads: set[str] = field(default_factory=set)
    mismatches: dict[Place, str] = field(default_factory=dict)

    def one_pass(self, *, first: bool) -> int:
        """Copies what is new or changed; how many checkpoints that was. The first one looks at the target, too."""
        before = self.copied
        self.found = 0
        self.left.clear()
        visited: set[str] = set()
        for thread, entries in groupby(self._index(), key=lambda entry: entry[0].thread_id):
            visited.add(thread)
            self._copy_thread(thread, dict(entries), first=first)
        for thread in self.ledger.threads():
            if thread not in visited:
                self._note_left(thread, self.ledger.of_thread(thread).keys())
        self.threads |= visited
        return self.copied - before

    def _index(self) -> Iterator[tuple[Place, Mark]]:
        with database_errors("source"):
            yield from self.source.index()

    def _copy_thread(self, thread: str, marks: Mapping[Place, Mark], *, first: bool) -> None:
        done = self.ledger.of_thread(thread)
        self._note_left(thread, done.keys() - marks.keys())
        done = {place: entry for place, entry in done.items() if place in marks}
        if first:
            standing = self._standing(thread, done)
            self.pruned |= {place for place in standing.pruned if done[place].mark == marks[place]}
            self.lacked += len(standing.lost)
            self.ledger.drop(standing.lost)
            for place in standing.lost:
                del done[place]
        for _, chain in groupby(marks.items(), key=lambda entry: entry[0].checkpoint_ns):
            self._copy_chain(chain, done, count=first)

    def _standing(self, thread: str, done: Mapping[Place, Entry]) -> Standing:
        """What the target has of a thread. One that it has nothing of is let in, also where it was deleted there."""

        def ask() -> Standing:
            held = self.shelf.held(thread)
            if not held:
                self.shelf.welcome(thread)
            return standing_of(done, held, self.shelf.writes_at)

        # A thread of a name that the target cannot hold is not there; copying it says why.
        return answer_of(ask, otherwise=Standing(lost=set(done)), side="target")

    def _note_left(self, thread: str, places: Set[Place]) -> None:
        """Of what is gone from the source: what the target still has. The rest is of no interest any more."""
        if not places:
            return
        nothing: Held = {}
        held = answer_of(lambda: self.shelf.held(thread), otherwise=nothing, side="target")
        left = {place for place in places if place.checkpoint_id in held.get(place.checkpoint_ns, ())}
        self.ledger.drop(places - left)
        if left:
            self.left[thread] = len(left)

    def _copy_chain(self, chain: Iterator[tuple[Place, Mark]], done: Mapping[Place, Entry], *, count: bool) -> None:
        """One namespace of one thread, oldest first, then the histories of the tips that are new."""
        tips: dict[str, CheckpointTuple] = {}
        batch: dict[Place, Entry] = {}
        for place, mark in chain:
            self.found += 1
            if place in done and done[place].mark == mark:
                self.unchanged += count and place not in self.pruned
                continue
            saved = None
            with self._noting(place, doing="it cannot be read", side="source"):
                saved = self.source.read(place)
                self.gone += saved is None
                self.mismatches.pop(place, None)
            if saved is None:
                continue
            self._copy(place, saved, tips)
            if place not in self.mismatches:
                batch[place] = Entry(mark=mark, writes=self.shelf.rows_of(saved.writes))
            if len(batch) >= _BATCH:
                self.ledger.enter(batch)
                batch.clear()
            self.progress(place)
        self._compare_histories(tips)
        self.ledger.enter({place: entry for place, entry in batch.items() if place not in self.mismatches})

    def _copy(self, place: Place, saved: Saved, tips: dict[str, CheckpointTuple]) -> None:
        with self._noting(place, doing="it cannot be written", side="target"):
            expected = self._with_versions(place, saved.tuple)
            put(self.target, place, expected, saved.writes, to_langgraph=self.to_langgraph)
            self.copied += 1
            self.writes += len(saved.writes)
            self._compare(place, expected)
            tips.pop(parent_id(expected) or "", None)
            tips[place.checkpoint_id] = saved.tuple

    def _compare(self, place: Place, expected: CheckpointTuple) -> None:
        with self._noting(place, doing="it cannot be read back", side="target"):
            written = self.reader.get_tuple(place.config)
            if written is not None and self._lost_writes_of_metadata(expected, written):
                self.without_writes.add(place)
                expected = expected._replace(metadata=_without_writes(expected.metadata))
            found = "; ".join(differences(expected, written, carries_snapshots=self.to_langgraph))
            if written is None and self.shelf.remembers_deletion(place.thread_id):
                found = f"{found}: {_DELETED}"
            if found:
                self.mismatches[place] = found

    def _lost_writes_of_metadata(self, expected: CheckpointTuple, written: CheckpointTuple) -> bool:
        """What the target's saver always leaves out is no difference, and is counted."""
        return (
            self.shelf.drops_writes_of_metadata and "writes" in expected.metadata and "writes" not in written.metadata
        )

    def _noting(self, place: Place, *, doing: str, side: str) -> AbstractContextManager[None]:
        return one_checkpoint(partial(self.mismatches.__setitem__, place), doing=doing, side=side)

    def _with_versions(self, place: Place, saved: CheckpointTuple) -> CheckpointTuple:
        if not self.to_langgraph:
            return saved
        parent = parent_id(saved)
        if parent is None:
            return with_text_versions(saved, None)
        above = Place(thread_id=place.thread_id, checkpoint_ns=place.checkpoint_ns, checkpoint_id=parent)
        if above in self.mismatches:
            return with_text_versions(saved, None)
        before, after = self.source.read(above), self.reader.get_tuple(above.config)
        if before is None or after is None:
            return with_text_versions(saved, None)
        return with_text_versions(saved, Versions.of(before.tuple.checkpoint, after.checkpoint))

    def _compare_histories(self, tips: dict[str, CheckpointTuple]) -> None:
        for saved in tips.values():
            channels = _delta_channels(saved)
            place = _place_of(saved)
            if not channels or place in self.mismatches:
                continue
            with self._noting(place, doing="the history of a delta channel cannot be read", side="source"):
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
            lacked=self.lacked,
            pruned=len(self.pruned),
            left=dict(sorted(self.left.items())),
            without_writes=len(self.without_writes),
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

    What the ledger says is done is looked for in the target; what is missing is copied again, but for what a prune
    removed. A thread that the target has nothing of is let in, also when it was deleted there.

    A checkpoint that cannot be read, cannot be written or does not read back as it was is reported and tried again by
    the next run; it does not stop this one. Raises `DatabaseUnavailableError` when source or target cannot be used.
    """
    reader = reader or target
    run = _Run(
        source=source,
        target=target,
        reader=reader,
        shelf=target_of(reader),
        ledger=ledger,
        to_langgraph=to_langgraph,
        progress=progress,
    )
    for at in range(passes):
        copied = run.one_pass(first=at == 0)
        if run.mismatches:
            break
        if not copied:
            return run.report(caught_up=True)
    return run.report(caught_up=False)


def _without_writes(metadata: CheckpointMetadata) -> CheckpointMetadata:
    return cast("CheckpointMetadata", {key: value for key, value in metadata.items() if key != "writes"})


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
