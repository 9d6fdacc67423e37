"""What a database remembers of what was removed, so that late steps of runs that were going on do no harm.

A run does not hear that its thread is deleted, or that the checkpoint it builds on is pruned. Its next steps are late:

- of a deleted thread they are dropped. They are known by their parent, by the checkpoint that called their subgraph, or
  by a step before that was dropped. A checkpoint that names none of these is a new beginning.
- of a removed checkpoint they are stored, unless a delta channel would have to be rebuilt from it: that is an error.

Kept in `meta`, each with the time at which it happened, for thirty days:

    deleted/THREAD        the newest checkpoint id that the thread had, by a hash of its name
    deleted/THREAD/ID     a late checkpoint that was dropped, by a hash of its id
    pruned/SPACE          the newest checkpoint id that was removed from a namespace

    value  seconds since 1970 as text, a blank, the id; the id alone in databases of before
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from refold.checkpoint.effects import Select, SelectEach, as_bytes, one
from refold.checkpoint.header import id_time
from refold.checkpoint.spaces import Space, unpack_id
from refold.core.program import Program

REMEMBERED: Final = timedelta(days=30)
_DELETED: Final = "deleted/"
_PRUNED: Final = "pruned/"
_ALL: Final = 1_000_000


def is_deleted_gen(thread: str, *checkpoint_ids: str | None) -> Program[bool]:
    """Whether the thread was deleted when it had one of these checkpoints, or later, or one of them was dropped."""
    key = deletion_key(thread)
    newest = yield from _newest_gen(key)
    if newest is None:
        return False
    for known in checkpoint_ids:
        if known is not None and (known <= newest or (yield from _newest_gen(_late_key(key, known))) is not None):
            return True
    return False


def note_deletion_gen(thread: str, newest: str, now: datetime) -> Program[None]:
    """Remember a deletion by the newest checkpoint id that it met."""
    yield from _note_gen(deletion_key(thread), newest, now)


def note_late_gen(thread: str, checkpoint_id: str, now: datetime) -> Program[None]:
    """Remember a late checkpoint that was dropped: what comes after it is late too."""
    yield from _note_gen(_late_key(deletion_key(thread), checkpoint_id), checkpoint_id, now)


def is_pruned_gen(space: Space, checkpoint_id: str) -> Program[bool]:
    """Whether a checkpoint that is not there may have been removed from its namespace."""
    newest = yield from _newest_gen(f"{_PRUNED}{space.id}")
    return newest is not None and checkpoint_id <= newest


def note_pruned_gen(space: Space, newest: str, now: datetime) -> Program[None]:
    """Remember what was removed from a namespace by the newest checkpoint id."""
    yield from _note_gen(f"{_PRUNED}{space.id}", newest, now)


def forget_old_gen(now: datetime) -> Program[None]:
    """Forget what is so long ago that no late step can come any more."""
    for prefix in (_DELETED, _PRUNED):
        rows = yield from Select(statement="meta_from", args={"start": prefix, "stop": prefix + "~", "count": _ALL})
        old = [key for key, value in rows if now - _read(as_bytes(value))[1] > REMEMBERED]
        yield from SelectEach(statement="meta_delete", rows=[{"key": key} for key in old])


def deletion_key(thread: str) -> str:
    """Where it is remembered that a thread was deleted: by hash, so that its name is gone."""
    return _DELETED + _hash(thread)


def _late_key(key: str, checkpoint_id: str) -> str:
    return f"{key}/{_hash(checkpoint_id)}"


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=b"refold-deleted").hexdigest()


def _newest_gen(key: str) -> Program[str | None]:
    row = one((yield from Select(statement="meta_get", args={"key": key})))
    return None if row is None else _read(as_bytes(row[0]))[0]


def _note_gen(key: str, checkpoint_id: str, now: datetime) -> Program[None]:
    """The newest id wins, and the last time."""
    before = yield from _newest_gen(key)
    newest = max([checkpoint_id, *_given(before)])
    value = f"{int(now.timestamp())} ".encode() + newest.encode("utf-8", "surrogatepass")
    yield from Select(statement="meta_set", args={"key": key, "value": value})


def _given(value: str | None) -> Iterable[str]:
    return () if value is None else (value,)


def _read(value: bytes) -> tuple[str, datetime]:
    seconds, blank, checkpoint_id = value.partition(b" ")
    if blank and seconds.isdigit():
        return unpack_id(checkpoint_id, wide=True), datetime.fromtimestamp(int(seconds), UTC)
    text = unpack_id(value, wide=True)
    return text, id_time(text)
