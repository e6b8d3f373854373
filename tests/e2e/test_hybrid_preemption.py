"""Room for pods of higher priority, under the stock scheduler.

A control plane without a machine below it: pods that are evicted stay, ending, until
the test plays their kubelet. There is no disruption controller either, so that a
PodDisruptionBudget lets nobody go.
"""

from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import until
from tests.e2e.bare_pods import chips, wait_bound, wait_event
from tests.e2e.places import REPOSITORY
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITHIN_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster whose extender evicts."""
    async with ours.installed() as cluster:
        component = REPOSITORY / "daemonset" / "components" / "preemption"
        cluster.kubectl("apply", "-f", component / "access.yaml")
        await cluster.api.create(CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await ours.serve(cluster, "--preemption", "evict")
        yield cluster.api


async def run(api: ApiClient, name: str, node: str, *its: int) -> None:
    """A pod that has its chips, confirmed as by its agent."""
    pod = npu_nodes.pod(name, len(its))
    named = ",".join(f"{PRODUCT.chip_prefix}{chip}" for chip in its)
    pod["metadata"]["labels"] = {"app": name}
    pod["metadata"]["annotations"] = {
        PRODUCT.resource: named,
        annotations.PREDICATE_TIME: str(annotations.SERVED),
        annotations.ASCEND_REAL: named,
    }
    pod["spec"]["nodeName"] = node
    await api.create(PODS, pod)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": ready}
    await api.patch_status(f"{PODS}/{name}", {"status": status})


async def want(api: ApiClient, name: str, count: int) -> None:
    pod = npu_nodes.pod(name, count)
    pod["spec"]["priorityClassName"] = "high"
    await api.create(PODS, pod)


async def test_a_ring_is_freed_where_chips_suffice_and_budgets_are_kept(
    api: ApiClient,
) -> None:
    await npu_nodes.create(api, "node-0")
    await run(api, "low-a", "node-0", 0)
    await run(api, "low-b", "node-0", 4)
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "low-a"}}}
    await api.create(BUDGETS, {"metadata": {"name": "keep"}, "spec": spec})

    await want(api, "high", 4)
    assert await _wait_ending(api, 1) == {"low-b"}
    await _end(api, ["low-b"])
    [high] = await wait_bound(api, "high")

    assert chips(high) == {4, 5, 6, 7}
    await wait_event(api, "AscendPreempted", "low-b")
    await wait_event(api, "AscendPreempting", "high")
    await api.delete(f"{BUDGETS}/keep")
    await _end(api, ["low-a", "high"])


async def test_where_chips_do_not_suffice_those_go_whose_chips_are_together(
    api: ApiClient,
) -> None:
    """The scheduler by itself takes the youngest four, one of two in each ring."""
    await npu_nodes.create(api, "node-1")
    await api.patch("/api/v1/nodes/node-0", {"spec": {"unschedulable": True}})
    for turn in range(4):
        await run(api, f"one-{turn}", "node-1", turn)
        await run(api, f"two-{turn}", "node-1", turn + 4)

    await want(api, "high", 4)
    gone = await _wait_ending(api, 4)

    assert gone in ({f"{ring}-{turn}" for turn in range(4)} for ring in ("one", "two"))
    await _end(api, gone)
    await wait_bound(api, "high")
    assert len(await api.items(PODS)) == 5


async def _end(api: ApiClient, names: Iterable[str]) -> None:
    for name in names:
        await api.delete(f"{PODS}/{name}", grace_s=0)


async def _wait_ending(api: ApiClient, count: int) -> set[str]:
    """Wait until so many pods are being evicted; return their names."""
    names: set[str] = set()

    async def are_ending() -> bool:
        meta = [pod["metadata"] for pod in await api.items(PODS)]
        names.update(each["name"] for each in meta if "deletionTimestamp" in each)
        return len(names) == count

    await until(are_ending, f"{count} pods evicted", within_s=WITHIN_S)
    return names
