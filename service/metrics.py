"""Registry of a program's metrics, with the metrics that each program has.

A module of its own: agent and extender begin with the same registry.
"""

from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)

from service.version import version

# A series with the time of each counter's first sample would double the counters, and
# Prometheus' text format does not know it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # theirs has no types


def open_registry(program: str, **labels: str) -> CollectorRegistry:
    """Return a registry with `process_*` and the metric `build_info` of a program.

    Args:
        program: Prefix of the program's metrics, such as `ascend_agent`.
        labels: {label: value} of `build_info`, beside the version.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build_info = Gauge(
        f"{program}_build_info",
        "1, with the version of the program.",
        ["version", *labels],
        registry=registry,
    )
    build_info.labels(version(), *labels.values()).set(1)
    return registry


def make_counter(
    registry: CollectorRegistry, name: str, text: str, **labels: Iterable[str]
) -> Counter:
    """Return a new counter, which shows 0 for each known value of its label.

    A series that begins with its first event hides that event from `rate`.

    Args:
        registry: Gets the counter.
        name: With prefix and `_total`.
        text: Help text.
        labels: {label: its values; empty if they are known only as they come}. With
            several labels all are empty.
    """
    counter = Counter(name, text, labels, registry=registry)
    for values in labels.values():
        for value in values:
            counter.labels(value)
    return counter
