"""Threads, namespaces and checkpoint ids, and the programs that find their rows.

A *space* is one (thread, namespace). Checkpoint ids are ordered as text; canonical UUIDs are stored as their 16 bytes,
which order the same way. A space that meets any other id becomes *wide*: all its ids are stored as text from then on.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from langchain_core.runnables import RunnableConfig

from refold.checkpoint.effects import Args, Row, Select, SelectEach, as_bytes, one
from refold.checkpoint.shape import is_canonical_uuid
from refold.core.program import Program
from refold.errors import ConfigurationError, CorruptionError

LISTED, HIDDEN, AWAITED = 0, 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a config points. `checkpoint_id` is None for the newest."""

    thread: str
    ns: str
    checkpoint_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    id: int
    wide: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointRow:
    """A checkpoint as stored. `parent_id` is None where there is no parent row any more."""

    seq: int
    checkpoint_id: str
    state: int
    parent: int | None
    run: int | None
    template: int | None
    data: bytes | None
    parent_id: str | None


def address_of(config: RunnableConfig) -> Address:
    """Raises `ConfigurationError` for a config without a thread id, and for names that are no text."""
    configurable: Mapping[str, object] = config.get("configurable") or {}
    if "thread_id" not in configurable:
        raise ConfigurationError("the config has no thread_id: pass {'configurable': {'thread_id': ...}}")
    checkpoint_id = configurable.get("checkpoint_id")
    return Address(
        thread=name_of(str(configurable["thread_id"])),
        ns=name_of(str(configurable.get("checkpoint_ns") or "")),
        checkpoint_id=str(checkpoint_id) if checkpoint_id else None,
    )


def name_of(text: str) -> str:
    """The name of a thread or namespace. Raises `ConfigurationError` for half a surrogate pair, which no column of text
    can hold; ids of checkpoints, tasks and runs are stored as bytes and may have one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"a thread id or namespace with half a surrogate pair cannot be stored ({text!r}): name it by valid text"
        ) from error
    return text


def pack_id(text: str, *, wide: bool) -> bytes:
    """The stored form of an id; empty bytes for one that the space cannot hold."""
    if wide:
        return text.encode("utf-8", "surrogatepass")
    return uuid.UUID(text).bytes if is_canonical_uuid(text) else b""


def unpack_id(data: bytes, *, wide: bool) -> str:
    """Raises `CorruptionError` for bytes that are none of the space's kind."""
    raw = as_bytes(data)
    try:
        return raw.decode("utf-8", "surrogatepass") if wide else str(uuid.UUID(bytes=raw))
    except ValueError as error:
        raise CorruptionError("a stored id does not decode; restore the database from a backup") from error


def read_row(row: Row, space: Space) -> CheckpointRow:
    seq, checkpoint_id, state, parent, run, template, data, parent_id = row
    return CheckpointRow(
        seq=cast("int", seq),
        checkpoint_id=unpack_id(cast("bytes", checkpoint_id), wide=space.wide),
        state=cast("int", state),
        parent=cast("int | None", parent),
        run=cast("int | None", run),
        template=cast("int | None", template),
        data=None if data is None else as_bytes(data),
        parent_id=None if parent_id is None else unpack_id(cast("bytes", parent_id), wide=space.wide),
    )


def get_space(thread: str, ns: str) -> Select:
    """The request for a space."""
    return Select(statement="space_get", args={"thread": thread, "ns": ns})


def lock_thread(thread: str) -> Select:
    """The request to be the only one that gives a thread a new namespace, or deletes it. Comes before spaces are
    held."""
    return Select(statement="thread_lock", args={"thread": name_of(thread)})


def lock_space(space: Space) -> Select:
    """The request to hold a space for writing."""
    return Select(statement="space_lock", args={"space": space.id})


def get_checkpoint(space: Space, checkpoint_id: str) -> Select:
    """The request for a checkpoint's row. An id that the space cannot hold finds none."""
    args: Args = {"space": space.id, "id": pack_id(checkpoint_id, wide=space.wide)}
    return Select(statement="checkpoint_get", args=args)


def get_found(address: Address) -> Select:
    """The request for the checkpoint that an address names, or for the head of its space."""
    args: Args = {"thread": address.thread, "ns": address.ns}
    if address.checkpoint_id is None:
        return Select(statement="checkpoint_newest", args=args)
    narrow, wide = (pack_id(address.checkpoint_id, wide=wide) for wide in (False, True))
    return Select(statement="checkpoint_named", args={**args, "id": narrow, "wide_id": wide})


