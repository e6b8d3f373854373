import math

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from sandbox.demo import measurements


@pytest.fixture
def text() -> str:
    registry = CollectorRegistry()
    served = Counter("served", "Served.", ["how", "who"], registry=registry)
    served.labels("steered", 'a "b"').inc(3)
    served.labels("steered", "c").inc(1)
    served.labels("oldest", "c").inc(2)
    Counter("quiet", "Never.", ["how"], registry=registry)
    return generate_latest(registry).decode()


def test_samples_add_up_over_the_labels_that_are_not_given(text: str) -> None:
    assert measurements.total(text, "served_total") == 6
    assert measurements.total(text, "served_total", how="steered") == 4
    assert measurements.total(text, "served_total", how="steered", who="c") == 1


def test_a_label_that_never_occurred_counts_nothing(text: str) -> None:
    assert measurements.total(text, "served_total", how="rechosen") == 0
    assert measurements.total(text, "quiet_total", how="rechosen") == 0


def test_a_metric_that_is_not_there_is_not_nothing(text: str) -> None:
    assert measurements.total(text, "served") is None


def test_quantiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(100, 0, -1)]

    assert measurements.quantile(values, 0.5) == 50
    assert measurements.quantile(values, 0.99) == 99
    assert measurements.quantile([3.0], 0.99) == 3
    assert math.isnan(measurements.quantile([], 0.5))


def test_short_times_keep_a_digit() -> None:
    assert measurements.in_ms(0.0034) == "3.4 ms"
    assert measurements.in_ms(0.955) == "955 ms"
