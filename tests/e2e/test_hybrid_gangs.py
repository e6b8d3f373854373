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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with ours.installed(*NODES) as cluster:
        await ours.serve(cluster, "--gate-s", "2")
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


async def test_what_keeps_one_pod_keeps_all_and_no_chips_of_others(
    api: ApiClient,
) -> None:
    """A node selector that no node has: the scheduler never asks us for that pod."""
    await create_job(api, "stuck", 2)
    await api.create(PODS, asking("stuck-0", "stuck", 0))
    picky = asking("stuck-1", "stuck", 1)
    picky["spec"]["nodeSelector"] = {"disk": "ssd"}
    await api.create(PODS, picky)
    await wait_event(api, "AscendGangTimeout", "stuck-1")
    assert await bound(api) == {}

    await create_job(api, "other", 3)
    for index in range(3):
        await api.create(PODS, asking(f"other-{index}", "other", index))
    await wait_bound(api, "other-0", "other-1", "other-2")

    assert set(await bound(api)) == {"other-0", "other-1", "other-2"}
    await remove_all(api)
