"""The whole agent on the libdcmi of the tests: what kubelet and cluster see of it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler_core.wire import deviceinfo
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine
from tests.agent.site import Site, running_site
from tests.agent.two_lines import add_other_line
from tests.support.until import equal


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_second: bool
) -> FakeMachine:
    machine = fake_machine.training_910a(tmp_path / "machine")
    if is_second:
        add_other_line(machine)
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    return machine


@pytest.fixture
async def site(libdcmi: Path) -> AsyncIterator[Site]:
    told = (
        *("--driver", "dcmi", "--dcmi-library", str(libdcmi)),
        *("--driver-deadline-s", "2", "--recover-s", "0.1"),
    )
    async with running_site(*told, count=None) as site:
        yield site


async def until_unhealthy(site: Site, chips: str) -> None:
    """Wait until the ConfigMap lists exactly these chips as unhealthy."""
    await site.until(lambda: unhealthy(site), equal(chips))


async def unhealthy(site: Site) -> str:
    document = json.loads((await site.report())["data"][deviceinfo.DEVICE_INFO_KEY])
    return str(document["DeviceInfo"]["DeviceList"]["huawei.com/Ascend910-Unhealthy"])


async def test_a_fault_takes_a_chip_out_of_service_until_it_is_over(
    site: Site, machine: FakeMachine
) -> None:
    await site.until_allocatable(8)

    machine.say(3, 0, codes="80E18402")
    machine.event(3, "80E18402", 3, 1)
    await site.until_allocatable(7)
    await until_unhealthy(site, "Ascend910-3")
    machine.say(3, 0, codes="")
    machine.event(3, "80E18402", 3, 0)
    await site.until_allocatable(8)
    await until_unhealthy(site, "")


async def test_while_a_chip_cannot_be_asked_the_others_are_served(
    site: Site, machine: FakeMachine
) -> None:
    await site.until_allocatable(8)

    machine.tell("hang dcmi_get_device_errorcode_v2 5 0")
    machine.say(2, 0, codes="80E18402")
    await site.until_allocatable(7)

    await until_unhealthy(site, "Ascend910-2")
    assert await site.bind("pod", 4)
    await site.settle()


async def test_a_chip_that_was_never_there_is_not_offered(
    machine: FakeMachine, site: Site
) -> None:
    machine.remove(6, 0)
    await site.stop_agent()
    site.start_agent()

    await site.until_allocatable(7)
    await until_unhealthy(site, "Ascend910-6")
