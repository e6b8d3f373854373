"""What another scheduler decides, beside what we would have decided."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.requests import Resources
from extender.planning.plan_input import TopologySnapshot
from extender.shadow import compare
from extender.shadow.compare import Finding, Rule, Shadow
from scheduler_core.placement.job_rules import Profile
from scheduler_core.topology.leaves import Leaf, Network, Server
from tests.support.caches import apply, cluster
from tests.support.clock import NOW_S
from tests.support.watched import claim, member, node, pod_update, report, tenant

#: n1 has one chip of its first ring taken, n2 is empty.
TENANT = tenant("t", "n1", (0,))


def bound(where: str, ids: Iterable[int], name: str = "p") -> events.PodUpdated:
    ids = tuple(ids)
    marks = claim(ids) if ids else {}
    return pod_update(name, len(ids) or 1, node=where, annotations=marks)


def beside(*seen: events.Change) -> tuple[Cache, Shadow, list[Finding]]:
    cache = cluster(TENANT, *seen, nodes=("n1", "n2"))
    found: list[Finding] = []
    return cache, Shadow(cache, wall_s=lambda: NOW_S, on_finding=found.append), found


@pytest.mark.parametrize(
    ("where", "ids", "rule", "text"),
    [
        ("n1", (1,), Rule.AGREES, "chips 1 of n1"),
        ("n1", (3,), Rule.AGREES, "chips 3 of n1"),
        ("n1", (1, 2), Rule.CHIPS_WORSE, "chips 1,2 of n1: we would have given 4,5"),
        ("n1", (0,), Rule.CHIPS_TAKEN, "chips 0 of n1: 0 were not free"),
        (
            "n1",
            (1, 4),
            Rule.CHIPS_APART,
            "chips 1,4 of n1: such chips are not given together",
        ),
        ("n2", (0,), Rule.NODE_WORSE, "chips 0 of n2: n1 fits better"),
        (
            "n1",
            (1, 2, 3),
            Rule.NODE_REFUSED,
            "chips 1,2,3 of n1: cannot give a pod 3 chips, only 1, 2, 4 or 8",
        ),
        ("n1", (), Rule.UNKNOWN, "no annotation says which chips"),
        ("n9", (1,), Rule.UNKNOWN, "n9 is not known as a node with such NPUs"),
    ],
)
def test_a_decision_is_compared_by_rule(
    where: str, ids: tuple[int, ...], rule: Rule, text: str
) -> None:
    cache = cluster(TENANT, nodes=("n1", "n2"))

    assert compare.compare(cache, bound(where, ids).pod) == (rule, text)


def test_a_node_without_cpu_is_no_better_place() -> None:
    cache = cluster(TENANT, nodes=("n1", "n2"))
    apply(cache, replace(node("n1"), allocatable_resources=Resources(0, 0, 0)))

    assert compare.compare(cache, bound("n2", (0,)).pod)[0] is Rule.AGREES


def test_a_node_that_takes_no_pods_is_refused() -> None:
    cache = cluster(report("n2", lost=(7,)), nodes=("n1", "n2"))

    rule, text = compare.compare(cache, bound("n2", (0, 1)).pod)

    assert (rule, text) == (
        Rule.NODE_REFUSED,
        "chips 0,1 of n2: kubelet lost device ids of a running pod",
    )


def test_pods_are_looked_at_once_when_they_get_their_node() -> None:
    cache, beheld, found = beside(pod_update("p"))
    seen = bound("n2", (0,))
    for each in (seen, seen, bound("n1", (1,), "never-seen-waiting")):
        beheld.compare_bound(each)
        apply(cache, each)

    text = "chips 0 of n2: n1 fits better"
    assert found == [
        Finding(of="default/p", rule=Rule.NODE_WORSE, text=text, at_s=NOW_S)
    ]
    told = beheld.report()
    assert (told["decisions"], told["different"]) == (1, 1)
    assert told["by_rule"]["node-worse"] == 1
    at = "2027-01-15T08:00:00Z"
    (latest,) = told["latest"]
    assert latest == {
        "name": "default/p",
        "rule": "node-worse",
        "text": text,
        "at": latest["at"],
    }
    assert beheld.text().startswith("1 of 1 decided otherwise\n")
    assert latest["at"].startswith(at[:10])


def test_a_job_is_compared_once_all_its_pods_have_nodes() -> None:
    pods = [member(name, size=2, count=4) for name in ("a", "b")]
    cache = cluster(*pods, nodes=("n1", "n2"))
    found: list[Finding] = []
    beheld = Shadow(
        cache,
        wall_s=lambda: NOW_S,
        topology=lambda _gang: TopologySnapshot(profile=Profile.PER_POD),
        on_finding=found.append,
    )
    for each, where in zip(pods, ("n1", "n2"), strict=True):
        marks = claim(range(4))
        got = replace(each, pod=replace(each.pod, node=where, annotations=marks))
        beheld.compare_bound(got)
        apply(cache, got)

    assert [each.rule for each in found] == [Rule.AGREES, Rule.AGREES, Rule.JOB_NODES]
    assert found[-1].text == "on 2 nodes, 1 had been enough"


LEAVES = Network(
    leaves=tuple(
        Leaf(name=name, servers=tuple(Server(node=n, slice_id=0) for n in nodes))
        for name, nodes in (("x", ("n1", "n2")), ("y", ("n3",)))
    )
)


@pytest.mark.parametrize(
    ("theirs", "ours", "rule"),
    [
        ({"n1", "n3"}, frozenset({"n1", "n2"}), Rule.JOB_LEAVES),
        ({"n1", "n2"}, frozenset({"n1", "n3"}), Rule.JOB_AGREES),
        ({"n1", "n2"}, frozenset({"n1"}), Rule.JOB_NODES),
        ({"n1"}, "1 of 2 pods fit", Rule.JOB_UNSCHEDULABLE),
    ],
)
def test_jobs_are_compared_by_nodes_and_leaves(
    theirs: set[str], ours: frozenset[str] | str, rule: Rule
) -> None:
    topology = TopologySnapshot(network=LEAVES)

    assert compare.compare_job(topology, theirs, ours)[0] is rule
