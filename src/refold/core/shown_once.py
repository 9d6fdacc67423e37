"""A result that says the same thing twice is shown once (fault 111).

An MCP tool with an output schema answers with text and with structured content; the specification asks for the JSON of
the second in the first as well (Model Context Protocol 2025-06-18, Tools, "Structured Content"). Adapters hand both on:
as a second text block, or wrapped as `{"result": ...}` where the value is no object. Only what is equal as JSON, or
wraps exactly the other text, is left out; the first stays.
"""

import json
from collections.abc import Mapping
from typing import Final, cast

from langchain_core.messages import ToolMessage

from refold.core.blocks import Block, blocks_of
from refold.core.canonical import canonical_bytes
from refold.core.messages import with_content

_LEAST: Final = 40
"""Characters below which the same words twice are no waste."""
_WRAPPERS: Final = (("result",), ("structuredContent",), ("structured_content",))


def shown_once(message: ToolMessage) -> ToolMessage:
    """The result without the blocks that repeat another; the same object where there is none."""
    if isinstance(message.content, str):
        return message
    seen: set[bytes] = set()
    kept: list[object] = []
    for block in blocks_of(message):
        forms = _forms(block)
        if not forms.isdisjoint(seen):
            continue
        seen |= forms
        kept.append(message.content[block.index])
    return message if len(kept) == len(message.content) else cast("ToolMessage", with_content(message, kept))


def _forms(block: Block) -> frozenset[bytes]:
    """What a block says, in comparable forms; none for what is no text, or short."""
    value: object
    if block.kind == "text":
        value = _json(block.text)
    elif isinstance(block.raw, Mapping) and block.raw.get("type") == "json":
        value = block.raw.get("json", block.raw.get("data"))
    else:
        return frozenset()
    forms = {canonical_bytes(value)}
    if isinstance(value, Mapping) and tuple(value) in _WRAPPERS:
        inner = next(iter(value.values()))
        forms.add(canonical_bytes(_json(inner) if isinstance(inner, str) else inner))
    return frozenset(form for form in forms if len(form) >= _LEAST)


def _json(text: str) -> object:
    """The value that a text is the JSON of, else the text itself."""
    if text.lstrip()[:1] not in ("{", "["):
        return text.strip()
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text.strip()
