"""PodGroups of Kubernetes itself under its own scheduler, in each served version.

The scheduler takes the pods one by one, or group by group where its feature gate is
on. Of a group it asks about all pods before it binds one.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient, Object
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import BareCluster, until
from tests.e2e.bare_pods import bound, remove_all, wait_bound, wait_told
from tests.e2e.places import minor
from tests.support.objects import NODES as NODES_PATH
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2")
GATES = "--feature-gates=GenericWorkload=true"
IS_BETA = minor() >= 37
#: Versions in which the release serves these groups.
VERSIONS = ("v1beta1", "v1alpha3") if IS_BETA else ("v1alpha2",)
#: How the scheduler is told to take groups as a whole.
GROUP_BY_GROUP = GATES if IS_BETA else f"{GATES},GangScheduling=true"
WITHIN_S = 10.0


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        (version, arguments)
        for version in VERSIONS
        # It knows the first of these versions only.
        for arguments in ((), (GROUP_BY_GROUP,))[: 1 + (version == VERSIONS[0])]
    ],
    ids=lambda param: f"{param[0]}-{'groups' if param[1] else 'pods'}",
)
async def serving(
    request: pytest.FixtureRequest,
) -> AsyncIterator[tuple[BareCluster, str]]:
    """A cluster that serves the groups, and in which version."""
    version, arguments = request.param
    serves = f"--runtime-config=scheduling.k8s.io/{version}=true"
    async with ours.installed(*NODES, server_arguments=(GATES, serves)) as cluster:
        extender = await ours.start_extender(cluster, "--permit-s", "5")
        await cluster.start_scheduler(extender.url, *arguments)
        yield cluster, version


@pytest_asyncio.fixture(loop_scope="module")
async def api(serving: tuple[BareCluster, str]) -> AsyncIterator[ApiClient]:
    """Its API server; afterwards it has no pods."""
    yield serving[0].api
    await remove_all(serving[0].api)


async def create_group(
    serving: tuple[BareCluster, str], name: str, min_count: int
) -> None:
    """A gang that runs with so many pods."""
    bare, version = serving
    groups = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"
    policy = {"gang": {"minCount": min_count}}
    body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
    await bare.api.create(groups, body)


def asking(name: str, group: str, **spec: object) -> Object:
    """A pod of the group with a node's chips."""
    pod = npu_nodes.pod(name, 8)
    pod["spec"] |= {"schedulingGroup": {"podGroupName": group}, **spec}
    return pod


async def test_a_gang_is_bound_once_all_that_it_needs_exist(
    serving: tuple[BareCluster, str], api: ApiClient
) -> None:
    await create_group(serving, "whole", 3)
    for index in range(2):
        await api.create(PODS, asking(f"whole-{index}", "whole"))
    await api.create(PODS, npu_nodes.pod("after"))
    await wait_bound(api, "after")  # so the scheduler has looked at those before it
    assert set(await bound(api)) == {"after"}

    await api.create(PODS, asking("whole-2", "whole"))

    await wait_bound(api, *(f"whole-{index}" for index in range(3)), within_s=WITHIN_S)
    await api.delete(f"{PODS}/after", grace_s=0)
    assert await npu_nodes.taken(api) == {
        (node, f"Ascend910-{chip}") for node in NODES for chip in range(8)
    }


async def test_two_of_three_run_and_the_third_joins_as_room_comes(
    serving: tuple[BareCluster, str], api: ApiClient
) -> None:
    await api.create(PODS, npu_nodes.pod("before", 8))
    await wait_bound(api, "before")
    await create_group(serving, "elastic", 2)
    for index in range(3):
        await api.create(PODS, asking(f"elastic-{index}", "elastic"))

    async def are_two_bound() -> bool:
        return len(await bound(api)) == 3

    await until(are_two_bound, "two of three bound", within_s=WITHIN_S)
    await api.delete(f"{PODS}/before", grace_s=0)

    names = [f"elastic-{index}" for index in range(3)]
    await wait_bound(api, *names, within_s=2 * WITHIN_S)


async def test_a_gang_with_pods_of_two_pools_is_bound(
    serving: tuple[BareCluster, str], api: ApiClient
) -> None:
    """The scheduler may stop asking once one pod of the gang is refused."""
    for node, pool in zip(NODES, ("a", "b", "b"), strict=True):
        await api.patch(
            f"{NODES_PATH}/{node}", {"metadata": {"labels": {"pool": pool}}}
        )
    await create_group(serving, "pools", 3)
    for index, pool in enumerate(("a", "b", "b")):
        selector = {"pool": pool}
        await api.create(PODS, asking(f"pools-{index}", "pools", nodeSelector=selector))

    names = [f"pools-{index}" for index in range(3)]
    await wait_bound(api, *names, within_s=2 * WITHIN_S)


async def test_a_gang_that_does_not_fit_holds_nothing(
    serving: tuple[BareCluster, str], api: ApiClient
) -> None:
    await create_group(serving, "large", 4)
    for index in range(4):
        await api.create(PODS, asking(f"large-{index}", "large"))
    await wait_told(api, "its job does not fit: 3 of 4 pods fit")

    await api.create(PODS, npu_nodes.pod("single", 8))

    await wait_bound(api, "single", within_s=WITHIN_S)
    assert set(await bound(api)) == {"single"}
