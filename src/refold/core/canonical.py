"""Canonical bytes and digests: the same value gives the same bytes on every machine and in every process.

Canonical JSON here is: keys sorted, no insignificant space, UTF-8, no NaN. Digests are BLAKE2b (RFC 7693) of 16 bytes,
written in hex: short enough for paths, long enough that accidents do not happen.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can hold. Values of this type are treated as frozen."""

DIGEST_BYTES = 16
_NAMESPACE = uuid.UUID("b6e2a3f4-52b7-5d0a-9d3e-7f1f3c7a9e10")


def canonical_bytes(value: object) -> bytes:
    """The canonical JSON bytes of a value.

    What JSON cannot hold (a tuple, bytes, a set, a model object) is written in a tagged form, so that two different
    values never give the same bytes by accident.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_tagged).encode(
        "utf-8", "surrogatepass"
    )


def digest(data: bytes | str) -> str:
    """BLAKE2b-128 of bytes, or of a text's UTF-8, as 32 hex characters."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.blake2b(raw, digest_size=DIGEST_BYTES).hexdigest()


def digest_of(value: object) -> str:
    """The digest of a value's canonical bytes."""
    return digest(canonical_bytes(value))


def derived_id(*parts: str) -> str:
    """A uuid5 from content: the same parts always give the same id, other parts another."""
    return str(uuid.uuid5(_NAMESPACE, json.dumps(parts, ensure_ascii=True)))


def _tagged(value: object) -> Json:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": hashlib.blake2b(bytes(value), digest_size=DIGEST_BYTES).hexdigest()}
    if isinstance(value, set | frozenset):
        return {"$set": sorted(canonical_bytes(item).decode("utf-8", "surrogatepass") for item in value)}
    dump = getattr(type(value), "model_dump", None)  # pydantic values inside artifacts and kwargs
    if dump is not None:
        return {"$model": type(value).__qualname__, "fields": dump(value)}
    return {"$repr": f"{type(value).__module__}.{type(value).__qualname__}", "value": str(value)}
