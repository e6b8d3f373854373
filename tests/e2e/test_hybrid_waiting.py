"""Pods that wait: what the stock scheduler tells of them, and when it tries again.

A control plane without a machine below it; what agents would report is written here.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pytest
import pytest_asyncio

from extender.cache.node_state import UNSHOWN_S
from extender.refusals import NOT_BEST
from sandbox.apiclient import ApiClient, Object
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import until
from tests.e2e.bare_pods import EVENTS, bound, wait_bound
from tests.e2e.places import minor
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2")
#: From chips that are free to a pod that is bound. The scheduler's own flush of pods
#: that wait comes after five minutes.
WOKEN_WITHIN_S = 2.0
_WITHIN_S = 120.0
ALL = tuple(range(8))
RINGS = ({0, 1, 2, 3}, {4, 5, 6, 7})
#: Pods that wait for another scheduler, one for each count: the extender says of them
#: where they would fit, and so how far it knows what the nodes have reported.

PROBES = {count: f"probe-{count}" for count in (1, 2, 4, 8)}
_PLACEABLE = ("fits", NOT_BEST.text)

Chips = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster with our extender under the stock scheduler."""

    api: ApiClient
    #: where the extender explains
    extender: ApiClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    """API server, scheduler, extender, and three nodes on paper."""
    async with ours.installed(*NODES) as cluster:
        extender = await ours.serve(cluster)
        for count, name in PROBES.items():
            probe = npu_nodes.pod(name, count)
            probe["spec"]["schedulerName"] = "nobody"
            await cluster.api.create(PODS, probe)
        async with ApiClient(extender.url, "") as explains:
            yield Site(api=cluster.api, extender=explains)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the nodes' agents report, and what is said to a pod that does not fit."""

    count: int
    held: Sequence[Chips] = ((), (), ())
    broken: Sequence[Chips] = ((), (), ())
    told: str


#: What the scheduler adds to our sentence: why nobody is evicted for the pod. Before
#: 1.37 it adds that no device claim can be taken back.
_NOBODY = "preemption: 0/3 nodes are available: "
NOBODY = _NOBODY if minor() >= 37 else f"no new claims to deallocate, {_NOBODY}"
NO_VICTIMS = f"{NOBODY}3 No preemption victims found for incoming pod."
NO_HELP = f"{NOBODY}3 Preemption is not helpful for scheduling."

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
            f"chips, 1 without 4 free chips. {NOBODY}1 No preemption victims found "
            "for incoming pod, 2 Preemption is not helpful for scheduling."
        ),
    ),
}


@pytest.mark.core("reason")
@pytest.mark.parametrize("name", CASES)
async def test_a_pod_waits_with_a_sentence_and_is_woken(site: Site, name: str) -> None:
    case = CASES[name]
    await _have_reported(site, case.held, case.broken)

    pod = await _refused(site, name, case.count)

    assert await _told(site, pod) == [case.told]
    await _report(site)
    await wait_bound(site.api, name, within_s=WOKEN_WITHIN_S)
    await _remove(site, name)


async def test_a_pod_that_was_refused_again_and_again_is_woken_as_soon(
    site: Site,
) -> None:
    await _have_reported(site, ((0,), (0,), (0,)))
    await _refused(site, "patient", 8)
    for number in range(6):  # each makes the scheduler try again, and wait longer
        label = {"metadata": {"labels": {"e2e/turn": str(number)}}}
        await site.api.patch("/api/v1/nodes/node-1", label)
        await asyncio.sleep(0.5)

    await _report(site)

    await wait_bound(site.api, "patient", within_s=WOKEN_WITHIN_S)
    await _remove(site, "patient")


async def test_a_pod_waits_for_the_chips_of_another_that_ends(site: Site) -> None:
    await _have_reported(site, (ALL, ALL, ()))
    await site.api.create(PODS, npu_nodes.pod("first", 8))
    await wait_bound(site.api, "first")
    await _report(site, (ALL, ALL, ALL))
    await _refused(site, "second", 8)
    # The pod is gone, and the scheduler tries at once; but its chips are released
    # only when its processes are gone, too, and then no scheduler sees anything.
    await site.api.delete(f"{PODS}/first", grace_s=0)
    await asyncio.sleep(UNSHOWN_S + 1)
    assert "second" not in await bound(site.api)

    await npu_nodes.set_report(site.api, "node-2")

    await wait_bound(site.api, "second", within_s=WOKEN_WITHIN_S)
    await _remove(site, "second")


