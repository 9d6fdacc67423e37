"""What a target still has of what the ledger says was copied.

A target may have been restored from an older copy, made anew, or have lost threads to a deletion: what is missing then
is copied again. It may also have been pruned, which is its owner's wish: what a prune removed stays away, and is said.
A prune never removes the newest checkpoint of a namespace, and takes the namespaces of sub-graph calls together with
the checkpoints that they began at; so what is missing while what is newer is there was pruned.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from refold.checkpoint.migrate.ledger import Entry
from refold.checkpoint.migrate.saved import Place
from refold.checkpoint.migrate.targets import Held


@dataclass(kw_only=True)
class Standing:
    """Places of the ledger that the target does not have: to be copied again, and pruned."""

    lost: set[Place] = field(default_factory=set)
    pruned: set[Place] = field(default_factory=set)


def standing_of(done: Mapping[Place, Entry], held: Held, writes_at: Callable[[Place], int]) -> Standing:
    """Compares the entries of one thread with what the target holds of it.

    Of the newest checkpoint of each namespace the rows of writes are counted too: an older copy of the target may have
    the checkpoint and not yet what was written to it since.
    """
    namespaces: dict[str, list[Place]] = {}
    for place in sorted(done):
        namespaces.setdefault(place.checkpoint_ns, []).append(place)
    found = Standing()
    root_was_pruned = _was_pruned(namespaces.get("", []), held.get("", set()))
    for namespace, places in namespaces.items():
        ids = held.get(namespace, set())
        missing = {place for place in places if place.checkpoint_id not in ids}
        newest = places[-1]
        if _was_pruned(places, ids) or (namespace and not ids and root_was_pruned):
            found.pruned |= missing
        else:
            found.lost |= missing
        if newest not in missing and writes_at(newest) < done[newest].writes:
            found.lost.add(newest)
    return found


def _was_pruned(places: list[Place], ids: Set[str]) -> bool:
    return bool(places) and places[-1].checkpoint_id in ids and any(place.checkpoint_id not in ids for place in places)
