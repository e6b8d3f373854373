"""A plot of means with their intervals, as SVG: panels side by side, one for a figure.

Written by hand: three panels of dots are not worth a library.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 300, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 34, 34
#: told apart in print and by people who see no red or green; the first stands out
_COLOURS = ("#000000", "#0072b2", "#e69f00", "#999999")
_LEGEND = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A mean with its interval."""

    mean: float
    #: half the width of the interval
    half: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure."""

    title: str
    #: {place on the horizontal axis: one point for each series}
    groups: Sequence[tuple[str, Sequence[Point]]]


def svg(panels: Sequence[Panel], series: Sequence[str]) -> str:
    """The plot's text.

    Args:
        panels: From left to right.
        series: What the points of each group stand for; at most four.
    """
    width, height = _WIDTH * len(panels), _HEIGHT + _LEGEND
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = 'font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, panel in enumerate(panels):
        lines.append(f'<g transform="translate({index * _WIDTH} 0)">')
        lines += _panel(panel)
        lines.append("</g>")
    for index, name in enumerate(series):
        x, y = _LEFT + index * 110, _HEIGHT + _LEGEND / 2
        lines.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{_COLOURS[index]}"/>')
        lines.append(f'<text x="{x + 10}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    points = [point for _, some in panel.groups for point in some]
    top = max(point.mean + point.half for point in points)
    bottom = min(point.mean - point.half for point in points)
    bottom = 0.0 if bottom < top / 2 else bottom - (top - bottom) / 10

    def y_of(value: float) -> float:
        share = (value - bottom) / ((top - bottom) * 1.05 or 1.0)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    yield f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(panel.title)}</text>'
    for tick in range(5):
        value = bottom + (top - bottom) * tick / 4
        y = y_of(value)
        yield (
            f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 5}" y="{y + 4}" text-anchor="end">{value:.3g}</text>'
        )
    step = (_WIDTH - _LEFT - _RIGHT) / len(panel.groups)
    for at, (label, some) in enumerate(panel.groups):
        middle = _LEFT + step * (at + 0.5)
        yield (
            f'<text x="{middle:.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
            f'text-anchor="middle">{escape(label)}</text>'
        )
        for index, point in enumerate(some):
            x = round(middle + (index - (len(some) - 1) / 2) * 13, 1)
            low, high = y_of(point.mean - point.half), y_of(point.mean + point.half)
            colour = _COLOURS[index]
            yield (
                f'<path d="M{x} {low}V{high}" stroke="{colour}" stroke-width="2"/>'
                f'<circle cx="{x}" cy="{y_of(point.mean)}" r="4" fill="{colour}"/>'
            )