def hold_checkpoint(seq: int) -> Select:
    """The request to hold a checkpoint's row while its writes change."""
    return Select(statement="checkpoint_hold", args={"seq": seq})


def get_run(name: bytes, space: Space) -> Select:
    """The request for a run's row."""
    return Select(statement="run_get", args={"name": name, "space": space.id})


def get_head(space: Space) -> Select:
    """The request for the newest listed checkpoint of a space."""
    return Select(statement="checkpoint_head", args={"space": space.id})


def find_space_gen(thread: str, ns: str) -> Program[Space | None]:
    row = one((yield from get_space(thread, ns)))
    return None if row is None else Space(id=cast("int", row[0]), wide=bool(row[1]))


def hold_space_gen(thread: str, ns: str) -> Program[Space | None]:
    """The space if it is there, held for writing: it is neither extended nor deleted by another meanwhile."""
    space = yield from find_space_gen(thread, ns)
    return None if space is None else (yield from hold_gen(space))


def hold_gen(space: Space) -> Program[Space | None]:
    """A space, held for writing, as it is then: another may have made it wide, or removed it."""
    row = one((yield from lock_space(space)))
    return None if row is None else Space(id=space.id, wide=bool(row[1]))


def hold_or_claim_gen(thread: str, ns: str) -> Program[Space | None]:
    """The space, held for writing. Where there is none, none is made and the thread is not deleted by another
    meanwhile."""
    space = yield from hold_space_gen(thread, ns)
    if space is not None:
        return space
    yield from lock_thread(thread)
    return (yield from hold_space_gen(thread, ns))


def open_space_gen(thread: str, ns: str, checkpoint_id: str) -> Program[Space]:
    """The space, made if needed, held for writing, and able to hold the id. Needs a write transaction."""
    space = yield from hold_space_gen(thread, ns)
    while space is None:  # made by us, or by another since; only a deletion in between makes this go round again
        wide = 0 if is_canonical_uuid(checkpoint_id) else 1
        yield from Select(statement="space_add", args={"thread": thread, "ns": ns, "wide": wide})
        space = yield from hold_space_gen(thread, ns)
    return (yield from fit_space_gen(space, checkpoint_id))


def fit_space_gen(space: Space, checkpoint_id: str) -> Program[Space]:
    """The space, wide if the id needs it."""
    if space.wide or is_canonical_uuid(checkpoint_id):
        return space
    yield from _widen_gen(space)
    return Space(id=space.id, wide=True)


def _widen_gen(space: Space) -> Program[None]:
    rows = yield from Select(statement="checkpoint_keys", args={"space": space.id})
    changes = [{"seq": row[0], "id": pack_id(unpack_id(cast("bytes", row[1]), wide=False), wide=True)} for row in rows]
    yield from SelectEach(statement="checkpoint_reid", rows=changes)
    yield from Select(statement="space_widen", args={"space": space.id})


def find_checkpoint_gen(space: Space, checkpoint_id: str) -> Program[CheckpointRow | None]:
    row = one((yield from get_checkpoint(space, checkpoint_id)))
    return None if row is None else read_row(row, space)


def find_head_gen(space: Space) -> Program[CheckpointRow | None]:
    row = one((yield from get_head(space)))
    return None if row is None else read_row(row, space)


def find_gen(address: Address) -> Program[tuple[Space, CheckpointRow] | None]:
    """The checkpoint that an address names, or the head of its space, with the space."""
    row = one((yield from get_found(address)))
    if row is None:
        return None
    space = Space(id=cast("int", row[0]), wide=bool(row[1]))
    return space, read_row(row[2:], space)


def await_gen(space: Space, checkpoint_id: str) -> Program[int]:
    """The row of a checkpoint, or a place kept for it."""
    row = yield from find_checkpoint_gen(space, checkpoint_id)
    if row is not None:
        return row.seq
    space = yield from fit_space_gen(space, checkpoint_id)
    args: Args = {"space": space.id, "id": pack_id(checkpoint_id, wide=space.wide), "state": AWAITED}
    added = yield from Select(
        statement="checkpoint_add", args={**args, "parent": None, "run": None, "template": None, "data": None}
    )
    return cast("int", added[0][0])
