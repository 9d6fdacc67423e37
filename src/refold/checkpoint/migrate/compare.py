"""The proof: what a checkpoint read from the target has to do with the one read from the source.

Two values are the same when they serialise to the same bytes; dictionaries and sets may come back in another order.
Python's equality is not asked: to it `-0.0` is `0.0`, and `1` is `True`.
"""

import dataclasses
import pickle
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send
from pydantic import BaseModel

from refold.checkpoint.migrate.lossless import lossless

_SERDE: SerializerProtocol = lossless(JsonPlusSerializer(pickle_fallback=True))


def same(left: object, right: object) -> bool:
    """Whether two values of a checkpoint are the same in every respect that is stored."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    match left, right:
        case dict(), dict():
            return _same_mapping(left, right)
        case list() | tuple() | deque(), list() | tuple() | deque():
            return len(left) == len(right) and all(map(same, left, right))
        case set() | frozenset(), set() | frozenset():
            return len(left) == len(right) and _counts(left) == _counts(right)
        case _:
            stored = _stored(left)
            if stored is not None and stored == _stored(right):
                return True
            mine, other = _members(left), _members(right)
            return mine is not None and other is not None and _same_mapping(mine, other)


def _same_mapping(left: Mapping[Any, object], right: Mapping[Any, object]) -> bool:
    """Keys that are no texts count by their bytes too, since `1` finds what is kept under `True`."""
    if not all(type(key) is str for mapping in (left, right) for key in mapping):
        left, right = _by_stored(left), _by_stored(right)
    return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())


def _by_stored(mapping: Mapping[Any, object]) -> Mapping[Any, object]:
    return {_stored(key): value for key, value in mapping.items()}


def _counts(values: Iterable[object]) -> Counter[object]:
    return Counter(_stored(value) for value in values)


def _members(value: object) -> Mapping[Any, object] | None:
    """What an object is made of, where another order of its parts may be all that differs."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if isinstance(value, Send):
        return {name: getattr(value, name) for name in Send.__slots__}
    if isinstance(value, _DeltaSnapshot):
        return {"value": value.value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _stored(value: object) -> tuple[str, bytes] | None:
    try:
        return _SERDE.dumps_typed(value)
    except (TypeError, AttributeError, pickle.PicklingError):  # only the application's own serializer can write it
        return None


def differences(
    source: CheckpointTuple, target: CheckpointTuple | None, *, carries_snapshots: bool = False
) -> Iterator[str]:
    """What differs between two readings of one checkpoint, in words; nothing when they are the same.

    `carries_snapshots` is for a target that, like LangGraph's PostgresSaver, shows a delta channel's snapshot in the
    later checkpoints too while the version has not moved: there the snapshot is the value.
    """
    if target is None:
        yield "the checkpoint is missing"
        return
    if source.config["configurable"] != target.config["configurable"]:
        yield "the config"
    parents = [read.parent_config and read.parent_config["configurable"] for read in (source, target)]
    if parents[0] != parents[1]:
        yield "the parent"
    if not same(dict(source.metadata), dict(target.metadata)):
        yield "the metadata"
    yield from _field_differences(dict(source.checkpoint), dict(target.checkpoint), carries_snapshots=carries_snapshots)
    yield from _write_differences(source.pending_writes or [], target.pending_writes or [])


def history_differences(
    source: Mapping[str, DeltaChannelHistory], target: Mapping[str, DeltaChannelHistory]
) -> Iterator[str]:
    """What differs between two delta histories."""
    for channel, history in source.items():
        found = target.get(channel, {"writes": []})
        if ("seed" in history) != ("seed" in found) or not same(history.get("seed"), found.get("seed")):
            yield f"the seed of delta channel {channel!r}"
        yield from _write_differences(history["writes"], found["writes"])


def _field_differences(
    source: Mapping[str, object], target: Mapping[str, object], *, carries_snapshots: bool
) -> Iterator[str]:
    for field in sorted(source.keys() | target.keys()):
        left, right = source.get(field), target.get(field)
        if field == "channel_values" and isinstance(left, dict) and isinstance(right, dict):
            for channel in sorted(left.keys() | right.keys()):
                if carries_snapshots and channel not in left and isinstance(right[channel], _DeltaSnapshot):
                    continue
                if (channel in left) != (channel in right):
                    yield f"the value of channel {channel!r} is only on one side"
                elif not same(left[channel], right[channel]):
                    yield f"the value of channel {channel!r}"
        elif not same(left, right):
            yield f"the checkpoint's field {field!r}"


def _write_differences(
    source: Sequence[tuple[str, str, object]], target: Sequence[tuple[str, str, object]]
) -> Iterator[str]:
    if [write[:2] for write in source] != [write[:2] for write in target]:
        yield f"the writes: {len(source)} in the source, {len(target)} in the target, or another order"
        return
    for (task, channel, left), (_, _, right) in zip(source, target, strict=True):
        if not same(left, right):
            yield f"the write of task {task} to channel {channel!r}"
