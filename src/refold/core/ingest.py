"""Ingestion, as a program: a tool result over the threshold is stored when the tool returns, and its stub enters the
log.

The log then stays light for every reader of it. Fails closed: a result that cannot be stored and read back enters the
log whole. Doing it twice gives the same stub (the path is derived from the call and the content).
"""

from dataclasses import dataclass
from typing import Final

from langchain_core.messages import BaseMessage, ToolMessage

from refold.core.archive import store_gen
from refold.core.artifacts import result_path
from refold.core.effects import Report
from refold.core.messages import REFOLD_KEY
from refold.core.passes import Scope
from refold.core.passes.base import own_text, tokens_of
from refold.core.passes.result import is_movable, moved_text, previewed, with_text
from refold.core.program import Program

INGESTED: Final = "ingested"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingestion:
    """A tool result on its way into the log. `threshold` is in tokens: what is smaller enters whole."""

    message: ToolMessage
    scope: Scope
    threshold: int


def ingest_gen(job: Ingestion) -> Program[BaseMessage]:
    """The message that enters the log: the result itself, or its stub once the whole text is stored and verified."""
    message, scope = job.message, job.scope
    if scope.file_reader is None or not is_movable(message, scope):
        return message
    text = own_text(message)
    tokens = tokens_of(text)
    if tokens <= max(job.threshold, scope.policy.preview):
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
