"""Jobs of all kinds that people run, each bound soon on a stock scheduler.

A control plane without a machine below it; nobody makes pods, ends them or calls them
ready, so the test does, as controllers and kubelets would.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient, Object
from tests.e2e import jobs, npu_nodes, ours
from tests.e2e.bare import until
from tests.e2e.bare_pods import bound, remove_all, wait_bound, wait_told
from tests.support.objects import NODES, PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: {node: the pool that it is in}
POOLS = {"node-0": "a", "node-1": "a", "node-2": "b", "node-3": "b"}
#: From the last thing that a job waits for until it is bound.
WITHIN_S = 10.0
#: From an edit of its object, which is read every ten seconds.
AFTER_EDIT_S = 20.0
HOST = "kubernetes.io/hostname"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    alpha = ("--feature-gates=GenericWorkload=true", "--runtime-config=api/all=true")
    async with ours.installed(*POOLS, server_arguments=alpha) as cluster:
        for name, pool in POOLS.items():
            marks = {"labels": {"pool": pool}}
            await cluster.api.patch(f"{NODES}/{name}", {"metadata": marks})
        await jobs.define(cluster.api, jobs.WORKER_SETS, "LeaderWorkerSet")
        await jobs.define(cluster.api, jobs.JOB_SETS, "JobSet")
        await ours.serve(cluster, "--job-rules", "per-pod")
        yield cluster.api


@pytest_asyncio.fixture(loop_scope="module")
async def api(whole: ApiClient) -> AsyncIterator[ApiClient]:
    """The same, with no pods."""
    yield whole
    await remove_all(whole)


def with_port(pod: Object) -> None:
    pod["spec"]["hostNetwork"] = True
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 29500}]


def apart(pod: Object) -> None:
    term = {"topologyKey": HOST, "labelSelector": selector(pod)}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod["spec"]["affinity"] = {"podAntiAffinity": rule}


def spread(pod: Object) -> None:
    rule = {
        "topologyKey": HOST,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector(pod),
    }
    pod["spec"]["topologySpreadConstraints"] = [rule]


def selector(pod: Object) -> Object:
    return {"matchLabels": pod["metadata"]["labels"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Pods of two chips each that may not share nodes as they like."""

    demand: Callable[[Object], None]
    pods: int
    #: how many pods each node gets, the most first
    on_nodes: tuple[int, ...]


CASES = {
    "host-port": Case(demand=with_port, pods=4, on_nodes=(1, 1, 1, 1)),
    "two-with-a-host-port": Case(demand=with_port, pods=2, on_nodes=(1, 1)),
    "anti-affinity": Case(demand=apart, pods=4, on_nodes=(1, 1, 1, 1)),
    "two-with-anti-affinity": Case(demand=apart, pods=2, on_nodes=(1, 1)),
    "spread": Case(demand=spread, pods=4, on_nodes=(1, 1, 1, 1)),
    "uneven-spread": Case(demand=spread, pods=6, on_nodes=(2, 2, 1, 1)),
}


@pytest.mark.parametrize("name", CASES)
async def test_pods_that_may_not_share_a_node_are_bound(
    api: ApiClient, name: str
) -> None:
    case = CASES[name]
    names = [f"{name}-{number}" for number in range(case.pods)]
    for each in names:
        pod = jobs.member(each, name, case.pods, 2)
        case.demand(pod)
        await api.create(PODS, pod)

    await wait_bound(api, *names, within_s=WITHIN_S)

    counts = Counter((await bound(api)).values())
    assert tuple(sorted(counts.values(), reverse=True)) == case.on_nodes


