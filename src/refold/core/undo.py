"""Undo: fold passes switched off again, where a window has room for what they took out: a larger model, a raised limit.

Nothing has to be restored: the log holds every message, and projection honours a fold of kind `undo`, which names folds
that no longer act. It is a fold like others: recorded, append-only, named by content, gone on a fork to before it.
`refold.core.progress` counts new tokens from it, so that the same span is not summarised again at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from refold.core.folds import SPAN_KINDS, Fold, make_fold
from refold.core.gauge import Gauge, measure
from refold.core.project import project
from refold.core.window import Window

UndoScope: TypeAlias = Literal["pass", "summary"]
"""What is undone: everything that the pass of a summary folded, or its summaries alone (results that it cleared stay
so)."""

_WITH_SUMMARIES: Final = SPAN_KINDS | {"state"}


def newest_summary(window: Window, *, scope: UndoScope, but: Sequence[str] = ()) -> tuple[Fold, ...]:
    """The folds of the newest pass with a summary in force, in order; empty where there is none.

    `but` are ids of folds that count as undone already.
    """
    undone = {identity for fold in window.folds for identity in fold.undone} | set(but)
    in_force = {segment.fold.id for segment in window.segments} - undone
    newest = next((fold for fold in reversed(window.folds) if fold.id in in_force), None)
    if newest is None:
        return ()
    return tuple(
        fold
        for fold in window.folds
        if fold.pass_id == newest.pass_id
        and fold.id not in undone
        and fold.kind not in ("strike", "undo")
        and (scope == "pass" or fold.kind in _WITH_SUMMARIES)
    )


def undo_fold(gauge: Gauge, folds: Sequence[Fold], *, pass_id: str, reason: str) -> tuple[Fold, Gauge]:
    """The fold that switches folds off, and the window with it."""
    log = gauge.window.log
    data = {"folds": [fold.id for fold in folds]}
    at = log.anchor(len(log) - 1)
    fold = make_fold("undo", data, pass_id=pass_id, reason=reason, at=at, before=gauge.used, after=0, scale=gauge.scale)
    after = _with(gauge, fold)
    return replace(fold, after=after.used), after


def undo_within(gauge: Gauge, *, most: int, pass_id: str, reason: str) -> tuple[Fold, Gauge] | None:
    """Undo as many of the newest passes with a summary as leave the window at `most` tokens; None where not even one
    does. What the passes recorded says first whether it is worth measuring."""
    found: tuple[Fold, Gauge] | None = None
    folds: list[Fold] = []
    used = gauge.used
    window = gauge.window
    while newest := newest_summary(window, scope="pass", but=[fold.id for fold in folds]):
        used += max(0, newest[0].before - newest[0].after)
        if used > most:
            break
        folds = [*newest, *folds]
        tried = undo_fold(gauge, folds, pass_id=pass_id, reason=reason)
        if tried[1].used > most:
            break
        found, window = tried, tried[1].window
    return found


def _with(gauge: Gauge, fold: Fold) -> Gauge:
    window = project(gauge.window.log.messages, [*gauge.window.raw_folds, fold.to_json()], previous=gauge.window)
    return measure(window, gauge.meter, system=gauge.system, tools=gauge.tools, scale=gauge.scale, previous=gauge)
