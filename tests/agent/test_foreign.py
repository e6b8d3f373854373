"""Another device plugin offers our cards by another name: told, and kept apart."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from tests.agent.site import NODE, Site, page_of
from tests.agent.two_lines import on_both_nodes
from tests.contract.kubelet.plugin import Plugin
from tests.support.objects import PODS, pod
from tests.support.until import equal

CLOUD = "huawei.com/Ascend910B4"
PARTS = "huawei.com/Ascend910-2c"
PREFIX = "Ascend910B4-"
#: Longer than it takes to notice, so that what has not happened by then does not.
CALM_S = 2.0
CUT = """
product: atlas-800-training
virtual: [{chip: 6, number: 100, kind: 2c}, {chip: 7, number: 101, kind: 2c}]
"""

pytestmark = [
    pytest.mark.site("--address-file", "{root}/address", "--recover-s", "0.1"),
    pytest.mark.long,
]

Serve = Callable[..., Awaitable[Plugin]]


@pytest.fixture
async def serve(site: Site) -> AsyncIterator[Serve]:
    """Start a plugin of another make and register it: eight devices of a resource."""
    async with AsyncExitStack() as stack:

        async def start(resource: str = CLOUD, *, prefix: str = PREFIX) -> Plugin:
            socket = site.kubelet.device_plugin_dir / "other.sock"
            plugin = Plugin(resource)
            plugin.devices = {f"{prefix}{chip}": "Healthy" for chip in range(8)}
            await plugin.serve(socket)
            stack.push_async_callback(plugin.stop)
            await plugin.register(socket)
            await site.until(lambda: site.offered(resource), equal(["8"]))
            return plugin

        yield start


async def run(site: Site, name: str, count: int, resource: str = CLOUD) -> None:
    """Have a pod of the other plugin run."""
    await site.api.create(PODS, pod(name, count, resource=resource, node=NODE))
    await site.until_phase(name, "Running")


async def until_withheld(site: Site, *chips: int) -> None:
    async def releasing() -> tuple[int, ...]:
        return (await site.affinity()).releasing

    await site.until(releasing, equal(chips))


async def until_told(site: Site, words: str) -> str:
    return await site.until(
        lambda: page_of(site.root / "address", "readyz"), lambda said: words in said
    )


@on_both_nodes
async def test_chips_of_its_pods_are_given_to_nobody_until_they_have_gone(
    site: Site, serve: Serve
) -> None:
    plugin = await serve()
    told = await until_told(site, CLOUD)
    await run(site, "theirs", 2)
    await until_withheld(site, 0, 1)
    await site.until_allocatable(6)
    await site.serve("ours", 4)
    report = (await site.report())["data"]

    assert told.endswith(
        "what its pods have is not given out; waiting until it has gone"
    )
    assert site.mounted()["ours"] == (4, 5, 6, 7)
    assert f'"{site.product.resource}-Unhealthy":""' in report["DeviceInfoCfg"]
    (event,) = await site.events("NpuRival")
    assert event["involvedObject"]["name"] == NODE
    await site.api.delete(f"{PODS}/theirs")
    await until_withheld(site)
    await plugin.stop()
    await until_told(site, "ok")
    assert len(await site.events("NpuRivalGone")) == 1
    await site.until_allocatable()
    await site.serve("after", 4)


async def test_an_agent_that_comes_later_finds_what_the_other_one_has_left(
    site: Site, serve: Serve
) -> None:
    plugin = await serve()
    await run(site, "theirs", 4)
    await site.stop_agent()
    await plugin.stop()
    await site.until_allocatable(0)
    site.start_agent()
    await site.until_allocatable(4)

    assert (await site.affinity()).releasing == (0, 1, 2, 3)
    assert not await site.bind("ours", 8)
    assert CLOUD in await until_told(site, CLOUD)


async def test_a_pod_that_takes_its_time_to_end_keeps_its_chips(
    site: Site, serve: Serve
) -> None:
    site.kubelet.switches.stop_s = 2 * CALM_S
    await serve()
    await run(site, "theirs", 2)
    await until_withheld(site, 0, 1)
    await site.api.delete(f"{PODS}/theirs")
    await asyncio.sleep(CALM_S)

    assert (await site.affinity()).releasing == (0, 1)
    await until_withheld(site)


async def test_ids_that_tell_no_chip_keep_all_from_new_pods(
    site: Site, serve: Serve
) -> None:
    await serve(prefix="2F9A13D0-80A02130-")
    await until_told(site, "ids like 2F9A13D0-80A02130-0 do not tell which")
    await site.serve("before", 2)
    before = site.mounted()["before"]
    await run(site, "theirs", 1)
    rest = tuple(chip for chip in range(8) if chip not in before)
    await until_withheld(site, *rest)

    (event,) = await site.events("NpuShared")
    assert event["involvedObject"]["name"] == "before"
    assert "perhaps default/theirs (huawei.com/Ascend910B4)" in event["message"]
    chips = annotations.render_chips(rest[:1], site.product)
    await site.bind_to(pod("late", 1), {site.product.resource: chips})
    refused = await site.until_phase("late", "Failed")
    assert "Allocate failed" in refused["status"]["message"]
    await site.api.delete(f"{PODS}/theirs")
    await until_withheld(site)
    await site.serve("after", 4)
    assert chip_sets.mask_of(site.mounted()["after"]) & chip_sets.mask_of(before) == 0


async def test_a_device_that_is_no_npu_is_no_rival(site: Site, serve: Serve) -> None:
    await serve("huawei.com/rdma", prefix="npu-")
    await run(site, "theirs", 2, "huawei.com/rdma")
    await asyncio.sleep(CALM_S)

    assert await until_told(site, "ok")
    assert (await site.affinity()).releasing == ()
    assert await site.events("NpuRival") == []
    await site.serve("ours", 8)


@pytest.mark.site(
    "--address-file", "{root}/address", "--recover-s", "0.1", machine=CUT, count=6
)
async def test_parts_of_chips_are_told_and_kept_apart_as_well(
    site: Site, serve: Serve
) -> None:
    await site.until(lambda: site.offered(PARTS), equal(["2"]))
    await serve()
    await run(site, "theirs", 7)  # a part of chip 6 is on a chip of the other one
    await site.until(lambda: site.offered(PARTS), equal(["1"]))
