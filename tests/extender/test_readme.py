"""extender/README.md names every metric, and no other."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from extender.election.lease import Phase
from extender.metrics import Metrics
from kube.client import Client
from kube.credentials import Credentials
from kube.events import Recorder

PAGE = (Path(__file__).parents[2] / "extender" / "README.md").read_text()


def test_every_metric_is_on_the_page() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch_election(lambda: Phase.LEADING)
    metrics.watch_events(Recorder(Client(Credentials("")), component="c"))
    metrics.watch_settings(lambda: False)

    told = set(re.findall(r"`(ascend_extender_[a-z_]+)`", PAGE))

    assert told == {metric.name for metric in registry.collect()}
