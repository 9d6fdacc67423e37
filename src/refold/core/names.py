"""Sets of names that only grow, and that every later one shares with the earlier ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Names:
    """An immutable set of names. Adding costs what is added, not what is there (amortised, times log n).

    Kept as layers whose sizes at least halve, so that there are few of them and each name is copied few times.
    """

    _layers: tuple[frozenset[str], ...] = ()

    def __contains__(self, name: object) -> bool:
        return any(name in layer for layer in self._layers)

    def __len__(self) -> int:
        return sum(map(len, self._layers))

    def plus(self, names: Iterable[str]) -> "Names":
        """The set with more names in it; this one stays as it is."""
        layers = [*self._layers]
        new = frozenset(name for name in names if name not in self)
        if not new:
            return self
        while layers and len(layers[-1]) < 2 * len(new):
            new |= layers.pop()
        return Names((*layers, new))


NO_NAMES: Final = Names()


@dataclass(kw_only=True, slots=True)
class Seen:
    """Names that were seen: those `before`, and the `new` ones that a pass over messages adds."""

    before: Names = NO_NAMES
    new: set[str] = field(default_factory=set)

    def __contains__(self, name: object) -> bool:
        return name in self.new or name in self.before

    def add(self, names: Iterable[str]) -> None:
        """Remember more names."""
        self.new.update(names)

    def all(self) -> Names:
        """Everything seen so far."""
        return self.before.plus(self.new)
