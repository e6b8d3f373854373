"""One real and twenty simulated nodes under one stock scheduler.

Control plane, extender and the one node are the cluster's, with the product as it is
installed; the twenty are kubelets of the sandbox with real agents, which have the
rights of the installed ones and join the same API server.
"""

import asyncio
import random  # noqa: TID251  # seeded: the same pods in every run
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from sandbox.apiclient import FAILURES
from sandbox.inspect import checks, facts, observer
from sandbox.inspect.facts import Choice
from sandbox.world import ControlPlane, World, running
from tests.e2e import product, truth
from tests.e2e.assembly import token
from tests.e2e.cluster import Cluster
from tests.e2e.places import EXTENDER_PORT, SIMULATED_NODES
from tests.e2e.pods import pod
from tests.support.tasks import in_background

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHIPS = 8 * (len(SIMULATED_NODES) + 1)
#: Pods of the churn, and how many of them live at once at most.
CHURN = 300
AT_ONCE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The real cluster and the world that has joined it."""

    cluster: Cluster
    world: World
    #: {pod uid: what bind wrote}
    choices: dict[str, Choice]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(cluster: Cluster) -> AsyncIterator[Fleet]:
    """A cluster with all nodes ready; afterwards the simulated ones are gone."""
    agents: dict[str, str] = {}
    control = ControlPlane(
        url=cluster.api_url,
        authority=cluster.places.certificates / "ca.crt",
        token_of=lambda user: agents.get(user) or _token(cluster, user),
        extender_url=f"http://{cluster.address}:{EXTENDER_PORT}",
    )
    try:
        for name in SIMULATED_NODES:
            agents[f"ascend-agent-{name}"] = _agents_token(cluster, name)
        async with running(SIMULATED_NODES, control=control) as world:
            choices: dict[str, Choice] = {}
            async with in_background(observer.watch_choices(world, choices)):
                yield Fleet(cluster=cluster, world=world, choices=choices)
    finally:
        _forget(cluster)


def _token(cluster: Cluster, user: str) -> str:
    """The token of an administrator or of a node; "" for others."""
    name = user.removeprefix("system:node:")
    known = name in ("admin", *SIMULATED_NODES)
    return token(cluster.places.kubeconfig(name)) if known else ""


def _agents_token(cluster: Cluster, node: str) -> str:
    """A token of the agent's account that names a node, as that of its pod there does.

    The node's object has to be there before; its kubelet finds it.
    """
    uid = cluster.core.create_node({"metadata": {"name": node}}).metadata.uid
    bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    spec = {"audiences": [], "boundObjectRef": bound}
    made = cluster.core.create_namespaced_service_account_token(
        "ascend-agent", product.NAMESPACE, {"spec": spec}
    )
    return str(made.status.token)


def _forget(cluster: Cluster) -> None:
    """Take out of the cluster what has left it."""
    reports = [f"mindx-dl-deviceinfo-{name}" for name in SIMULATED_NODES]
    missing = ("--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "node", *SIMULATED_NODES, *missing)
    cluster.kubectl("delete", "configmap", *reports, "-n", product.NAMESPACE, *missing)


async def test_all_nodes_offer_their_chips_by_all_accounts(fleet: Fleet) -> None:
    seen = await observer.cluster(fleet.world)
    there = {node.metadata.name for node in fleet.cluster.core.list_node().items}

    assert [node.name for node in seen.nodes] == list(SIMULATED_NODES)
    assert checks.registered(seen.nodes) == ()
    assert there == {fleet.cluster.node, *SIMULATED_NODES}
    assert truth.node(fleet.cluster).available == tuple(range(8))


async def test_pods_of_each_size_fill_the_cluster(fleet: Fleet) -> None:
    # 21 x 8 chips: 5 whole nodes, 11 halves, 20 pairs, 44 ones
    sizes = [8] * 5 + [4] * 11 + [2] * 20 + [1] * 44
    names = [f"fill-{size}-{number}" for number, size in enumerate(sizes)]
    assert sum(sizes) == CHIPS

    await _create(fleet.world, list(zip(names, sizes, strict=True)))
    seen = await _running(fleet.world, names)
    served = await _agreed(fleet)

    simulated = _without(seen, fleet.cluster.node)
    assert checks.served(seen.pods) == ()
    assert checks.paired(simulated).problems == ()
    assert checks.agreed(simulated) == ()
    assert checks.placed_well(seen.pods) == ()
    assert checks.as_chosen(simulated, fleet.choices) == ()
    assert {node.available for node in seen.nodes} == {()}
    assert {chip for each in served for chip in each.chips} == set(range(8))
    await _remove(fleet, names)


async def test_after_a_churn_nothing_is_doubled_wrong_or_lost(fleet: Fleet) -> None:
    chance = random.Random(7)  # noqa: S311  # no secret is made
    living: list[str] = []
    doubled: list[str] = []
    before = {*fleet.choices}
    for number in range(CHURN):
        name, size = f"churn-{number}", chance.choice((1, 1, 1, 2, 2, 4, 8))
        await _create(fleet.world, [(name, size)])
        living.append(name)
        if len(living) > AT_ONCE or chance.random() < 0.3:
            gone = living.pop(chance.randrange(len(living)))
            await fleet.world.api.delete(f"{observer.PODS}/{gone}")
        doubled += checks.doubled(observer.mounts(fleet.world))
    seen = await _quiet(fleet.world)
    await _agreed(fleet)

    simulated = _without(seen, fleet.cluster.node)
    assert doubled == []
    assert checks.paired(simulated).problems == ()
    assert checks.agreed(simulated) == ()
    assert checks.placed_well(p for p in seen.pods if p.node) == ()
    assert [p.message for p in seen.pods if p.phase == "Failed"] == []
    came_by = {c.node for uid, c in fleet.choices.items() if uid not in before}
    assert came_by >= {fleet.cluster.node}
    await _remove(fleet, living)
    assert checks.registered((await observer.cluster(fleet.world)).nodes) == ()


async def _create(world: World, wanted: Iterable[tuple[str, int]]) -> None:
    for name, size in wanted:
        body = pod(name, size, terminationGracePeriodSeconds=1)
        await world.api.create(observer.PODS, body)


def _without(seen: facts.Cluster, node: str) -> facts.Cluster:
    """The same, but for the pods of one node."""
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.node != node))


async def _agreed(fleet: Fleet) -> list[truth.Served]:
    """The pods of the real node, when everybody there says the same of them."""
    return await asyncio.to_thread(truth.until_agreed, fleet.cluster)


async def _settled(
    world: World, is_settled: Callable[[Sequence[facts.PodFacts]], bool], what: str
) -> facts.Cluster:
    """Wait until the pods are as wanted, and all ConfigMaps agree."""

    async def done() -> facts.Cluster | None:
        if not is_settled(await observer.pods(world)):
            return None
        try:
            seen = await observer.cluster(world)
        except FAILURES:
            return None
        return None if checks.agreed(seen) else seen

    return await observer.until(done, what=what, within_s=400, pause_s=0.5)


async def _running(world: World, names: Sequence[str]) -> facts.Cluster:
    """Wait until these pods run and are confirmed."""
    return await _settled(
        world,
        lambda pods: {pod.name for pod in pods if _runs(pod)} >= {*names},
        "all pods confirmed",
    )


async def _quiet(world: World) -> facts.Cluster:
    """Wait until nothing moves any more: each pod runs, or waits without a node."""
    return await _settled(
        world,
        lambda pods: all(p.phase == "Failed" or _runs(p) for p in pods if p.node),
        "rest",
    )


def _runs(pod: facts.PodFacts) -> bool:
    # On the real node it is known whose the chips are before the container runs.
    return pod.is_confirmed and pod.phase == "Running"


async def _remove(fleet: Fleet, names: Sequence[str]) -> None:
    """Delete pods, and wait until their chips are free again by all accounts."""
    world = fleet.world
    for name in names:
        await world.api.delete(f"{observer.PODS}/{name}")
    await _settled(
        world,
        lambda pods: {pod.name for pod in pods}.isdisjoint(names),
        "chips free again",
    )
    await _agreed(fleet)
