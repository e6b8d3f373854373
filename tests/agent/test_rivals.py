"""Another device plugin for our resource: seen, said, not fought, and replaced."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.pod_resources import PodResourcesClient
from sandbox.apiclient import ApiStatusError
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, render
from tests.agent.site import NODE, REPORT, RESOURCE, Site, page_of
from tests.contract.kubelet.plugin import Plugin
from tests.support.objects import PODS

#: Longer than it takes to notice, so that what has not happened by then does not.
CALM_S = 2.0


pytestmark = [
    pytest.mark.site("--address-file", "{root}/address", starts=False),
    pytest.mark.long,
]


Serve = Callable[..., Awaitable[Plugin]]


@pytest.fixture
async def serve(site: Site) -> AsyncIterator[Serve]:
    """Start a plugin of another make and register it."""
    async with AsyncExitStack() as stack:

        async def start(name: str, *, prefix: str = "Ascend910-") -> Plugin:
            socket = site.kubelet.device_plugin_dir / name
            socket.unlink(missing_ok=True)  # as such plugins do
            plugin = Plugin(RESOURCE)
            plugin.devices = {f"{prefix}{chip}": "Healthy" for chip in range(8)}
            await plugin.serve(socket)
            stack.push_async_callback(plugin.stop)
            await plugin.register(socket)
            return plugin

        yield start


async def told(site: Site, page: str = "readyz") -> str:
    return await page_of(site.root / "address", page)


async def until_told(site: Site, words: str) -> str:
    return await site.until(lambda: told(site), lambda said: words in said)


async def until_listed(site: Site) -> None:
    """Wait until the kubelet has a list of healthy devices from a plugin."""
    resources = PodResourcesClient(
        site.kubelet.pod_resources_socket,
        resource=RESOURCE,
        activity=AllocateActivity(asyncio.get_running_loop().time),
    )
    try:
        await site.until(resources.allocatable_ids)
    finally:
        await resources.close()


async def start(site: Site) -> None:
    site.start_agent()
    await until_told(site, "ok")
    await until_listed(site)  # a pod that comes before has no devices


async def registrations(site: Site) -> float:
    for line in (await told(site, "metrics")).splitlines():
        if line.startswith("ascend_agent_registrations_total"):
            return float(line.split()[1])
    raise AssertionError("no such metric")


async def events(site: Site, reason: str) -> list[str]:
    node = ("Node", NODE)
    return [
        event["message"]
        for event in await site.events(reason)
        if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == node
    ]


async def until_event(site: Site, reason: str) -> str:
    return (await site.until(lambda: events(site, reason)))[-1]


async def test_a_plugin_that_was_there_first_is_left_alone_until_it_goes(
    site: Site, serve: Serve
) -> None:
    rival = await serve("Other910.sock")
    await site.until_allocatable()

    site.start_agent()
    said = await until_told(site, "another device plugin")
    await asyncio.sleep(CALM_S)

    assert said == (
        "another device plugin serves huawei.com/Ascend910: the kubelet has its "
        "devices (sockets beside ours: Other910.sock); waiting until it has gone"
    )
    assert (rival.streams, await registrations(site)) == (1, 0)
    assert 'ascend_agent_rival{kind="device-plugin"} 1.0' in await told(site, "metrics")
    assert said.startswith(await until_event(site, "NpuRival"))
    node = await site.api.get(f"/api/v1/nodes/{NODE}")
    assert "baseDeviceInfos" not in node["metadata"].get("annotations", {})
    with pytest.raises(ApiStatusError, match="not found"):
        await site.report()

    await rival.stop()
    await until_told(site, "ok")
    await site.until_allocatable()
    assert await registrations(site) == 1
    assert await until_event(site, "NpuRivalGone") == (
        "nobody else serves this node's kubelet any more"
    )
    await site.serve("train")


async def test_a_plugin_of_the_same_socket_is_not_robbed_of_it(
    site: Site, serve: Serve
) -> None:
    rival = await serve("Ascend910.sock")
    await site.until_allocatable()

    site.start_agent()
    said = await until_told(site, "another device plugin")
    await site.stop_agent()

    assert "serves at our socket" in said
    assert rival.streams == 1
    assert (site.kubelet.device_plugin_dir / "Ascend910.sock").exists()


async def test_a_plugin_that_takes_our_socket_over_is_noticed_and_outlives_us(
    site: Site, serve: Serve
) -> None:
    await start(site)
    before = await site.report()

    rival = await serve("Ascend910.sock")
    said = await until_told(site, "another device plugin")
    await asyncio.sleep(CALM_S)

    assert "has put its socket in the place of ours" in said
    assert (rival.streams, await registrations(site)) == (1, 1)
    assert (await site.report())["data"] == before["data"]
    await rival.stop()
    (site.kubelet.device_plugin_dir / "Ascend910.sock").unlink(missing_ok=True)
    await until_told(site, "ok")
    await site.until_allocatable()
    await site.serve("train")


async def test_a_plugin_with_other_devices_is_noticed_by_the_kubelets_list(
    site: Site, serve: Serve
) -> None:
    await start(site)

    rival = await serve("Other910.sock", prefix="npu-")
    said = await until_told(site, "another device plugin")
    await asyncio.sleep(CALM_S)

    assert "the kubelet has other devices than we have listed" in said
    assert (rival.streams, await registrations(site)) == (1, 1)
    await rival.stop()
    await until_told(site, "ok")
    await site.serve("train")


async def test_a_plugin_with_the_same_devices_is_noticed_by_the_pod_it_serves(
    site: Site, serve: Serve
) -> None:
    await start(site)
    rival = await serve("Other910.sock")

    assert await site.bind("stolen", 1)
    said = await until_told(site, "another device plugin")
    stolen = await site.api.get(f"{PODS}/stolen")
    await asyncio.sleep(CALM_S)

    assert "the kubelet gave devices to a pod without asking us" in said
    assert (rival.streams, await registrations(site)) == (1, 1)
    later = await site.api.get(f"{PODS}/stolen")
    assert later["metadata"]["annotations"] == stolen["metadata"]["annotations"]
    await rival.stop()
    await until_told(site, "ok")
    assert await registrations(site) == 2


async def test_a_kubelet_that_has_dropped_us_in_silence_is_registered_with_again(
    site: Site, serve: Serve
) -> None:
    await start(site)
    rival = await serve("Other910.sock")

    # the kubelet drops whom it knows, and our stream stays open
    await rival.stop()

    await site.until(lambda: registrations(site), lambda count: count > 1)
    await until_told(site, "ok")
    await until_listed(site)
    await site.serve("train")


async def test_a_restart_of_the_agent_is_no_rival(site: Site) -> None:
    await start(site)
    await site.serve("before")

    await site.restart_agent()
    await site.serve("after")

    assert await events(site, "NpuRival") == []


async def test_a_plugin_of_another_resource_is_no_rival(
    site: Site, serve: Serve
) -> None:
    socket = site.kubelet.device_plugin_dir / "gpu.sock"
    other = Plugin("example.com/gpu")
    await other.serve(socket)
    await other.register(socket)

    await start(site)
    await site.serve("train")
    await site.restart_agent()
    await asyncio.sleep(CALM_S)

    assert await told(site) == "ok"
    assert await events(site, "NpuRival") == []
    await other.stop()


async def test_a_configmap_that_another_program_writes_is_left_to_it(
    site: Site,
) -> None:
    await start(site)
    found = await site.report()

    # edited by hand: set right again
    found["data"]["DeviceInfoCfg"] = "{}"
    await site.api.patch(REPORT, {"data": {"DeviceInfoCfg": "{}"}})

    found = await site.until(
        site.report, lambda now: now["data"]["DeviceInfoCfg"] != "{}"
    )

    # replaced by a program, as MindCluster's does: left as it is
    theirs = deviceinfo_of_another_make()
    del found["metadata"]["resourceVersion"], found["metadata"]["annotations"]
    found["data"] = {"DeviceInfoCfg": theirs}
    await site.api.request("PUT", REPORT, body=found)
    said = await until_told(site, "a program that gives no name")
    await asyncio.sleep(CALM_S)

    assert (await site.report())["data"] == {"DeviceInfoCfg": theirs}
    assert 'ascend_agent_rival{kind="report-writer"} 1.0' in await told(site, "metrics")
    assert await until_event(site, "NpuRival") == said

    await site.api.delete(REPORT)
    await until_told(site, "ok")
    with_key = (await site.report())["data"]
    assert "AscendAffinity" in with_key


def deviceinfo_of_another_make() -> str:
    info = DeviceInfo(available=(1, 2), update_time=4_000_000_000)
    return render(info, Affinity(sequence=0), PRODUCT)["DeviceInfoCfg"]
