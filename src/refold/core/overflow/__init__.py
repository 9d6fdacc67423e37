"""Recognising a provider's "too long" in any wording, and reading its numbers.

Providers refuse a request that does not fit in as many words as there are servers, and new wordings appear with every
server. So this package does not hold a list of texts: it knows the parts that such a text is made of (what is too long,
what it is measured against, how the two are compared, what else a text about tokens may be about) and decides by them.

- `words` is the vocabulary: the evidence for an overflow, and what else speaks of tokens, lengths and limits.
- `numbers` labels every number of a text as the limit, the prompt, the output, the total or the excess.
- `text` puts both together, `exceptions` reads texts, codes and statuses off an exception and its causes.

Guarantees: nothing here raises on any input, the limit is never larger than a prompt that was refused for its own
length, and a number that contradicts the refusal is left out rather than guessed. A rate limit, an output cap, a field
that is too long, a picture that is too large, a lost connection are not overflow, also when they speak of tokens.
"""

from typing import TYPE_CHECKING

from refold.core.overflow.value import Overflow, Remedy, Unit

if TYPE_CHECKING:
    from refold.core.overflow.exceptions import parse_overflow
    from refold.core.overflow.media import refuses_media
    from refold.core.overflow.text import parse_overflow_text

__all__ = ["Overflow", "Remedy", "Unit", "parse_overflow", "parse_overflow_text", "refuses_media"]


def __getattr__(name: str) -> object:
    """The readers are loaded when a refusal is read: their vocabulary takes long to compile."""
    match name:
        case "parse_overflow":
            from refold.core.overflow.exceptions import parse_overflow

            return parse_overflow
        case "parse_overflow_text":
            from refold.core.overflow.text import parse_overflow_text

            return parse_overflow_text
        case "refuses_media":
            from refold.core.overflow.media import refuses_media

            return refuses_media
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
