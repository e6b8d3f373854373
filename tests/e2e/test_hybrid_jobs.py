"""Jobs whose pods people make and mark, each bound soon on a stock scheduler.

A control plane without a machine below it. Jobs that controllers make are told of in
`stories`.
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
HOST = "kubernetes.io/hostname"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    alpha = ("--feature-gates=GenericWorkload=true", "--runtime-config=api/all=true")
    async with ours.installed(*POOLS, server_arguments=alpha) as cluster:
        for name, pool in POOLS.items():
            marks = {"labels": {"pool": pool}}
            await cluster.api.patch(f"{NODES}/{name}", {"metadata": marks})
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
