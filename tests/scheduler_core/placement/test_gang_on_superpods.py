from typing import Any

import pytest

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job import Terms, place_job
from scheduler_core.products import table
from tests.machines import node_state
from tests.scheduler_core.jobs import job_of, places_of

A3_16 = table.by_key("atlas-a3-16-superpod")
A3_8 = table.by_key("atlas-a3-8-superpod")
EIGHT = table.by_key("atlas-850-8-superpod")


def cluster_of(
    row: table.Product, sizes: dict[int, int], broken: tuple[str, ...] = ()
) -> tuple[Cluster, SuperPods]:
    """SuperPoDs with so many free nodes: `7-03` is in 7."""
    of_node = {f"{sp}-{i:02}": sp for sp, size in sizes.items() for i in range(size)}
    every = row.all_chips
    cluster = Cluster(
        node_state(name, row, inventory=every, healthy=every & ~int(name in broken))
        for name in of_node
    )
    return cluster, SuperPods(of_node=of_node)


def placed(
    row: table.Product,
    pods: int,
    block: int | None,
    cluster: Cluster,
    joined: SuperPods | None,
    **more: Any,
) -> JobPlacement | Rejection:
    """Place a job of whole nodes, in logical SuperPoDs of `block` nodes."""
    size = row.chip_count
    chips = None if block is None else block * size
    job = job_of(row, *[size] * pods, sp_block=chips, **more)
    return place_job(job, cluster, terms=Terms(superpods=joined))


def where(answer: JobPlacement | Rejection) -> list[tuple[int, int, str]]:
    """By rank: logical SuperPoD, physical one, node."""
    places = places_of(answer)
    assert [place.rank for place in places] == list(range(len(places)))
    return [(p.superpod_rank, p.superpod, p.node) for p in places]


@pytest.mark.seed("003-12", "001-08")
@pytest.mark.parametrize("row", [A3_16, A3_8, EIGHT], ids=lambda row: row.key)
def test_a_job_lies_in_one_superpod_where_it_can(row: table.Product) -> None:
    cluster, joined = cluster_of(row, {5: 9, 6: 6, 7: 4})

    answer = placed(row, 4, 2, cluster, joined)

    assert where(answer) == [
        (0, 6, "6-00"),
        (0, 6, "6-01"),
        (1, 6, "6-02"),
        (1, 6, "6-03"),
    ]
    assert places_of(answer)[0].reason.endswith("in SuperPoD 6")


@pytest.mark.seed("003-13")
def test_a_job_is_split_by_logical_superpods() -> None:
    cluster, joined = cluster_of(A3_16, {0: 4, 1: 3})

    answer = placed(A3_16, 4, 2, cluster, joined)

    assert [(logical, sp) for logical, sp, _ in where(answer)] == [
        (0, 0),
        (0, 0),
        (1, 1),
        (1, 1),
    ]


@pytest.mark.seed("003-14")
def test_a_spread_logical_superpod_keeps_one_rank_and_each_pod_its_own_id() -> None:
    cluster, joined = cluster_of(A3_16, {0: 1, 1: 1})

    hard = placed(A3_16, 2, 2, cluster, joined)
    soft = placed(A3_16, 2, 2, cluster, joined, soft_superpods=True)

    assert hard == Rejection(
        job="0 of 1 logical SuperPoDs of 2 nodes fit: the freest SuperPoD then "
        "has 1 that can take a pod",
        reasons=(("can take a pod, but its SuperPoD does not suit the job", 2),),
    )
    assert where(soft) == [(0, 0, "0-00"), (0, 1, "1-00")]


def test_nodes_of_no_known_superpod_are_counted_apart() -> None:
    cluster, _ = cluster_of(A3_16, {0: 1, 1: 2})

    answer = placed(A3_16, 2, 2, cluster, SuperPods(of_node={"0-00": 0}))

    assert answer == Rejection(
        job="0 of 1 logical SuperPoDs of 2 nodes fit: the freest SuperPoD then "
        "has 1 that can take a pod",
        reasons=(
            ("can take a pod, but its SuperPoD is not known", 2),
            ("can take a pod, but its SuperPoD does not suit the job", 1),
        ),
    )
    assert placed(A3_16, 2, 2, cluster, None) == Rejection(
        job="which SuperPoD each node belongs to is not known", reasons=()
    )


def test_without_a_block_the_whole_job_is_one() -> None:
    cluster, joined = cluster_of(A3_16, {0: 3, 1: 5})

    answer = placed(A3_16, 3, None, cluster, joined)

    assert {(logical, sp) for logical, sp, _ in where(answer)} == {(0, 1)}


def test_a_single_pod_goes_where_a_pod_by_itself_goes() -> None:
    cluster, _ = cluster_of(A3_16, {0: 2})

    answer = place_job(job_of(A3_16, 2, sp_block=2), cluster)

    assert where(answer) == [(-1, -1, "0-00")]


@pytest.mark.seed("001-13")
def test_after_a_fault_only_the_broken_node_is_replaced() -> None:
    cluster, joined = cluster_of(A3_16, {0: 6, 1: 6}, broken=("1-01",))
    every = tuple(range(16))
    places = {
        f"pod-{i}": Placement(node=node, chips=every, reason="before")
        for i, node in enumerate(("1-00", "1-01", "0-04", "0-05"))
    }
    for name in ("1-00", "0-04", "0-05"):
        cluster.put(node_state(name, A3_16, 0))

    answer = place_job(
        job_of(A3_16, *[16] * 4, sp_block=32),
        cluster,
        terms=Terms(superpods=joined),
        places=places,
    )

    assert where(answer) == [
        (0, 1, "1-00"),
        (0, 1, "1-02"),
        (1, 0, "0-04"),
        (1, 0, "0-05"),
    ]
    assert [p.reason == "before" for p in places_of(answer)] == [
        True,
        False,
        True,
        True,
    ]
