"""Jobs of KubeRay and Kueue from their creation to their binding."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from sandbox.apiclient import Object
from tests.extender.gangworld import GangWorld, sim_node, sim_pod
from tests.extender.job_controllers import (
    ApiError,
    IndexedJob,
    KubeRay,
    Kueue,
    PodsApi,
)
from tests.support.caches import known_pod, only_gang

NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def api() -> Iterator[PodsApi]:
    world = GangWorld(map(sim_node, NODES))
    yield PodsApi(world)
    world.close()


def why(api: PodsApi, name: str) -> str:
    """What filter says of a pod that is left without a node."""
    result = api.world.world.planner.filter_nodes(
        known_pod(api.world.cache, name), NODES
    )
    assert result is not None
    assert result.fitting == ()
    return result.counts[0][0]


def ray(
    api: PodsApi, *groups: Object, head: int = 0, is_scaled: bool = False
) -> KubeRay:
    made = [{"minReplicas": 0, "numOfHosts": 1, **group} for group in groups]
    cluster = KubeRay(api, made, head=head, is_scaled=is_scaled)
    cluster.reconcile()
    return cluster


def test_a_ray_cluster_is_bound_whole(api: PodsApi) -> None:
    """G8. Its head asks for no NPUs, and is nobody's concern."""
    ray(api, {"replicas": 2}, {"replicas": 2})

    assert api.world.run(3, *api.pods) is not None


def test_of_a_ray_cluster_that_is_too_large_no_pod_is_bound(api: PodsApi) -> None:
    cluster = ray(api, {"replicas": 4}, head=8)
    api.world.run(60)

    assert api.world.bound == {}
    (head,) = cluster.names("headgroup")
    assert why(api, head) == "its job does not fit: 4 of 5 pods fit"


def test_a_ray_cluster_with_the_autoscaler_runs_with_its_least(api: PodsApi) -> None:
    cluster = ray(api, {"replicas": 6, "minReplicas": 3}, head=8, is_scaled=True)
    api.world.run(10)

    (head,) = cluster.names("headgroup")
    assert head in api.world.bound
    assert len(api.world.bound) == len(NODES)
    api.world.delete(next(name for name in api.world.bound if name != head))
    api.world.run(5)
    assert len(api.world.bound) == len(NODES)


def test_workers_that_the_autoscaler_adds_join_one_by_one(api: PodsApi) -> None:
    cluster = ray(api, {"replicas": 1, "minReplicas": 1}, head=8, is_scaled=True)
    assert api.world.run(4, *api.pods) is not None

    cluster.edit(replicas=2)
    cluster.reconcile()

    assert api.world.run(4, *api.pods) is not None


def test_a_ray_cluster_that_is_made_smaller_while_it_waits_is_bound(
    api: PodsApi,
) -> None:
    cluster = ray(api, {"replicas": 5})
    api.world.run(5)
    cluster.edit(replicas=3)
    cluster.reconcile()

    assert api.world.run(15, *api.pods) is not None


def test_a_ray_cluster_that_is_resumed_waits_for_pods_that_end(api: PodsApi) -> None:
    """G5: the controller makes no worker while as many old ones are there."""
    cluster = ray(api, {"replicas": 3})
    assert api.world.run(3, *api.pods) is not None
    before = {*api.pods}
    cluster.suspend(is_suspended=True)
    cluster.reconcile()
    first, *others = (name for name in before if name.startswith("worker"))
    api.end(first, "Failed")
    cluster.suspend(is_suspended=False)
    cluster.reconcile()
    api.world.run(5)
    (made,) = (name for name in cluster.names("g0") if name not in before)

    assert why(api, made) == "waits for 2 of the 3 pods of its job"
    for name in others:
        api.end(name, "Failed")
    cluster.reconcile()
    api.world.report()
    assert api.world.run(15, *cluster.names("g0")) is not None


def hosts(api: PodsApi, replicas: int, *, head: int = 0) -> KubeRay:
    """A RayCluster of replicas of two pods, of which it needs one replica."""
    group = {"replicas": replicas, "minReplicas": 1, "numOfHosts": 2}
    return ray(api, group, head=head, is_scaled=True)


def fill(api: PodsApi, node: str) -> str:
    """Let a pod that is a job by itself take a node; return its name."""
    name = f"on-{node}"
    selector = {"kubernetes.io/hostname": node}
    api.world.add(sim_pod(name, job=name, size=1, npus=8, nodeSelector=selector))
    assert api.world.run(9, name) is not None
    return name


def test_a_ray_cluster_begins_with_whole_replicas(api: PodsApi) -> None:
    cluster = hosts(api, 2, head=8)
    api.world.run(10)

    first, _ = cluster.replicas("g0").values()
    assert {*api.world.bound} == {*cluster.names("headgroup"), *first}


def test_a_replica_joins_whole_as_room_comes(api: PodsApi) -> None:
    other = fill(api, "n1")
    cluster = hosts(api, 1)
    assert api.world.run(9, *cluster.names("g0")) is not None

    cluster.edit(replicas=2)
    cluster.reconcile()
    _, second = cluster.replicas("g0").values()
    assert api.world.run(20, second[0]) is None
    assert not {*second} & {*api.world.bound}

    api.world.delete(other)
    assert api.world.run(9, *second) is not None


