"""extender/README.md names every metric as Prometheus sees it, and no other."""

import re
from pathlib import Path

from extender.metrics import WATCHED, Metrics
from extender.refusals import ExtenderReason
from extender.shadow.compare import Rule
from scheduler_core.node.reasons import Reason
from service.metrics import open_registry
from tests.support import metric_pages

PAGE = (Path(__file__).parents[2] / "extender" / "README.md").read_text()


def test_every_metric_is_on_the_page() -> None:
    registry = open_registry("ascend_extender")
    metrics = Metrics(registry)
    for gauge in WATCHED:
        metrics.watch(gauge, lambda: 0)

    told = metric_pages.documented(PAGE, "ascend_extender")

    assert told.keys() == metric_pages.served(registry, "ascend_extender")


def test_every_reason_of_a_refused_bind_is_on_the_page() -> None:
    table = PAGE.partition("### Reasons of refused binds")[2]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    told = {word for cell in cells[1:] for word in re.findall(r"`([\w-]+)`", cell)}

    assert told == {*Reason, *ExtenderReason}


def test_every_rule_of_shadow_mode_is_on_the_page() -> None:
    labels = metric_pages.documented(PAGE, "ascend_extender")

    told = labels["ascend_extender_shadow_comparisons_total"]["rule"]

    assert told == set(Rule)
