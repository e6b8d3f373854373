"""Two extenders, one Lease of the real API server, and the stock scheduler.

Before the extenders stands what a Service is in life: it leads to whoever is ready.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiStatusError, Object
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import BareCluster, until
from tests.e2e.bare_pods import bound, remove_all, wait_bound
from tests.e2e.ours import Extender
from tests.extender.replicas import Replicas
from tests.support import objects
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2", "node-3")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ascend-extender"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_POLICIES = f"{_ADMISSION}/validatingadmissionpolicies"
_BINDINGS = f"{_ADMISSION}/validatingadmissionpolicybindings"
WITHIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster whose scheduler calls whichever extender is ready."""

    cluster: BareCluster
    found: Replicas


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    """The cluster, without an extender yet."""
    async with ours.installed(*NODES) as cluster:
        found = Replicas()
        front = await asyncio.start_server(found.forward, "127.0.0.1", 0)
        port = front.sockets[0].getsockname()[1]
        await cluster.start_scheduler(f"http://127.0.0.1:{port}")
        yield Site(cluster=cluster, found=found)
        front.close()


@asynccontextmanager
async def both(
    site: Site, round_: str, *arguments: str
) -> AsyncIterator[dict[str, Extender]]:
    """Have two extenders, a and b, of which a leads."""
    started: dict[str, Extender] = {}
    told = ("--lease", "ascend-extender", *arguments)
    try:
        for name in ("a", "b"):
            identity = f"{name}-{round_}"
            started[name] = await ours.start_extender(
                site.cluster,
                *told,
                *("--identity", identity),
                name=identity,
                waits=name == "b",
            )
            address = started[name].url.removeprefix("http://")
            site.found.addresses[name] = address
        await until(lambda: _says(site, "b", f"a-{round_} leads"), "b stands by")
        yield started
    finally:
        site.found.addresses.clear()
        for each in started.values():
            if not each.program.has_ended:
                each.program.tell(signal.SIGCONT)
                site.cluster.programs.expect_end(each.program.name)
                await site.cluster.programs.end(each.program)
        await remove_all(site.cluster.api)


@pytest.mark.core("leader")
async def test_a_leader_that_dies_in_the_middle_of_a_job_loses_and_doubles_nothing(
    site: Site,
) -> None:
    quick = ("--lease-s", "5", "--bind-s", "1")
    async with _refused(site, "held"), both(site, "dies", *quick) as extenders:
        names = ("free", "also-free", "held", "held-too")
        for index, name in enumerate(names):
            await site.cluster.api.create(PODS, _member(name, index))
        await wait_bound(site.cluster.api, "free", "also-free")
        assert len(await bound(site.cluster.api)) == 2

        site.cluster.programs.expect_end("a-dies")
        extenders["a"].program.tell(signal.SIGKILL)
        await _allow(site)

        await wait_bound(site.cluster.api, *names)
        assert len(await npu_nodes.taken(site.cluster.api)) == 32
        assert await _holder(site) == "b-dies"


async def test_a_leader_that_was_frozen_is_none_when_it_is_thawed(site: Site) -> None:
    quick = ("--lease-s", "5", "--bind-s", "1")
    async with both(site, "frozen", *quick) as extenders:
        await site.cluster.api.create(PODS, npu_nodes.pod("before", 2))
        await wait_bound(site.cluster.api, "before")

        extenders["a"].program.tell(signal.SIGSTOP)
        await until(lambda: _says(site, "b", "ok"), "b leads", within_s=WITHIN_S)
        await site.cluster.api.create(PODS, npu_nodes.pod("meanwhile", 4))
        await wait_bound(site.cluster.api, "before", "meanwhile")
        extenders["a"].program.tell(signal.SIGCONT)

        await until(lambda: _says(site, "a", "b-frozen leads"), "a stands by")
        await site.cluster.api.create(PODS, npu_nodes.pod("after", 8))
        await wait_bound(site.cluster.api, "before", "meanwhile", "after")
        assert len(await npu_nodes.taken(site.cluster.api)) == 14
        assert await _holder(site) == "b-frozen"


async def test_a_leader_that_is_told_to_stop_hands_over_at_once(site: Site) -> None:
    async with both(site, "stops", "--lease-s", "3600") as extenders:
        site.cluster.programs.expect_end("a-stops")
        extenders["a"].program.tell(signal.SIGTERM)

        await until(lambda: _says(site, "b", "ok"), "b leads", within_s=WITHIN_S)
        await site.cluster.api.create(PODS, npu_nodes.pod("next", 8))
        await wait_bound(site.cluster.api, "next")
        assert await _holder(site) == "b-stops"


def _member(name: str, index: int) -> Object:
    """A pod of a job of four, with a node of its own."""
    pod = npu_nodes.pod(name, 8)
    pod["metadata"]["annotations"] = {
        "ascend-affinity/job": "train",
        "ascend-affinity/job-size": "4",
        "hccl/rankIndex": str(index),
    }
    return pod


@asynccontextmanager
async def _refused(site: Site, beginning: str) -> AsyncIterator[None]:
    """Have the API server refuse binds of pods whose names begin like this."""
    api = site.cluster.api
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    allowed = f"!request.name.startsWith('{beginning}')"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule | {"resources": ["pods/binding"]}]},
        "validations": [{"expression": allowed, "reason": "Forbidden"}],
    }
    bound = {"policyName": "held-back", "validationActions": ["Deny"]}
    meta = {"metadata": {"name": "held-back"}}
    await api.create(_POLICIES, {**meta, "spec": spec})
    await api.create(_BINDINGS, {**meta, "spec": bound})
    probe = npu_nodes.pod(f"{beginning}-probe")
    probe["spec"]["schedulerName"] = "nobody"
    path = f"{PODS}/{beginning}-probe"

    async def is_in_force() -> bool:
        await api.create(PODS, probe)
        body = objects.binding(probe["metadata"]["name"], NODES[0])
        try:
            await api.create(f"{path}/binding", body)
        except ApiStatusError as error:
            return error.status == 403
        finally:
            await api.delete(path, grace_s=0)
        return False

    await until(is_in_force, "the policy is in force")
    try:
        yield
    finally:
        await _allow(site)


async def _allow(site: Site) -> None:
    """Have all binds done again."""
    for path in (_BINDINGS, _POLICIES):
        if await site.cluster.api.items(path):
            await site.cluster.api.delete(f"{path}/held-back", grace_s=0)


async def _says(site: Site, name: str, text: str) -> bool:
    return await site.found.readiness(name) == text


async def _holder(site: Site) -> str:
    spec = (await site.cluster.api.get(LEASE))["spec"]
    return str(spec["holderIdentity"])
