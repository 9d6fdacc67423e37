"""`result`: a large tool result is shown as a typed preview and a path. The whole text is stored first."""

from collections.abc import Mapping
from typing import cast

from langchain_core.messages import BaseMessage, ToolMessage

from refold.core.artifacts import result_path, text_artifact
from refold.core.canonical import Json
from refold.core.messages import REFOLD_KEY, with_content
from refold.core.passes.base import Proposal, Scope, beside_text, mark, own_text, tokens_of
from refold.core.preview import preview
from refold.core.record import escape_record, wrap_record


def propose(message: BaseMessage, key: str, scope: Scope) -> Proposal | None:
    """Move the text of a result to a file and preview it, where the preview is at most half of it."""
    if not isinstance(message, ToolMessage) or scope.file_reader is None or not is_movable(message, scope):
        return None
    text = own_text(message)
    tokens = tokens_of(text)
    if tokens < max(scope.policy.result_min, 2 * scope.policy.preview):
        return None
    path = result_path(scope.thread, message.tool_call_id or key, text)
    return moved_text(path, text, tokens, scope)


def moved_text(path: str, text: str, tokens: int, scope: Scope) -> Proposal:
    """A text that is stored under a path and shown as `previewed`."""
    return Proposal(
        data={
            "path": path, "reader": scope.file_reader, "budget": scope.policy.preview, "characters": len(text),
            "tokens": tokens,
        },
        artifacts=(text_artifact(path, text),),
    )  # fmt: skip


def is_movable(message: ToolMessage, scope: Scope) -> bool:
    """Whether the policy lets a result leave the window: not a reader's, and not the stub of one that left before."""
    return message.name not in scope.policy.exclude_tools and REFOLD_KEY not in message.additional_kwargs


def show(message: BaseMessage, data: Mapping[str, Json]) -> BaseMessage:
    """The result with its text replaced by reference and preview; media blocks stay where they are."""
    return with_text(message, previewed("result", own_text(message), data))


def previewed(what: str, text: str, data: Mapping[str, Json]) -> str:
    """The reference and preview that stand for a long text."""
    path, reader = str(data["path"]), str(data["reader"])
    shown = preview(text, budget=int(cast("int", data["budget"])), count=tokens_of)
    reference = mark(what, path=path, characters=str(data["characters"]), tokens=str(data["tokens"]), read=reader)
    record = wrap_record(escape_record(shown.text), kind="preview", attributes={"of": shown.kind})
    return f"{reference}\n{record}"


def with_text(message: BaseMessage, text: str) -> BaseMessage:
    """The message with one text in place of all its text blocks, before whatever else it holds."""
    if isinstance(message.content, str):
        return with_content(message, text)
    rest = beside_text(message.content)
    return with_content(message, [{"type": "text", "text": text}, *rest] if rest else text)
