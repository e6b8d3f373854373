from collections import Counter

import pytest

from benchmarks import regret
from scheduler_core.products import table

FLAT_2 = table.by_key("flat-2")


def test_pods_that_come_before_the_larger_one_can_cost_it_its_place() -> None:
    """Six states, four rows of two pods: with two chips free on one of two nodes, a
    pod of one leaves no room for the next of two, who would have been one chip more.
    """
    assert regret.rows_of_pods(FLAT_2, 2, 2) == Counter({0: 23, 1: 1})


def test_on_flat_servers_the_tightest_node_is_never_worse() -> None:
    """States of two nodes with 0, 1 or 2 free: five serve one chip, three serve two."""
    assert regret.decisions(FLAT_2, 2) == Counter({0: 8})


@pytest.mark.parametrize("key", ["atlas-800-training", "atlas-a3-8", "mesh-8"])
def test_nothing_is_better_than_the_optimum(key: str) -> None:
    row = table.by_key(key)

    assert min(regret.decisions(row, 1)) == 0
    assert min(regret.rows_of_pods(row, 1, 3)) == 0
