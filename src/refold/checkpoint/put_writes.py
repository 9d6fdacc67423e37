"""The program that stores what one task wrote. Serialized first, then written in one short transaction."""

from collections.abc import Sequence
from functools import partial
from typing import cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP

from refold.checkpoint.ahead import ahead_of_writes
from refold.checkpoint.blobs import store_gen
from refold.checkpoint.caches import Step
from refold.checkpoint.cells import CellDraft, draft_cell, drafts_in, settle_cells_gen
from refold.checkpoint.deletions import is_deleted_gen
from refold.checkpoint.drafts import Context, Draft, every_draft, seal_new, use_as_base
from refold.checkpoint.effects import Args, Select, Transaction, one
from refold.checkpoint.header import Write
from refold.checkpoint.rows import get_write, read_templates_gen, store_writes_gen, writes_of
from refold.checkpoint.spaces import (
    Address,
    address_of,
    await_gen,
    find_checkpoint_gen,
    find_space_gen,
    hold_checkpoint,
    lock_thread,
    open_space_gen,
)
from refold.core.program import Program
from refold.errors import ConfigurationError

_INLINE_WRITE = 48  # bytes: a write is there once


def put_writes_gen(
    ctx: Context, config: RunnableConfig, writes: Sequence[tuple[str, object]], task_id: str, task_path: str
) -> Program[None]:
    """Store a task's writes. A write with an index that is stored stays as it is; special ones are replaced.

    Raises `ConfigurationError` for a config without a checkpoint id.
    """
    address = address_of(config)
    if address.checkpoint_id is None:
        raise ConfigurationError("put_writes needs a config with a checkpoint_id: writes belong to a checkpoint")
    drafts = [
        (WRITES_IDX_MAP.get(channel, idx), channel, draft_cell(ctx, value, _INLINE_WRITE))
        for idx, (channel, value) in enumerate(writes)
    ]
    blobs = drafts_in([cell for _, _, cell in drafts])
    _share_a_message(writes, blobs)
    seal_new(ctx, blobs)
    tip = ctx.caches.tips.get((address.thread, address.ns))
    step: Step | None = None
    if tip is not None and tip.checkpoint_id == address.checkpoint_id:
        step = (tip.template, *(channel for _, channel, _ in drafts))
    template = yield from Transaction(
        program=partial(_write_writes_gen, ctx, address, drafts, task_id, task_path),
        write=True,
        ahead=partial(ahead_of_writes, ctx, address, task_id, blobs, tip, step),
    )
    if template is not None:
        for item in every_draft(blobs):
            ctx.caches.stored.put(item.name, item.name)
        if step is not None:
            ctx.caches.followers.put(step, template)


def _share_a_message(writes: Sequence[tuple[str, object]], blobs: Sequence[Draft]) -> None:
    """A task that wrote a message and sends: the sends repeat the message's calls."""
    has_message = any(
        isinstance(value, BaseMessage) or (isinstance(value, list) and value and isinstance(value[0], BaseMessage))
        for _, value in writes
    )
    if has_message and len(blobs) > 1:
        leaves = [draft for draft in blobs if not draft.parts]
        use_as_base(max(leaves, key=lambda draft: len(draft.data), default=None), leaves)


def _write_writes_gen(
    ctx: Context, address: Address, drafts: Sequence[tuple[int, str, CellDraft]], task: str, path: str
) -> Program[int | None]:
    """The template of the row; None where nothing was to be stored."""
    checkpoint_id = address.checkpoint_id or ""
    seq = yield from _awaited_gen(address, checkpoint_id)
    if seq is None:
        return None
    row = one((yield from get_write(seq, task)))
    kept: dict[int, Write] = {}
    if row is not None:
        template, data = cast("tuple[int, bytes]", row)
        templates = yield from read_templates_gen(ctx, [template])
        kept = {write.idx: write for write in writes_of(ctx, templates[template], data, checkpoint_id, task)}
    wanted = [(idx, channel, cell) for idx, channel, cell in drafts if idx < 0 or idx not in kept]
    if not wanted:
        return None
    ids = yield from store_gen(ctx, drafts_in([cell for _, _, cell in wanted]))
    for idx, channel, cell in wanted:
        settled, _ = yield from settle_cells_gen(ctx, {channel: cell}, ids)
        kept[idx] = Write(idx=idx, channel=channel, cell=settled[channel], path=path)
    template, sealed = yield from store_writes_gen(ctx, list(kept.values()), checkpoint_id, task)
    args: Args = {**get_write(seq, task).args, "template": template, "data": sealed}
    yield from Select(statement="write_put", args=args, last=True)
    return template


def _awaited_gen(address: Address, checkpoint_id: str) -> Program[int | None]:
    """The row that writes belong to. Writes may come before their checkpoint: then its place is kept. None when the
    thread was deleted since."""
    space = yield from find_space_gen(address.thread, address.ns)
    row = None if space is None else (yield from find_checkpoint_gen(space, checkpoint_id))
    if row is not None and (yield from hold_checkpoint(row.seq)):
        return row.seq
    if space is None:
        yield from lock_thread(address.thread)  # no deletion of the thread passes from here on
    if (yield from is_deleted_gen(address.thread, checkpoint_id)):
        return None
    space = yield from open_space_gen(address.thread, address.ns, checkpoint_id)
    return (yield from await_gen(space, checkpoint_id))
