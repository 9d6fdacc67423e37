"""The threads of a database, and the state that one of them stands at, whatever kind of channel it was written with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from refold.checkpoint.migrate.saved import Place, Saved, Source


@dataclass(kw_only=True)
class Thread:
    """A thread: how many namespaces and checkpoints it has, and its newest checkpoint."""

    namespaces: int = 0
    checkpoints: int = 0
    head: "Place | None" = None


@dataclass(frozen=True, kw_only=True)
class Head:
    """The newest checkpoint of a thread."""

    source: "Source"
    place: "Place"
    saved: "Saved"

    def channel(self, name: str) -> object:
        """The value of a channel; a delta channel is put together from its writes. None where there is none."""
        from langgraph.channels.delta import DeltaChannel
        from langgraph.checkpoint.serde.types import _DeltaSnapshot

        from refold.checkpoint.migrate.troubles import reading
        from refold.checkpoint.reducer import reduce_messages

        values = self.saved.tuple.checkpoint["channel_values"]
        if name in values:
            value = values[name]
            return value.value if isinstance(value, _DeltaSnapshot) else value
        if name not in self.saved.tuple.checkpoint["channel_versions"]:
            return None
        with reading(self.place):
            history = self.source.history(self.place, [name])[name]
            log = DeltaChannel(reduce_messages, list).from_checkpoint(history.get("seed"))
            log.replay_writes(history["writes"])
            return log.get()


def read(source: "Source", place: "Place") -> "Saved | None":
    """A checkpoint; None when it is gone. Raises `CorruptionError` for one that cannot be read."""
    from refold.checkpoint.migrate.troubles import reading

    with reading(place):
        return source.read(place)


def threads_of(source: "Source") -> dict[str, Thread]:
    """Every thread by its id."""
    found: dict[str, Thread] = {}
    namespace: tuple[str, str] | None = None
    for place, _ in source.index():  # in the order of threads, namespaces and age
        known = found.setdefault(place.thread_id, Thread())
        known.checkpoints += 1
        if namespace != (place.thread_id, place.checkpoint_ns):
            namespace = (place.thread_id, place.checkpoint_ns)
            known.namespaces += 1
        if place.checkpoint_ns == "" or known.head is None:
            known.head = place
    return found


def head_of(source: "Source", thread: str) -> Head:
    """Where a thread stands. Raises `ConfigurationError` for a thread that is not there."""
    known = threads_of(source).get(thread)
    place = None if known is None else known.head
    saved = None if place is None else read(source, place)
    if place is None or saved is None:
        raise ConfigurationError(f"there is no thread {thread!r}; refold threads lists them")
    return Head(source=source, place=place, saved=saved)
