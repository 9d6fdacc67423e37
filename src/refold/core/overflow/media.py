"""Recognising that a provider refused a medium: a picture, a sound, a film, a document in the request.

Read by what such a text is made of: a medium, and what is wrong with it, in one sentence. Texts that speak of media for
another reason (a rate limit, a policy, a container, a missing model) are none of it; nor is a status that no request of
the same kind could change (401, 403, 429, 5xx but for the 500 that some servers answer with when a picture does not
decode).

Sources: what Anthropic, OpenAI, Gemini, Bedrock, Mistral, DeepSeek, OpenRouter, vLLM, llama.cpp and Ollama answer with.
"""

import re
from typing import Final

from refold.core.overflow.exceptions import Refusal, refusals_in

_MEDIUM = r"(?:images?|pictures?|photos?|audios?|videos?|pdfs?|media|documents?|image_urls?|input_(?:image|audio|file))"
_WRONG = (
    r"(?:(?:could not|couldn't|cannot|can ?not|unable to|failed to) (?:be )?"
    r"(?:process|load|decode|read|open|identify|fetch|download)(?:e?d)?"
    r"|(?:is |are )?not (?:a )?valid|\binvalid|unsupported|not supported|(?:does not|doesn't|do not) support"
    r"|not enabled|only supported by|malformed|corrupt(?:ed)?|truncated|\bempty|too (?:large|big|small|many|much)"
    r"|exceeds?\b|exceeded|larger than|at most|a maximum of|does not match|appears to be|has no pages"
    r"|does not represent|password.protected|missing data required for|unknown variant|while downloading)"
)
_SPEAKS: Final = re.compile(
    rf"\b{_MEDIUM}\b(?:[^.\n]|\.(?=\S)){{0,120}}?{_WRONG}|{_WRONG}(?:[^.\n]|\.(?=\S)){{0,60}}?\b{_MEDIUM}\b",
    re.IGNORECASE,
)
_ITSELF: Final = re.compile(
    r"image_parse_error|invalid_(?:image|base64_image|audio|pdf|media)\w*|unsupported_image\w*|unsupported_media_type"
    r"|image_(?:file_)?too_(?:large|small)|empty_image_file|failed_to_download_image"
    r"|(?:invalid|unsupported) mime ?type|base64 decoding failed|invalid base64|\bmmproj\b|source\.base64\b"
    r"|support (?:image|audio|video|file) input|(?:is )?not a multimodal model",
    re.IGNORECASE,
)
_ELSE: Final = re.compile(
    r"rate.?limit|per (?:minute|hour|day)|quota|billing|credit|api.?key|unauthori[sz]ed|permission"
    r"|content.?polic|safety|moderation|content.?filter|flagged|copyright|docker|container|overloaded|temporarily"
    r"|try again later|generate (?:an )?images?|image generation|context (?:length|window)|is too long|maximum context",
    re.IGNORECASE,
)
_LONGEST: Final = 4_000
_NOT_THE_REQUEST: Final = frozenset({401, 402, 403, 408, 409, 429})


def refuses_media(error: BaseException) -> bool:
    """Whether an exception, or what it was raised from, says that a medium in the request was refused. Never raises."""
    return any(_speaks_of_media(refusal) for refusal in refusals_in(error))


def _speaks_of_media(refusal: Refusal) -> bool:
    text, status = refusal.text[:_LONGEST], refusal.status
    if status is not None and (status in _NOT_THE_REQUEST or status > 500):
        return False
    if _ELSE.search(text) is not None:
        return False
    return _ITSELF.search(f"{text}\n{refusal.code or ''}") is not None or _SPEAKS.search(text) is not None
