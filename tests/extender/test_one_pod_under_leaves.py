"""One pod that asks for switch affinity goes where its leaf switch has it go."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from extender.cache import decode, events
from extender.cache.cache import Cache
from extender.gang import membership
from extender.gang.events import Caller
from extender.planning.planner import Planner
from extender.planning.topology import NetworkTopology, Rules
from scheduler_core.topology.leaves import Version
from tests.support.caches import (
    apply,
    known_pod,
    planned,
    reserved_nodes,
    switched,
)
from tests.support.extender import World
from tests.support.watched import LARGE, labelled_pod, member, tenant

UNKNOWN = (
    "label tor-affinity: expected one of large-model-schema, normal-schema, null, "
    "found 'some'"
)
NAMES = ("n1", "n2", "n3", "n4")


def judging(cache: Cache, rules: Rules) -> Planner:
    """A planner that knows of leaves."""
    return World(cache, topology=NetworkTopology(cache, rules).snapshot).planner


def busy(*names: str) -> Cache:
    """Two leaves of two nodes, some of which are taken."""
    cache = switched(*NAMES)
    apply(cache, *(tenant(f"on-{name}", name, (0,)) for name in names))
    return cache


@pytest.mark.seed("003-03")
@pytest.mark.seed("003-06")
@pytest.mark.parametrize("schema", ["large-model-schema", "normal-schema"])
async def test_it_goes_under_the_leaf_with_the_least_room_that_suffices(
    schema: str,
) -> None:
    cache = busy("n4")
    apply(cache, decode.pod_change(labelled_pod(schema)))
    topology = NetworkTopology(cache, Rules()).snapshot
    w = World(cache, topology=topology)

    result = w.planner.filter_nodes(known_pod(cache, "p"), NAMES)

    # any of the three free nodes would do for a pod that does not ask
    assert result is not None
    assert result.fitting == ("n3",)
    waiting_calls = Caller(uid="uid-p", node="n3", is_there=lambda: True)
    assert await w.permits.wait(waiting_calls) is None  # nobody else has to come


@pytest.mark.parametrize("label", [None, "", "null"])
def test_a_pod_that_asks_for_nothing_is_not_planned(label: str | None) -> None:
    cache = busy("n4")
    apply(cache, decode.pod_change(labelled_pod(label)))

    assert judging(cache, Rules()).filter_nodes(known_pod(cache, "p"), NAMES) is None
    assert membership.planned_membership(labelled_pod(label)) is None


@pytest.mark.parametrize(
    ("label", "is_known", "text"),
    [
        (
            "large-model-schema",
            False,
            (
                "switch affinity is asked for, but "
                "basic-tor-node-cm is missing or cannot be read"
            ),
        ),
        (
            "some",
            True,
            UNKNOWN,
        ),
    ],
)
def test_what_cannot_be_is_said_on_the_pod(
    label: str, text: str, *, is_known: bool
) -> None:
    cache = busy()
    if not is_known:
        apply(cache, events.SwitchesUpdated())
    apply(cache, decode.pod_change(labelled_pod(label)))

    result = judging(cache, Rules()).filter_nodes(known_pod(cache, "p"), NAMES)

    assert result is not None
    assert result.counts == ((f"its job does not fit: {text}", 4),)


def test_a_job_that_turns_out_to_have_one_pod_is_planned_as_well() -> None:
    cache = busy("n4")
    apply(cache, member("a", size=1, traits=LARGE))

    found = planned(cache, NAMES, Rules(switches=Version.TWO))

    marks = {"distributed-job": "false", "isSharedTor": "0", "isHealthy": "0"}
    assert found == {"a": ("n3", marks)}


def test_the_pod_that_takes_the_place_of_one_that_ends_is_planned_anew() -> None:
    cache = busy("n4")
    old = labelled_pod("large-model-schema")
    apply(cache, decode.pod_change(old))
    ending = events.PodUpdated(
        pod=replace(known_pod(cache, "p"), node="n1", phase="Running", deleting=True),
        member=membership.member(old),
    )
    apply(cache, ending)
    meta = replaced(old.metadata, uid="uid-new")
    apply(cache, decode.pod_change(replaced(old, metadata=meta)))

    result = judging(cache, Rules()).filter_nodes(known_pod(cache, "new"), NAMES)

    assert result is not None
    assert result.fitting == ("n3",)


def test_no_node_is_kept_for_it_however_long_it_waits() -> None:
    cache = busy(*NAMES)
    apply(cache, decode.pod_change(labelled_pod("normal-schema")))
    world = World(cache, topology=NetworkTopology(cache, Rules()).snapshot)

    for _ in range(2):
        assert world.filter("p", NAMES) == []
        world.time.pass_s(cache.limits.reserve_after_s + 1)

    assert reserved_nodes(cache) == set()
