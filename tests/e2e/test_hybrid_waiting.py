"""Pods that wait: what the stock scheduler tells of them, and when it tries again.

A control plane without a machine below it; what agents would report is written here.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio

from extender.record import UNSHOWN_S
from sandbox.apiclient import ApiClient, Object
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import bare_cluster, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2")
PODS = "/api/v1/namespaces/default/pods"
#: From chips that are free to a pod that is bound. The scheduler's own flush of pods
#: that wait comes after five minutes.
WOKEN_WITHIN_S = 2.0
#: The extender's watch; nobody says when it has come.
_WATCH_S = 0.3
ALL = tuple(range(8))

Chips = Sequence[int]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with bare_cluster(ours.USERS) as cluster:
        ours.give_rights(cluster)
        for name in NODES:
            await npu_nodes.create(cluster.api, name)
        extender = await ours.start_extender(cluster)
        await cluster.start_scheduler(extender.url)
        yield cluster.api


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the nodes' agents report, and what is said to a pod that does not fit."""

    count: int
    held: Sequence[Chips] = ((), (), ())
    broken: Sequence[Chips] = ((), (), ())
    told: str


#: What the scheduler adds to our sentence: why nobody is evicted for the pod.
NO_VICTIMS = (
    "no new claims to deallocate, preemption: 0/3 nodes are available: "
    "3 No preemption victims found for incoming pod."
)
NO_HELP = (
    "no new claims to deallocate, preemption: 0/3 nodes are available: "
    "3 Preemption is not helpful for scheduling."
)

