"""What do the programs count, and how long did things take?"""

import math
from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families


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
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


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
