"""`human`: an over-long human message in history is shown as a preview and a path. Never paraphrased."""

from collections.abc import Mapping

from langchain_core.messages import BaseMessage

from refold.core.artifacts import input_path
from refold.core.canonical import Json
from refold.core.messages import is_record, role_of
from refold.core.passes.base import Proposal, Scope, own_text, tokens_of
from refold.core.passes.result import moved_text, previewed, with_text


def propose(message: BaseMessage, key: str, scope: Scope) -> Proposal | None:
    """Move the text of a long human message to a file and preview it."""
    if role_of(message) != "human" or is_record(message) or scope.file_reader is None:
        return None
    text = own_text(message)
    tokens = tokens_of(text)
    if tokens < max(scope.policy.human_min, 2 * scope.policy.preview):
        return None
    path = input_path(scope.thread, key, text)
    return moved_text(path, text, tokens, scope)


def show(message: BaseMessage, data: Mapping[str, Json]) -> BaseMessage:
    """The message with its text replaced by reference and preview."""
    return with_text(message, previewed("input", own_text(message), data))
