"""The charts of a report: SVG written by hand, coloured by the page's CSS variables, so that they follow its theme."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH: Final = 1000
_LEFT: Final = 64
_TOP: Final = 14
_BOTTOM: Final = 26


@dataclass(frozen=True, kw_only=True)
class Band:
    """One layer of a stacked chart: its name, its CSS colour, and a value per call."""

    name: str
    colour: str
    values: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Where values go: `count` places from left to right, 0 to `top` from the bottom up."""

    count: int
    top: float
    height: int

    def x(self, place: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 8) * place / max(1, self.count - 1), 1)

    def y(self, value: float) -> float:
        room = self.height - _TOP - _BOTTOM
        return round(_TOP + room * (1 - min(value, self.top) / self.top), 1)

    def axes(self, label: str) -> str:
        """Grid, numbers and the name of the places."""
        lines = []
        for step in range(5):
            value = self.top * step / 4
            y = self.y(value)
            lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}" stroke="var(--grid)"/>')
            lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{short(value)}</text>')
        for step in range(6):
            place = round((self.count - 1) * step / 5)
            anchor = "end" if step == 5 else "middle"
            lines.append(f'<text x="{self.x(place)}" y="{self.height - 8}" text-anchor="{anchor}">{place + 1}</text>')
        lines.append(f'<text x="{_LEFT - 16}" y="{self.height - 8}" text-anchor="end">{escape(label)}</text>')
        return "".join(lines)


def stacked(bands: Sequence[Band], *, top: float, limit: float | None = None, height: int = 300) -> str:
    """Layers on each other, one place per call, and a line at the limit."""
    frame = Frame(count=max((len(band.values) for band in bands), default=1), top=max(top, 1), height=height)
    shapes = []
    below = [0.0] * frame.count
    for band in bands:
        above = [low + value for low, value in zip(below, band.values, strict=True)]
        shapes.append(f'<path d="{_area(frame, below, above)}" fill="{band.colour}"/>')
        below = above
    if limit is not None:
        shapes.append(_limit(frame, limit))
    return _svg(frame, frame.axes("call"), shapes, f"stacked: {', '.join(band.name for band in bands)}")


def compared(
    without: Sequence[float], managed: Sequence[float], *, limit: float | None, marks: Sequence[int], height: int = 300
) -> str:
    """Two runs of the same calls as lines; `marks` are the calls with a fold pass."""
    frame = Frame(count=len(managed), top=max([1.0, *without, *managed]) * 1.05, height=height)
    folds = "".join(
        f'<line x1="{frame.x(i)}" x2="{frame.x(i)}" y1="{_TOP}" y2="{height - _BOTTOM}" stroke="var(--good)" '
        'stroke-opacity=".25"/>'
        for i in marks
    )
    shapes = [
        folds,
        f'<path d="{_area(frame, [0.0] * frame.count, without)}" fill="var(--without)" fill-opacity=".35"/>',
        f'<path d="{_line(frame, without)}" fill="none" stroke="var(--without)" stroke-width="2"/>',
        f'<path d="{_line(frame, managed)}" fill="none" stroke="var(--with)" stroke-width="2"/>',
    ]
    if limit is not None:
        shapes.append(_limit(frame, limit))
    return _svg(frame, frame.axes("call"), shapes, "without and with refold, by call")


def short(value: float) -> str:
    """A number as an axis shows it."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _limit(frame: Frame, limit: float) -> str:
    y = frame.y(limit)
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}" stroke="var(--limit)" stroke-width="1.5" '
        f'stroke-dasharray="6 4"/><text x="{_WIDTH - 12}" y="{y - 5}" text-anchor="end" '
        f'style="fill:var(--limit)">limit {short(limit)}</text>'
    )


def _line(frame: Frame, values: Sequence[float]) -> str:
    return "M" + "L".join(f"{frame.x(i)} {frame.y(value)}" for i, value in enumerate(values))


def _area(frame: Frame, below: Sequence[float], above: Sequence[float]) -> str:
    back = "L".join(f"{frame.x(i)} {frame.y(below[i])}" for i in range(len(below) - 1, -1, -1))
    return f"{_line(frame, above)}L{back}Z"


def _svg(frame: Frame, axes: str, shapes: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {frame.height}" role="img"><title>{escape(title)}</title>{axes}'
        f"{''.join(shapes)}</svg>"
    )