CASES = {
    "held-by-others": Case(
        count=1,
        held=(ALL, ALL, ALL),
        told=f"0/3 nodes are available: 3 no free chip. {NO_VICTIMS}",
    ),
    "too-few": Case(
        count=8,
        held=((0,), (4, 5), (7,)),
        told="0/3 nodes are available: 3 without 8 free chips. " + NO_VICTIMS,
    ),
    "scattered": Case(
        count=4,
        held=((0, 4), (1, 5), (2, 3, 6)),
        told="0/3 nodes are available: 3 no HCCS ring has 4 free chips. " + NO_HELP,
    ),
    "broken": Case(
        count=8,
        broken=((0,), (3, 4), (7,)),
        told=f"0/3 nodes are available: 3 chip unhealthy. {NO_HELP}",
    ),
    "all-of-it": Case(
        count=4,
        held=((0,), (0, 1, 2, 3, 4), (0, 4)),
        broken=((1, 5), (), ()),
        told=(
            "0/3 nodes are available: 1 chip unhealthy, 1 no HCCS ring has 4 free "
            "chips, 1 without 4 free chips. no new claims to deallocate, "
            "preemption: 0/3 nodes are available: 1 No preemption victims found for "
            "incoming pod, 2 Preemption is not helpful for scheduling."
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_pod_waits_with_a_sentence_and_is_woken(
    api: ApiClient, name: str
) -> None:
    case = CASES[name]
    await _report(api, case.held, case.broken)

    pod = await _refused(api, name, case.count)

    assert await _told(api, pod) == [case.told]
    await _report(api)
    await until(lambda: _is_bound(api, name), "pod bound", within_s=WOKEN_WITHIN_S)
    await _remove(api, name)


async def test_a_pod_that_was_refused_again_and_again_is_woken_as_soon(
    api: ApiClient,
) -> None:
    await _report(api, ((0,), (0,), (0,)))
    await _refused(api, "patient", 8)
    for number in range(6):  # each makes the scheduler try again, and wait longer
        label = {"metadata": {"labels": {"e2e/turn": str(number)}}}
        await api.patch("/api/v1/nodes/node-1", label)
        await asyncio.sleep(0.5)

    await _report(api)

    await until(lambda: _is_bound(api, "patient"), "bound", within_s=WOKEN_WITHIN_S)
    await _remove(api, "patient")


async def test_a_pod_waits_for_the_chips_of_another_that_ends(api: ApiClient) -> None:
    await _report(api, (ALL, ALL, ()))
    await api.create(PODS, npu_nodes.pod("first", 8))
    await until(lambda: _is_bound(api, "first"), "the first bound", within_s=10)
    await _report(api, (ALL, ALL, ALL))
    await _refused(api, "second", 8)
    # The pod is gone, and the scheduler tries at once; but its chips are released
    # only when its processes are gone, too, and then no scheduler sees anything.
    await _remove(api, "first")
    assert not await _is_bound(api, "second")

    await npu_nodes.set_report(api, "node-2")

    await until(lambda: _is_bound(api, "second"), "bound", within_s=WOKEN_WITHIN_S)
    await _remove(api, "second")


async def test_a_node_whose_agent_says_it_in_another_version_is_left_out(
    api: ApiClient,
) -> None:
    for name in NODES:
        await npu_nodes.set_affinity(api, name, {"version": 2, "held": "none"})
    await asyncio.sleep(_WATCH_S)

    pod = await _refused(api, "newer", 1)

    told = f"0/3 nodes are available: 3 unreadable NPU report. {NO_HELP}"
    assert await _told(api, pod) == [told]
    await _report(api)
    await until(lambda: _is_bound(api, "newer"), "bound", within_s=WOKEN_WITHIN_S)
    await _remove(api, "newer")


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (3, f"3 cannot give a pod 3 chips, only 1, 2, 4 or 8. {NO_HELP}"),
        (16, f"3 Insufficient huawei.com/Ascend910. {NO_HELP}"),
    ],
)
async def test_a_count_that_no_node_ever_serves_is_said(
    api: ApiClient, count: int, told: str
) -> None:
    await _report(api)

    pod = await _refused(api, f"wants-{count}", count)

    assert await _told(api, pod) == [f"0/3 nodes are available: {told}"]
    await _remove(api, f"wants-{count}")


async def _report(
    api: ApiClient,
    held: Sequence[Chips] = ((), (), ()),
    broken: Sequence[Chips] = ((), (), ()),
) -> None:
    for name, taken, unfit in zip(NODES, held, broken, strict=True):
        await npu_nodes.set_report(api, name, held=taken, broken=unfit)
    await asyncio.sleep(_WATCH_S)


async def _refused(api: ApiClient, name: str, count: int) -> Object:
    """Create a pod and wait until the scheduler has found no node for it."""
    await api.create(PODS, npu_nodes.pod(name, count))

    async def is_refused() -> bool:
        status = (await api.get(f"{PODS}/{name}"))["status"]
        return any(
            each.get("reason") == "Unschedulable"
            for each in status.get("conditions", ())
        )

    await until(is_refused, f"{name} refused", within_s=10)
    return await api.get(f"{PODS}/{name}")


async def _told(api: ApiClient, pod: Object) -> list[str]:
    """The messages that a person finds on the pod: its condition, and its events."""
    uid = pod["metadata"]["uid"]
    messages: set[str] = set()

    async def is_there() -> bool:
        events = await api.items("/api/v1/namespaces/default/events")
        messages.update(
            str(each["message"])
            for each in events
            if each["involvedObject"].get("uid") == uid
            and each["reason"] == "FailedScheduling"
        )
        return bool(messages)

    await until(is_there, "an event on the pod", within_s=10)
    conditions = pod["status"]["conditions"]
    return sorted(messages | {str(each["message"]) for each in conditions})


async def _is_bound(api: ApiClient, name: str) -> bool:
    return bool((await api.get(f"{PODS}/{name}"))["spec"].get("nodeName"))


async def _remove(api: ApiClient, name: str) -> None:
    """Delete a pod, and wait until the extender takes silence for its release."""
    await api.delete(f"{PODS}/{name}", grace_s=0)
    await asyncio.sleep(UNSHOWN_S + 1)
