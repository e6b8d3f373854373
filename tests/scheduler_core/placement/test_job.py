from dataclasses import replace

import pytest

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import JobPlacement, LeafUse, Placement, Rejection
from scheduler_core.placement import job as job_placement
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Profile
from scheduler_core.placement.siblings import Demands, Sibling, group_siblings
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.topology.leaves import Network, Schema, Version
from tests.machines import atlas
from tests.scheduler_core.jobs import job_of, places_of
from tests.scheduler_core.leaf_parts import leaf_of

TWO = job_of(ATLAS, 8, 8)
HALVES = job_of(ATLAS, 4, 4)
NETWORK = Network(leaves=(leaf_of("0", "ab"), leaf_of("1", "cd")))
EVERY = Cluster([atlas(name) for name in "abcd"])


def large(network: Network | None = NETWORK) -> Terms:
    return Terms(schema=Schema.LARGE_MODEL, network=network)


def where(answer: JobPlacement | Rejection) -> list[tuple[str, str, int, str]]:
    return [(at.pod, at.node, at.rank, at.leaf) for at in places_of(answer)]


@pytest.mark.seed("003-03")
def test_what_is_asked_of_the_switches_comes_before_the_common_choice() -> None:
    cluster = Cluster([atlas("a"), atlas("b", ()), atlas("c"), atlas("d")])

    plain = job_placement.place_job(TWO, cluster)
    under_a_leaf = job_placement.place_job(TWO, cluster, terms=large())

    assert where(plain) == [("pod-0", "a", 0, ""), ("pod-1", "c", 1, "")]
    assert where(under_a_leaf) == [("pod-0", "c", 0, "1"), ("pod-1", "d", 1, "1")]


@pytest.mark.seed("001-11")
def test_the_answer_names_leaf_and_use_for_each_pod() -> None:
    network = replace(NETWORK, version=Version.TWO)

    answer = job_placement.place_job(
        job_of(ATLAS, 8, 8, 8, 8), EVERY, terms=large(network)
    )

    assert places_of(answer)[2] == Placement(
        node="c",
        chips=tuple(range(8)),
        reason=(
            "2 whole HCCS rings, on a node with all 8 chips healthy, "
            "under leaf switch 1"
        ),
        pod="pod-2",
        rank=2,
        leaf="1",
        leaf_use=LeafUse.EXCLUSIVE,
    )


@pytest.mark.seed("001-02")
def test_the_chips_decide_between_nodes_of_a_leaf() -> None:
    cluster = Cluster([atlas("a"), atlas("b"), atlas("c"), atlas("d", {0, 4, 5})])

    answer = job_placement.place_job(job_of(ATLAS, 1), cluster, terms=large())

    assert where(answer) == [("pod-0", "d", 0, "1")]


def test_a_refusal_counts_the_nodes_that_could_take_a_pod() -> None:
    cluster = Cluster([atlas("a"), atlas("b", ()), atlas("c"), atlas("d", ())])

    assert job_placement.place_job(TWO, cluster, terms=large()) == Rejection(
        job="no leaf switch has 2 nodes that can take a pod: at most 1 of one can",
        reasons=(
            ("can take a pod, but its leaf switch does not suit the job", 2),
            ("without 8 free chips", 2),
        ),
    )


def test_nodes_that_are_under_no_known_leaf_are_counted_apart() -> None:
    cluster = Cluster([atlas("a"), atlas("c"), atlas("unknown")])

    answer = job_placement.place_job(TWO, cluster, terms=large())

    assert isinstance(answer, Rejection)
    assert answer.reasons == (
        ("can take a pod, but its leaf switch does not suit the job", 2),
        ("can take a pod, but its leaf switch is not known", 1),
    )


def test_affinity_without_a_description_of_the_leaves_is_refused() -> None:
    answer = job_placement.place_job(TWO, EVERY, terms=large(None))

    assert answer == Rejection(
        job=(
            "switch affinity is asked for, but basic-tor-node-cm is missing or cannot "
            "be read"
        ),
        reasons=(),
    )


@pytest.mark.seed("004-08")
def test_a_job_that_breaks_its_rule_is_refused_before_any_node_is_looked_at() -> None:
    answer = job_placement.place_job(HALVES, EVERY)

    assert answer == Rejection(
        job="up to 8 chips must be one pod, found 2 pods", reasons=()
    )
    assert where(
        job_placement.place_job(HALVES, EVERY, terms=Terms(profile=Profile.PER_POD))
    ) == [("pod-0", "a", 0, ""), ("pod-1", "a", 1, "")]


def test_who_has_a_place_keeps_it() -> None:
    had = Placement(node="d", chips=tuple(range(8)), reason="before")
    cluster = Cluster([atlas("a"), atlas("b"), atlas("d", ())])

    answer = job_placement.place_job(TWO, cluster, places={"pod-0": had})

    assert where(answer) == [("pod-0", "d", 0, ""), ("pod-1", "a", 1, "")]


def test_a_job_without_chips_needs_no_place() -> None:
    assert job_placement.place_job(job_of(ATLAS, 0), EVERY) == JobPlacement(pods=())


def test_under_leaf_switches_all_pods_get_nodes_that_each_kind_may_have() -> None:
    kinds = [Demands(kind="one"), Demands(kind="other")]
    siblings = group_siblings(
        [Sibling(f"pod-{at}", demands) for at, demands in enumerate(kinds)],
        {"one": frozenset("abcd"), "other": frozenset("abc")},
    )

    plain = job_placement.place_job(TWO, EVERY, terms=large())
    found = job_placement.place_job(TWO, EVERY, terms=large(), siblings=siblings)

    assert where(plain) != where(found)
    assert where(found) == [("pod-0", "a", 0, "0"), ("pod-1", "b", 1, "0")]
