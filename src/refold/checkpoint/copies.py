"""The program that copies a thread."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import Args, Select, SelectEach, Transaction, one
from refold.checkpoint.rows import get_writes
from refold.checkpoint.spaces import Space, get_run, hold_space_gen, lock_space, lock_thread
from refold.checkpoint.threads import spaces_gen
from refold.core.program import Program
from refold.errors import ConfigurationError


def copy_thread_gen(ctx: Context, source: str, target: str) -> Program[None]:
    """Copy every checkpoint and write of a thread, hidden ones too. Values are shared, so this costs rows only.

    Raises `ConfigurationError` when the target has checkpoints.
    """
    if source == target:
        raise ConfigurationError(f"a thread cannot be copied to itself ({source!r})")
    yield from Transaction(program=partial(_copy_thread_gen, source, target), write=True)


def _copy_thread_gen(source: str, target: str) -> Program[None]:
    yield from _refuse_used_gen(target)
    held: list[tuple[Space, str]] = []  # what is read in several statements may not change in between
    for _, ns in (yield from spaces_gen(source)):
        found = yield from hold_space_gen(source, ns)
        if found is not None:
            held.append((found, ns))
    for space, ns in held:
        yield from Select(statement="space_add", args={"thread": target, "ns": ns, "wide": int(space.wide)})
        copy = yield from hold_space_gen(target, ns)
        assert copy is not None, "a space that was just added is there"
        runs = yield from _copy_runs_gen(space, copy)
        seqs = yield from _copy_checkpoints_gen(space, copy, runs)
        yield from _copy_writes_gen(seqs)


def _refuse_used_gen(target: str) -> Program[None]:
    """Hold the target, so that it gets no checkpoint from others meanwhile. Raises where it has one, in any namespace:
    two threads in one could not be told apart again."""
    yield from lock_thread(target)
    for space, _ in (yield from spaces_gen(target)):
        yield from lock_space(space)
        if one((yield from Select(statement="checkpoint_keys", args={"space": space.id}))) is not None:
            raise ConfigurationError(
                f"thread {target!r} has checkpoints already: copy to a new thread, or delete it first"
            )


def _copy_runs_gen(space: Space, copy: Space) -> Program[Mapping[int, int]]:
    rows = yield from Select(statement="runs_of_space", args={"space": space.id})
    found: dict[int, int] = {}
    for run, name in cast("list[tuple[int, bytes]]", rows):
        yield from Select(statement="run_add", args={"name": name, "space": copy.id})
        row = one((yield from get_run(name, copy)))
        assert row is not None, "a run that was just added is there"
        found[run] = cast("int", row[0])
    return found


def _copy_checkpoints_gen(space: Space, copy: Space, runs: Mapping[int, int]) -> Program[Mapping[int, int]]:
    rows = yield from Select(statement="checkpoint_scan_space", args={"space": space.id})
    seqs: dict[int, int] = {}
    late: list[tuple[int, int]] = []
    for seq, raw, state, parent, run, template, data in cast(
        "list[tuple[int, bytes, int, int | None, int | None, int | None, bytes | None]]", rows
    ):
        args: Args = {
            "space": copy.id, "id": raw, "state": state, "parent": None if parent is None else seqs.get(parent),
            "template": template, "data": data, "run": None if run is None else runs.get(run),
        }  # fmt: skip
        added = yield from Select(statement="checkpoint_add", args=args)
        seqs[seq] = cast("int", added[0][0])
        if parent is not None and parent not in seqs:
            late.append((seq, parent))  # a parent that was stored after its child
    links: list[Args] = [{"seq": seqs[seq], "parent": seqs[parent]} for seq, parent in late if parent in seqs]
    yield from SelectEach(statement="checkpoint_parent", rows=links)
    return seqs


def _copy_writes_gen(seqs: Mapping[int, int]) -> Program[None]:
    rows = yield from get_writes(sorted(seqs))
    copies: list[Args] = [
        {"checkpoint": seqs[checkpoint], "task": task, "template": template, "data": data}
        for checkpoint, task, template, data, _ in cast("list[tuple[int, bytes, int, bytes, bytes]]", sorted(rows))
    ]
    yield from SelectEach(statement="write_put", rows=copies)