def test_the_first_host_of_a_replica_waits_for_the_others(api: PodsApi) -> None:
    """A quota, say, is used up before all of them are made."""
    cluster = hosts(api, 1)
    assert api.world.run(9, *cluster.names("g0")) is not None
    cluster.edit(replicas=2)
    api.calls_left = 1
    with suppress(ApiError):
        cluster.reconcile()
    (alone,) = [name for name in cluster.names("g0") if name not in api.world.bound]
    assert api.world.run(20, alone) is None
    texts = api.world.world.why(alone, NODES)
    assert "waits for 1 of the 2 pods of its replica" in texts

    api.calls_left = None
    for _ in range(2):  # it deletes what is not whole first
        cluster.reconcile()
    assert api.world.run(9, *cluster.names("g0")) is not None


def test_a_replica_that_is_made_again_waits_until_the_one_before_has_ended(
    api: PodsApi,
) -> None:
    cluster = hosts(api, 2)
    before = cluster.names("g0")
    assert api.world.run(9, *before) is not None
    late, soon, *_ = before
    api.pods[soon]["status"] = {"phase": "Failed"}
    api.world.show(soon)
    cluster.reconcile()
    api.world.report()
    new = [name for name in cluster.names("g0") if name not in before]
    assert len(new) == 2

    assert api.world.run(20, new[1]) is None
    assert not {*new} & {*api.world.bound}

    api.end(late, "Failed")
    api.world.report()
    assert api.world.run(9, *new) is not None


def admitted(api: PodsApi, total: int, *, is_fast: bool = False) -> Kueue:
    kueue = Kueue(api, total, is_fast=is_fast)
    for _ in range(1 if is_fast else total):
        kueue.create()
    kueue.reconcile()
    kueue.is_admitted = True
    return kueue


def test_a_group_of_kueue_waits_until_it_is_admitted(api: PodsApi) -> None:
    """G7, G8: gates are removed one by one."""
    kueue = admitted(api, 3)
    first, *_ = api.pods
    api.patch(first, schedulingGates=None)
    api.world.run(5)

    assert why(api, first) == (
        "waits for 2 of the 3 pods of its job; 2 behind a scheduling gate"
    )
    kueue.reconcile()
    assert api.world.run(3, *api.pods) is not None


def test_a_launcher_without_npus_counts_for_a_group_of_kueue(api: PodsApi) -> None:
    kueue = Kueue(api, 3, is_fast=False)
    for npus in (0, 8, 8):
        kueue.create(npus)
    kueue.reconcile()
    kueue.is_admitted = True
    kueue.reconcile()

    assert api.world.run(3, *api.pods) is not None


def test_a_group_of_kueue_that_is_preempted_begins_again_whole(api: PodsApi) -> None:
    kueue = admitted(api, 2)
    kueue.reconcile()
    assert api.world.run(3, *api.pods) is not None
    old = [*api.pods]
    kueue.preempt()
    api.end(old[0], "Failed")
    kueue.create()
    kueue.is_admitted = True
    kueue.reconcile()
    api.world.run(5)
    (new,) = (name for name in api.pods if name not in old)

    assert why(api, new) == "waits for 1 of the 2 pods of its job"
    api.end(old[1], "Failed")
    kueue.create()
    kueue.reconcile()
    api.world.report()
    assert api.world.run(10, *kueue.active) is not None


def test_a_group_that_is_admitted_early_is_made_pod_by_pod(api: PodsApi) -> None:
    """Each pod is made when those before it run: to wait for all would be for ever."""
    kueue = admitted(api, 3, is_fast=True)
    for _ in range(3):
        kueue.reconcile()
        assert api.world.run(5, *api.pods) is not None
        if len(api.pods) < 3:
            kueue.create()

    assert len(api.world.bound) == 3


def test_a_group_that_is_admitted_early_and_is_whole_awaits_nobody(
    api: PodsApi,
) -> None:
    kueue = admitted(api, 3, is_fast=True)
    kueue.create()
    kueue.create(0)
    kueue.reconcile()

    assert api.world.run(2, *api.pods) is not None
    assert only_gang(api.world.cache).size is not None


def test_pods_beyond_the_number_of_a_group_keep_nobody_away(api: PodsApi) -> None:
    """A replacement and the pod that it was for; Kueue deletes the newest."""
    kueue = admitted(api, 3)
    kueue.reconcile()
    kueue.create()
    kueue.create()
    api.world.run(1)
    kueue.reconcile()

    assert api.world.run(5, *kueue.active) is not None
    assert len(api.pods) == 3


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_job_that_kueue_admits_in_part_begins_with_its_least_number(
    api: PodsApi, *, is_equal: bool
) -> None:
    """Kueue lowers `parallelism`, and `completions` only if it is told to."""
    world = api.world
    others = [f"alone-{number}" for number in range(3)]
    world.add(*(sim_pod(name, job=name, size=1, npus=8) for name in others))
    assert world.run(9, *others) is not None
    let: list[set[str]] = []
    world.on_let = let.append
    job = IndexedJob(api, 4, least=2)
    job.admit(3, is_equal=is_equal)
    job.reconcile()

    world.run(20)
    assert not {*job.active.values()} & {*world.bound}

    world.delete(others[0])
    assert world.run(9, job.active[0], job.active[1]) is not None
    assert let == [{job.active[0], job.active[1]}]

    world.delete(others[1])
    assert world.run(9, *job.active.values()) is not None
