"""Places of jobs whose pods may not have all nodes, or not share them."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import JobPlacement, Rejection
from scheduler_core.placement import gang
from scheduler_core.placement.gang_query import Member
from scheduler_core.placement.siblings import (
    Cap,
    Demands,
    HostPort,
    Learnt,
    Requirement,
    Selector,
    Sibling,
    Spread,
    group_siblings,
)
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.machines import node_state

ALL: Selector = ()
WORK: Selector = (Requirement("role", "In", frozenset({"work"})),)
FREE = Demands()
PORT = Demands(kind="port", ports=(HostPort(80),))
CLOSE = Demands(kind="close", together=(ALL,))
EVEN = Demands(kind="even", spreads=(Spread(1, (Requirement("job", "DoesNotExist"),)),))


def cluster(**free: int) -> Cluster:
    """Nodes with so many free chips, the lowest."""
    index = Cluster()
    for name, count in free.items():
        index.put(node_state(name, ATLAS_800_TRAINING, (1 << count) - 1))
    return index


def placed(
    nodes: Cluster,
    pods: Mapping[str, tuple[Demands, int]],
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    learnt: Learnt | None = None,
    bound: Mapping[str, tuple[Demands, str]] | None = None,
) -> dict[str, str] | str:
    """{pod: node} of pods with demands and chips, or why they do not fit."""
    running = bound or {}
    siblings = group_siblings(
        [
            *(Sibling(name, demands) for name, (demands, _) in pods.items()),
            *(Sibling(name, d, node=node) for name, (d, node) in running.items()),
        ],
        {kind: frozenset(each) for kind, each in (names or {}).items()},
        learnt or Learnt(),
    )
    found = gang.plan(
        ATLAS_800_TRAINING.resource,
        [Member(name=name, chips=count) for name, (_, count) in pods.items()],
        nodes,
        siblings=siblings,
    )
    if isinstance(found, Rejection):
        return found.text
    assert isinstance(found, JobPlacement)
    for node, count in Counter(place.node for place in found.pods).items():
        chips = [chip for p in found.pods if p.node == node for chip in p.chips]
        assert len(chips) == len(set(chips)), (node, count)
    return {place.pod: place.node for place in found.pods}


def pods(
    count: int, demands: Demands, chips: int = 4
) -> dict[str, tuple[Demands, int]]:
    return {f"{demands.kind}{number}": (demands, chips) for number in range(count)}


def per_node(found: dict[str, str] | str) -> list[int]:
    assert isinstance(found, dict), found
    return sorted(Counter(found.values()).values())


def test_without_demands_pods_share_a_node() -> None:
    assert per_node(placed(cluster(n1=8, n2=8), pods(2, FREE))) == [2]


def test_pods_of_one_port_get_a_node_each() -> None:
    assert per_node(placed(cluster(n1=8, n2=8), pods(2, PORT))) == [1, 1]


def test_more_pods_of_one_port_than_nodes_do_not_fit() -> None:
    found = placed(cluster(n1=8, n2=8), pods(3, PORT))

    assert found == (
        "2 of 3 pods fit beside each other, not port2: 2 can take a pod, but not "
        "beside the other pods of this job"
    )


def test_a_pod_that_runs_keeps_its_port() -> None:
    found = placed(cluster(n1=4, n2=4), pods(1, PORT), bound={"b": (PORT, "n1")})

    assert found == {"port0": "n2"}


def test_pods_that_must_be_together_get_the_node_that_holds_them_all() -> None:
    """The fullest node that takes the first would be n1."""
    assert per_node(placed(cluster(n1=4, n2=8), pods(2, CLOSE))) == [2]


def test_a_pod_joins_the_one_that_it_must_be_beside() -> None:
    found = placed(cluster(n1=4, n2=8), pods(1, CLOSE), bound={"b": (CLOSE, "n2")})

    assert found == {"close0": "n2"}


@pytest.mark.parametrize(("count", "expected"), [(2, [1, 1]), (3, [1, 2]), (4, [2, 2])])
def test_pods_are_spread_evenly(count: int, expected: list[int]) -> None:
    assert per_node(placed(cluster(n1=8, n2=8), pods(count, EVEN, 1))) == expected


def test_a_spread_goes_no_further_than_the_emptiest_node_allows() -> None:
    found = placed(cluster(n1=8, n2=1), pods(5, EVEN, 1))

    assert found == (
        "3 of 5 pods fit beside each other, not even3, even4: 2 can take a pod, but "
        "not beside the other pods of this job"
    )


def test_a_spread_is_not_levelled_on_a_list_that_may_be_a_part() -> None:
    found = placed(
        cluster(n1=8),
        pods(2, EVEN, 1),
        learnt=Learnt(has_whole_lists=False),
    )

    assert isinstance(found, str)
    assert found.startswith("1 of 2 pods fit beside each other")


def test_each_kind_gets_its_own_nodes() -> None:
    other = Demands(kind="other")
    wanted = pods(1, FREE, 8) | pods(1, other, 8)

    found = placed(
        cluster(n1=8, n2=8, n3=8), wanted, names={"": ["n3"], "other": ["n2", "n3"]}
    )

    assert found == {"0": "n3", "other0": "n2"}


def test_kinds_whose_nodes_overlap_are_arranged() -> None:
    """The first takes a node that another needs, unless all ways are tried."""
    kinds = [Demands(kind=kind) for kind in "xyz"]
    wanted = {each.kind: (each, 8) for each in kinds}

    found = placed(
        cluster(n1=8, n2=8, n3=8),
        wanted,
        names={"x": ["n1", "n2"], "y": ["n2", "n3"], "z": ["n1", "n3"]},
    )

    assert isinstance(found, dict)
    assert sorted(found.values()) == ["n1", "n2", "n3"]


def test_a_cap_holds_for_its_nodes_together() -> None:
    learnt = Learnt(caps=[Cap("", frozenset({"n1", "n2"}), 1)])

    found = placed(cluster(n1=8, n2=8, n3=8), pods(2, FREE), learnt=learnt)

    assert isinstance(found, dict)
    assert sorted(found.values()) != ["n1", "n2"]
    assert set(found.values()) & {"n3"}


def test_many_pods_of_a_port_are_placed_as_fast_as_others() -> None:
    nodes = cluster(**{f"n{number:04}": 8 for number in range(200)})

    assert per_node(placed(nodes, pods(200, PORT))) == [1] * 200
