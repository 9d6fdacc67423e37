"""Which statements a write will most probably make, known from what its thread did before: see `effects.Ahead`.

A wrong guess costs one more round trip to a server and nothing else.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from refold.checkpoint.blobs import find_blobs
from refold.checkpoint.caches import Step, Tip
from refold.checkpoint.cells import drafts_in
from refold.checkpoint.drafts import Context, Draft, every_draft
from refold.checkpoint.effects import Select, SelectIn
from refold.checkpoint.lists import ListDraft
from refold.checkpoint.logs import hold_log
from refold.checkpoint.put_draft import PutDraft
from refold.checkpoint.rows import get_write
from refold.checkpoint.shape import is_canonical_uuid
from refold.checkpoint.spaces import (
    Address,
    get_checkpoint,
    get_head,
    get_run,
    get_space,
    hold_checkpoint,
    lock_space,
)

Selects: TypeAlias = Sequence[Select | SelectIn]


def ahead_of_put(ctx: Context, draft: PutDraft) -> Selects:
    """What storing a checkpoint asks for."""
    address, tip = draft.address, draft.tip
    space_of = get_space(address.thread, address.ns)
    values = find_blobs(item.name for item in every_draft(drafts_in(draft.cells.values())))
    if tip is None:
        return [space_of, values]
    asked: list[Select | SelectIn] = [
        space_of,
        lock_space(tip.space),
        get_checkpoint(tip.space, tip.checkpoint_id),
        get_checkpoint(tip.space, address.checkpoint_id or ""),
        values,
    ]
    if ctx.exclusive and (tip.space.wide or is_canonical_uuid(address.checkpoint_id or "")):  # else it is made wide
        asked.append(get_head(tip.space))
    for cell in draft.cells.values():
        if isinstance(cell, ListDraft) and cell.base is not None and cell.tail:
            asked += hold_log(cell.base.log)
    if draft.run is not None:
        asked.append(get_run(draft.run, tip.space))
    return [*asked, *_template(ctx, (tip.template,))]


def ahead_of_writes(
    ctx: Context, address: Address, task: str, blobs: Iterable[Draft], tip: Tip | None, step: Step | None
) -> Selects:
    """What storing a task's writes asks for. `step` is given where `tip` is their checkpoint."""
    space_of = get_space(address.thread, address.ns)
    values = find_blobs(item.name for item in every_draft(blobs))
    if tip is None or step is None:
        return [space_of, values]
    return [
        space_of,
        get_checkpoint(tip.space, tip.checkpoint_id),
        hold_checkpoint(tip.seq),
        get_write(tip.seq, task),
        values,
        *_template(ctx, step),
    ]


def _template(ctx: Context, step: Step) -> Selects:
    """Whether the template is stored that the same step had the last time."""
    template = ctx.caches.followers.get(step)
    name = None if template is None else ctx.caches.template_names.get(template)
    return [] if name is None else [find_blobs([name])]
