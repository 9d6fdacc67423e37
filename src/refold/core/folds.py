"""Folds: recorded decisions to show something shorter.

A fold is a plain JSON object in the graph's private state, so that it survives any checkpointer; `Fold` is its typed
form. It names messages by key and content hash, never by index, so that it can tell whether the log is still what it
was made for. A fold of a kind or version that this refold does not know is kept in the state and ignored in the view.

    {"v": 1, "id": ..., "kind": ..., "pass": ..., "reason": ..., "at": [key, hash],
     "before": tokens, "after": tokens, "scale": factor, "data": {...}}

`pass` groups the folds that one fold pass made; `at` is the newest message of the log then; `before` and `after` are
the window's tokens around the whole pass; `scale` is the learned ratio of real to estimated tokens then. `data`:

    items kinds (args, media, result, clear, human)   {"items": [{"m": key, "h": hash, ...of the kind}, ...]}
    summary, merge                                    {"span": {...}, "text": ..., "path": ..., "kept": [keys], ...}
    state                                             {"text": ...}
    strike                                            {"span": digest, "error": ...}: a pass that failed, and why
    undo                                              {"folds": [ids]}: those folds no longer act
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeGuard, cast

from refold.core.canonical import Json, derived_id, digest, digest_of

FOLD_VERSION: Final = 1

FoldKind: TypeAlias = Literal[
    "args", "media", "result", "clear", "human", "summary", "merge", "state", "strike", "undo"
]
ITEM_KINDS: Final = frozenset({"args", "media", "result", "clear", "human"})
SPAN_KINDS: Final = frozenset({"summary", "merge"})
KINDS: Final = ITEM_KINDS | SPAN_KINDS | {"state", "strike", "undo"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """One message of the log, by key and content hash."""

    key: str
    hash: str

    def to_json(self) -> list[str]:
        return [self.key, self.hash]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A run of consecutive log messages: its ends, its length, and a digest of all keys and hashes in it."""

    first: Anchor
    last: Anchor
    count: int
    digest: str

    def to_json(self) -> Mapping[str, Json]:
        return {
            "first": self.first.to_json(),
            "last": self.last.to_json(),
            "count": self.count,
            "digest": self.digest,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One message that a fold shows shorter; `data` is what the kind needs to show it, and where the original is."""

    anchor: Anchor
    data: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> Mapping[str, Json]:
        return {"m": self.anchor.key, "h": self.anchor.hash, **self.data}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """A fold in its typed form. `raw` is the JSON object that it was read from or will be written as."""

    id: str
    kind: FoldKind
    pass_id: str
    reason: str
    at: Anchor
    before: int
    after: int
    scale: float
    data: Mapping[str, Json]

    @property
    def items(self) -> tuple[Item, ...]:
        """The messages of an items fold."""
        return tuple(_item(cast("Mapping[str, Json]", entry)) for entry in _sequence(self.data.get("items")))

    @property
    def span(self) -> Span:
        """The span of a summary or merge fold."""
        raw = cast("Mapping[str, Json]", self.data["span"])
        return Span(
            first=_anchor(raw["first"]),
            last=_anchor(raw["last"]),
            count=int(cast("int", raw["count"])),
            digest=str(raw["digest"]),
        )

    @property
    def text(self) -> str:
        """What a segment or STATE says."""
        return str(self.data.get("text", ""))

    @property
    def kept(self) -> frozenset[str]:
        """Keys of messages inside the span that stay in view."""
        return frozenset(str(key) for key in _sequence(self.data.get("kept")))

    @property
    def undone(self) -> frozenset[str]:
        """Ids of the folds that an undo fold switches off."""
        return frozenset(str(key) for key in _sequence(self.data.get("folds")))

    def to_json(self) -> Mapping[str, Json]:
        """The JSON object for the state."""
        return {
            "v": FOLD_VERSION,
            "id": self.id,
            "kind": self.kind,
            "pass": self.pass_id,
            "reason": self.reason,
            "at": self.at.to_json(),
            "before": self.before,
            "after": self.after,
            "scale": self.scale,
            "data": self.data,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A fold that this refold cannot act on, and why. It stays in the state."""

    id: str
    reason: str


def make_fold(
    kind: FoldKind,
    data: Mapping[str, Json],
    *,
    pass_id: str,
    reason: str,
    at: Anchor,
    before: int,
    after: int,
    scale: float,
) -> Fold:
    """A fold with the id that follows from its content."""
    identity = derived_id(kind, pass_id, digest_of(data))
    return Fold(
        id=identity, kind=kind, pass_id=pass_id, reason=reason, at=at, before=before, after=after,
        scale=round(scale, 4), data=data,
    )  # fmt: skip


def read_folds(raw: Sequence[Mapping[str, Json]]) -> tuple[tuple[Fold, ...], tuple[Unreadable, ...]]:
    """The folds of a state that this refold can act on, in order, and those that it cannot."""
    folds: list[Fold] = []
    unreadable: list[Unreadable] = []
    for entry in raw:
        parsed = _parse(entry)
        if isinstance(parsed, Fold):
            folds.append(parsed)
        else:
            unreadable.append(parsed)
    return tuple(folds), tuple(unreadable)


def append_folds(
    left: Sequence[Mapping[str, Json]] | None, right: Sequence[Mapping[str, Json]] | None
) -> list[Mapping[str, Json]]:
    """The reducer of the `folds` channel: appends, and drops a fold that is there already. Pure; replays alike."""
    known = {entry.get("id") for entry in left or ()}
    return [*(left or ()), *(entry for entry in right or () if entry.get("id") not in known)]


def span_digest(anchors: Sequence[Anchor]) -> str:
    """The digest of a run of messages: of every key and hash, in order."""
    return digest("\n".join(f"{anchor.key} {anchor.hash}" for anchor in anchors))


def span_of(anchors: Sequence[Anchor]) -> Span:
    """The span of a non-empty run of consecutive messages."""
    return Span(first=anchors[0], last=anchors[-1], count=len(anchors), digest=span_digest(anchors))


def _parse(entry: object) -> Fold | Unreadable:
    if not _is_object(entry):
        return Unreadable(id="?", reason="not a JSON object")
    identity = str(entry.get("id", "?"))
    if entry.get("v") != FOLD_VERSION:
        return Unreadable(id=identity, reason=f"version {entry.get('v')!r} is not {FOLD_VERSION}; upgrade refold")
    kind = entry.get("kind")
    if kind not in KINDS:
        return Unreadable(id=identity, reason=f"unknown kind {kind!r}; upgrade refold")
    try:
        fold = Fold(
            id=identity,
            kind=cast("FoldKind", kind),
            pass_id=str(entry["pass"]),
            reason=str(entry["reason"]),
            at=_anchor(entry["at"]),
            before=int(cast("int", entry["before"])),
            after=int(cast("int", entry["after"])),
            scale=float(cast("float", entry["scale"])),
            data=cast("Mapping[str, Json]", entry["data"]),
        )
        if fold.kind in SPAN_KINDS:
            _ = fold.span
        _ = fold.items
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Unreadable(id=identity, reason=f"malformed: {error!r}")
    return fold


def _is_object(value: object) -> TypeGuard[Mapping[str, Json]]:
    return isinstance(value, Mapping)


def _anchor(raw: Json) -> Anchor:
    key, content = cast("Sequence[str]", raw)
    return Anchor(key=str(key), hash=str(content))


def _item(raw: Mapping[str, Json]) -> Item:
    data = {name: value for name, value in raw.items() if name not in ("m", "h")}
    return Item(anchor=Anchor(key=str(raw["m"]), hash=str(raw["h"])), data=data)


def _sequence(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
