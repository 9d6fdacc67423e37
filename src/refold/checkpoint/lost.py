"""The guard against a runtime that lost a delta channel.

A thread whose messages are in a delta channel stores no list, only writes. A graph compiled with a plain channel in its
place (an older release of the application, say) rebuilds the list from the writes since LangGraph 1.2.16; before, it
reads that thread as empty and goes on from there, and every later checkpoint holds the loss. LangGraph does not notice,
but the saver can: of all that the channel held, and that this step neither wrote nor removed, nothing is in the value.
This is looked at once in the life of a thread: the plain value that passes is stored, and later steps build on it. A
run whose first checkpoint was refused may go on to the next before it stops; that one is refused by the thread's head.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Final, cast

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.base import Checkpoint, DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from refold.checkpoint.caches import Tip
from refold.checkpoint.drafts import Context
from refold.checkpoint.header import Header, Stored
from refold.checkpoint.read import config_of, delta_history_gen, get_tuple_gen, stored_of
from refold.checkpoint.reducer import is_overwrite, overwritten
from refold.checkpoint.spaces import Address
from refold.core.program import Program
from refold.errors import CheckpointError

_COUNTERS: Final = "counters_since_delta_snapshot"


def refuse_lost_channels_gen(
    ctx: Context, space: Address, before: Tip | None, checkpoint: Checkpoint, metadata: Mapping[str, object]
) -> Program[None]:
    """Raise `CheckpointError` for a checkpoint whose plain value lacks what a delta channel held in the one before."""
    values = checkpoint["channel_values"]
    suspects = [] if before is None else _suspects(ctx, before.header, values, metadata.get("step"))
    if before is None or not suspects:
        return
    config = config_of(space.thread, space.ns, before.checkpoint_id)
    history = yield from delta_history_gen(ctx, config, suspects)
    saved = yield from get_tuple_gen(ctx, config)
    pending: Sequence[PendingWrite] = [] if saved is None else saved.pending_writes or []
    for channel in suspects:
        step = [value for _, name, value in pending if name == channel]
        if _is_lost(ctx, history[channel], step, values[channel]):
            raise CheckpointError(
                f"channel {channel!r} of this thread is a delta channel, but the graph has a plain one in its place "
                "and reads it as empty; the checkpoint was not stored. Compile the graph with the delta channel again, "
                "upgrade langgraph to 1.2.16 or later, which rebuilds the list, or print the thread's messages (refold "
                "threads DATABASE --messages THREAD) and start a new thread with them"
            )


def _suspects(ctx: Context, before: Header, values: Mapping[str, object], step: object) -> Sequence[str]:
    """The channels with a plain list or dict now that were delta channels without a stored value before. Where several
    supersteps are in one checkpoint (durability "exit") it is not known what they removed: then only a runtime that
    loses channels is suspected."""
    metadata = stored_of(ctx, before.metadata) if isinstance(before.metadata, Stored) else before.metadata
    known = cast("Mapping[str, object]", metadata)
    counters, last = known.get(_COUNTERS), known.get("step")
    if not isinstance(counters, Mapping):
        return []
    if isinstance(last, int) and isinstance(step, int) and step > last + 1 and rebuilds_lists():
        return []
    return [
        channel
        for channel, value in values.items()
        if channel in counters and channel not in before.cells and type(value) in (list, dict)
    ]


@cache
def rebuilds_lists() -> bool:
    """Whether this LangGraph's plain channels read what delta channels wrote."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version("langgraph"))
    return found is not None and tuple(map(int, found.groups())) >= (1, 2, 16)


def _is_lost(ctx: Context, history: DeltaChannelHistory, step: Sequence[object], value: object) -> bool:
    keyed = isinstance(value, dict)
    held: set[object] = set()
    for write in (history.get("seed"), *(value for _, _, value in history["writes"])):
        _apply(ctx, held, write, keyed=keyed)
    fresh: set[object] = set()
    for write in step:
        _apply(ctx, held, write, keyed=keyed)
        _apply(ctx, fresh, write, keyed=keyed)
    shown: set[object] = set()
    _apply(ctx, shown, value, keyed=keyed)
    kept = held - fresh
    if not keyed and not any(isinstance(name, str) for name in kept):
        return len(shown) < len(kept)  # messages without ids, which may have been given one since
    return bool(kept) and kept.isdisjoint(shown)


def _apply(ctx: Context, held: set[object], write: object, *, keyed: bool) -> None:
    """What a channel holds after a write, by name. `keyed`: it is a dict, and a key without a value is removed."""
    if isinstance(write, _DeltaSnapshot):
        write = write.value
    if is_overwrite(write):
        held.clear()
        write = overwritten(write)
    if keyed:
        for key, item in write.items() if isinstance(write, dict) else ():
            (held.discard if item is None else held.add)(key)
        return
    items: Iterable[object] = write if isinstance(write, list) else () if write is None else (write,)
    for item in items:
        if not isinstance(item, RemoveMessage):
            held.add(_name(ctx, item))
        elif item.id == REMOVE_ALL_MESSAGES:
            held.clear()
        else:
            held.discard(item.id)


def _name(ctx: Context, item: object) -> object:
    """What an element of a list is known by: a message's id, or its content."""
    named = item.id if isinstance(item, BaseMessage) else item.get("id") if isinstance(item, dict) else None
    return named if isinstance(named, str) else ctx.serde.dump(item).data
