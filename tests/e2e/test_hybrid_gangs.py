"""Jobs of several pods under the stock scheduler, from creation to binding.

A control plane without a machine below it. People have made and marked the pods, so
that each can be another; jobs that controllers make are told of in `stories`.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient
from tests.e2e import jobs, npu_nodes, ours
from tests.e2e.bare_pods import (
    bound,
    chips,
    remove_all,
    wait_bound,
    wait_event,
    wait_told,
)
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2")
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SLOW = {
    "metadata": {"name": "slow"},
    "provisioner": "example.com/nobody",
    "volumeBindingMode": "WaitForFirstConsumer",
}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {
        "storageClassName": "slow",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with ours.installed(*NODES) as cluster:
        await ours.serve(cluster, "--permit-s", "2")
        yield cluster.api


async def test_a_job_is_bound_once_all_its_pods_exist(api: ApiClient) -> None:
    for name in ("train-0", "train-1"):
        await api.create(PODS, jobs.member(name, "train", 3))
    await wait_told(api, "waits for 1 of the 3 pods of its job")
    assert await bound(api) == {}

    await api.create(PODS, jobs.member("train-2", "train", 3))
    pods = await wait_bound(api, "train-0", "train-1", "train-2")

    assert sorted((await bound(api)).values()) == list(NODES)
    assert {len(chips(pod)) for pod in pods} == {8}
    await remove_all(api)


@pytest.mark.core("gang")
async def test_a_job_of_which_one_pod_has_no_cpu_is_not_bound_in_part(
    api: ApiClient,
) -> None:
    busy = npu_nodes.pod("busy")
    busy["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    busy["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "150"}}
    await api.create(PODS, busy)
    await wait_bound(api, "busy")
    for index in range(3):
        pod = jobs.member(f"large-{index}", "large", 3)
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100"}
        await api.create(PODS, pod)

    await wait_told(api, "its job does not fit: 2 of 3 pods fit")

    assert set(await bound(api)) == {"busy"}
    await api.delete(f"{PODS}/busy", grace_s=0)
    await wait_bound(api, "large-0", "large-1", "large-2")
    await remove_all(api)


async def test_a_pod_that_no_node_suits_keeps_its_job_from_holding_chips(
    api: ApiClient,
) -> None:
    """A node selector that no node has: the scheduler never asks us for that pod."""
    await api.create(PODS, jobs.member("picky-0", "picky", 2))
    alone = jobs.member("picky-1", "picky", 2, nodeSelector={"disk": "ssd"})
    await api.create(PODS, alone)
    text = "its job waits until the scheduler finds nodes for picky-1 as well"
    await wait_told(api, text, "picky-0")

    await fits_beside(api, "other", 3)


async def test_what_keeps_one_pod_at_the_gate_keeps_all(api: ApiClient) -> None:
    """A volume that nobody makes: the scheduler finds nodes, and never binds."""
    await api.create(PODS, jobs.member("stuck-0", "stuck", 2))
    await api.create(CLASSES, SLOW)
    await api.create(CLAIMS, CLAIM)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    await api.create(PODS, jobs.member("stuck-1", "stuck", 2, volumes=[volume]))
    await wait_event(api, "AscendGangTimeout", "stuck-1")

    # The scheduler itself keeps the node of the pod that waits for its volume.
    await fits_beside(api, "another", 2)


async def fits_beside(api: ApiClient, job: str, pods: int) -> None:
    """See a job get its nodes, and nobody else one; then delete all."""
    assert await bound(api) == {}
    names = [f"{job}-{index}" for index in range(pods)]
    for name in names:
        await api.create(PODS, jobs.member(name, job, pods))
    await wait_bound(api, *names)

    assert set(await bound(api)) == set(names)
    await remove_all(api)
