"""The table that `make bench` prints: one row per figure, goal beside value."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure that was measured."""

    figure: str
    goal: str
    value: str
    passed: bool


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below which `share` (0 to 1) of all samples lie.

    Args:
        samples: Any order, at least one; sorted anew at each call.
        share: 0.5 is the median.
    """
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def render(rows: Iterable[Row]) -> str:
    """The rows as text, in columns; a figure that missed its goal says so."""
    lines = [("figure", "goal", "measured", "")]
    lines += [
        (row.figure, row.goal, row.value, "" if row.passed else "MISSED")
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )
