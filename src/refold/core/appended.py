"""An immutable sequence that shares its beginning with what it grew from: growing it costs what is new.

The beginning is one list that nobody changes, the rest a tuple; once that is long the two become a beginning of their
own. Of a thousand appends all but a few copy no more than the rest.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar, overload

T = TypeVar("T")

_LONGEST_REST: Final = 512


class Appended(Sequence[T], Generic[T]):
    """Takes its own copy of what it begins with. Slices are lists."""

    __slots__ = ("_begin", "_rest")

    def __init__(self, items: Sequence[T] = ()) -> None:
        self._begin = list(items)
        self._rest: tuple[T, ...] = ()

    def plus(self, items: Sequence[T]) -> "Appended[T]":
        """With items after it."""
        rest = (*self._rest, *items)
        if len(rest) > _LONGEST_REST:
            return Appended([*self._begin, *rest])
        grown = Appended[T]()
        grown._begin, grown._rest = self._begin, rest
        return grown

    def begins(self, items: list[T]) -> bool:
        """Whether a list begins with the same or equal items.

        Comparing two lists looks at pointers first, and not at what they point to: on a long log, whose messages lie
        all over the memory, that is ten times as fast as a walk. A shorter list whose items all equal those at the same
        places is less than the other; two items that differ would have to have an order.
        """
        try:
            return self._begin <= items and list(self._rest) == items[len(self._begin) : len(self)]
        except TypeError:  # two items that differ have no order
            return False

    def __len__(self) -> int:
        return len(self._begin) + len(self._rest)

    def __iter__(self) -> Iterator[T]:
        return chain(self._begin, self._rest)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        first = len(self._begin)
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1 and start >= first:
                return list(self._rest[start - first : stop - first])
            if step == 1 and stop <= first:
                return self._begin[start:stop]
            return list(self)[index]
        place = index + len(self) if index < 0 else index
        if place < 0:
            raise IndexError(index)
        return self._begin[place] if place < first else self._rest[place - first]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Appended) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