async def test_a_node_whose_agent_says_it_in_another_version_is_left_out(
    site: Site,
) -> None:
    for name in NODES:
        await npu_nodes.set_affinity(site.api, name, {"version": 2, "held": "none"})
    await _wait_known(site, [frozenset()] * len(NODES))

    pod = await _refused(site, "newer", 1)

    few = "unreadable NPU report: AscendAffinity of another version"
    told = f"0/3 nodes are available: 3 {few}. {NO_HELP}"
    assert await _told(site, pod) == [told]
    await _report(site)
    await wait_bound(site.api, "newer", within_s=WOKEN_WITHIN_S)
    await _remove(site, "newer")


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (3, f"3 cannot give a pod 3 chips, only 1, 2, 4 or 8. {NO_HELP}"),
        (16, f"3 Insufficient huawei.com/Ascend910. {NO_HELP}"),
    ],
)
async def test_a_count_that_no_node_ever_serves_is_said(
    site: Site, count: int, told: str
) -> None:
    await _have_reported(site)

    pod = await _refused(site, f"wants-{count}", count)

    assert await _told(site, pod) == [f"0/3 nodes are available: {told}"]
    await _remove(site, f"wants-{count}")


async def _report(
    site: Site,
    held: Sequence[Chips] = ((), (), ()),
    broken: Sequence[Chips] = ((), (), ()),
) -> None:
    for name, taken, unfit in zip(NODES, held, broken, strict=True):
        await npu_nodes.set_report(site.api, name, held=taken, broken=unfit)


async def _have_reported(
    site: Site,
    held: Sequence[Chips] = ((), (), ()),
    broken: Sequence[Chips] = ((), (), ()),
) -> None:
    """Report, and wait until the extender knows; no pod of ours is there."""
    await _report(site, held, broken)
    pairs = zip(held, broken, strict=True)
    await _wait_known(site, [{*ALL} - {*taken, *unfit} for taken, unfit in pairs])


async def _wait_known(site: Site, free: Sequence[AbstractSet[int]]) -> None:
    """Wait until the extender would place pods as if these chips were free."""
    wanted = {
        (count, name): _fits(count, chips)
        for count in PROBES
        for name, chips in zip(NODES, free, strict=True)
    }

    async def is_known() -> bool:
        found = {}
        for count, probe in PROBES.items():
            answer = await site.extender.get(f"/v1/explain/default/{probe}?nodes=true")
            for name in NODES:
                found[count, name] = answer["nodes"].get(name) in _PLACEABLE
        return found == wanted

    await until(is_known, "the extender knows the reports", within_s=_WITHIN_S)


def _fits(count: int, free: AbstractSet[int]) -> bool:
    if count == len(ALL):
        return len(free) == count
    return any(len(free & ring) >= count for ring in RINGS)


async def _refused(site: Site, name: str, count: int) -> Object:
    """Create a pod and wait until the scheduler has found no node for it."""
    await site.api.create(PODS, npu_nodes.pod(name, count))

    async def is_refused() -> bool:
        status = (await site.api.get(f"{PODS}/{name}"))["status"]
        return any(
            each.get("reason") == "Unschedulable"
            for each in status.get("conditions", ())
        )

    await until(is_refused, f"{name} refused", within_s=_WITHIN_S)
    return await site.api.get(f"{PODS}/{name}")


async def _told(site: Site, pod: Object) -> list[str]:
    """The messages that a person finds on the pod: its condition, and its events."""
    uid = pod["metadata"]["uid"]
    messages: set[str] = set()

    async def is_there() -> bool:
        events = await site.api.items(EVENTS)
        messages.update(
            str(each["message"])
            for each in events
            if each["involvedObject"].get("uid") == uid
            and each["reason"] == "FailedScheduling"
        )
        return bool(messages)

    await until(is_there, "an event on the pod", within_s=_WITHIN_S)
    conditions = pod["status"]["conditions"]
    return sorted(messages | {str(each["message"]) for each in conditions})


async def _remove(site: Site, name: str) -> None:
    """Delete a pod, and wait until the extender takes all chips for free."""
    await site.api.delete(f"{PODS}/{name}", grace_s=0)
    await _have_reported(site)