@pytest.mark.parametrize("chips", [2, 8])
async def test_members_of_two_pools_are_bound_each_in_its_own(
    api: ApiClient, chips: int
) -> None:
    wanted = {f"pools-{number}": "ab"[number // 2] for number in range(4)}
    for name, pool in wanted.items():
        chosen = {"pool": pool}
        pod = jobs.member(name, f"pools-{chips}", 4, chips, nodeSelector=chosen)
        await api.create(PODS, pod)

    await wait_bound(api, *wanted, within_s=WITHIN_S)

    found = await bound(api)
    assert {name: POOLS[node] for name, node in found.items()} == wanted


async def test_pods_that_want_to_be_beside_pods_of_others_are_bound(
    api: ApiClient,
) -> None:
    """Those of others tell the scheduler alone which nodes it may offer."""
    for node in ("node-1", "node-3"):
        cache = npu_nodes.pod(f"cache-{node}")
        cache["metadata"]["labels"] = {"app": "cache"}
        cache["spec"]["nodeName"] = node
        await api.create(PODS, cache)
    names = ("fed-0", "fed-1")
    for name in names:
        pod = jobs.member(name, "fed", 2)
        term = {
            "topologyKey": HOST,
            "labelSelector": {"matchLabels": {"app": "cache"}},
        }
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        pod["spec"]["affinity"] = {"podAffinity": rule}
        await api.create(PODS, pod)

    found = await wait_bound(api, *names, within_s=WITHIN_S)

    assert {pod["spec"]["nodeName"] for pod in found} == {"node-1", "node-3"}


async def test_a_job_that_is_edited_from_six_to_three_is_bound(api: ApiClient) -> None:
    await api.create(jobs.JOBS, jobs.indexed_job("edited", 6))
    for index in range(6):
        pod = jobs.of_indexed_job(f"edited-{index}", "edited", index)
        await api.create(PODS, pod)
    await wait_told(api, "4 of 6 pods fit", "edited-0")

    fewer = {"completions": 3, "parallelism": 3}
    await api.patch(f"{jobs.JOBS}/edited", {"spec": fewer})
    for index in range(3, 6):
        await api.delete(f"{PODS}/edited-{index}", grace_s=0)

    await wait_bound(api, "edited-0", "edited-1", "edited-2", within_s=AFTER_EDIT_S)


async def test_a_job_with_room_that_is_edited_from_six_to_three_is_bound(
    api: ApiClient,
) -> None:
    """Three of six pods were never made."""
    await api.create(jobs.JOBS, jobs.indexed_job("waits", 6))
    names = [f"waits-{index}" for index in range(3)]
    for index, name in enumerate(names):
        await api.create(PODS, jobs.of_indexed_job(name, "waits", index))
    await wait_told(api, "waits for 3 of the 6 pods of its job", "waits-0")

    fewer = {"completions": 3, "parallelism": 3}
    await api.patch(f"{jobs.JOBS}/waits", {"spec": fewer})

    await wait_bound(api, *names, within_s=AFTER_EDIT_S)


async def test_two_of_three_pods_start_where_two_fit_and_the_third_joins(
    api: ApiClient,
) -> None:
    await fill(api, "node-0", "node-1", "node-2")
    path = await path_of_groups(api)
    await api.create(path, jobs.pod_group("elastic", 2))
    names = [f"elastic-{number}" for number in range(3)]
    for name in names:
        await api.create(PODS, jobs.of_pod_group(name, "elastic"))
    await wait_told(api, "its job does not fit", names[0])
    await api.delete(f"{PODS}/full-node-2", grace_s=0)

    async def are_two() -> bool:
        return len({*names} & (await bound(api)).keys()) == 2

    await until(are_two, "two of three bound", within_s=WITHIN_S)
    assert {*(await bound(api)).values()} == {*POOLS}

    await api.delete(f"{PODS}/full-node-0", grace_s=0)
    await wait_bound(api, *names, within_s=WITHIN_S)
    assert len(await npu_nodes.taken(api)) == 8 * len(POOLS)


async def path_of_groups(api: ApiClient) -> str:
    """The collection of PodGroups, of a version that the API server serves."""
    served = await api.get("/apis/scheduling.k8s.io")
    for version in (each["version"] for each in served["versions"]):
        found = await api.get(f"/apis/scheduling.k8s.io/{version}")
        if any(each["name"] == "podgroups" for each in found["resources"]):
            return jobs.GROUPS.format(version=version)
    pytest.fail("no PodGroups are served")


async def fill(api: ApiClient, *nodes: str) -> None:
    """Have all chips of these nodes taken by pods `full-NODE`."""
    for node in nodes:
        pod = npu_nodes.pod(f"full-{node}", 8)
        pod["spec"]["nodeSelector"] = {HOST: node}
        await api.create(PODS, pod)
    await wait_bound(api, *(f"full-{node}" for node in nodes))


async def become_ready(api: ApiClient, *names: str) -> None:
    """Say of pods, as their kubelet would, that they run and are ready."""
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": ready}
    for name in names:
        await api.patch_status(f"{PODS}/{name}", {"status": status})


async def rival_waits(api: ApiClient) -> None:
    """Let another job want more nodes than are not kept."""
    for name in ("rival-0", "rival-1"):
        await api.create(PODS, jobs.member(name, "rival", 2))
    await wait_told(api, "its job does not fit: 1 of 2 pods fit", "rival-0")


async def test_workers_of_a_ready_leader_find_their_nodes(api: ApiClient) -> None:
    await api.create(jobs.WORKER_SETS, jobs.worker_set("serve", 3))
    await api.create(PODS, jobs.of_worker_set("serve-0", "serve", 3, 0))
    await wait_bound(api, "serve-0", within_s=WITHIN_S)
    await rival_waits(api)

    await become_ready(api, "serve-0")
    for index in (1, 2):
        name = f"serve-0-{index}"
        await api.create(PODS, jobs.of_worker_set(name, "serve", 3, index))

    await wait_bound(api, "serve-0-1", "serve-0-2", within_s=WITHIN_S)
    assert (await bound(api)).keys() == {"serve-0", "serve-0-1", "serve-0-2"}


async def test_replicated_jobs_that_start_in_order_find_their_nodes(
    api: ApiClient,
) -> None:
    await api.create(jobs.JOB_SETS, jobs.job_set("ordered", driver=1, workers=2))
    await api.create(PODS, jobs.of_job_set("driver-0", "ordered", "driver", 0))
    await wait_bound(api, "driver-0", within_s=WITHIN_S)
    await rival_waits(api)

    await become_ready(api, "driver-0")
    for index in range(2):
        name = f"worker-{index}"
        await api.create(PODS, jobs.of_job_set(name, "ordered", "workers", index))

    await wait_bound(api, "worker-0", "worker-1", within_s=WITHIN_S)
    assert (await bound(api)).keys() == {"driver-0", "worker-0", "worker-1"}


async def run_job(api: ApiClient, job: str, pods: int) -> list[str]:
    """Have a job run; return the names of its pods."""
    await api.create(jobs.JOBS, jobs.indexed_job(job, pods))
    names = [f"{job}-{index}-old" for index in range(pods)]
    for index, name in enumerate(names):
        await api.create(PODS, jobs.of_indexed_job(name, job, index))
    await wait_bound(api, *names, within_s=WITHIN_S)
    await become_ready(api, *names)
    return names


async def test_a_job_made_anew_starts_when_the_last_old_pod_has_ended(
    api: ApiClient,
) -> None:
    """No kubelet is there, so pods end when the test says so."""
    old = await run_job(api, "anew", 4)
    for name in old:
        await api.delete(f"{PODS}/{name}")
    new = [f"anew-{index}-new" for index in range(4)]
    for index, name in enumerate(new):
        await api.create(PODS, jobs.of_indexed_job(name, "anew", index))
    await wait_told(api, "0/4 nodes are available", new[0])
    for name in old[1:]:
        await api.delete(f"{PODS}/{name}", grace_s=0)
    await wait_told(api, "3 of 4 pods fit", new[0])
    assert (await bound(api)).keys() == {old[0]}

    await api.delete(f"{PODS}/{old[0]}", grace_s=0)

    await wait_bound(api, *new, within_s=WITHIN_S)


async def test_pods_that_end_let_none_of_their_job_through(api: ApiClient) -> None:
    """There is room beside them, so the new ones wait for each other only."""
    old = await run_job(api, "beside", 2)
    for name in old:
        await api.delete(f"{PODS}/{name}")
    await api.create(PODS, jobs.of_indexed_job("beside-0-new", "beside", 0))
    await wait_told(api, "waits for 1 of the 2 pods of its job", "beside-0-new")
    assert (await bound(api)).keys() == {*old}

    await api.create(PODS, jobs.of_indexed_job("beside-1-new", "beside", 1))

    await wait_bound(api, "beside-0-new", "beside-1-new", within_s=WITHIN_S)
    assert len(await npu_nodes.taken(api)) == 8 * len(POOLS)
