"""Leaf switches and SuperPoDs of nodes without agents, under the stock scheduler."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.apiserver import live_settings
from sandbox.apiclient import ApiClient, Object
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as RINGS
from scheduler_core.products.table import Product
from scheduler_core.wire import switches
from tests.e2e import npu_nodes, ours
from tests.e2e.bare_pods import wait_bound
from tests.support import watched
from tests.support.objects import CONFIGMAPS, PODS, configmap

pytestmark = pytest.mark.asyncio(loop_scope="module")

A3 = table.by_key("atlas-a3-16-superpod")
#: {node of an A3: its SuperPoD}
SUPERPODS = {"a3-0": 0, "a3-1": 1, "a3-2": 1}
#: two to a leaf
LEAVES = (("ring-0", "ring-1"), ("ring-2", "ring-3"))
ADDRESSES = {
    name: f"10.0.0.{at}" for at, name in enumerate((*SUPERPODS, *LEAVES[0], *LEAVES[1]))
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender and no agent at all."""
    async with ours.installed() as cluster:
        for name, superpod in SUPERPODS.items():
            await create(cluster.api, name, A3, superpod)
        for name in (*LEAVES[0], *LEAVES[1]):
            await create(cluster.api, name, RINGS, -2)
        addresses = [tuple(ADDRESSES[name] for name in names) for names in LEAVES]
        tor_info = watched.leaves(*addresses).tor_info
        settings = {"reserve-nodes": "0", "nslb-version": "2.0"}
        for config in (
            configmap(live_settings.NAME, settings),
            configmap(switches.NAME, {"tor_info": tor_info}),
        ):
            await cluster.api.create(CONFIGMAPS, config)
        await ours.serve(cluster, "--bare-nodes", "true")
        yield cluster.api


async def create(api: ApiClient, name: str, product: Product, superpod: int) -> None:
    await npu_nodes.create_bare(
        api, name, product, address=ADDRESSES[name], superpod=superpod
    )


def member(name: str, job: str, product: Product) -> Object:
    """One of two pods of a job, with whole nodes of that kind."""
    pod = npu_nodes.pod(name, product.chip_count)
    pod["metadata"]["annotations"] = {
        "ascend-affinity/job": job,
        "ascend-affinity/job-size": "2",
    }
    kind = product.accelerator_types[-1]
    pod["spec"]["nodeSelector"] = {"accelerator-type": kind}
    return pod


@pytest.mark.seed("001-13")
async def test_a_logical_superpod_lies_in_one_physical(api: ApiClient) -> None:
    for name in ("a", "b"):
        pod = member(name, "training", A3)
        pod["metadata"]["annotations"]["sp-block"] = "32"
        await api.create(PODS, pod)

    found = await wait_bound(api, "a", "b")

    assert {pod["spec"]["nodeName"] for pod in found} == {"a3-1", "a3-2"}
    marks = [pod["metadata"]["annotations"] for pod in found]
    assert {(each["super-pod-rank"], each["super-pod-id"]) for each in marks} == {
        ("0", "1")
    }


@pytest.mark.seed("001-10")
async def test_a_small_job_lies_under_one_leaf(api: ApiClient) -> None:
    busy = npu_nodes.pod("busy", 1)
    busy["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "ring-0"}
    await api.create(PODS, busy)
    await wait_bound(api, "busy")
    for name in ("c", "d"):
        pod = member(name, "filler", RINGS)
        pod["metadata"]["labels"] = {"tor-affinity": "large-model-schema"}
        await api.create(PODS, pod)

    found = await wait_bound(api, "c", "d")

    assert {pod["spec"]["nodeName"] for pod in found} == set(LEAVES[1])
    marks = [pod["metadata"]["annotations"] for pod in found]
    assert {(each["isSharedTor"], each["isHealthy"]) for each in marks} == {("0", "0")}
