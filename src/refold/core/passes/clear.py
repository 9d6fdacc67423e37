"""`clear`: a stale tool result is shown as one line that says where it is (Anthropic's `clear_tool_uses`)."""

from collections.abc import Mapping

from langchain_core.messages import BaseMessage, ToolMessage

from refold.core.artifacts import result_path, text_artifact
from refold.core.canonical import Json
from refold.core.messages import content_hash
from refold.core.passes.base import Proposal, Scope, mark, own_text, tokens_of
from refold.core.passes.result import is_movable, with_text


def propose(message: BaseMessage, key: str, scope: Scope) -> Proposal | None:
    """Move a result to a file, whole, and leave one line."""
    if not isinstance(message, ToolMessage) or scope.file_reader is None or not is_movable(message, scope):
        return None
    text = own_text(message)
    tokens = tokens_of(text)
    if tokens < scope.policy.clear_min:
        return None
    path = result_path(scope.thread, message.tool_call_id or key, text)
    return Proposal(
        data={
            "path": path, "reader": scope.file_reader, "characters": len(text), "hash": content_hash(message)[:12],
        },
        artifacts=(text_artifact(path, text),),
    )  # fmt: skip


def show(message: BaseMessage, data: Mapping[str, Json]) -> BaseMessage:
    """The result as one line. Media blocks that a `media` fold has not moved stay."""
    path, reader = str(data["path"]), str(data["reader"])
    line = mark("cleared", path=path, characters=str(data["characters"]), read=reader)
    return with_text(message, line)
