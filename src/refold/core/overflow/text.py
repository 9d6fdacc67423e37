"""From a text, a status and a code to an `Overflow`, or to None."""

import re
from dataclasses import replace
from typing import Final

from refold.core.overflow import words
from refold.core.overflow.numbers import Numbers, numbers_of
from refold.core.overflow.sizes import byte_sizes
from refold.core.overflow.value import Overflow

_TOO_LARGE: Final = 413
_NOT_SIGNED_IN: Final = frozenset({401, 402, 403, 407})
_NOT_ABOUT_SIZE: Final = frozenset({404, 405, 408, 409, 410, 414, 431, 502, 503, 504, 529})
_SLOW_DOWN: Final = 429
_TOKENS: Final = re.compile(r"\d[ )]*-?tokens?\b|\btokens?\b[^\n]{0,24}\d|tokens_limit")


def parse_overflow_text(text: str, *, status: int | None = None, code: str | None = None) -> Overflow | None:
    """What a refusal's text says, or None when it is about something else.

    Args:
        text: The message or body of an error, in any wording; JSON is fine as it is.
        status: The HTTP status, where it is known. 413 alone, with no other reason in the text, is a body too large.
        code: The error code or type that the server gave beside the text (`context_length_exceeded`, ...).

    Never raises. Nothing is read but the arguments.
    """
    normal = words.normalise(text)
    named = words.normalise(code) if code else ""
    if (match := words.NEGATIVE_OUTPUT.search(normal)) is not None:
        return Overflow(over=-int(match[1]), counts_output=True)
    certain = words.CODES.search(named) is not None or words.CODES.search(normal) is not None
    if not certain and _about_something_else(normal, named=named, status=status):
        return None
    body = words.BODY.search(normal) is not None or words.BODY.search(named) is not None
    counted = words.without_statuses(normal)
    if not certain and not body and not _too_long(normal, counted):
        silent = status == _TOO_LARGE or words.TOO_LARGE_STATUS.search(normal)
        return Overflow(unit="bytes") if silent and not words.MEDIA.search(normal) else None
    if body and not certain and not _TOKENS.search(counted):
        limit, size = byte_sizes(counted)
        return Overflow(limit=limit, prompt=size, over=_over(limit, size), unit="bytes")
    in_characters = words.CHARACTERS.search(normal) and not _TOKENS.search(counted)
    numbers = Numbers() if in_characters else numbers_of(counted)
    if not certain and _caps_output(normal, numbers):
        return None
    return _overflow(normal, numbers)


def possible_overflow(text: str) -> bool:
    """Whether a refusal says nothing at all, so that it may be an overflow for a caller who expected one."""
    return words.POSSIBLE.search(words.normalise(text)) is not None


def blames_something_else(text: str, *, status: int | None = None) -> bool:
    """Whether a text is surely about rates, sign-in, time or policy, so that older errors behind it do not count."""
    return _about_something_else(words.normalise(text), named="", status=status)


def _about_something_else(text: str, *, named: str, status: int | None) -> bool:
    """Vetoes. A named context beats sign-in, time and policy, whose words are in many bodies; nothing beats a rate."""
    if words.RATE.search(text) or words.RATE.search(named):
        return True
    if words.FIELD.search(text) and not words.TOKENS.search(text):
        return True
    if words.CONTEXT.search(text):
        return False
    if status in _NOT_SIGNED_IN or words.AUTH.search(text) or words.TIME.search(text) or words.POLICY.search(text):
        return True
    if status in _NOT_ABOUT_SIZE and not words.PROMPT.search(text) and not words.TOKENS.search(text):
        return True
    part = words.PART.search(text) or (words.MEDIA.search(text) and not words.BODY.search(text))
    media = bool(part) and not words.TOKENS.search(text)
    return media or (status == _SLOW_DOWN and not words.PROMPT.search(text))


def _too_long(text: str, counted: str) -> bool:
    """Whether the words say so, or the numbers do beside a context that is named."""
    families = (words.CONTEXT, words.TOKENS, words.PROMPT, words.CHINESE, words.ADVICE, words.BOTH)
    if any(family.search(text) for family in families):
        return True
    named = words.WINDOW.search(text) is not None or words.COUNTED.search(text) is not None
    return named and numbers_of(counted).labelled


def _caps_output(text: str, numbers: Numbers) -> bool:
    """Whether only the answer is too long: a cap that no prompt is counted in."""
    if words.OUTPUT_CAP.search(text) is None:
        return False
    return not numbers.prompt_named and words.BOTH.search(text) is None


def _overflow(text: str, numbers: Numbers) -> Overflow:
    limit, prompt, output = numbers.limit, numbers.prompt, numbers.output
    together = words.BOTH.search(text) is not None or output is not None
    fits = limit is not None and prompt is not None and prompt < limit
    over = numbers.over if numbers.over is not None else _over(limit, numbers.requested or prompt)
    found = Overflow(
        limit=limit,
        prompt=prompt,
        requested=numbers.requested,
        output=output,
        over=over,
        counts_output=together,
        prompt_at_least=numbers.prompt_at_least,
    )
    if not fits:
        return found
    if together and not numbers.prompt_at_least:
        return replace(found, remedy="lower_output")
    return found if together else replace(found, prompt=None, over=numbers.over)


def _over(limit: int | None, asked: int | None) -> int | None:
    return asked - limit if limit is not None and asked is not None and asked > limit else None
