"""The content of a message as blocks: each part read in whatever spelling it has, its own form kept beside.

Nothing here edits a message; what reads one as a whole is `refold.core.messages`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from langchain_core.messages import BaseMessage

from refold.core.media_spellings import Media, read_medium
from refold.core.per_message import PerMessage
from refold.core.spellings import BlockKind, kind_of, spelling_of, string_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One part of a message's content.

    `index` is its place in the content list (0 for plain string content). `text` is what the model reads of a text or
    reasoning block. `call_id` names the call that a call, answer or server block belongs to.
    """

    kind: BlockKind
    index: int
    type: str
    text: str = ""
    media: Media | None = None
    call_id: str | None = None
    raw: Mapping[str, object] | str


def blocks_of(message: BaseMessage) -> tuple[Block, ...]:
    """The content of a message as blocks, in order, whatever the spelling. Read once per message object."""
    content = message.content
    if isinstance(content, str):
        return (Block(kind="text", index=0, type="text", text=content, raw=content),) if content else ()
    return _blocks(message)


_blocks = PerMessage(lambda message: tuple(_block(index, part) for index, part in enumerate(message.content)))


def unwrapped(block: Block) -> Mapping[str, object]:
    """The provider's own form of a block: a `non_standard` wrapper is opened, a bare string is a text block."""
    if isinstance(block.raw, str):
        return {"type": "text", "text": block.raw}
    inner = block.raw.get("value")
    if block.raw.get("type") == "non_standard" and isinstance(inner, Mapping):
        return cast("Mapping[str, object]", inner)
    return block.raw


def _block(index: int, part: object) -> Block:
    if isinstance(part, str):
        return Block(kind="text", index=index, type="text", text=part, raw=part)
    raw = cast("Mapping[str, object]", part)
    spelling = spelling_of(raw)
    if spelling == "non_standard" and isinstance(raw.get("value"), Mapping):
        inner = _block(index, raw["value"])
        return Block(
            kind=inner.kind, index=index, type=inner.type, text=inner.text, media=inner.media,
            call_id=inner.call_id, raw=raw,
        )  # fmt: skip
    kind = kind_of(spelling)
    if kind == "text":
        text = string_of(raw.get("text") or raw.get("refusal"))
        return Block(kind="text", index=index, type=spelling, text=text, raw=raw)
    if kind == "reasoning":
        return Block(kind="reasoning", index=index, type=spelling, text=_reasoning_text(raw), raw=raw)
    if kind == "media":
        if (media := read_medium(spelling, raw)) is not None:
            return Block(kind="media", index=index, type=spelling, media=media, raw=raw)
        kind = "opaque"
    return Block(kind=kind, index=index, type=spelling, call_id=_call_id(raw), raw=raw)


def _call_id(raw: Mapping[str, object]) -> str | None:
    inner = raw.get("functionCall") or raw.get("functionResponse")
    source = cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else raw
    for key in ("call_id", "tool_call_id", "tool_use_id", "id"):
        if isinstance(value := source.get(key), str) and value:
            return value
    return None


def _reasoning_text(raw: Mapping[str, object]) -> str:
    """The visible part of a reasoning block; encrypted and redacted parts have none."""
    for key in ("thinking", "reasoning", "text", "reasoning_content"):
        value = raw.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, Mapping):
            return string_of(value.get("text"))
    summary = raw.get("summary")
    if isinstance(summary, Sequence) and not isinstance(summary, str):
        return "\n".join(string_of(item.get("text")) for item in summary if isinstance(item, Mapping))
    return ""
