"""A thread as what it is made of: its namespaces and their checkpoints by key. And its deletion."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from refold.checkpoint.deletions import note_deletion_gen
from refold.checkpoint.drafts import Context
from refold.checkpoint.effects import NO_ARGS, Args, Select, Transaction
from refold.checkpoint.spaces import Space, hold_gen, lock_thread, name_of, unpack_id
from refold.core.program import Program


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A checkpoint as a plan of deletion sees it."""

    seq: int
    checkpoint_id: str
    state: int
    parent: int | None
    template: int | None


def threads_gen(after: str, count: int) -> Program[Sequence[str]]:
    """The names of threads that follow another, in order."""
    rows = yield from Transaction(
        program=partial(select_gen, "threads_after", {"after": after, "count": count}), write=False
    )
    return [str(row[0]) for row in rows]


def select_gen(statement: str, args: Args = NO_ARGS) -> Program[Sequence[Sequence[object]]]:
    """One statement, as the program of a transaction."""
    return (yield from Select(statement=statement, args=args))


def spaces_gen(thread: str) -> Program[Sequence[tuple[Space, str]]]:
    """A thread's spaces with their namespaces, parents before children."""
    rows = yield from Select(statement="spaces_of_thread", args={"thread": name_of(thread)})
    spaces = [
        (Space(id=space, wide=bool(wide)), ns) for space, _, ns, wide in cast("list[tuple[int, str, str, int]]", rows)
    ]
    return sorted(spaces, key=lambda item: (item[1].count("|") if item[1] else -1, item[1]))


def nodes_gen(space: Space) -> Program[Sequence[Node]]:
    """Every checkpoint of a space, newest first."""
    rows = yield from Select(statement="checkpoint_keys", args={"space": space.id})
    return [
        Node(
            seq=seq, checkpoint_id=unpack_id(raw, wide=space.wide), state=state, parent=parent, template=template
        )
        for seq, raw, state, parent, template in cast("list[tuple[int, bytes, int, int | None, int | None]]", rows)
    ]  # fmt: skip


def delete_thread_gen(ctx: Context, thread: str) -> Program[int]:
    """Remove everything of a thread; how many checkpoints that were."""
    return (yield from Transaction(program=partial(delete_spaces_gen, ctx, thread), write=True))


def delete_spaces_gen(ctx: Context, thread: str) -> Program[int]:
    """The same within a transaction."""
    removed, newest = 0, ""
    yield from lock_thread(thread)
    spaces = yield from spaces_gen(thread)
    for found, _ in spaces:
        space = yield from hold_gen(found)
        if space is None:
            continue
        nodes = yield from nodes_gen(space)
        removed += len(nodes)
        newest = max([newest, *(node.checkpoint_id for node in nodes)])
        yield from delete_space_gen(space)
    if newest:
        yield from note_deletion_gen(thread, newest, ctx.clock())
    return removed


def delete_space_gen(space: Space) -> Program[None]:
    """Remove a space that is held. Its checkpoints are held first: who stores writes of a task holds one, so that
    afterwards all writes are seen."""
    args: Args = {"space": space.id}
    for statement in (
        "checkpoints_hold_space", "writes_delete_space", "checkpoints_delete_space", "runs_delete_space",
        "space_delete",
    ):  # fmt: skip
        yield from Select(statement=statement, args=args)
