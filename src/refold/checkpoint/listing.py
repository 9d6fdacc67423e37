"""The programs that list checkpoints, newest first, a page at a time.

Each page is one short transaction with few statements, however many threads it is from, so a long listing blocks no
writer, holds little in memory, and a reader may stop at any time. The tuples of a page share the message objects that
they have in common: history is for reading; `get_tuple` gives objects of one's own.

A namespace is a *stream*. Streams are merged by checkpoint id: they lie in the order of the id that comes next in each
(or that may come next, where it is not read yet), and the last gives the next checkpoint. Where that is not read, one
statement reads on in it and in the streams next to it: keys and headers only, by which a filter decides. What is given
back is read by its key in the transaction that reads its values, so that what was removed in between is not missed.

A stream is read on from a row (its *anchor*) and not from an id: rows keep their place when their space becomes wide.
Where the anchor was removed meanwhile, the newest row that is not behind it takes its place.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, TypeAlias, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Row, Select, SelectIn, Transaction, as_bytes
from refold.checkpoint.read import Loaded, load_gen, stored_of, tuple_of
from refold.checkpoint.rows import header_of, metadata_in, read_templates_gen
from refold.checkpoint.spaces import LISTED, CheckpointRow, Space, address_of, pack_id, read_row, unpack_id
from refold.core.program import Program

PAGE: Final = 32  # checkpoints: what a listing gives at a time
_KEYS: Final = 512  # rows without their values: what one statement reads
_TOGETHER: Final = 128  # namespaces that it reads them of
_BEHIND_ALL: Final = b"\xff" * 17  # greater than every id, in bytes or as text
Key: TypeAlias = tuple[str, int]
"""A checkpoint's id and seq."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """What a listing asks for. `before` and `only` are checkpoint ids; `filter` compares metadata."""

    thread: str | None
    ns: str | None
    only: str | None
    before: str | None
    filter: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One space of a listing: where it stands.

    `ready` are the keys that were read and not given yet, `more` says whether others follow. These come after `last`,
    or begin with it where nothing was read yet (`begun`); they are read on from the row `anchor`.
    """

    space: int
    thread: str
    ns: str
    anchor: int
    last: str
    begun: bool = False
    more: bool = True
    ready: tuple[Key, ...] = ()

    @property
    def head(self) -> str:
        """At least the id of the next checkpoint."""
        return self.ready[0][0] if self.ready else self.last


@dataclass(kw_only=True)
class Listing:
    """A listing under way: pass it to `next_gen` until that gives nothing. `streams` are in the order of their
    heads."""

    query: Query
    left: int | None
    streams: Sequence[Stream] | None = None


def listing_of(
    config: RunnableConfig | None,
    filter: Mapping[str, object] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> Listing:
    """The listing that LangGraph's arguments describe."""
    configurable: Mapping[str, object] = {} if config is None else config["configurable"]
    ns, only = configurable.get("checkpoint_ns"), configurable.get("checkpoint_id")
    bound = None if before is None else before["configurable"].get("checkpoint_id")
    query = Query(
        thread=None if config is None else address_of(config).thread,
        ns=None if ns is None else str(ns),
        only=str(only) if only else None,
        before=str(bound) if bound else None,
        filter=dict(filter or {}),
    )
    return Listing(query=query, left=limit)


def next_gen(ctx: Context, listing: Listing) -> Program[Sequence[CheckpointTuple]]:
    """The next tuples of a listing; empty at its end."""
    if listing.streams is None:
        listing.streams = yield from Transaction(program=partial(_streams_gen, listing.query), write=False)
    while listing.streams and (listing.left is None or listing.left > 0):
        program = partial(_page_gen, ctx, listing.query, listing.streams, listing.left)
        page = yield from Transaction(program=program, write=False)
        listing.streams = page.streams
        if page.rows:
            listing.left = None if listing.left is None else listing.left - len(page.rows)
            return [
                tuple_of(ctx, replace(page.loaded, thread=stream.thread, ns=stream.ns), row)
                for stream, row in page.rows
            ]
    return []


