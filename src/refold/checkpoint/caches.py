"""What a saver remembers between calls. Nothing here is needed for a right answer, only for a fast one.

Ids of blobs, logs and checkpoints are never used twice, and what they name never changes, so *content* by id stays true
whatever other processes do. That something *exists* is never taken from here: a transaction that writes looks up every
hash it relies on, and compares the parent's row with the one remembered.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from refold.checkpoint.header import Header, Write
from refold.checkpoint.lean import Cut, Lean
from refold.checkpoint.message_log import Origin
from refold.checkpoint.spaces import Space

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Entry: TypeAlias = int | bytes
"""An element of a log: the id of its blob, or its msgpack bytes where those are few."""


class Lru(Generic[K, V]):
    """A bounded mapping that forgets what was not used for longest. Safe to share between threads. `cost` is of some
    values together; that of a value may not change while it is here. The last `keep` values stay, whatever they
    cost."""

    def __init__(self, limit: int, cost: Callable[[Collection[V]], int] = len, *, keep: int = 0) -> None:
        self._limit = limit
        self._cost = cost
        self._keep = keep
        self._used = 0
        self._items: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._forget(key)
            self._used += self._cost((value,))
            self._items[key] = value
            self._shrink()

    def _forget(self, key: K) -> None:
        if key in self._items:
            self._used -= self._cost((self._items.pop(key),))

    def _shrink(self) -> None:
        while self._used > self._limit and len(self._items) > self._keep:
            self._used -= self._cost((self._items.popitem(last=False)[1],))

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Those of some keys that are there."""
        found: dict[K, V] = {}
        with self._lock:
            items = self._items
            if not items:
                return found
            for key in keys:
                if key in items:
                    items.move_to_end(key)
                    found[key] = items[key]
        return found

    def put_many(self, new: Mapping[K, V]) -> None:
        """Add keys that were not there. Where one is, it stays."""
        with self._lock:
            items = self._items
            added = {key: value for key, value in new.items() if key not in items} if items else new
            self._used += self._cost(added.values())
            items.update(added)
            self._shrink()

    def replace_many(self, new: Mapping[K, V]) -> None:
        """Give keys that are there another value of the same cost."""
        with self._lock:
            for key in new.keys() & self._items.keys():
                self._items[key] = new[key]

    def drop(self, key: K) -> None:
        with self._lock:
            self._forget(key)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
            self._used = 0


@dataclass(frozen=True, slots=True)
class Elements:
    """What is known of a list's elements, by place: their entries in a log, the live objects, and what each was like
    (see `lists`): a stored message's own form, until somebody needs to compare it. `objects` and `marks` may be empty.

    The lists grow at their ends, so that states of growing lists share them. Otherwise only a stored form among the
    marks is replaced, by the mark that it stands for.
    """

    entries: list[Entry]
    objects: list[object]
    marks: list[object]
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListState:
    """The first `length` elements of a log as they were last written or read. Never changed once made.

    A longer state of the same log has a shorter one as its prefix. What a list that was written was, where it was a
    `MessageLog`, is `origin`; a list that was read is `source` itself. `weight`: about how many bytes it keeps.
    """

    elements: Elements
    length: int
    weight: int
    origin: Origin | None = None
    source: Sequence[object] | None = None

    def entries(self, stop: int, start: int = 0) -> Sequence[Entry]:
        """The entries of some elements, up to `length` at most."""
        return self.elements.entries[start:stop]

    @property
    def compares(self) -> bool:
        """Whether it is known what the elements are like, not only where they are stored."""
        return len(self.elements.objects) >= self.length

    def grown(
        self,
        keep: int,
        entries: Sequence[Entry],
        objects: Sequence[object],
        marks: Sequence[object],
        origin: Origin | None,
    ) -> "ListState":
        """With others after the first `keep` elements. Needs `compares`."""
        weight = self.weight * keep // max(self.length, 1) + weight_of(marks)
        known, length = self.elements, keep + len(entries)
        with known.lock:
            if len(known.entries) != keep:
                known = Elements(known.entries[:keep], known.objects[:keep], known.marks[:keep])
            known.entries.extend(entries)
            known.objects.extend(objects)
            known.marks.extend(marks)
        return ListState(elements=known, length=length, weight=weight, origin=origin)


_OBJECT = 100  # bytes of a small object in a container
_ELEMENT = 1_500  # bytes of a live message beside its texts, with its mark


def weight_of(marks: Collection[object]) -> int:
    """About how many bytes elements keep in memory that are like this."""
    return _ELEMENT * len(marks) + sum(len(mark) if type(mark) is bytes else _weight(mark) for mark in marks)


def _weight(mark: object) -> int:
    if isinstance(mark, Cut):
        return mark.size
    return _texts(mark[0] if isinstance(mark, tuple) else mark)


def _texts(value: object) -> int:
    match value:
        case str() | bytes():
            return _OBJECT + len(value)
        case dict():
            return _OBJECT + sum(map(_texts, value.values()))
        case list():
            return _OBJECT + sum(map(_texts, value))
        case _:
            return _OBJECT


@dataclass(frozen=True, kw_only=True, slots=True)
class Tip:
    """A checkpoint that a next one may build on, with the row that it was read from."""

    checkpoint_id: str
    seq: int
    template: int
    data: bytes
    header: Header
    space: Space


Step: TypeAlias = tuple[int, *tuple[str, ...]]
"""The template of a checkpoint, and the channels of a task's writes to it; none for the checkpoint that came next."""


@dataclass(frozen=True, kw_only=True)
class Caches:
    """All caches of one database. Limits: bytes for values and lists (about), entries for the rest."""

    lean: Lru[int, Lean]
    lists: Lru[int, ListState]
    headers: Lru[tuple[int, bytes, str], Header] = field(default_factory=lambda: Lru(1024))
    writes: Lru[tuple[bytes, bytes, str, str], Sequence[Write]] = field(default_factory=lambda: Lru(4096))
    templates: Lru[int, bytes] = field(default_factory=lambda: Lru(4096))
    template_names: Lru[int, bytes] = field(default_factory=lambda: Lru(4096))
    followers: Lru[Step, int] = field(default_factory=lambda: Lru(1024))
    tips: Lru[tuple[str, str], Tip] = field(default_factory=lambda: Lru(256))
    stored: Lru[bytes, bytes] = field(default_factory=lambda: Lru(4096))

    def clear(self) -> None:
        for cache in (
            self.lean,
            self.lists,
            self.headers,
            self.writes,
            self.templates,
            self.template_names,
            self.followers,
            self.tips,
            self.stored,
        ):
            cache.clear()


DEFAULT_CACHE_BYTES: Final = 64 * 1024 * 1024
