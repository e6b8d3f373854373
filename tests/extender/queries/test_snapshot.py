"""The cluster as files have it: all that decisions depend on, the same each time."""

from dataclasses import replace

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.planning.topology import NetworkTopology, Rules
from extender.queries import snapshot
from scheduler_core.products.lookup import Traits
from scheduler_core.products.table import by_key
from scheduler_core.snapshot import document
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotJob,
    SnapshotPod,
    cluster_of,
)
from scheduler_core.topology.leaves import Version
from tests.support.caches import (
    add_node,
    apply,
    bind,
    cluster,
    empty,
    lined,
    planned,
    switched,
)
from tests.support.watched import (
    A3,
    INFERENCE,
    LARGE,
    TRAINING,
    Line,
    asking,
    living,
    member,
    node,
    pod,
    pod_update,
    report,
    tenant,
)

FOUR = ("n1", "n2", "n3", "n4")
TWO = Rules(switches=Version.TWO)


def of(cache: Cache, rules: Rules = TWO) -> Snapshot:
    return snapshot.take(cache, NetworkTopology(cache, rules))


def busy() -> Cache:
    """Nodes with all that a node can have, and a job under two leaves."""
    cache = switched(*FOUR)
    apply(
        cache,
        report("n1", held=(0,), releasing=(1,), unhealthy=(7,), recovering=(6,)),
        tenant("a", "n1", (2, 3)),
        node("n5", allocatable=0),
        events.NodeUpdated(name="plain"),
        pod_update("waits", count=4),
    )
    bound = pod("promised", count=4)
    apply(cache, events.PodUpdated(pod=bound, priority=7))
    bind(cache, bound, "n2")
    apply(cache, member("m0", traits=LARGE), member("m1", traits=LARGE))
    assert isinstance(planned(cache, FOUR, TWO), dict)
    return cache


def test_it_says_what_the_index_says() -> None:
    cache = busy()

    found = cluster_of(of(cache))

    assert list(found) == list(cache.index)
    assert [each.name for each in of(cache).nodes] == [*FOUR, "n5"]


def test_it_can_be_read_again_as_it_is() -> None:
    found = of(busy())

    assert document.parse(document.render(found)) == found


def test_pods_are_those_with_a_place_and_promises_count() -> None:
    found = of(busy())

    whole = SnapshotPod(
        name="", node="", chips=tuple(range(8)), phase="Pending", job="default/j"
    )
    assert found.pods == (
        SnapshotPod(name="default/a", node="n1", chips=(2, 3)),
        replace(whole, name="default/m0", node="n3"),
        replace(whole, name="default/m1", node="n4"),
        SnapshotPod(
            name="default/promised",
            node="n2",
            chips=(0, 1, 2, 3),
            phase="Pending",
            priority=7,
        ),
    )
    [job] = found.jobs
    assert job == SnapshotJob(name="default/j", schema=job.schema)
    assert job.schema is not None


def test_order_of_events_does_not_show() -> None:
    tenants = [tenant(name, "n1", (at,)) for at, name in enumerate("abc")]
    one = cluster(*tenants, nodes=("n1", "n2"))
    other = cluster(*reversed(tenants), nodes=("n2", "n1"))

    assert document.render(of(one)) == document.render(of(other))


def test_of_pods_nothing_is_told_that_does_not_decide() -> None:
    cache = cluster()
    secret = {"token": "hunter2"}
    spec = pod_update("p", node="n1", phase="Running", annotations=secret)
    apply(cache, spec)

    assert "hunter2" not in document.render(of(cache))


def test_names_of_pods_and_jobs_can_be_left_out() -> None:
    found = snapshot.without_names(of(busy()))

    text = document.render(found)
    assert [(each.name, each.job) for each in found.pods] == [
        ("pod-0", ""),
        ("pod-1", "job-0"),
        ("pod-2", "job-0"),
        ("pod-3", ""),
    ]
    assert "default/" not in text
    assert document.parse(text) == found


def test_two_jobs_of_one_name_keep_their_kinds() -> None:
    cache = cluster(nodes=("n1", "n2"))
    for kind, name, where in (("JobSet", "a", "n1"), ("Job", "b", "n2")):
        seen = member(name, job="same", node=where)
        assert seen.member is not None
        membership = replace(seen.member.membership, job=f"{kind}/default/same")
        apply(cache, replace(seen, member=replace(seen.member, membership=membership)))

    assert [each.name for each in of(cache).jobs] == [
        "Job/default/same",
        "JobSet/default/same",
    ]


def test_the_agents_list_is_told_where_it_counts() -> None:
    cache = cluster(report("n1", there=(0, 1)))
    [self_maintained] = of(cache).nodes

    apply(cache, events.SelfMaintainSet(self_maintain=False))

    [listed] = of(cache).nodes
    assert (self_maintained.listed, listed.listed) == (None, (0, 1))
    assert [each.free for each in cluster_of(of(cache))] == [0b11]


def test_the_superpod_of_a_node_is_told() -> None:
    cache = empty()
    add_node(cache, "n1", A3, superpod=2)
    add_node(cache, "n2", A3)

    assert [each.superpod for each in of(cache).nodes] == [2, -1]


def test_a_drained_node_is_gone_with_its_pods_and_its_port() -> None:
    found = snapshot.without_nodes(of(busy()), frozenset({"n1", "n2"}))

    assert [each.name for each in found.nodes] == ["n3", "n4", "n5"]
    assert {each.node for each in found.pods} == {"n3", "n4"}
    assert found.switches is not None
    assert [leaf.nodes for leaf in found.switches.leaves] == [("", ""), ("n3", "n4")]
    assert document.parse(document.render(found)) == found


def test_a_job_of_traits_that_nobody_knows_asks_nothing_of_leaves() -> None:
    cache = switched("n1", "n2")
    traits = Traits(labels={"tor-affinity": "some"})
    apply(cache, member("a", traits=traits, node="n1"))

    [job] = of(cache).jobs

    assert job.schema is None


OLD_CARDS = Line(product=by_key("atlas-300i-card"), there=(8, 9, 10, 11))


@pytest.mark.parametrize(
    ("left", "named"),
    [
        ((TRAINING,), ""),
        ((TRAINING, OLD_CARDS), TRAINING.product.resource),
    ],
)
def test_of_chips_that_a_node_has_no_more_a_pod_has_none(
    left: tuple[Line, ...], named: str
) -> None:
    cache = lined(living("a", INFERENCE, (8,)))
    bound = asking("b", INFERENCE)
    apply(cache, events.PodUpdated(pod=bound))
    bind(cache, bound, "n1")

    apply(cache, node("n1", *left))
    found = of(cache)

    assert found.pods == (
        SnapshotPod(name="default/a", node="n1", chips=(), resource=named),
        SnapshotPod(
            name="default/b", node="n1", chips=(), resource=named, phase="Pending"
        ),
    )
    assert document.parse(document.render(found)) == found
