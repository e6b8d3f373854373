"""Jobs of several pods under the stock scheduler, from creation to binding.

A control plane without a machine below it; nobody makes the pods of a Job here, so
the test does, with the labels that the controller gives them.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient, Object
from tests.e2e import npu_nodes, ours
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
JOBS = "/apis/batch/v1/namespaces/default/jobs"
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


def asking(name: str, job: str, index: int, cpu: str = "1") -> Object:
    """A pod with eight chips, as the Job controller makes it."""
    pod = npu_nodes.pod(name, 8)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    pod["metadata"]["labels"] = {
        "batch.kubernetes.io/job-name": job,
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod


async def create_job(api: ApiClient, name: str, pods: int) -> None:
    """An indexed Job whose pods all run at once."""
    template = {"spec": npu_nodes.pod("x", 8)["spec"] | {"restartPolicy": "Never"}}
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    await api.create(
        JOBS,
        {"metadata": {"name": name}, "spec": spec | {"template": template}},
    )


async def test_an_indexed_job_is_bound_once_all_its_pods_exist(api: ApiClient) -> None:
    await create_job(api, "train", 3)
    for index in range(2):
        await api.create(PODS, asking(f"train-{index}", "train", index))
    await wait_told(api, "waits for 1 of the 3 pods of its job")
    assert await bound(api) == {}

    await api.create(PODS, asking("train-2", "train", 2))
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
    await create_job(api, "large", 3)
    for index in range(3):
        await api.create(PODS, asking(f"large-{index}", "large", index, cpu="100"))

    await wait_told(api, "its job does not fit: 2 of 3 pods fit")

    assert set(await bound(api)) == {"busy"}
    await api.delete(f"{PODS}/busy", grace_s=0)
    await wait_bound(api, "large-0", "large-1", "large-2")
    await remove_all(api)


async def test_a_pod_that_no_node_suits_keeps_its_job_from_holding_chips(
    api: ApiClient,
) -> None:
    """A node selector that no node has: the scheduler never asks us for that pod."""
    await create_job(api, "picky", 2)
    await api.create(PODS, asking("picky-0", "picky", 0))
    alone = asking("picky-1", "picky", 1)
    alone["spec"]["nodeSelector"] = {"disk": "ssd"}
    await api.create(PODS, alone)
    text = "its job waits until the scheduler finds nodes for picky-1 as well"
    await wait_told(api, text, "picky-0")

    await fits_beside(api, "other", 3)


async def test_what_keeps_one_pod_at_the_gate_keeps_all(api: ApiClient) -> None:
    """A volume that nobody makes: the scheduler finds nodes, and never binds."""
    await create_job(api, "stuck", 2)
    await api.create(PODS, asking("stuck-0", "stuck", 0))
    await api.create(CLASSES, SLOW)
    await api.create(CLAIMS, CLAIM)
    empty = asking("stuck-1", "stuck", 1)
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    empty["spec"]["volumes"] = [{"name": "data", **claim}]
    await api.create(PODS, empty)
    await wait_event(api, "AscendGangTimeout", "stuck-1")

    # The scheduler itself keeps the node of the pod that waits for its volume.
    await fits_beside(api, "another", 2)


async def fits_beside(api: ApiClient, job: str, pods: int) -> None:
    """See a job get its nodes, and nobody else one; then delete all."""
    assert await bound(api) == {}
    await create_job(api, job, pods)
    names = [f"{job}-{index}" for index in range(pods)]
    for index, name in enumerate(names):
        await api.create(PODS, asking(name, job, index))
    await wait_bound(api, *names)

    assert set(await bound(api)) == set(names)
    await remove_all(api)
