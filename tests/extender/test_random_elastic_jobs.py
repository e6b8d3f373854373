"""Elastic jobs of any kinds between nodes run with their least number, if that fits.

The first plan has as many pods as fit. It may not hold for pods that are to be spread,
since nodes that are not offered count for them: then a gate closes first.
"""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from sandbox.apiclient import Object
from tests.extender import scheduler_rules as rules
from tests.extender.gangworld import GangWorld, can_place, sim_node
from tests.extender.test_jobs_between_nodes_machine import (
    NAMES,
    THREE_GATES_S,
    ZONE,
    jobs,
)
from tests.support.caches import node_states
from tests.support.examples import examples

MINIMUM = "huawei.com/schedule_minAvailable"
#: Seconds: no more pods are awaited, then each kind is asked about, then all come.
ONE_GATE_S = 8


@st.composite
def cluster_nodes(draw: st.DrawFn) -> list[Object]:
    """Two to four nodes, in pools and zones, some of them tainted."""
    labels = st.sampled_from("ab")
    return [
        sim_node(
            name,
            draw(st.sampled_from(["", "", "k"])),
            pool=draw(labels),
            **{ZONE: draw(labels)},
        )
        for name in NAMES[: draw(st.integers(2, 4))]
    ]


@st.composite
def elastic_jobs(draw: st.DrawFn) -> tuple[list[Object], int]:
    """The pods of a job, by rank, and how many of them it needs."""
    pods: list[Object] = draw(jobs("j"))
    least = draw(st.integers(2, len(pods)))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "j"}
    for pod in pods:
        meta: dict[str, Any] = pod["metadata"]
        meta["annotations"] = {MINIMUM: f"{least}"}
        meta["ownerReferences"] = [owner | {"controller": True}]
    return pods, least


@examples(25, pytest.param(100, marks=pytest.mark.long), variable="GANG_EXAMPLES")
def test_a_job_runs_if_the_pods_that_it_needs_fit(examples: int) -> None:
    slow = settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    slow(given(cluster_nodes(), elastic_jobs(), st.data())(it_runs_if_they_fit))()


def it_runs_if_they_fit(
    nodes: list[Object], job: tuple[list[Object], int], data: st.DataObject
) -> None:
    pods, least = job
    needed = pods[:least]
    world = GangWorld(deepcopy(nodes))
    try:
        free = {name: node_states(world.cache)[name].free for name in world.nodes}
        fits = can_place(needed, world.nodes, {}, free)
        note(f"what it needs can be placed: {fits}")
        order = data.draw(st.permutations(rules.names_of(pods)), "order")
        world.add(*pods)

        is_spread = any("topologySpreadConstraints" in pod["spec"] for pod in pods)
        limit_s = THREE_GATES_S if is_spread else ONE_GATE_S

        took = world.run(limit_s, *rules.names_of(needed), order=order)

        assert took is not None or not fits
        assert took is not None or not world.bound
    finally:
        world.close()
