"""Values on their way into the database: serialized, named and sealed before any transaction begins."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from refold.checkpoint.caches import Caches
from refold.checkpoint.lean import is_lean
from refold.checkpoint.records import Record, pack_record
from refold.checkpoint.seal import COMPOSITE, SETTLED, Sealer
from refold.checkpoint.serde import MSGPACK, Plain, Serde

_SMALL_FOR_BASE = 1500  # bytes: a larger value compresses well without a base


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every program of a saver works with."""

    serde: Serde
    sealer: Sealer
    caches: Caches
    exclusive: bool
    clock: Callable[[], datetime]


@dataclass(kw_only=True, slots=True, eq=False)
class Draft:
    """A value that should become a blob. `parts` are the drafts of its cuts, in order.

    `sealed` is filled before the transaction where the value is probably new, and in it otherwise.
    """

    name: bytes
    tag: str
    pieces: Sequence[bytes]
    parts: Sequence["Draft"] = ()
    base: "Draft | None" = None
    data: bytes = field(repr=False)
    sealed: tuple[int, bytes] | None = None

    def seal(self, sealer: Sealer) -> tuple[int, bytes]:
        """Codec and data of a leaf."""
        if self.sealed is None:
            plain = pack_record(Record(tag=self.tag, pieces=self.pieces))
            codec, data = sealer.seal(plain, base=None if self.base is None else self.base.data)
            if self.tag == MSGPACK and is_lean(self.data):
                codec |= SETTLED
            self.sealed = codec, data
        return self.sealed

    def seal_composite(self, sealer: Sealer, refs: Sequence[int]) -> tuple[int, bytes]:
        codec, data = sealer.seal(pack_record(Record(tag=self.tag, pieces=self.pieces, refs=refs)))
        return codec | COMPOSITE, data


def draft_of(ctx: Context, plain: Plain) -> Draft:
    """The draft of a serialized value and of all its parts."""
    return Draft(
        name=ctx.sealer.name(plain.tag, plain.data),
        tag=plain.tag,
        pieces=plain.pieces(),
        parts=[draft_of(ctx, cut.part) for cut in plain.cuts],
        data=plain.data,
    )


def every_draft(drafts: Iterable[Draft]) -> Iterator[Draft]:
    """Drafts and all their parts and bases, parts before wholes."""
    for draft in drafts:
        yield from every_draft(draft.parts)
        if draft.base is not None:
            yield draft.base
        yield draft


def seal_new(ctx: Context, drafts: Iterable[Draft]) -> None:
    """Compress and encrypt now what is probably not in the database yet, so that no lock is held for it later."""
    for draft in every_draft(drafts):
        if not draft.parts and ctx.caches.stored.get(draft.name) is None:
            draft.seal(ctx.sealer)


def use_as_base(base: Draft | None, drafts: Iterable[Draft]) -> None:
    """Compress small leaves against a larger one that says the same things: a send repeats its message's call."""
    if base is None or base.base is not None or base.parts:
        return
    for draft in drafts:
        if draft.name != base.name and not draft.parts and draft.base is None and len(draft.data) < _SMALL_FOR_BASE:
            draft.base = base


def run_name(ctx: Context, run_id: str) -> bytes:
    """What the database keeps of a run's id: the id, or its keyed hash where the database is encrypted."""
    plain = run_id.encode("utf-8", "surrogatepass")
    return ctx.sealer.name("run", plain) if ctx.sealer.encrypts else plain


def run_names(ctx: Context, run_id: str) -> Sequence[bytes]:
    """All that the database may have of a run's id: what was written before the database had a key is readable."""
    plain = run_id.encode("utf-8", "surrogatepass")
    return [plain, ctx.sealer.name("run", plain)] if ctx.sealer.encrypts else [plain]
