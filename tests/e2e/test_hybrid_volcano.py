"""The real Volcano scheduler, with our extender behind its plugin `extender`.

A control plane without a machine below it; what agents would report is written here.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from sandbox.apiclient import Object
from service import clock
from tests.e2e import npu_nodes, ours, volcanos
from tests.e2e.bare import BareCluster, until
from tests.e2e.bare_pods import EVENTS, bound, remove_all, wait_bound, wait_event
from tests.e2e.ours import Extender
from tests.e2e.volcanos import GROUPS, JOBS, History, Recorder
from tests.support import objects
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1")
#: Sessions are held each second; several of them, on a slow machine, are this.
_WITHIN_S = 240.0
_SESSIONS = 8
#: From the last thing that a job waits for until it is bound.
_SOON_S = 10.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
#: Words of which we have need only if chips are wanting.
_SHORTAGE = ("free", "room", "chip", "AscendNotEnqueued")


@dataclass(slots=True, kw_only=True)
class Site:
    """A cluster whose Volcano asks our extender."""

    cluster: BareCluster
    calls: Recorder
    extender: Extender


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_site() -> AsyncIterator[Site]:
    """API server, Volcano, extender, and two nodes on paper."""
    calls = Recorder()
    async with (
        ours.installed(*NODES, folder="overlays/volcano") as cluster,
        calls.serving() as url,
    ):
        extender = await ours.start_extender(cluster)
        calls.url = extender.url
        await volcanos.start(cluster, url)
        yield Site(cluster=cluster, calls=calls, extender=extender)


@pytest_asyncio.fixture(loop_scope="module")
async def site(whole_site: Site) -> AsyncIterator[Site]:
    """The same, with nothing on it but the nodes."""
    yield whole_site
    api = whole_site.cluster.api
    for path in (JOBS, GROUPS):
        for each in await api.items(path):
            await api.delete(f"{path}/{each['metadata']['name']}", grace_s=0)
    await remove_all(api)
    for each in await api.items(objects.NODES):
        if each["metadata"]["name"] not in NODES:
            await npu_nodes.remove(api, each["metadata"]["name"])


@pytest.mark.core("volcano")
async def test_a_gang_that_fits_is_bound_whole_with_its_chips_on_the_pods_before(
    site: Site,
) -> None:
    history = History(site.cluster)
    async with history.following():
        await volcanos.make(site.cluster, "fits", {"fits-0": 8, "fits-1": 8})
        await _wait_bound(site, "fits-0", "fits-1")

        await until(
            lambda: all(
                pod in history.steps and history.steps[pod][-1].node
                for pod in ("fits-0", "fits-1")
            ),
            "the watch tells it",
        )
    assert len(await npu_nodes.taken(site.cluster.api)) == 16
    for steps in history.steps.values():
        allocated, bound = steps[-2:]
        assert (allocated.node, allocated.chips) == ("", bound.chips)
        assert allocated.predicate_time == bound.predicate_time != ""
        assert {step.node for step in steps[:-1]} == {""}


async def test_a_gang_that_does_not_fit_changes_nothing_and_runs_when_chips_are_free(
    site: Site,
) -> None:
    await volcanos.make(site.cluster, "first", {"first": 8})
    await _wait_bound(site, "first")
    await volcanos.make(site.cluster, "waits", {"waits-0": 8, "waits-1": 8})

    await wait_event(site.cluster.api, "AscendNotEnqueued", "waits")  # on the PodGroup
    await until(lambda: _has_reason(site, "waits", "1 of 2 pods fit"), "reason")
    await site.calls.sessions("jobEnqueueable", 2)  # what was under way is over
    before = await _pods(site, "waits")
    group = await site.cluster.api.get(f"{GROUPS}/waits")
    counts = site.calls.counts.copy()
    await site.calls.sessions("jobEnqueueable", _SESSIONS)

    later = site.calls.counts - counts
    assert set(later) <= {"jobEnqueueable", "predicate"}
    assert await _pods(site, "waits") == before
    assert await site.cluster.api.get(f"{GROUPS}/waits") == group
    assert [_is_untouched(pod) for pod in before] == [True, True]
    assert "1 of 2 pods fit" in await _said(site, "waits")

    for path in (PODS, GROUPS):
        await site.cluster.api.delete(f"{path}/first", grace_s=0)
    await _wait_bound(site, "waits-0", "waits-1")
    assert len(await npu_nodes.taken(site.cluster.api)) == 16
    await until(lambda: _has_reason(site, "waits", ""), "no reason any more")

    async def runs() -> bool:
        group = await site.cluster.api.get(f"{GROUPS}/waits")
        return bool(group["status"]["phase"] == "Running")

    await until(runs, "Volcano says that it runs")


async def test_pods_of_their_own_never_share_chips(site: Site) -> None:
    counts = (4, 2, 1, 1, 4, 2, 1, 1)
    for number, chips in enumerate(counts):
        await volcanos.make(site.cluster, f"lone-{number}", {f"lone-{number}": chips})
    await _wait_bound(site, *(f"lone-{number}" for number in range(len(counts))))
    assert len(await npu_nodes.taken(site.cluster.api)) == sum(counts)


async def test_what_volcano_takes_back_loses_its_annotations(site: Site) -> None:
    before = site.calls.counts["deallocateFunc"]
    history = History(site.cluster)
    async with history.following():
        await volcanos.make_torn(site.cluster, "torn")

        def is_bare_again() -> bool:
            chips = [bool(step.chips) for step in history.steps.get("torn-0", ())]
            return True in chips and not chips[-1]

        await until(is_bare_again, "chips given and taken", within_s=_WITHIN_S)
    assert site.calls.counts["deallocateFunc"] > before
    assert not any(s.node for steps in history.steps.values() for s in steps)


async def test_an_extender_that_is_away_is_not_taken_for_chips_that_are(
    site: Site,
) -> None:
    site.calls.url = "http://127.0.0.1:1"  # nobody is there
    await volcanos.make(site.cluster, "away", {"away-0": 8, "away-1": 8})
    await site.calls.sessions("jobEnqueueable", _SESSIONS)
    said = await _said(site, "away")
    assert not any(word in said for word in _SHORTAGE), said

    site.calls.url = site.extender.url
    await _wait_bound(site, "away-0", "away-1")


async def test_an_extender_that_may_not_decide_says_so_and_not_that_there_is_no_room(
    site: Site,
) -> None:
    await site.cluster.api.create(_LEASES, _held_by("somebody"))
    told = ("--lease", "ascend-extender", "--identity", "standby")
    standby = await ours.start_extender(site.cluster, *told, name="standby", waits=True)
    site.calls.url = standby.url
    await volcanos.make(site.cluster, "stands", {"stands-0": 8, "stands-1": 8})

    async def is_said() -> bool:
        return "somebody leads" in await _said(site, "stands")

    await until(is_said, "why it waits", within_s=_WITHIN_S)
    said = await _said(site, "stands")
    assert not any(word in said for word in _SHORTAGE), said
    assert all(_is_untouched(pod) for pod in await _pods(site, "stands"))

    site.calls.url = site.extender.url
    await _wait_bound(site, "stands-0", "stands-1")


async def test_two_of_four_start_where_two_fit_and_the_others_join(
    site: Site,
) -> None:
    api = site.cluster.api
    await volcanos.make_job(site.cluster, "elastic", least=2, pods=4)
    names = [f"elastic-worker-{number}" for number in range(4)]

    await _wait_some_bound(site, names, 2)
    for count, node in ((3, "node-2"), (4, "node-3")):
        await npu_nodes.create(api, node)
        await _wait_some_bound(site, names, count)

    assert len(await npu_nodes.taken(api)) == 4 * 8


async def test_pods_that_a_job_gets_while_it_runs_join_it(site: Site) -> None:
    api = site.cluster.api
    await volcanos.make_job(site.cluster, "grows", least=2, pods=2)
    names = [f"grows-worker-{number}" for number in range(4)]
    await _wait_some_bound(site, names, 2)
    for node in ("node-2", "node-3"):
        await npu_nodes.create(api, node)

    await volcanos.grow_job(site.cluster, "grows", 2, 4)

    await _wait_some_bound(site, names, 4)
    assert len(await npu_nodes.taken(api)) == 4 * 8


async def _wait_some_bound(site: Site, names: Sequence[str], count: int) -> None:
    """Wait until so many of these pods, and no more, have a node."""

    async def are_bound() -> bool:
        return len({*names} & (await bound(site.cluster.api)).keys()) == count

    await until(are_bound, f"{count} of {names} bound", within_s=_SOON_S)


def _is_untouched(pod: Object) -> bool:
    return list(pod["metadata"]["annotations"]) == ["scheduling.k8s.io/group-name"]


def _held_by(identity: str) -> Object:
    """A Lease that nobody else gets for an hour."""
    now = datetime.fromtimestamp(clock.wall_s(), UTC).isoformat()
    now = now.replace("+00:00", "Z")
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": 3600,
        "acquireTime": now,
        "renewTime": now,
    }
    return {"metadata": {"name": "ascend-extender"}, "spec": spec}


async def _said(site: Site, group: str) -> str:
    """All that is said of a PodGroup: its conditions, its and its pods' events."""
    events = await site.cluster.api.items(EVENTS)
    told = [each.get("message", "") for each in await _conditions(site, group)]
    told += [
        event["message"]
        for event in events
        if event["involvedObject"].get("name", "").startswith(group)
    ]
    return " | ".join(told)


async def _conditions(site: Site, group: str) -> list[Object]:
    """The conditions of a PodGroup."""
    status = (await site.cluster.api.get(f"{GROUPS}/{group}")).get("status") or {}
    return list(status.get("conditions", ()))


async def _has_reason(site: Site, group: str, said: str) -> bool:
    """Whether a condition of ours says this, and none says anything if it is empty."""
    found = [
        each["message"]
        for each in await _conditions(site, group)
        if (each["type"], each["reason"]) == ("Unschedulable", "JobEnqueueFailed")
    ]
    return found == ([said] if said else [])


async def _pods(site: Site, group: str) -> list[Object]:
    return [
        pod
        for pod in await site.cluster.api.items(PODS)
        if pod["metadata"]["name"].startswith(f"{group}-")
    ]


async def _wait_bound(site: Site, *names: str) -> None:
    await wait_bound(site.cluster.api, *names, within_s=_WITHIN_S)
