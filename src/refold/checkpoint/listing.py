"""The programs that list checkpoints, newest first, a page at a time.

Each page is one short transaction with few statements, so a long listing blocks no writer, holds little in memory,
and a reader may stop at any time. The tuples of a page share the message objects that they have in common: history is
for reading; `get_tuple` gives objects of one's own. Several namespaces or threads are merged by checkpoint id.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Ahead, Select, SelectIn, Transaction
from refold.checkpoint.read import Loaded, load_gen, stored_of, tuple_of
from refold.checkpoint.rows import header_of, read_templates_gen
from refold.checkpoint.spaces import (
    LISTED,
    CheckpointRow,
    Space,
    address_of,
    find_checkpoint_gen,
    pack_id,
    read_row,
    unpack_id,
)
from refold.core.program import Program

PAGE = 32  # checkpoints: what a listing reads of a namespace in one transaction
_TOGETHER = 16  # namespaces: of how many the first rows are read at once
_FIRST = 4  # checkpoints: how many those are


@dataclass(frozen=True, kw_only=True)
class Query:
    """What a listing asks for. `before` and `only` are checkpoint ids; `filter` compares metadata."""

    thread: str | None
    ns: str | None
    only: str | None
    before: str | None
    filter: Mapping[str, object]


@dataclass(kw_only=True)
class Stream:
    """One space of a listing: where it stands. `head` is at least the id of its next tuple."""

    space: Space
    thread: str
    ns: str
    head: str
    after: str | None = None
    ready: list[CheckpointTuple] = field(default_factory=list)
    ended: bool = False


@dataclass(kw_only=True)
class Listing:
    """A listing under way: pass it to `next_gen` until that gives nothing."""

    query: Query
    left: int | None
    streams: list[Stream] | None = None


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
        listing.streams.sort(key=_head)
    streams = listing.streams
    while streams and (listing.left is None or listing.left > 0):
        stream = streams.pop()
        if not stream.ready:
            yield from _fill_gen(ctx, listing, stream)
        batch = _take(listing, stream, None if not streams else streams[-1].head)
        if stream.ready or not stream.ended:
            stream.head = str(stream.ready[0].checkpoint["id"]) if stream.ready else stream.after or stream.head
            insort(streams, stream, key=_head)
        if batch:
            return batch
    return []


def _head(stream: Stream) -> str:
    return stream.head


def _take(listing: Listing, stream: Stream, bound: str | None) -> Sequence[CheckpointTuple]:
    """What of a stream's page comes before all other streams, whose next ids are at most `bound`."""
    count = len(stream.ready)
    if bound is not None:
        count = next((n for n, item in enumerate(stream.ready) if item.checkpoint["id"] < bound), count)
    if listing.left is not None:
        count = min(count, listing.left)
        listing.left -= count
    batch, stream.ready = stream.ready[:count], stream.ready[count:]
    return batch


def _streams_gen(query: Query) -> Program[list[Stream]]:
    if query.thread is None:
        rows = yield from Select(statement="spaces_all")
    else:
        rows = yield from Select(statement="spaces_of_thread", args={"thread": query.thread})
    places = {
        space: (Space(id=space, wide=bool(wide)), thread, ns)
        for space, thread, ns, wide in cast("list[tuple[int, str, str, int]]", rows)
        if query.ns is None or ns == query.ns
    }
    if not places:
        return []
    heads = yield from SelectIn(statement="space_heads", keys=list(places))
    streams: list[Stream] = []
    for found, head in cast("list[tuple[int, bytes]]", heads):
        space, thread, ns = places[found]
        streams.append(Stream(space=space, thread=thread, ns=ns, head=unpack_id(head, wide=space.wide)))
    return streams


def _fill_gen(ctx: Context, listing: Listing, stream: Stream) -> Program[None]:
    """Read a stream's next page. Where it has not begun, the first rows of those that come next too."""
    query, streams = listing.query, [stream]
    if stream.after is None:
        nearest = reversed(listing.streams or ())
        streams += islice((other for other in nearest if other.after is None and not other.ready), _TOGETHER - 1)
    page = PAGE if len(streams) == 1 else _FIRST
    count = page if listing.left is None or query.filter else min(page, listing.left)
    loaded = yield from Transaction(program=partial(_load_pages_gen, ctx, query, streams, count), write=False)
    for filled, (rows, after, ended) in zip(streams, loaded.pages, strict=True):
        filled.after, filled.ended = after, ended
        place = replace(loaded.all, thread=filled.thread, ns=filled.ns)
        filled.ready = [tuple_of(ctx, place, row) for row in rows]


@dataclass(frozen=True, kw_only=True)
class _Pages:
    """Pages of some streams: each with its rows, the id that it ends at, and whether nothing follows."""

    pages: Sequence[tuple[Sequence[CheckpointRow], str | None, bool]]
    all: Loaded


def _load_pages_gen(ctx: Context, query: Query, streams: Sequence[Stream], count: int) -> Program[_Pages]:
    if len(streams) > 1:
        yield from Ahead(selects=[_first_page(stream.space, count) for stream in streams if _begins(query, stream)])
    pages: list[tuple[Sequence[CheckpointRow], str | None, bool]] = []
    for stream in streams:
        rows = yield from _page_rows_gen(query, stream, count)
        ended = len(rows) < count or query.only is not None
        after = rows[-1].checkpoint_id if rows else stream.head
        rows = [row for row in rows if query.before is None or row.checkpoint_id < query.before]
        if query.filter and rows:
            templates = yield from read_templates_gen(ctx, [row.template for row in rows if row.template is not None])
            rows = [
                row for row in rows if _matches(stored_of(ctx, header_of(ctx, row, templates).metadata), query.filter)
            ]
        pages.append((rows, after, ended))
    every = [row for rows, _, _ in pages for row in rows]
    return _Pages(pages=pages, all=(yield from load_gen(ctx, "", "", every, share=True)))


def _begins(query: Query, stream: Stream) -> bool:
    """Whether a stream's page is the newest rows of its space."""
    return query.only is None and query.before is None and stream.after is None


def _first_page(space: Space, count: int) -> Select:
    return Select(statement="checkpoint_first_page", args={"space": space.id, "count": count})


def _page_rows_gen(query: Query, stream: Stream, count: int) -> Program[list[CheckpointRow]]:
    space = stream.space
    if query.only is not None:
        row = yield from find_checkpoint_gen(space, query.only)
        return [row] if row is not None and row.state == LISTED else []
    bound = stream.after or query.before
    packed = b"" if bound is None else pack_id(bound, wide=space.wide)
    if packed:
        rows = yield from Select(
            statement="checkpoint_page", args={"space": space.id, "before": packed, "count": count}
        )
    else:  # no bound, or one that is not of the space's kind: the caller compares as text
        rows = yield from _first_page(space, count)
    return [read_row(row, space) for row in rows]


def _matches(metadata: object, wanted: Mapping[str, object]) -> bool:
    known = cast("Mapping[str, object]", metadata)
    return all(known.get(key) == value for key, value in wanted.items())
