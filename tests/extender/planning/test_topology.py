"""Jobs that ask for leaf switches and SuperPoDs, planned on what the cluster says."""

import pytest

from extender.cache import events
from extender.planning.topology import NetworkTopology, Rules
from scheduler_core.products.lookup import Traits
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.topology.leaves import Version
from tests.support.caches import (
    add_node,
    apply,
    empty,
    gang,
    planned,
    superpods,
    switched,
)
from tests.support.watched import A3, LARGE, member, tenant


def test_a_small_job_with_switch_affinity_lies_under_one_leaf() -> None:
    cache = switched("n1", "n2", "n3", "n4")
    apply(cache, tenant("x", "n1", (0,)))
    apply(cache, member("a", traits=LARGE), member("b", traits=LARGE))

    found = planned(cache, ("n1", "n2", "n3", "n4"), Rules())

    marks = {"distributed-job": "true"}
    assert found == {"a": ("n3", marks), "b": ("n4", marks)}


def test_under_one_leaf_it_uses_no_spine_and_says_so() -> None:
    cache = switched("n1", "n2")
    apply(cache, member("a", traits=LARGE), member("b", traits=LARGE))

    found = planned(cache, ("n1", "n2"), Rules(switches=Version.TWO))

    marks = {"distributed-job": "true", "isSharedTor": "0", "isHealthy": "0"}
    assert found == {"a": ("n1", marks), "b": ("n2", marks)}


def test_without_the_switches_configmap_it_waits() -> None:
    cache = empty()
    for name in ("n1", "n2"):
        add_node(cache, name, ATLAS_800_TRAINING)
    apply(cache, member("a", traits=LARGE), member("b", traits=LARGE))

    assert planned(cache, ("n1", "n2"), Rules()) == (
        "switch affinity is asked for, but basic-tor-node-cm is missing or cannot "
        "be read"
    )


def test_a_configmap_that_cannot_be_read_is_as_good_as_none() -> None:
    cache = switched("n1", "n2")
    apply(cache, events.SwitchesUpdated(tor_info="[]"))
    apply(cache, member("a", traits=LARGE), member("b", traits=LARGE))

    found = planned(cache, ("n1", "n2"), Rules())

    assert isinstance(found, str)
    assert found.endswith("is missing or cannot be read")


def test_an_affinity_that_nobody_knows_is_said() -> None:
    cache = switched("n1", "n2")
    traits = Traits(labels={"tor-affinity": "some"})
    apply(cache, member("a", traits=traits), member("b", traits=traits))

    assert planned(cache, ("n1", "n2"), Rules()) == (
        "label tor-affinity: expected one of large-model-schema, normal-schema, null, "
        "found 'some'"
    )


def test_a_job_across_leaves_says_what_it_makes_of_them() -> None:
    names = ("n1", "n2", "n3", "n4", "n5", "n6")
    cache = switched(*names)
    pods = [member(name, size=5, traits=LARGE) for name in "abcde"]
    apply(cache, *pods)

    found = planned(cache, names, Rules(switches=Version.TWO))

    assert isinstance(found, dict)
    made = {node: marks["isSharedTor"] for node, marks in found.values()}
    assert sorted(made.values()) == ["1", "2", "2", "2", "2"]
    # the next job finds the leaves as this one has left them
    apply(cache, member("o", job="k", traits=LARGE), member("p", job="k", traits=LARGE))
    network = NetworkTopology(cache, Rules(switches=Version.TWO)).snapshot(
        gang(cache, "k")
    )
    assert network.network is not None
    assert sorted(leaf.use.name for leaf in network.network.leaves) == [
        "EXCLUSIVE",
        "EXCLUSIVE",
        "SHARED",
    ]
    [tenant_there] = network.network.tenants
    assert tenant_there.nodes == set(made)


