"""Plans as if pods were gone, and of jobs that are numbered wrongly."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.overlay import overlay_cache
from extender.cache.requests import Resources
from extender.cache.reservations import Reservation
from extender.planning import plan, plan_input
from extender.planning.reservation import choose_nodes
from extender.preemption import victims
from extender.refusals import Refusal
from scheduler_core.placement.job_rules import Profile
from tests.support.caches import apply, cluster, only_gang
from tests.support.watched import (
    RESOURCE,
    member,
    node,
    pod_update,
    served,
)

NODES = ("n1", "n2", "n3")
#: of a node; pods ask for 1 to 5 of them
CORES = Resources(8000, 1 << 40, 110)
#: under which pods of a job may have any number of chips
PER_POD = plan_input.TopologySnapshot(profile=Profile.PER_POD)
cores = st.integers(1, 5).map(lambda number: Resources(1000 * number, 0))


@st.composite
def running(draw: st.DrawFn) -> list[events.PodUpdated]:
    """A pod on some of the nodes, each with chips from the first and CPU."""
    pods = []
    for name in draw(st.lists(st.sampled_from(NODES), unique=True)):
        count = draw(st.sampled_from([1, 2, 4, 8]))
        bound = pod_update(
            f"on-{name}",
            count,
            node=name,
            phase="Running",
            annotations=served(range(count)),
        )
        pods.append(replace(bound, ask=draw(cores)))
    return pods


jobs = st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), cores), min_size=2, max_size=4)


def cache_with(
    pods: list[events.PodUpdated], job: list[tuple[int, Resources]]
) -> Cache:
    found = cluster(*pods, nodes=NODES)
    for name in NODES:
        apply(found, replace(node(name), allocatable_resources=CORES))
    for number, (count, ask) in enumerate(job):
        apply(
            found,
            member(
                f"w{number}",
                job="want",
                size=len(job),
                count=count,
                ask=ask,
                priority=9,
            ),
        )
    return found


def places(
    outcome: tuple[Reservation, ...] | Refusal,
) -> list[tuple[str, str, int]] | str:
    if isinstance(outcome, Refusal):
        return outcome.text
    return [(str(made.kept_for), made.node, made.chips) for made in outcome]


def contents(cache: Cache) -> tuple[object, ...]:
    """What a plan reads, and the counters of its changes."""
    requests = cache.requests
    return (
        list(cache.index),
        [list(cache.index.ranked(RESOURCE, count)) for count in (1, 2, 4, 8)],
        {uid: requests.at(uid) for uid in requests.uids()},
        [requests.of(name) for name in NODES],
        requests.version,
        cache.version,
        {name: info.resources for name, info in cache.nodes.items()},
    )


@pytest.mark.property
@given(running(), jobs, st.frozensets(st.sampled_from(NODES)))
def test_a_plan_as_if_pods_were_gone_is_that_of_a_cluster_without_them(
    pods: list[events.PodUpdated],
    job: list[tuple[int, Resources]],
    freed: frozenset[str],
) -> None:
    cache = cache_with(pods, job)
    without = cache_with([one for one in pods if one.pod.node not in freed], job)
    (gang,), (other,) = cache.gangs.values(), without.gangs.values()
    before = contents(cache)

    states = [without.index.nodes(RESOURCE)[name] for name in freed]
    view = overlay_cache(cache, states, gone_uids=[f"uid-on-{name}" for name in freed])
    outcome = plan.plan(cache, gang, NODES, 0, PER_POD, view)

    assert places(outcome) == places(plan.plan(without, other, NODES, 0, PER_POD))
    assert contents(cache) == before


@pytest.mark.property
@given(running(), jobs)
def test_a_choice_of_nodes_or_victims_changes_nothing(
    pods: list[events.PodUpdated], job: list[tuple[int, Resources]]
) -> None:
    cache = cache_with(pods, job)
    (gang,) = cache.gangs.values()
    apply(cache, replace(pod_update("one", 8, priority=9), ask=job[0][1]))
    before = contents(cache)

    choose_nodes(cache, gang, NODES, PER_POD)
    victims.for_job(cache, gang, NODES, (), PER_POD)
    victims.for_pod(cache, cache.pods["uid-one"], NODES)

    assert contents(cache) == before


def test_pods_that_state_one_rank_twice_join_a_job_that_runs() -> None:
    cache = cluster(nodes=NODES)
    apply(cache, member("w0", size=3, node="n1", phase="Running"))
    for name in ("w1", "w2"):
        joins = member(name, size=3)
        assert joins.member is not None
        membership = replace(joins.member.membership, rank=1)
        apply(
            cache, replace(joins, member=replace(joins.member, membership=membership))
        )

    outcome = plan.plan(cache, only_gang(cache), NODES, 0, PER_POD)

    assert sorted(places(outcome)) == [("uid-w1", "n3", 255), ("uid-w2", "n2", 255)]
