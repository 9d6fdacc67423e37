"""Ingestion, as a program: a tool result over the threshold is stored when the tool returns, and its stub enters the
log.

The log then stays light for every reader of it, and for stores that refuse large items (fault 122). Media that are too
large for it, or that no model could read, are stored and shown as references; then the text, if it is too long. Fails
closed: what cannot be stored and read back enters whole. Doing it twice gives the same stub (paths are derived from the
call and the content).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from langchain_core.messages import BaseMessage, ToolMessage

from refold.core.archive import store_gen
from refold.core.artifacts import payload_artifact, result_path
from refold.core.canonical import Json
from refold.core.effects import Report
from refold.core.media_parts import Part, Place, parts_of, with_parts
from refold.core.messages import REFOLD_KEY
from refold.core.passes import Scope
from refold.core.passes.base import own_text, tokens_of
from refold.core.passes.media import reference
from refold.core.passes.result import is_movable, moved_text, previewed, with_text
from refold.core.program import Program
from refold.core.shown_once import shown_once

INGESTED: Final = "ingested"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingestion:
    """A tool result on its way into the log. `threshold` is in tokens: what is smaller enters whole. `media_bytes` is
    the most that the base64 of one medium may have, None for no limit."""

    message: ToolMessage
    scope: Scope
    threshold: int
    media_bytes: int | None = None


def ingest_gen(job: Ingestion) -> Program[BaseMessage]:
    """The message that enters the log: the result itself, or its stub once the whole text is stored and verified."""
    scope = job.scope
    if scope.file_reader is None:
        return job.message
    if not is_movable(job.message, scope):
        return (yield from _media_gen(job.message, scope, most=None))
    message = yield from _media_gen(shown_once(job.message), scope, most=job.media_bytes)
    text = own_text(message)
    tokens = tokens_of(text)
    if tokens <= max(job.threshold, 2 * scope.policy.preview):
        return message
    path = result_path(scope.thread, message.tool_call_id, text)
    moved = moved_text(path, text, tokens, scope)
    failed = yield from store_gen(moved.artifacts)
    if failed is not None:
        yield from Report(event="artifact_failed", data={"path": path, "error": repr(failed)[:300]})
        return message
    stub = with_text(message, previewed("result", text, moved.data))
    record = {"kind": INGESTED, "digest": moved.artifacts[0].digest, **moved.data}
    marked = {**stub.additional_kwargs, REFOLD_KEY: record}
    yield from Report(event="ingested", data={"path": path, "tokens": tokens})
    return stub.model_copy(update={"additional_kwargs": marked})


def _media_gen(message: ToolMessage, scope: Scope, *, most: int | None) -> Program[ToolMessage]:
    """The result with references for media that are damaged, or over the most bytes of base64."""
    texts: dict[Place, str] = {}
    for part in parts_of(message):
        why = part.damage
        if not part.inline or (why is None and (most is None or len(part.media.data or "") <= most)):
            continue
        text = yield from media_reference_gen(part, why, scope)
        if text is not None:
            texts[part.place] = text
    return cast("ToolMessage", with_parts(message, texts))


def media_reference_gen(part: Part, why: str | None, scope: Scope) -> Program[str | None]:
    """The reference for a medium once its bytes are stored; None where they could not be: then it enters as it came,
    and the window's own screen keeps it from the model where it is damaged."""
    described: Mapping[str, Json] = {"mime": part.media.mime or part.media.kind, "bytes": part.media.size}
    reason: Mapping[str, Json] = {"why": why} if why is not None else {}
    artifact = payload_artifact(part.media)
    if artifact is None:
        return reference({**described, **reason}, scope.file_reader or "")
    failed = yield from store_gen((artifact,))
    if failed is not None:
        yield from Report(event="artifact_failed", data={"path": artifact.path, "error": repr(failed)[:300]})
        return None
    yield from Report(event="ingested", data={"path": artifact.path, "bytes": len(artifact.data)})
    return reference({"path": artifact.path, **described, **reason}, scope.file_reader or "")
