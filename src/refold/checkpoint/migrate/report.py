"""What a migration did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from refold.checkpoint.migrate.saved import Place


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A checkpoint that is not in the target as the source has it: it could not be read, could not be written, or does
    not read back the same. `difference` says which, in words."""

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
    """finished by an earlier run, and still in the target"""
    gone: int
    """deleted from the source while it ran"""
    writes: int
    histories: int
    """of delta channels, compared from a tip back to its seed"""
    caught_up: bool
    """whether the last pass found nothing new"""
    lacked: int = 0
    """finished by an earlier run, but not in the target any more: copied again"""
    pruned: int = 0
    """finished by an earlier run, and removed from the target by a prune since: left so"""
    left: Mapping[str, int] = field(default_factory=dict)
    """by thread: copied by an earlier run, deleted from the source since, and still in the target"""
    without_writes: int = 0
    """whose metadata lost its entry `writes`, which LangGraph's PostgresSaver does not keep"""
    mismatches: Sequence[Mismatch] = ()

    @property
    def proved(self) -> bool:
        """Whether every checkpoint that was copied reads back as the source has it."""
        return not self.mismatches
