"""Cells on their way into the database: drafts of a row's values, and where each is stored once its parts have ids."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from refold.checkpoint.caches import ListState
from refold.checkpoint.drafts import Context, Draft, draft_of
from refold.checkpoint.header import Cell, InBlob, Inline, InLog
from refold.checkpoint.lists import ListDraft
from refold.checkpoint.logs import extend_log_gen
from refold.core.program import Program

_INLINE_REFS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class InlineDraft:
    """A value small enough to stand in the row; its parts are blobs."""

    tag: str
    pieces: Sequence[bytes]
    parts: Sequence[Draft]


CellDraft: TypeAlias = "Cell | InlineDraft | Draft | ListDraft"


def draft_cell(ctx: Context, value: object, limit: int) -> CellDraft:
    """The draft of a value; in the row itself where it has at most `limit` bytes."""
    plain = ctx.serde.dump(value)
    draft = draft_of(ctx, plain)
    small = sum(map(len, draft.pieces)) <= limit and len(draft.parts) <= _INLINE_REFS
    return InlineDraft(tag=plain.tag, pieces=draft.pieces, parts=draft.parts) if small else draft


def drafts_in(cells: Iterable[CellDraft]) -> list[Draft]:
    """The values of some cells that are blobs of their own."""
    drafts: list[Draft] = []
    for cell in cells:
        match cell:
            case Draft():
                drafts.append(cell)
            case InlineDraft(parts=parts):
                drafts += parts
            case ListDraft():
                drafts += cell.drafts
            case _:
                pass
    return drafts


def settle_cells_gen(
    ctx: Context, drafts: Mapping[str, CellDraft], ids: Mapping[bytes, int]
) -> Program[tuple[Mapping[str, Cell], Mapping[int, ListState]]]:
    """The cells of drafts whose blobs have ids, and what is to be remembered of lists. Needs a write transaction."""
    cells: dict[str, Cell] = {}
    lists: dict[int, ListState] = {}
    for channel, draft in drafts.items():
        match draft:
            case ListDraft():
                keep, tail = draft.settle(ids)
                cell = yield from extend_log_gen(ctx, draft.base, keep, tail, head=draft.head, snapshot=draft.snapshot)
                cells[channel] = cell
                lists[cell.log] = draft.remembered(keep, tail)
            case Draft():
                cells[channel] = InBlob(blob=ids[draft.name])
            case InlineDraft():
                refs = [ids[part.name] for part in draft.parts]
                cells[channel] = Inline(tag=draft.tag, pieces=draft.pieces, refs=refs)
            case Inline() | InBlob() | InLog():
                cells[channel] = draft
    return cells, lists
