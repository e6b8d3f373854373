"""extender/README.md names every metric, and no other."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from extender.metrics import WATCHED, Metrics

PAGE = (Path(__file__).parents[2] / "extender" / "README.md").read_text()


def test_every_metric_is_on_the_page() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for gauge in WATCHED:
        metrics.watch(gauge, lambda: 0)

    told = set(re.findall(r"`(ascend_extender_[a-z_]+)`", PAGE))

    assert told == {metric.name for metric in registry.collect()}
