"""Room for pods of higher priority, under the stock scheduler.

A control plane without a machine below it: pods that are evicted stay, ending, until
the test plays their kubelet. There is no disruption controller either, so that a
PodDisruptionBudget lets nobody go.
"""

from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient, Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import bare_cluster, until
from tests.e2e.places import REPOSITORY

pytestmark = pytest.mark.asyncio(loop_scope="module")

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITHIN_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster whose extender evicts."""
    async with bare_cluster(ours.USERS) as cluster:
        ours.give_rights(cluster)
        component = REPOSITORY / "daemonset" / "components" / "preemption"
        cluster.kubectl("apply", "-f", component / "access.yaml")
        await cluster.api.create(CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        extender = await ours.start_extender(cluster, "--preemption", "evict")
        await cluster.start_scheduler(extender.url)
        yield cluster.api


async def run(api: ApiClient, name: str, node: str, *chips: int) -> None:
    """A pod that has its chips, confirmed as by its agent."""
    pod = npu_nodes.pod(name, len(chips))
    named = ",".join(f"{PRODUCT.chip_prefix}{chip}" for chip in chips)
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
    await until(lambda: _are_ending(api, {"low-b"}), "low-b evicted", within_s=WITHIN_S)
    await _end(api, ["low-b"])
    await until(lambda: _is_bound(api, "high"), "high bound", within_s=WITHIN_S)

    assert await _chips(api, "high") == {4, 5, 6, 7}
    await until(
        lambda: _has_event(api, "AscendPreempted", "low-b"), "told", within_s=WITHIN_S
    )
    assert await _has_event(api, "AscendMakingRoom", "high")
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
    await until(lambda: _number_ending(api, 4), "four evicted", within_s=WITHIN_S)

    gone = await _ending(api)
    assert gone in ({f"{ring}-{turn}" for turn in range(4)} for ring in ("one", "two"))
    await _end(api, gone)
    await until(lambda: _is_bound(api, "high"), "high bound", within_s=WITHIN_S)
    assert len(await api.items(PODS)) == 5


async def _end(api: ApiClient, names: Iterable[str]) -> None:
    for name in names:
        await api.delete(f"{PODS}/{name}", grace_s=0)


async def _ending(api: ApiClient) -> set[str]:
    pods = await api.items(PODS)
    meta = (pod["metadata"] for pod in pods)
    return {each["name"] for each in meta if "deletionTimestamp" in each}


async def _are_ending(api: ApiClient, names: set[str]) -> bool:
    return await _ending(api) == names


async def _number_ending(api: ApiClient, number: int) -> bool:
    return len(await _ending(api)) == number


async def _is_bound(api: ApiClient, name: str) -> bool:
    return bool((await api.get(f"{PODS}/{name}"))["spec"].get("nodeName"))


async def _chips(api: ApiClient, name: str) -> set[int]:
    pod: Object = await api.get(f"{PODS}/{name}")
    text: str = pod["metadata"]["annotations"][PRODUCT.resource]
    return {int(one.removeprefix(PRODUCT.chip_prefix)) for one in text.split(",")}


async def _has_event(api: ApiClient, reason: str, name: str) -> bool:
    return any(
        (each["reason"], each["involvedObject"]["name"]) == (reason, name)
        for each in await api.items(EVENTS)
    )