def _head(stream: Stream) -> str:
    return stream.head


# --- streams ---


def _streams_gen(query: Query) -> Program[Sequence[Stream]]:
    if query.thread is None:
        rows = yield from Select(statement="spaces_all")
    else:
        rows = yield from Select(statement="spaces_of_thread", args={"thread": query.thread})
    places = {
        space: (thread, ns)
        for space, thread, ns, _ in cast("list[tuple[int, str, str, int]]", rows)
        if query.ns is None or ns == query.ns
    }
    streams: list[Stream] = []
    for space, seq, head in (yield from _heads_gen(places, query.only or query.before)):
        thread, ns = places[space]
        last, begun = (head, False) if query.before is None else (min(head, query.before), head >= query.before)
        if query.only in (None, head):
            streams.append(Stream(space=space, thread=thread, ns=ns, anchor=seq, last=last, begun=begun))
    return sorted(streams, key=_head)


def _heads_gen(spaces: Iterable[int], upto: str | None) -> Program[Sequence[tuple[int, int, str]]]:
    """(space, seq, id) of each space's newest listed checkpoint up to an id; of all where the space cannot hold it."""
    args: Args = {
        "upto": _BEHIND_ALL if upto is None else pack_id(upto, wide=False) or _BEHIND_ALL,
        "wide_upto": _BEHIND_ALL if upto is None else pack_id(upto, wide=True),
    }
    rows = yield from SelectIn(statement="space_heads", keys=list(spaces), args=args)
    found = cast("list[tuple[int, int, int, bytes]]", rows)
    return [(space, seq, unpack_id(raw, wide=bool(wide))) for space, wide, seq, raw in found]


def _read_on_gen(ctx: Context, query: Query, streams: Sequence[Stream], count: int) -> Program[Sequence[Stream]]:
    """Streams with what follows of each: up to `count` keys, less those that the filter does not let through."""
    args: Args = {"count": count + 1}  # and the anchor
    rows = yield from SelectIn(statement="checkpoint_pages", keys=[stream.anchor for stream in streams], args=args)
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(cast("int", row[0]), []).append(row[1:])
    templates = yield from read_templates_gen(ctx, _templates_of(rows) if query.filter else ())
    templates = {blob: template for blob, template in templates.items() if _may_match(template, query.filter)}
    lost = [stream for stream in streams if stream.anchor not in found]
    anchors = yield from _heads_gen([stream.space for stream in lost], max(map(_head, lost), default=None))
    anew = {space: seq for space, seq, _ in anchors}
    result: list[Stream] = []
    for stream in streams:
        if stream.anchor in found:
            result.append(_grown(ctx, query, stream, found[stream.anchor], count + 1, templates))
        elif stream.space in anew:
            result.append(replace(stream, anchor=anew[stream.space]))
        else:
            result.append(replace(stream, more=False))
    return result


def _templates_of(rows: Iterable[Row]) -> Iterable[int]:
    return {cast("int", row[4]) for row in rows if row[4] is not None}


def _grown(
    ctx: Context, query: Query, stream: Stream, rows: Sequence[Row], limit: int, templates: Mapping[int, bytes]
) -> Stream:
    """A stream with what was read from its anchor on: up to `limit` rows, or one without a checkpoint."""
    keys = list(stream.ready)
    last, begun, anchor = stream.last, stream.begun, stream.anchor
    for wide, seq, raw, template, data in cast("Sequence[tuple[int, int | None, bytes, int, bytes | None]]", rows):
        if seq is None:
            continue
        anchor, checkpoint_id = seq, unpack_id(raw, wide=bool(wide))
        if checkpoint_id > last or (begun and checkpoint_id == last):
            continue  # was read before, or is behind the bound
        last, begun = checkpoint_id, True
        row = CheckpointRow(
            seq=seq, checkpoint_id=checkpoint_id, state=LISTED, parent=None, run=None, template=template,
            data=None if data is None else as_bytes(data), parent_id=None,
        )  # fmt: skip
        if query.only in (None, checkpoint_id) and (not query.filter or _passes(ctx, query, row, templates)):
            keys.append((checkpoint_id, seq))
    more = len(rows) == limit and query.only is None
    return replace(stream, last=last, begun=begun, anchor=anchor, ready=tuple(keys), more=more)


