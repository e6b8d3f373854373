"""Jobs of several pods under the stock scheduler, from creation to binding.

A control plane without a machine below it; nobody makes the pods of a Job here, so
the test does, with the labels that the controller gives them.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient, Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import bare_cluster, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2")
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WITHIN_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with bare_cluster(ours.USERS) as cluster:
        ours.give_rights(cluster)
        for name in NODES:
            await npu_nodes.create(cluster.api, name)
        extender = await ours.start_extender(cluster, "--gate-s", "2")
        await cluster.start_scheduler(extender.url)
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
    text = "waits for 1 of the 3 pods of its job"
    await until(lambda: _told(api, text), "the job waits", within_s=WITHIN_S)
    assert await _bound(api) == {}

    await api.create(PODS, asking("train-2", "train", 2))
    await until(lambda: _are_bound(api, 3), "all bound", within_s=WITHIN_S)

    assert sorted((await _bound(api)).values()) == list(NODES)
    pods = await api.items(PODS)
    assert {len(_chips(pod)) for pod in pods} == {8}
    await _remove_all(api)


async def test_a_job_of_which_one_pod_has_no_cpu_is_not_bound_in_part(
    api: ApiClient,
) -> None:
    busy = npu_nodes.pod("busy")
    busy["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    busy["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "150"}}
    await api.create(PODS, busy)
    await until(lambda: _are_bound(api, 1), "busy bound", within_s=WITHIN_S)
    await create_job(api, "large", 3)
    for index in range(3):
        await api.create(PODS, asking(f"large-{index}", "large", index, cpu="100"))

    text = "its job does not fit: 2 of 3 pods fit"
    await until(lambda: _told(api, text), "the job waits", within_s=WITHIN_S)

    assert set(await _bound(api)) == {"busy"}
    await api.delete(f"{PODS}/busy", grace_s=0)
    await until(lambda: _are_bound(api, 3), "all bound", within_s=WITHIN_S)
    await _remove_all(api)


async def test_what_keeps_one_pod_keeps_all_and_no_chips_of_others(
    api: ApiClient,
) -> None:
    """A node selector that no node has: the scheduler never asks us for that pod."""
    await create_job(api, "stuck", 2)
    await api.create(PODS, asking("stuck-0", "stuck", 0))
    picky = asking("stuck-1", "stuck", 1)
    picky["spec"]["nodeSelector"] = {"disk": "ssd"}
    await api.create(PODS, picky)
    await until(
        lambda: _has_event(api, "AscendGangTimeout", "stuck-1"),
        "told of the pod that was missing",
        within_s=WITHIN_S,
    )
    assert await _bound(api) == {}

    await create_job(api, "other", 3)
    for index in range(3):
        await api.create(PODS, asking(f"other-{index}", "other", index))
    await until(lambda: _are_bound(api, 3), "the other bound", within_s=WITHIN_S)

    assert set(await _bound(api)) == {"other-0", "other-1", "other-2"}
    await _remove_all(api)


def _chips(pod: Object) -> list[str]:
    found: str = pod["metadata"]["annotations"][PRODUCT.resource]
    return found.split(",")


async def _bound(api: ApiClient) -> dict[str, str]:
    """{pod: node}."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in await api.items(PODS)
        if pod["spec"].get("nodeName")
    }


async def _are_bound(api: ApiClient, count: int) -> bool:
    return len(await _bound(api)) == count


async def _told(api: ApiClient, text: str) -> bool:
    pods = await api.items(PODS)
    return any(
        text in each.get("message", "")
        for pod in pods
        for each in pod["status"].get("conditions", ())
    )


async def _has_event(api: ApiClient, reason: str, name: str) -> bool:
    return any(
        (each["reason"], each["involvedObject"]["name"]) == (reason, name)
        for each in await api.items(EVENTS)
    )


async def _remove_all(api: ApiClient) -> None:
    for pod in await api.items(PODS):
        await api.delete(f"{PODS}/{pod['metadata']['name']}", grace_s=0)

    async def is_empty() -> bool:
        return not await api.items(PODS)

    await until(is_empty, "all pods gone", within_s=WITHIN_S)
