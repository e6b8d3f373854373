from dataclasses import replace

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.scheduling import node_filter
from extender.scheduling.node_filter import FilterResult
from scheduler_core.wire.pods import NpuPod, RawContainer, RawEnv
from tests.support.caches import (
    apply,
    bind,
    cluster,
    improved,
    reservations,
    take_improved,
)
from tests.support.clock import NOW_S
from tests.support.watched import RESOURCE, node, pod, rejection, report, tenant


def filter_nodes(cache: Cache, wanted: NpuPod, *names: str) -> FilterResult:
    return node_filter.filter_nodes(cache, wanted, names, NOW_S)


def judge_nodes(cache: Cache, wanted: NpuPod, *names: str) -> FilterResult:
    """What `filter_nodes` answers, with the reasons of nodes beside one that fits."""
    result = node_filter.judge_nodes(cache, wanted, names, NOW_S)
    asked = filter_nodes(cache, wanted, *names)
    assert asked == (replace(result, refused=()) if result.fitting else result)
    return result


def texts(result: FilterResult) -> dict[str, str]:
    return result.texts(is_resolvable=True) | result.texts(is_resolvable=False)


@pytest.mark.seed("003-01")
def test_only_the_best_class_of_nodes_is_answered() -> None:
    cache = cluster(
        tenant("a", "n1", (0, 1, 2, 4, 5, 6, 7)),  # a ring of 1
        tenant("b", "n2", (0, 1, 4)),  # rings of 2 and 3
        tenant("c", "n3", (0, 1, 2, 4, 5, 6, 7)),
        nodes=("n1", "n2", "n3"),
    )

    result = judge_nodes(cache, pod("p"), "n3", "n2", "n1")

    assert result.fitting == ("n3", "n1")
    assert texts(result) == {"n2": "another node fits better"}


@pytest.mark.seed("004-09")
def test_two_chips_wanted_and_one_free_in_each_ring_is_refused_for_good() -> None:
    cache = cluster(tenant("a", "n1", (0, 1, 2, 4, 5, 6)))

    result = filter_nodes(cache, pod("p", count=2), "n1")

    assert texts(result) == {"n1": "no HCCS ring has 2 free chips"}
    assert result.texts(is_resolvable=True) == {}


def test_evicting_may_help_where_chips_are_short_and_only_there() -> None:
    cache = cluster(
        tenant("a", "n1", range(8)),
        report("n2", unhealthy=(0, 4)),
        node("n3", allocatable=0),
        nodes=("n1", "n2", "n3"),
    )

    result = filter_nodes(cache, pod("p", count=4), "n1", "n2", "n3", "n4")

    assert texts(result) == {
        "n1": "without 4 free chips",
        "n2": "chip unhealthy",
        "n3": "kubelet offers no NPU",
        "n4": "no such NPU",
    }
    assert list(result.texts(is_resolvable=True)) == ["n1"]


def test_every_node_gets_exactly_one_verdict_and_counts_add_up() -> None:
    cache = cluster(
        tenant("a", "n1", range(8)),
        tenant("b", "n2", range(8)),
        report("n3", unhealthy=range(8)),
        nodes=("n1", "n2", "n3"),
    )

    result = filter_nodes(cache, pod("p", count=8), "n1", "n2", "n3")

    assert result.counts == (("without 8 free chips", 2), ("chip unhealthy", 1))


def test_a_node_where_an_unlike_pod_of_that_count_waits_is_avoided() -> None:
    two_and_one = pod(
        "waiting",
        containers=(
            RawContainer(name="a", limits={RESOURCE: "1"}),
            RawContainer(name="b", limits={RESOURCE: "1"}),
        ),
    )
    cache = cluster(tenant("t", "n1", (2, 3)), nodes=("n1", "n2"))
    bind(cache, two_and_one, "n1")

    result = judge_nodes(cache, pod("p"), "n1", "n2")

    assert result.fitting == ("n2",)
    assert texts(result) == {"n1": "another pod waits there for as many chips"}


def test_if_only_nodes_with_a_conflict_remain_the_pod_waits() -> None:
    cache = cluster()
    bind(cache, pod("reads", reads_annotation=True), "n1")

    result = filter_nodes(cache, pod("p"), "n1")

    assert result.fitting == ()
    assert result.counts == (("another pod waits there for as many chips", 1),)


def test_equal_pods_may_wait_on_one_node() -> None:
    cache = cluster()
    bind(cache, pod("a"), "n1")

    assert filter_nodes(cache, pod("b"), "n1").fitting == ("n1",)


