"""What a block of a message says to someone who searches or reads it, whatever kind of block it is.

Texts and reasoning say their text. A text file says its content. Structured results, citations, server-side results and
blocks of unknown kinds say every string and number in them. Payloads (base64) and signatures say nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from refold.core.blocks import Block, unwrapped
from refold.core.media import media_class
from refold.core.media_damage import payload_of

_PAYLOAD: Final = re.compile(r"data:[^,\s]{0,200};base64,\S*|[A-Za-z0-9+/_=-]{512,}")


def words_of(block: Block) -> str:
    """Everything that can be searched in a block, but the calls of an AI message, which `calls_of` gives."""
    if block.kind in ("text", "reasoning"):
        return block.text
    if block.kind == "call":
        return ""
    filed = file_text(block)
    return spoken(unwrapped(block)) if filed is None else filed


def file_text(block: Block) -> str | None:
    """The content of a text file that stands inline; None for any other block."""
    media = block.media
    if media is None or not media.data:
        return None
    source = unwrapped(block).get("source")
    if isinstance(source, Mapping) and source.get("type") == "text":  # Anthropic's documents of plain text
        return media.data
    if media_class(media) != "text":
        return None
    payload = payload_of(media)
    return media.data if payload is None else payload.decode("utf-8", "replace")


def spoken(value: object) -> str:
    """A value as it was meant: JSON would glue the escape of a line end to the word that follows it."""
    match value:
        case str():
            return "" if _PAYLOAD.fullmatch(value) else value
        case bytes():
            return ""
        case Mapping():
            return "\n".join(f"{key}: {spoken(item)}" for key, item in value.items())
        case Sequence():
            return "\n".join(spoken(item) for item in value)
        case _:
            return json.dumps(value, default=str)
