"""The gauge: how full a window is, anchored on what the provider reported.

The estimate of a whole request is off by a factor that belongs to the model and the traffic. The provider's own count
of an earlier request, which this window extends, removes it: that count is the base, and only what came after it is
estimated, with the factor that the base taught. Right after a fold there is no such request yet; the factor that the
fold recorded serves until there is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from langchain_core.messages import AIMessage

from refold.core.media_parts import parts_of
from refold.core.meter import Count, Meter, learned_factor
from refold.core.usage import read_usage
from refold.core.window import Entry, Window

_LOOK_BACK: Final = 64
"""Entries searched for a reported count: a thread whose provider reports nothing must not cost O(N) per call."""
_LEAST_PLAUSIBLE: Final = 0.4
"""A report below this part of the estimate is not of the whole request: some gateways report uncached tokens only, and
Ollama cuts a long prompt silently and reports what was left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """A measured window. `used` and `fixed` are tokens as the model counts them, as well as is known.

    `sums[i]` are the estimated tokens of the first `i` entries, `sizes[i]` their bytes; `media` are the indexes of
    entries that hold media; `scale` turns estimates into the model's tokens; `anchor` is (entries, tokens of system,
    tools and those entries) of the reported request.
    """

    window: Window
    meter: Meter
    sums: tuple[int, ...]
    sizes: tuple[int, ...]
    media: tuple[int, ...]
    system: Count
    tools: Count
    scale: float
    anchor: tuple[int, int] | None

    @property
    def shown_media(self) -> list[Entry]:
        """The messages of the log in the window that hold media."""
        entries = (self.window.entries[index] for index in self.media)
        return [entry for entry in entries if entry.kind in ("log", "item")]

    @property
    def fixed(self) -> int:
        """Tokens of the system prompt and the tool schemas."""
        return round(self.scale * (self.system.tokens + self.tools.tokens))

    @property
    def used(self) -> int:
        """Tokens of the window's messages."""
        if self.anchor is None:
            return round(self.scale * self.sums[-1])
        entries, reported = self.anchor
        return max(0, reported - self.fixed) + round(self.scale * (self.sums[-1] - self.sums[entries]))

    @property
    def size(self) -> int:
        """Bytes of the request body, about."""
        return self.sizes[-1] + self.system.bytes + self.tools.bytes

    def tokens(self, index: int) -> int:
        """Tokens of one entry."""
        return round(self.scale * (self.sums[index + 1] - self.sums[index]))


def measure(
    window: Window,
    meter: Meter,
    *,
    system: Count,
    tools: Count,
    scale: float,
    previous: Gauge | None = None,
    same_model: Callable[[AIMessage], bool] = lambda message: True,
) -> Gauge:
    """Measure a window. `scale` is what is known about the model before any report in this thread.

    `previous` is the gauge of the window that this one was grown from; entries shared with it are not counted again.
    `same_model(message)` says whether a reply came from the model that will be asked now: another model's count is no
    anchor for this one.
    """
    shared, sums, sizes, media = 0, [0], [0], list[int]()
    if previous is not None and previous.meter is meter and window.grown_from is previous.window.entries:
        shared = min(window.shared, len(previous.sums) - 1)
        sums, sizes = list(previous.sums[: shared + 1]), list(previous.sizes[: shared + 1])
        media = [index for index in previous.media if index < shared]
    media += [i for i, entry in enumerate(window.entries[shared:], shared) if parts_of(entry.message)]
    counts = [meter.count(entry.message) for entry in window.entries[shared:]]
    sums += list(accumulate((count.tokens for count in counts), initial=sums[-1]))[1:]
    sizes += list(accumulate((count.bytes for count in counts), initial=sizes[-1]))[1:]
    base = system.tokens + tools.tokens
    anchor = _anchor(window.entries, window.boundary, sums, base, same_model)
    if anchor is not None:
        scale = learned_factor(anchor[1], base + sums[anchor[0]])
    else:
        scale = next((fold.scale for fold in reversed(window.folds) if fold.scale > 0), scale)
    return Gauge(
        window=window, meter=meter, sums=tuple(sums), sizes=tuple(sizes), media=tuple(media), system=system,
        tools=tools, scale=scale, anchor=anchor,
    )  # fmt: skip


def _anchor(
    entries: Sequence[Entry], boundary: int, sums: Sequence[int], base: int, same_model: Callable[[AIMessage], bool]
) -> tuple[int, int] | None:
    """The newest reply whose request this window extends, if the provider reported its input."""
    for index in range(len(entries) - 1, max(-1, len(entries) - 1 - _LOOK_BACK), -1):
        entry = entries[index]
        if entry.kind in ("segment", "state") or entry.start < boundary:
            return None
        if not isinstance(entry.message, AIMessage):
            continue
        usage = read_usage(entry.message)
        if usage is None or usage.input < _LEAST_PLAUSIBLE * (base + sums[index]):
            continue
        return (index, usage.input) if same_model(entry.message) else None
    return None
