"""What do the programs count, and how long did things take?

Reads Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats)
as far as our programs write it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def total(text: str, name: str, **labels: str) -> float | None:
    """Add up the samples of a metric, over all labels that are not given.

    Args:
        text: What a program's /metrics says.
        name: Of the samples, as written: with `_total` for counters.
        labels: Only samples with these.

    Returns:
        The sum; or None if the program does not know such a metric, which is not
        the same as one that has counted nothing yet.
    """
    if f"# TYPE {name} " not in text:
        return None
    wanted = labels.items()
    samples = _samples(text, name)
    return sum((value for found, value in samples if wanted <= found.items()), 0.0)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of all values do not exceed.

    Args:
        values: In any order; none gives NaN.
        share: Above 0, up to 1.
    """
    if not values:
        return math.nan
    return sorted(values)[math.ceil(share * len(values)) - 1]


def in_ms(seconds: float) -> str:
    """Return a duration as people read it."""
    digits = 0 if seconds >= 0.01 else 1
    return f"{seconds * 1000:.{digits}f} ms"


def _samples(text: str, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found and found["name"] == name:
            yield dict(_LABEL.findall(found["labels"] or "")), float(found["value"])
