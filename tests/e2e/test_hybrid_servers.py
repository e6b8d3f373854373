"""Servers of three product lines as an installation has them: nobody sets a label.

The stock scheduler, our extender, and a kubelet of the sandbox with a real agent for
each server. What a new user does first: one pod, one job, one pod too many.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandbox.apiclient import Object
from sandbox.inspect import observer
from sandbox.world import ControlPlane, World, running
from sandbox.world.machines import Machine
from tests.e2e import ours
from tests.e2e.bare import BareCluster, until
from tests.e2e.bare_pods import remove_all, wait_told
from tests.support import objects
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

_AGENT = "system:serviceaccount:kube-system:ascend-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server, and what is asked of it."""

    product: str
    resource: str
    #: which of them a pod means, by the label that the agent has set
    selector: Mapping[str, str]
    #: chips of the first pod, and of each of two pods of the first job: all that a
    #: server has, or so many that a third finds no place
    first: int
    each: int
    #: what a pod with three chips is told; "" if it gets them
    three: str = ""


SERVERS = (
    Server(
        product="atlas-a2-8",
        resource="huawei.com/Ascend910",
        selector={"accelerator-type": "module-910b-8"},
        first=3,
        each=4,
    ),
    Server(
        product="atlas-a3-16",
        resource="huawei.com/Ascend910",
        selector={"accelerator-type": "module-a3-16"},
        first=2,
        each=8,
        three="cannot give a pod 3 chips, only 1, 2, 4, 6, 8, 10, 12, 14 or 16",
    ),
    Server(
        product="atlas-310p",
        resource="huawei.com/Ascend310P",
        selector={},
        first=1,
        each=32,
    ),
)
NODES = tuple(server.product for server in SERVERS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """API server, stock scheduler, extender, and the servers with their agents."""
    kubelets = {f"system:node:{name}": ["system:nodes"] for name in NODES}
    agent = {_AGENT: ["system:serviceaccounts"]}
    machines = [Machine(name=name, product=name) for name in NODES]
    async with (
        ours.installed(users=agent | kubelets) as cluster,
        running(machines, control=_control(cluster)) as world,
    ):
        for name in NODES:  # a controller's work; none runs here
            await cluster.api.patch(
                f"{objects.NODES}/{name}", {"spec": {"taints": None}}
            )
        await cluster.start_scheduler(world.extender_url)
        yield world


def _control(cluster: BareCluster) -> ControlPlane:
    tokens = dict(cluster.tokens)
    tokens["ascend-extender"] = tokens[ours.EXTENDER]
    tokens |= {f"ascend-agent-{name}": tokens[_AGENT] for name in NODES}
    return ControlPlane(
        url=cluster.api_url,
        authority=cluster.authority,
        token_of=tokens.__getitem__,
    )


def _pod(server: Server, name: str, chips: int, **annotations: str) -> Object:
    return objects.pod(
        name,
        chips,
        resource=server.resource,
        meta={"annotations": annotations},
        nodeSelector=server.selector,
    )


async def _run(world: World, server: Server, *names: str) -> None:
    """Wait until these pods run on the server, on the chips that they were given."""

    async def found() -> dict[str, tuple[str, str]]:
        return {
            pod["metadata"]["name"]: (
                pod["spec"]["nodeName"],
                pod["metadata"]["annotations"][server.resource],
            )
            for pod in await world.api.items(PODS)
            if pod["status"].get("phase") == "Running"
        }

    async def run() -> bool:
        return {*names} <= (await found()).keys()

    await until(run, f"{names} running on {server.product}", within_s=120)
    running_pods = await found()
    mounted = {mount.pod: mount.chips for mount in observer.mounts(world)}
    for name in names:
        node, given = running_pods[name]
        chips = {int(each.rpartition("-")[2]) for each in given.split(",")}
        assert (node, chips) == (server.product, {*mounted[name]})


async def _why(world: World, name: str) -> str:
    """Return what `/v1/explain` says of a pod."""
    url = f"{world.extender_url}/v1/explain/default/{name}"
    async with world.http.get(url) as response:
        return str((await response.json())["text"])


@pytest.mark.parametrize("server", SERVERS, ids=NODES)
async def test_first_pod_first_job_first_refusal(world: World, server: Server) -> None:
    api = world.api

    async def is_labelled() -> bool:
        node = await api.get(f"{objects.NODES}/{server.product}")
        return bool(server.selector.items() <= node["metadata"]["labels"].items())

    await until(is_labelled, f"{server.product} labelled by its agent", within_s=60)

    await api.create(PODS, _pod(server, "first", server.first))
    await _run(world, server, "first")
    await remove_all(api)

    marks = {"ascend-affinity/job": "two", "ascend-affinity/job-size": "2"}
    for name in ("two-0", "two-1"):
        await api.create(PODS, _pod(server, name, server.each, **marks))
    await _run(world, server, "two-0", "two-1")
    await remove_all(api)

    await api.create(PODS, _pod(server, "three", 3))
    if server.three:
        await wait_told(api, server.three, "three")
        assert f"{server.product}: {server.three}" in await _why(world, "three")
    else:
        await _run(world, server, "three")
    await remove_all(api)

    marks = {"ascend-affinity/job": "many", "ascend-affinity/job-size": "3"}
    for name in ("many-0", "many-1", "many-2"):
        await api.create(PODS, _pod(server, name, server.each, **marks))
    await wait_told(api, "its job does not fit: 2 of 3 pods fit", "many-0")
    assert "2 of 3 pods fit" in await _why(world, "many-0")
    await remove_all(api)
