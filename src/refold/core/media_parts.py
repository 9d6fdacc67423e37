"""Every medium of a message, wherever it stands: a block of its own, or nested in a result that a block carries.

`parts_of` finds them and `with_parts` puts text in their place, so that nothing else needs to know how deep a provider
nests: Anthropic's `tool_result` in a human message, OpenAI's `function_call_output`, LangChain's `non_standard`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from langchain_core.messages import BaseMessage

from refold.core.canonical import digest
from refold.core.media import media_tokens
from refold.core.media_damage import damage_of
from refold.core.media_spellings import Media, medium_of
from refold.core.messages import with_content
from refold.core.per_message import PerMessage

Place: TypeAlias = tuple[int | str, ...]

_NESTING: Final = ("content", "output", "parts", "functionResponse", "response")
_DEEPEST: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One medium of a message. `place` leads to it in the content, `key` names it by its payload or its address,
    `damage` says why no provider can read its payload, None where nothing is wrong with it, `tokens` what it costs
    where nothing is known of the model."""

    place: Place
    media: Media
    key: str
    damage: str | None
    tokens: int

    @property
    def inline(self) -> bool:
        """Whether the payload itself is in the message."""
        return self.media.data is not None


def parts_of(message: BaseMessage) -> tuple[Part, ...]:
    """The media of a message, in order. Read once per message object."""
    return () if isinstance(message.content, str) else _parts(message)


def with_parts(message: BaseMessage, texts: Mapping[Place, str]) -> BaseMessage:
    """The message with a text block in the place of each medium named; everything else is as it was."""
    if not texts or isinstance(message.content, str):
        return message
    return with_content(message, cast("Sequence[object]", _replaced(message.content, texts, (), "text")))


def _read(message: BaseMessage) -> tuple[Part, ...]:
    found: list[Part] = []
    for place, media in _walk(message.content, ()):
        where = media.data if media.data is not None else f"at {media.url or media.file_id}"
        found.append(
            Part(place=place, media=media, key=digest(where), damage=damage_of(media), tokens=media_tokens(media))
        )
    return tuple(found)


_parts = PerMessage(_read)


def _walk(value: object, place: Place) -> Iterator[tuple[Place, Media]]:
    if len(place) > _DEEPEST or isinstance(value, str | bytes):
        return
    if isinstance(value, Sequence):
        for index, item in enumerate(value):
            yield from _walk(item, (*place, index))
        return
    if not isinstance(value, Mapping):
        return
    if (media := medium_of(_opened(value))) is not None:
        yield place, media
        return
    for name in _inner(value):
        yield from _walk(value[name], (*place, name))


def _opened(value: Mapping[str, object]) -> object:
    """A `non_standard` wrapper goes as a whole with the medium in it."""
    return value.get("value") if value.get("type") == "non_standard" else value


def _inner(value: Mapping[str, object]) -> Iterator[str]:
    """The fields in which results hold content of their own."""
    names = ("value",) if value.get("type") == "non_standard" else _NESTING
    yield from (name for name in names if isinstance(value.get(name), Mapping | Sequence))


def _replaced(value: object, texts: Mapping[Place, str], place: Place, spelling: str) -> object:
    if (text := texts.get(place)) is not None:
        return {"type": spelling, "text": text}
    if not any(known[: len(place)] == place for known in texts) or isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return [_replaced(item, texts, (*place, index), spelling) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        if str(value.get("type", "")).endswith("_output"):
            spelling = "input_text"  # what a Responses output item takes beside pictures
        return {name: _replaced(item, texts, (*place, name), spelling) for name, item in value.items()}
    return value
