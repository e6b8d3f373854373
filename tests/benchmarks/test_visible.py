"""Which nodes a scheduler offers in a large cluster."""

import pytest

from benchmarks.population import node_name
from benchmarks.visible import OFFERED, offered


@pytest.mark.parametrize("nodes", [3, OFFERED, OFFERED + 1, 12_000, 100_000])
def test_as_many_nodes_are_offered_as_a_scheduler_asks_for(nodes: int) -> None:
    names = offered(nodes)

    assert len(names) == len(set(names)) == min(nodes, OFFERED)
    assert set(names) <= {node_name(number) for number in range(nodes)}


def test_what_is_offered_is_spread_over_all_nodes() -> None:
    assert offered(OFFERED * 20)[:3] == [node_name(n) for n in (0, 20, 40)]
