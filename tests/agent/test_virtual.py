"""Virtual devices: a plugin for each kind, beside the one for whole chips."""

import json

import pytest

from agent.devices.simulated import file
from agent.plugin import vnpu
from scheduler_core.wire import deviceinfo
from tests.agent.site import NODE, Site, page_of
from tests.contract.kubelet.plugin import Plugin
from tests.support.objects import PODS, pod

MACHINE = """
product: atlas-800-training
virtual:
  - {chip: 7, number: 100, kind: 4c.3cpu}
  - {chip: 7, number: 101, kind: 4c.3cpu}
  - {chip: 6, number: 102, kind: 16c}
"""
FAULT = 'faults: [{chip: 7, code: "80E18402", level: SeparateNPU}]\n'
QUARTER = "huawei.com/Ascend910-4c.3cpu"
HALF = "huawei.com/Ascend910-16c"


pytestmark = pytest.mark.site("--recover-s", "0.1", machine=MACHINE, count=None)


async def until_allocatable(site: Site, **counts: int) -> None:
    """Wait until the node offers so many whole chips, halves and quarters."""
    names = {
        "whole": "Ascend910",
        "half": "Ascend910-16c",
        "quarter": "Ascend910-4c.3cpu",
    }
    await site.until_offered(**{names[each]: count for each, count in counts.items()})


async def run(site: Site, name: str, resource: str, count: int) -> None:
    """Create a pod for the node, as a scheduler without an extender does."""
    await site.api.create(PODS, pod(name, count, resource=resource, node=NODE))


async def test_each_kind_is_a_resource_and_its_chips_are_not_given_out_whole(
    site: Site,
) -> None:
    await until_allocatable(site, whole=6, half=1, quarter=2)

    report = await site.report()
    info = json.loads(report["data"][deviceinfo.DEVICE_INFO_KEY])
    listed = info["DeviceInfo"]["DeviceList"]
    assert listed == {
        "huawei.com/Ascend910": ",".join(f"Ascend910-{chip}" for chip in range(6)),
        "huawei.com/Ascend910-Fault": "[]",
        "huawei.com/Ascend910-NetworkUnhealthy": "",
        "huawei.com/Ascend910-Recovering": "",
        "huawei.com/Ascend910-Unhealthy": "",
    }


async def test_cut_chips_are_held_where_a_scheduler_keeps_the_books_itself(
    site: Site,
) -> None:
    await until_allocatable(site, whole=6, half=1, quarter=2)

    assert (await site.affinity()).held == (6, 7)


async def test_a_container_gets_the_device_that_the_kubelet_has_chosen(
    site: Site,
) -> None:
    await until_allocatable(site, whole=6, half=1, quarter=2)
    await run(site, "part", HALF, 1)

    await site.until_phase("part", "Running")
    (record,) = site.kubelet.containers()
    assert record.env == {
        "ASCEND_VISIBLE_DEVICES": "102",
        "ASCEND_RUNTIME_OPTIONS": "VIRTUAL",
    }
    assert await site.bind("whole", 4)
    await site.until_phase("whole", "Running")


async def test_a_container_gets_one_virtual_device_and_no_more(site: Site) -> None:
    await until_allocatable(site, quarter=2)
    await run(site, "greedy", QUARTER, 2)

    refused = await site.until_phase("greedy", "Failed")
    assert f"a container gets 1 {QUARTER}, not 2" in refused["status"]["message"]


async def test_parts_are_as_healthy_as_their_chip(site: Site) -> None:
    await until_allocatable(site, whole=6, half=1, quarter=2)

    (site.root / "npu.yaml").write_text(MACHINE + FAULT)
    await until_allocatable(site, whole=6, half=1, quarter=0)
    (site.root / "npu.yaml").write_text(MACHINE)
    await until_allocatable(site, whole=6, half=1, quarter=2)


@pytest.mark.site("--address-file", "{root}/address", machine=MACHINE, count=None)
async def test_a_rival_for_parts_of_chips_is_told(site: Site) -> None:
    await until_allocatable(site, whole=6, half=1, quarter=2)
    socket = site.kubelet.device_plugin_dir / "other.sock"
    rival = Plugin(HALF)
    await rival.serve(socket)
    await rival.register(socket)

    async def ready() -> str:
        return await page_of(site.root / "address", "readyz")

    said = f"another device plugin serves {HALF} too: the kubelet has other devices"
    text = await site.until(ready, lambda text: text != "ok")
    (event,) = await site.until(lambda: site.events("NpuRival"))
    await rival.stop()
    await site.until(ready, lambda text: text == "ok")

    assert text.startswith(said)
    assert event["message"].startswith(said)


def test_the_id_of_a_part_names_kind_number_and_parent() -> None:
    reading = file.parse(MACHINE)

    assert [vnpu.name_of(d, reading.product) for d in reading.virtual] == [
        "Ascend910-4c.3cpu-100-7",
        "Ascend910-4c.3cpu-101-7",
        "Ascend910-16c-102-6",
    ]
    assert [row.resource for row in vnpu.rows_of(reading)] == [HALF, QUARTER]
    assert {part.chip for part in reading.virtual} == {6, 7}
