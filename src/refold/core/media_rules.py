"""What media a model takes: by its profile, and by the limits of its provider.

Sources: Anthropic, "Vision" and "PDF support" (5 MB per image, which the API measures on the base64 text; 8,000 pixels
a side; 100 images and 100 PDF pages a request; PNG, JPEG, GIF, WebP; no audio, no video).
OpenAI, "Images and vision" and "File inputs" (50 MB and 500 images a request; PNG, JPEG, WebP, GIF; files of 50 MB).
Gemini API, "Image understanding", "Document understanding" (20 MB inline, 3,600 images, 1,000 pages a document; PNG,
JPEG, WebP, HEIC). A model of which nothing is declared is given what it is sent: only what is known to fail is held
back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from refold.core.media import image_size, media_class, pdf_pages
from refold.core.media_damage import declared_type
from refold.core.media_parts import Part
from refold.core.validate import Provider

_MB: Final = 1024 * 1024
_INPUTS: Final = {
    "image_inputs": "image", "audio_inputs": "audio", "video_inputs": "video", "pdf_inputs": "pdf",
}  # fmt: skip
_IN_RESULTS: Final = {"image_tool_message": "image", "pdf_tool_message": "pdf"}
_WEB: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaRules:
    """What a request may hold. Sizes are of base64 text, in characters; None and an empty set are no limit.

    `refused` are the kinds that the model does not take, `refused_in_results` those that it does not take in results.
    """

    refused: frozenset[str] = frozenset()
    refused_in_results: frozenset[str] = frozenset()
    image_size: int | None = None
    image_side: int | None = None
    image_types: frozenset[str] = frozenset()
    file_size: int | None = None
    pages: int | None = None
    count: int | None = None

    def problem(self, part: Part, *, in_result: bool) -> str | None:
        """Why the model cannot be shown a medium, in words for the model; None where it can."""
        media = part.media
        kind = media_class(media)
        if kind in self.refused:
            return f"this model takes no {kind} input"
        if in_result and kind in self.refused_in_results:
            return f"this model takes no {kind} in results"
        if part.damage is not None or media.data is None:
            return part.damage
        if kind == "image":
            return self._image_problem(part)
        if self.file_size is not None and len(media.data) > self.file_size:
            return f"it is over the limit of {self.file_size} bytes as base64"
        if kind == "pdf" and self.pages is not None and (pages := pdf_pages(media)) > self.pages:
            return f"it has {pages} pages, over the limit of {self.pages}"
        return None

    def _image_problem(self, part: Part) -> str | None:
        data, mime = part.media.data or "", declared_type(part.media)
        if self.image_types and mime and mime not in self.image_types:
            return f"this model takes no {mime}"
        if self.image_size is not None and len(data) > self.image_size:
            return f"it has {len(data)} bytes as base64, over the limit of {self.image_size}"
        if self.image_side is not None and (size := image_size(data)) is not None and max(size) > self.image_side:
            return f"it has {size[0]} x {size[1]} pixels, over the limit of {self.image_side} a side"
        return None


_RULES: Final[Mapping[Provider, MediaRules]] = {
    "anthropic": MediaRules(
        refused=frozenset({"audio", "video"}), image_size=5 * _MB, image_side=8_000, image_types=_WEB,
        file_size=32 * _MB, pages=100, count=100,
    ),
    "openai_responses": MediaRules(image_size=50 * _MB, image_types=_WEB, file_size=50 * _MB, count=500),
    "openai_chat": MediaRules(image_size=50 * _MB, file_size=50 * _MB, count=500),  # many servers speak it
    "gemini": MediaRules(image_size=20 * _MB, file_size=50 * _MB, pages=1_000, count=3_600),
}  # fmt: skip


def rules_of(provider: Provider, profile: Mapping[str, object]) -> MediaRules:
    """The rules of a model. Only what its profile denies is refused: a field that is missing says nothing."""
    rules = _RULES[provider]
    denied = {kind for field, kind in _INPUTS.items() if profile.get(field) is False}
    in_results = {kind for field, kind in _IN_RESULTS.items() if profile.get(field) is False}
    return replace(rules, refused=rules.refused | denied, refused_in_results=frozenset(in_results))