def test_a_logical_superpod_lies_in_one_physical() -> None:
    cache = superpods(n1=0, n2=1, n3=1, n4=2)
    traits = Traits(annotations={"sp-block": "32"})
    apply(
        cache,
        member("a", count=16, traits=traits),
        member("b", count=16, traits=traits),
    )

    found = planned(cache, ("n1", "n2", "n3", "n4"), Rules(superpod_reserve=0))

    marks = {"distributed-job": "true", "super-pod-rank": "0", "super-pod-id": "1"}
    assert found == {"a": ("n2", marks), "b": ("n3", marks)}


def test_a_node_that_comes_to_another_superpod_is_noticed() -> None:
    cache = superpods(n1=0, n2=1)
    traits = Traits(annotations={"sp-block": "32"})
    pods = [member(name, count=16, traits=traits) for name in "ab"]
    apply(cache, *pods)
    rules = Rules(superpod_reserve=0)
    assert isinstance(planned(cache, ("n1", "n2"), rules), str)

    add_node(cache, "n1", A3, superpod=1)

    assert isinstance(planned(cache, ("n1", "n2"), rules), dict)


def test_the_switches_are_read_once_until_something_of_them_differs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = switched("n1", "n2")
    networks = NetworkTopology(cache, Rules())
    known = networks.network(None)
    assert known is not None

    readable = cache.switch_texts
    apply(cache, events.SwitchesUpdated(tor_info="[]"))
    assert [networks.network(None) for _ in range(3)] == [None] * 3
    assert caplog.messages == ["leaf switches not read"]

    info, level = readable
    apply(cache, events.SwitchesUpdated(tor_info=info, tor_level=level))
    assert networks.network(None) == known
    add_node(cache, "n2", ATLAS_800_TRAINING, address="10.0.0.9")
    add_node(cache, "n3", ATLAS_800_TRAINING, address="10.0.0.2")  # it was n2's
    moved = networks.network(None)
    networks.set_rules(Rules(switches=Version.TWO))
    of_two = networks.network(None)
    assert moved is not None
    assert of_two is not None
    assert [leaf.nodes for leaf in known.leaves] == [("n1", "n2")]
    assert [leaf.nodes for leaf in moved.leaves] == [("n1", "n3")]
    assert (moved.version, of_two.version) == (Version.ONE, Version.TWO)


SIX = ("n1", "n2", "n3", "n4", "n5", "n6")


def bound_under(name: str, where: str, **marks: str) -> events.PodUpdated:
    """A pod of the job that runs on a node under a leaf."""
    traits = Traits(labels=LARGE.labels, annotations=marks)
    return member(name, size=5, traits=traits, node=where, phase="Running")


def test_a_pod_that_joins_keeps_to_the_leaf_of_its_job() -> None:
    cache = switched(*SIX)
    apply(cache, bound_under("a", "n3"), member("b", traits=LARGE))

    found = planned(cache, SIX, Rules())

    assert found == {"b": ("n4", {"distributed-job": "true"})}


def test_a_pod_that_joins_waits_while_there_is_no_room_under_the_leaf() -> None:
    cache = switched(*SIX)
    apply(cache, bound_under("a", "n3"), tenant("x", "n4", range(8)))
    apply(cache, member("b", traits=LARGE))

    text = "too few nodes under leaf switch"
    assert str(planned(cache, SIX, Rules())).startswith(text)


@pytest.mark.parametrize("version", [Version.ONE, Version.TWO])
def test_a_pod_that_joins_a_job_across_leaves_keeps_its_marks(version: Version) -> None:
    """Five pods on whole leaves and half of one; that of n4 is made again."""
    cache = switched(*SIX)
    own = {"isSharedTor": "2", "isHealthy": "0"} if version is Version.TWO else {}
    rest = {"isSharedTor": "1", "isHealthy": "0"} if version is Version.TWO else {}
    apply(
        cache,
        *(bound_under(each, each, **own) for each in ("n1", "n2", "n3")),
        bound_under("n5", "n5", **rest),
        member("b", size=5, traits=LARGE),
    )

    found = planned(cache, SIX, Rules(switches=version))

    assert found == {"b": ("n4", {"distributed-job": "true", **own})}