def test_pods_that_read_their_annotation_are_equal_to_nobody() -> None:
    cache = cluster()
    bind(cache, pod("a", reads_annotation=True), "n1")

    assert filter_nodes(cache, pod("b", reads_annotation=True), "n1").fitting == ()


def test_a_confirmed_pod_is_no_conflict() -> None:
    cache = cluster(tenant("a", "n1", (0, 1)))
    reader = pod("b", count=2, reads_annotation=True)

    assert filter_nodes(cache, reader, "n1").fitting == ("n1",)


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        (
            (
                RawContainer(
                    name="c",
                    limits={RESOURCE: "1"},
                    env=(RawEnv(name="ASCEND_VISIBLE_DEVICES", value="0"),),
                ),
            ),
            "container c sets ASCEND_VISIBLE_DEVICES: leave it out",
        ),
        (
            (RawContainer(name="c", is_init=True, limits={RESOURCE: "1"}),),
            "NPUs in init containers only: which pod has them can never be confirmed",
        ),
    ],
)
def test_a_pod_that_can_never_be_served_is_refused_on_all_nodes(
    containers: tuple[RawContainer, ...], text: str
) -> None:
    cache = cluster(nodes=("n1", "n2"))

    result = filter_nodes(cache, pod("p", containers=containers), "n1", "n2")

    assert result.counts == ((text, 2),)


@pytest.mark.seed("004-06")
def test_a_count_that_the_product_does_not_give_is_refused() -> None:
    result = filter_nodes(cluster(), pod("p", count=3), "n1")

    assert texts(result) == {"n1": "cannot give a pod 3 chips, only 1, 2, 4 or 8"}


def test_the_owner_of_pods_that_were_rejected_in_a_row_waits() -> None:
    cache = cluster()
    for name in "abc":
        apply(cache, *rejection(name))

    result = filter_nodes(cache, pod("d", owner="Job/default/j"), "n1")

    assert texts(result) == {
        "n1": "backing off for 10 s: the kubelet rejected 3 pods of this owner in a row"
    }


def test_no_pod_goes_anywhere_while_a_part_of_the_cluster_is_out_of_sight() -> None:
    cache = cluster()
    apply(cache, events.Ticked(lost="device ConfigMaps"))
    take_improved(cache)

    result = filter_nodes(cache, pod("p"), "n1")

    assert result.fitting == ()
    assert result.texts(is_resolvable=False) == {
        "n1": "the extender waits until it sees the cluster's device ConfigMaps again"
    }

    apply(cache, events.Ticked())
    assert filter_nodes(cache, pod("p"), "n1").fitting == ("n1",)
    assert improved(cache) == {"n1"}, "pods that were refused are tried again"


def test_a_pod_with_an_open_bind_may_go_nowhere_else() -> None:
    cache = cluster(nodes=("n1", "n2"))
    wanted = pod("p", count=8)
    bind(cache, wanted, "n1")

    result = judge_nodes(cache, wanted, "n1", "n2")

    assert result.fitting == ("n1",)
    assert texts(result) == {
        "n2": "an earlier bind of this pod has no known outcome yet"
    }
    assert filter_nodes(cache, wanted, "n2").fitting == ()


def test_judging_changes_nothing() -> None:
    cache = cluster(tenant("a", "n1", (0, 1)))
    wanted = pod("p", count=2)

    assert filter_nodes(cache, wanted, "n1") == filter_nodes(cache, wanted, "n1")
    assert reservations(cache) == {}


@pytest.mark.seed("004-07")
def test_classes_of_nodes_are_scored_from_ten_downwards() -> None:
    cache = cluster(
        tenant("a", "n1", (0, 1, 2, 4, 5, 6, 7)),  # a ring of 1: the best
        tenant("b", "n2", (0, 4)),  # rings of 3: next
        tenant("c", "n3", range(8)),  # full
        nodes=("n1", "n2", "n3", "n4"),  # n4: rings of 4
    )

    found = node_filter.score_nodes(cache, pod("p"), ("n4", "n3", "n2", "n1"), 10)

    assert list(found.items()) == [("n4", 8), ("n3", 0), ("n2", 9), ("n1", 10)]


def test_a_node_where_an_unlike_pod_waits_scores_nothing() -> None:
    cache = cluster(nodes=("n1", "n2"))
    bind(cache, pod("reader", reads_annotation=True), "n1")

    found = node_filter.score_nodes(cache, pod("p"), ("n1", "n2"), 10)

    assert found == {"n1": 0, "n2": 10}
