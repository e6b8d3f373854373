"""Twenty simulated nodes with real agents, under Kubernetes' own control plane.

kube-apiserver, kube-scheduler and the controllers are Kubernetes' own; extender and
agents are ours, with the rights of an installation; the kubelets are the sandbox's.
"""

import asyncio
import random  # noqa: TID251  # seeded: the same pods in every run
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandbox.apiclient import FAILURES
from sandbox.demo import checks, observer, pods
from sandbox.demo.facts import Choice, Cluster
from sandbox.world import ControlPlane, World, running
from tests.e2e import ours
from tests.e2e.bare import BareCluster, bare_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = tuple(f"sim-{number:02}" for number in range(1, 21))
CHIPS = 8 * len(NODES)
#: Pods of the churn, and how many of them live at once at most.
CHURN = 300
AT_ONCE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The world, and what bind has written on each pod since it began."""

    world: World
    #: {pod uid: what bind wrote}
    choices: dict[str, Choice]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    """A cluster with all nodes ready."""
    kubelets = {f"system:node:{name}": ["system:nodes"] for name in NODES}
    async with bare_cluster(ours.USERS | kubelets) as cluster:
        ours.give_rights(cluster)
        await cluster.start_controllers()
        control = ControlPlane(
            url=cluster.api_url,
            authority=cluster.authority,
            token_of=lambda user: _token(cluster, user),
        )
        async with running(NODES, control=control) as world:
            await cluster.start_scheduler(world.extender_url)
            choices: dict[str, Choice] = {}
            async with asyncio.TaskGroup() as group:
                notes = group.create_task(observer.watch_choices(world, choices))
                yield Fleet(world=world, choices=choices)
                notes.cancel()


def _token(cluster: BareCluster, user: str) -> str:
    if user.startswith("ascend-agent-"):  # one account for the agents of all nodes
        return cluster.tokens[ours.AGENT]
    return cluster.tokens.get(user) or cluster.tokens[ours.EXTENDER]


async def test_all_nodes_offer_their_chips_by_all_accounts(fleet: Fleet) -> None:
    seen = await observer.cluster(fleet.world)

    assert [node.name for node in seen.nodes] == list(NODES)
    assert checks.registered(seen.nodes) == ()


async def test_pods_of_each_size_fill_the_cluster(fleet: Fleet) -> None:
    # 20 x 8 chips: 5 whole nodes, 10 halves, 20 pairs, 40 ones
    sizes = [8] * 5 + [4] * 10 + [2] * 20 + [1] * 40
    names = [f"fill-{size}-{number}" for number, size in enumerate(sizes)]
    assert sum(sizes) == CHIPS

    await _create(fleet.world, list(zip(names, sizes, strict=True)))
    seen = await _settled(fleet.world, names)

    assert checks.served(seen.pods) == ()
    assert checks.paired(seen).problems == ()
    assert checks.agreed(seen) == ()
    assert checks.placed_well(seen.pods) == ()
    assert checks.as_chosen(seen, fleet.choices) == ()
    assert {node.available for node in seen.nodes} == {()}
    await _remove(fleet.world, names)


async def test_after_a_churn_nothing_is_doubled_wrong_or_lost(fleet: Fleet) -> None:
    chance = random.Random(7)  # noqa: S311  # no secret is made
    living: list[str] = []
    doubled: list[str] = []
    for number in range(CHURN):
        name, size = f"churn-{number}", chance.choice((1, 1, 1, 2, 2, 4, 8))
        await _create(fleet.world, [(name, size)])
        living.append(name)
        if len(living) > AT_ONCE or chance.random() < 0.3:
            gone = living.pop(chance.randrange(len(living)))
            await fleet.world.api.delete(f"{observer.PODS}/{gone}")
        doubled += checks.paired(_mounted(fleet.world)).doubled
    seen = await _quiet(fleet.world)

    assert doubled == []
    assert checks.paired(seen).problems == ()
    assert checks.agreed(seen) == ()
    assert checks.placed_well(p for p in seen.pods if p.node) == ()
    assert [p.message for p in seen.pods if p.phase == "Failed"] == []
    await _remove(fleet.world, living)
    assert checks.registered((await observer.cluster(fleet.world)).nodes) == ()


async def _create(world: World, wanted: Sequence[tuple[str, int]]) -> None:
    await pods.create(world, *(pods.manifest(name, size) for name, size in wanted))


def _mounted(world: World) -> Cluster:
    """What containers have at this moment, and nothing else."""
    return Cluster(nodes=(), pods=(), mounts=tuple(observer.mounts(world)))


async def _settled(world: World, names: Sequence[str]) -> Cluster:
    """Wait until these pods run, are confirmed, and all ConfigMaps agree."""

    async def done() -> Cluster | None:
        found = {pod.name: pod for pod in await observer.pods(world)}
        if not all(name in found and found[name].is_confirmed for name in names):
            return None
        return await _agreeing(world)

    return await observer.until(
        done, what="all pods confirmed", within_s=120, pause_s=0.5
    )


async def _quiet(world: World) -> Cluster:
    """Wait until nothing moves any more: each pod runs, or waits without a node."""

    async def done() -> Cluster | None:
        moving = [
            pod
            for pod in await observer.pods(world)
            if pod.node and pod.phase != "Failed" and not pod.is_confirmed
        ]
        return None if moving else await _agreeing(world)

    return await observer.until(done, what="rest", within_s=120, pause_s=0.5)


async def _agreeing(world: World) -> Cluster | None:
    try:
        seen = await observer.cluster(world)
    except FAILURES:
        return None
    return None if checks.agreed(seen) else seen


async def _remove(world: World, names: Sequence[str]) -> None:
    """Delete pods, and wait until their chips are free again by all accounts."""
    for name in names:
        await world.api.delete(f"{observer.PODS}/{name}")

    async def done() -> bool:
        left = {pod.name for pod in await observer.pods(world)}
        return left.isdisjoint(names) and await _agreeing(world) is not None

    await observer.until(done, what="chips free again", within_s=120, pause_s=0.5)
