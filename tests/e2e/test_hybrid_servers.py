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
from sandbox.inspect.facts import Chips
from sandbox.world import World
from sandbox.world.machines import Machine
from tests.e2e import ours
from tests.e2e.bare import until
from tests.e2e.bare_pods import remove_all, wait_told
from tests.support import objects
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    machines = [Machine(name=name, product=name) for name in NODES]
    async with ours.with_nodes(*machines) as (cluster, world):
        await cluster.start_scheduler(world.extender_url)
        yield world


def _pod(server: Server, name: str, chips: int, **annotations: str) -> Object:
    return objects.pod(
        name,
        chips,
        resource=server.resource,
        meta={"annotations": annotations},
        nodeSelector=server.selector,
    )


async def _run(world: World, server: Server, *names: str) -> None:
    """Wait until these pods run on the server, on the chips that they were given.

    Equal pods may have come to the kubelet in another order: the agent swaps the names
    of their chips then, after they have begun to run.
    """

    async def found() -> dict[str, tuple[str, Chips]]:
        return {
            pod["metadata"]["name"]: (
                pod["spec"]["nodeName"],
                observer.chips_of(
                    pod["metadata"]["annotations"][server.resource].split(",")
                ),
            )
            for pod in await world.api.items(PODS)
            if pod["status"].get("phase") == "Running"
        }

    async def run() -> bool:
        mounted = {m.pod: (m.node, m.chips) for m in observer.mounts(world)}
        given = await found()
        return all(name in given and given[name] == mounted.get(name) for name in names)

    await until(run, f"{names} running on the chips they were given", within_s=120)
    assert {node for node, _ in (await found()).values()} == {server.product}


async def _why(world: World, name: str) -> str:
    """Return what `/v1/explain` says of a pod."""
    url = f"{world.extender_url}/v1/explain/default/{name}?nodes=true"
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
