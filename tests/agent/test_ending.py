"""An agent that ends while the kubelet asks: every rollout does this to each node."""

import asyncio

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.apiclient import Object
from scheduler_core.wire import annotations
from tests.agent.plugin.conftest import plugin_at
from tests.agent.site import NODE, RESOURCE, Site
from tests.support import objects
from tests.support.objects import PODS, container
from tests.support.until import until

#: {pod: chips of its containers, each of which the kubelet asks for alone}
WAITING = {"first": [0], "both": [1, 2], "last": [3]}


def pod(name: str, count: int) -> Object:
    """A pod of this node whose claim is not there yet."""
    asking = [container(f"c{index}", 1) for index in range(count)]
    return objects.pod(name, node=NODE, containers=asking)


async def claim(site: Site, name: str, chips: list[int]) -> None:
    """Write the claim of a pod, as bind does."""
    site.predicate_time += 1
    written = {
        RESOURCE: annotations.render_chips(chips, site.product),
        annotations.PREDICATE_TIME: str(site.predicate_time),
    }
    patch = {"metadata": {"annotations": written}}
    await site.api.patch(f"{PODS}/{name}", patch)


class Asking:
    """A node with pods that wait for their claims; the kubelet asks for one by one."""

    def __init__(self, site: Site) -> None:
        self.site = site
        #: containers that the kubelet has asked about
        self.count = 0
        site.kubelet.switches.before_preference = self._count

    def _count(self) -> None:
        self.count += 1

    async def begin(self) -> None:
        """Create the pods; return when the plugin has the first question."""
        for name, chips in WAITING.items():
            await self.site.api.create(PODS, pod(name, len(chips)))
        await until(lambda: self.count)
        socket = self.site.kubelet.device_plugin_dir / "Ascend910.sock"
        async with plugin_at(socket) as plugin:
            await plugin.GetDevicePluginOptions(api_pb2.Empty())  # comes after it

    async def phases(self) -> set[str]:
        found = await self.site.api.items(PODS)
        return {each["status"]["phase"] for each in found}

    async def claim_each_when_it_is_asked_for(self) -> None:
        before = 0
        for name, chips in WAITING.items():
            while self.count <= before and "Failed" not in await self.phases():
                await asyncio.sleep(0.01)
            await claim(self.site, name, chips)
            before += len(chips)


async def test_d22_pods_that_wait_for_their_claims_are_served_by_an_agent_that_ends(
    site: Site,
) -> None:
    asking = Asking(site)
    await asking.begin()

    ending = asyncio.create_task(site.stop_agent())
    await asking.claim_each_when_it_is_asked_for()

    found = await site.until(asking.phases, lambda found: "Pending" not in found)
    assert found == {"Running"}
    await ending
    await site.until_allocatable(0)
    site.start_agent()
    await site.until_allocatable(8)
    await site.settle()
    mounted = {name: tuple(chips) for name, chips in WAITING.items()}
    assert site.mounted() == mounted
