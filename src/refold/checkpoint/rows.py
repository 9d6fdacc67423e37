"""The `data` columns of checkpoints and writes: sealed rows, and their templates as blobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from refold.checkpoint.blobs import Found, get_blobs, pull_gen, store_gen
from refold.checkpoint.drafts import Context, Draft, draft_of
from refold.checkpoint.effects import Select, SelectIn, as_bytes, one
from refold.checkpoint.header import (
    Header,
    Write,
    pack_header,
    pack_writes,
    unpack_header,
    unpack_writes,
    with_checksum,
    without_checksum,
)
from refold.checkpoint.records import TEMPLATE_TAG
from refold.checkpoint.seal import RAW
from refold.checkpoint.serde import Plain
from refold.checkpoint.shape import Shape, is_canonical_uuid, outline
from refold.checkpoint.spaces import CheckpointRow, pack_id, unpack_id
from refold.core.program import Program
from refold.errors import CorruptionError


def seal_row(ctx: Context, row: bytes, key: str) -> bytes:
    """A row with its checksum, encrypted where the database is; the codec comes first."""
    codec, data = ctx.sealer.protect(RAW, with_checksum(row, key))
    return bytes([codec]) + data


def open_row(ctx: Context, data: bytes, key: str) -> bytes:
    if not data:
        raise CorruptionError(f"the row of {key} is empty; restore it from a backup")
    return without_checksum(ctx.sealer.reveal(data[0], data[1:]), key)


def checkpoint_key(checkpoint_id: str) -> str:
    return f"checkpoint {checkpoint_id}"


def write_key(checkpoint_id: str, task: str) -> str:
    return f"writes of task {task} at checkpoint {checkpoint_id}"


def store_header_gen(ctx: Context, header: Header, checkpoint_id: str) -> Program[tuple[int, bytes]]:
    """(template, data) of a checkpoint row."""
    template, row = pack_header(header, checkpoint_id)
    blob = yield from _store_template_gen(ctx, template)
    return blob, seal_row(ctx, row, checkpoint_key(checkpoint_id))


def store_writes_gen(
    ctx: Context, writes: Sequence[Write], checkpoint_id: str, task: str
) -> Program[tuple[int, bytes]]:
    """(template, data) of a row of writes."""
    template, row = pack_writes(writes)
    blob = yield from _store_template_gen(ctx, template)
    return blob, seal_row(ctx, row, write_key(checkpoint_id, task))


def _store_template_gen(ctx: Context, template: bytes) -> Program[int]:
    draft: Draft = draft_of(ctx, Plain(tag=TEMPLATE_TAG, data=template))
    ids = yield from store_gen(ctx, [draft])
    ctx.caches.stored.put(draft.name, draft.name)
    ctx.caches.template_names.put(ids[draft.name], draft.name)
    return ids[draft.name]


def get_write(checkpoint: int, task: str) -> Select:
    """The request for what one task wrote."""
    return Select(statement="write_get", args={"checkpoint": checkpoint, "task": pack_task(task)})


def get_writes(checkpoints: Iterable[int]) -> SelectIn:
    """The request for the rows of writes of some checkpoints."""
    return SelectIn(statement="writes_of", keys=list(checkpoints))


def get_templates(ctx: Context, templates: Iterable[int]) -> SelectIn:
    """The request for the templates that are not remembered; without keys where all are."""
    missing = {template for template in templates if ctx.caches.templates.get(template) is None}
    return get_blobs(sorted(missing))


StoredWrite: TypeAlias = tuple[int, bytes, int, bytes, bytes, int]
"""A row of task writes: checkpoint, task id, template, data, checkpoint id, space."""


def write_page_gen(after: int, count: int) -> Program[tuple[int, Sequence[StoredWrite]] | None]:
    """The task writes of the next checkpoints after one, about `count` of them and whole checkpoints, and the last
    checkpoint of the page; None at the end."""
    bound = one((yield from Select(statement="write_upto", args={"after": after, "count": count})))
    if bound is None or bound[0] is None:
        return None
    upto = cast("int", bound[0])
    rows = yield from Select(statement="write_scan", args={"after": after, "upto": upto})
    return upto, cast("list[StoredWrite]", rows)


def read_templates_gen(ctx: Context, templates: Iterable[int]) -> Program[Mapping[int, bytes]]:
    """The bytes of templates by blob."""
    wanted = set(templates)
    known = {template: data for template in wanted if (data := ctx.caches.templates.get(template)) is not None}
    missing = wanted - known.keys()
    if missing:
        found = Found(ctx)
        yield from pull_gen(found, missing)
        for template in missing:
            tag, data = found.full(template)
            if tag != TEMPLATE_TAG:
                raise CorruptionError(f"blob {template} is no template; restore the database from a backup")
            ctx.caches.templates.put(template, data)
            known[template] = data
    return known


def metadata_in(template: bytes) -> Mapping[str, Shape]:
    """What a template says about the metadata of its checkpoints: every key, with None for what is in the rows. Empty
    where all of it is there, and for what is no template of checkpoints, which reading a row says."""
    try:
        metadata = cast("list[Shape]", outline(template))[5]
    except (CorruptionError, IndexError, KeyError, TypeError, UnicodeDecodeError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def header_of(ctx: Context, row: CheckpointRow, templates: Mapping[int, bytes]) -> Header:
    """A row's header. Raises `CorruptionError` for a damaged row."""
    if row.template is None or row.data is None:
        raise CorruptionError(f"checkpoint {row.checkpoint_id} has no content; restore it from a backup")
    key = (row.template, row.data, row.checkpoint_id)
    known = ctx.caches.headers.get(key)
    if known is not None:
        return known
    plain = open_row(ctx, row.data, checkpoint_key(row.checkpoint_id))
    header = unpack_header(templates[row.template], plain, row.checkpoint_id)
    ctx.caches.headers.put(key, header)
    return header


def writes_of(ctx: Context, template: bytes, data: bytes, checkpoint_id: str, task: str) -> Sequence[Write]:
    """A row's writes. Raises `CorruptionError` for a damaged row."""
    key = (template, as_bytes(data), checkpoint_id, task)
    known = ctx.caches.writes.get(key)
    if known is None:
        known = unpack_writes(template, open_row(ctx, key[1], write_key(checkpoint_id, task)))
        ctx.caches.writes.put(key, known)
    return known


def pack_task(task: str) -> bytes:
    """A task id as 16 bytes where it is a canonical UUID; as text, marked and never 16 bytes long, otherwise."""
    if is_canonical_uuid(task):
        return pack_id(task, wide=False)
    text = task.encode("utf-8", "surrogatepass")
    return (b"\x00" if len(text) != 15 else b"\x01\x00") + text


def unpack_task(data: object) -> str:
    """Raises `CorruptionError` for what is no task id."""
    raw = as_bytes(data)
    if len(raw) == 16:
        return unpack_id(raw, wide=False)
    if not raw or raw[0] > 1:
        raise CorruptionError("a stored task id does not decode; restore the database from a backup")
    return unpack_id(raw[1 + raw[0] :], wide=True)