def _passes(ctx: Context, query: Query, row: CheckpointRow, templates: Mapping[int, bytes]) -> bool:
    """Whether the filter lets a checkpoint through. `templates` are those that may have such."""
    if row.template is not None and row.template not in templates:
        return False
    known = cast("Mapping[str, object]", stored_of(ctx, header_of(ctx, row, templates).metadata))
    return all(known.get(key) == value for key, value in query.filter.items())


def _may_match(template: bytes, wanted: Mapping[str, object]) -> bool:
    """Whether checkpoints of a template can have some metadata: most texts are in the template."""
    known = metadata_in(template)
    return not known or all(
        value is None if key not in known else type(known[key]) is not str or known[key] == value
        for key, value in wanted.items()
    )


# --- pages ---


@dataclass(frozen=True, kw_only=True)
class _Page:
    """What comes next, in order, and how the streams stand then."""

    rows: Sequence[tuple[Stream, CheckpointRow]]
    loaded: Loaded
    streams: Sequence[Stream]


def _page_gen(ctx: Context, query: Query, streams: Sequence[Stream], left: int | None) -> Program[_Page]:
    """The next page; without rows where more has to be read first."""
    if not streams[-1].ready and streams[-1].more:
        streams = yield from _refill_gen(ctx, query, streams, None if query.filter else left)
    keys, streams = _take(streams, PAGE if left is None else min(PAGE, left))
    raw = yield from SelectIn(statement="checkpoint_listed", keys=[seq for _, seq in keys])
    found: dict[int, CheckpointRow] = {}
    for space, wide, *row in raw:
        read = read_row(tuple(row), Space(id=cast("int", space), wide=bool(wide)))
        found[read.seq] = read
    rows = [(stream, found[seq]) for stream, seq in keys if seq in found]
    loaded = yield from load_gen(ctx, "", "", [row for _, row in rows], share=True)
    return _Page(rows=rows, loaded=loaded, streams=streams)


def _refill_gen(ctx: Context, query: Query, streams: Sequence[Stream], left: int | None) -> Program[Sequence[Stream]]:
    """Read on in the last stream, and in those next to it that have little left. `left`: more is not wanted."""
    width = _TOGETHER if left is None else min(_TOGETHER, left)
    hungry = [*islice((other for other in reversed(streams) if other.more and len(other.ready) < 2), width)]
    count = min(PAGE, _KEYS // len(hungry), PAGE if left is None else left)
    grown = {stream.space: stream for stream in (yield from _read_on_gen(ctx, query, hungry, count))}
    return sorted((grown.get(stream.space, stream) for stream in streams), key=_head)


def _take(streams: Sequence[Stream], limit: int) -> tuple[Sequence[tuple[Stream, int]], Sequence[Stream]]:
    """Up to `limit` checkpoints (stream and seq) in order, and the streams without them."""
    rest, taken = [*streams], cast("list[tuple[Stream, int]]", [])
    while rest and len(taken) < limit and (rest[-1].ready or not rest[-1].more):
        stream = rest.pop()
        bound = rest[-1].head if rest else ""
        count = next((n for n, (key, _) in enumerate(stream.ready) if key < bound), len(stream.ready))
        count = min(count, limit - len(taken))
        taken += [(stream, seq) for _, seq in stream.ready[:count]]
        if stream.more or count < len(stream.ready):
            insort(rest, replace(stream, ready=stream.ready[count:]), key=_head)
    return taken, rest
