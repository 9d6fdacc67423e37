"""The screen: media that the model cannot be shown leave the window before it is sent, or when it was refused.

A provider refuses a whole request for one medium that it cannot read, and would refuse every later one (faults 116,
117, 121). So each medium in the window is looked at; what is sure to be refused is shown as a reference with the
reason. What the provider refuses all the same is folded out and the request sent again: first the media that it was
never shown before, then all. Both are recorded folds, so that no later turn sends them again.

No hook is asked: without these folds there is no valid request. The log keeps every medium as it came.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from refold.core.archive import store_gen
from refold.core.artifacts import Artifact, payload_artifact
from refold.core.blocks import blocks_of
from refold.core.canonical import Json, derived_id
from refold.core.effects import CallModel, Failure, Report
from refold.core.folds import make_fold
from refold.core.gauge import Gauge, measure
from refold.core.media_parts import parts_of
from refold.core.media_rules import MediaRules
from refold.core.messages import answers_of, role_of
from refold.core.passes import Scope
from refold.core.passes.media import Withheld, withheld
from refold.core.program import Program
from refold.core.project import project
from refold.core.window import Entry

REFUSED = "the provider refused the request because of it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Screened:
    """The measured window after the screen, and the folds that it made."""

    gauge: Gauge
    folds: tuple[Mapping[str, Json], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """What became of a request: the response or a refusal that is not about media, and the window that it was."""

    answer: object
    screened: Screened


def screen_gen(gauge: Gauge, rules: MediaRules, scope: Scope) -> Program[Screened]:
    """Fold out what the rules say cannot be shown. Costs nothing where there is no such medium."""
    found: dict[int, list[Withheld]] = {}
    shown: list[tuple[int, Withheld]] = []
    for entry in _with_media(gauge):
        in_result = role_of(entry.message) == "tool" or bool(answers_of(entry.message))
        for part in parts_of(entry.message):
            why = rules.problem(part, in_result=in_result)
            if why is not None:
                found.setdefault(entry.start, []).append(Withheld(part=part, why=why))
            else:
                shown.append((entry.start, Withheld(part=part, why=f"a request takes {rules.count} media at most")))
    if rules.count is not None and len(shown) > rules.count:
        for index, one in shown[: len(shown) - rules.count]:
            found.setdefault(index, []).append(one)
    return (yield from _folded_gen(gauge, found, scope, reason="media"))


def send_gen(gauge: Gauge, scope: Scope, call: Callable[[Gauge], CallModel]) -> Program[Sent]:
    """Send a window; where it is refused for its media, fold them out and send it again.

    Raises the model's own error where no medium is left to fold out.
    """
    screened = Screened(gauge=gauge)
    while True:
        answer = yield from call(screened.gauge)
        if not isinstance(answer, Failure) or answer.overflow is not None or not answer.media:
            return Sent(answer=answer, screened=screened)
        again = yield from _refused_gen(screened.gauge, scope)
        if not again.folds:
            raise answer.error
        yield from Report(event="media_refused", data={"error": repr(answer.error)[:300]})
        screened = Screened(gauge=again.gauge, folds=(*screened.folds, *again.folds))


def _refused_gen(gauge: Gauge, scope: Scope) -> Program[Screened]:
    """Fold out the media that came after the newest answer of the model; all of them where there are none."""
    entries = list(_with_media(gauge))
    answered = max((e.stop for e in gauge.window.entries if role_of(e.message) == "ai"), default=0)
    suspects = [entry for entry in entries if entry.start >= answered] or entries
    found = {e.start: [Withheld(part=part, why=REFUSED) for part in parts_of(e.message)] for e in suspects}
    return (yield from _folded_gen(gauge, found, scope, reason="media refused"))


def _with_media(gauge: Gauge) -> Iterator[Entry]:
    """The messages of the log that show a medium. A provider's own compaction item is passed through untouched."""
    for entry in gauge.shown_media:
        if not any(block.kind == "compaction" for block in blocks_of(entry.message)):
            yield entry


def _folded_gen(
    gauge: Gauge, found: Mapping[int, Sequence[Withheld]], scope: Scope, *, reason: str
) -> Program[Screened]:
    """The window with those media folded, by log index; what can be stored is stored first."""
    if not found:
        return Screened(gauge=gauge)
    window, items = gauge.window, list[Mapping[str, Json]]()
    for index, media in found.items():
        stored = yield from _stored_gen(media, scope)
        anchor = window.log.anchor(index)
        items.append({"m": anchor.key, "h": anchor.hash, **withheld(media, stored, scope)})
        yield from Report(
            event="media_withheld", data={"message": anchor.key, "reasons": sorted({one.why for one in media})}
        )
    at = window.log.anchor(len(window.log) - 1)
    data: Mapping[str, Json] = {"items": items}
    identity = derived_id("screen", scope.thread, at.key, at.hash, str(len(window.raw_folds)))
    fold = make_fold(
        "media", data, pass_id=identity, reason=reason, at=at, before=gauge.used, after=gauge.used, scale=gauge.scale
    )
    folded = _with(gauge, fold.to_json())
    final = {**fold.to_json(), "after": folded.used}
    return Screened(gauge=_with(gauge, final), folds=(final,))


def _stored_gen(media: Sequence[Withheld], scope: Scope) -> Program[Mapping[str, Artifact]]:
    """The artifacts that are stored and read back, by part key; none where no tool could read them."""
    stored: dict[str, Artifact] = {}
    if scope.file_reader is None:
        return stored
    for one in media:
        artifact = payload_artifact(one.part.media)
        if artifact is None:
            continue
        failed = yield from store_gen((artifact,))
        if failed is None:
            stored[one.part.key] = artifact
        else:
            yield from Report(event="artifact_failed", data={"path": artifact.path, "error": repr(failed)[:300]})
    return stored


def _with(gauge: Gauge, fold: Mapping[str, Json]) -> Gauge:
    window = project(gauge.window.log.messages, [*gauge.window.raw_folds, fold], previous=gauge.window)
    return measure(window, gauge.meter, system=gauge.system, tools=gauge.tools, scale=gauge.scale, previous=gauge)
