"""The agent as a program: started, stopped, killed, started beside another."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from importlib import metadata
from pathlib import Path

import pytest

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from tests.agent.plugin.conftest import allocate_request, plugin_at, visible_in
from tests.agent.site import NODE, RESOURCE, SETTLED_S, Site, page_of
from tests.support import metric_pages
from tests.support.objects import NODES, PODS
from tests.support.until import until

REGISTERED_ONCE = "ascend_agent_registrations_total 1.0"


class Program:
    """One agent process and where it answers."""

    def __init__(self, process: asyncio.subprocess.Process, address: Path) -> None:
        self.process = process
        self.address = address

    async def readiness(self) -> str:
        """What /readyz says; "" while nobody answers."""
        return await self.read("readyz")

    async def read(self, page: str) -> str:
        return await page_of(self.address, page)

    async def until(self, wanted: Callable[[str], bool]) -> str:
        return await until(self.readiness, wanted, within_s=SETTLED_S)

    async def until_ready(self) -> None:
        await self.until(lambda said: said == "ok")

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


Start = Callable[..., Awaitable[Program]]


pytestmark = pytest.mark.site(starts=False)


@pytest.fixture
async def start(site: Site) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start(name: str, *more: str, is_first: bool = True) -> Program:
            address = site.root / f"address-{name}"
            state = site.root / f"state-{name}"
            state.mkdir(exist_ok=True)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "agent", *site.arguments),
                *("--address-file", str(address), "--state-dir", str(state)),
                *more,
                stderr=asyncio.subprocess.DEVNULL,
            )
            program = Program(process, address)
            stack.push_async_callback(program.end, signal.SIGKILL)
            if is_first:
                await program.until_ready()
            return program

        yield start


@pytest.fixture
async def agent(site: Site, start: Start) -> Program:
    program = await start("a")
    await site.until_allocatable()  # a pod that comes before would get no devices
    return program


async def test_it_becomes_ready_and_ends_cleanly(site: Site, agent: Program) -> None:

    code = await agent.end()

    assert code == 0
    assert not (site.kubelet.device_plugin_dir / "Ascend910.sock").exists()
    assert not agent.address.exists()


async def test_the_figures_of_a_rollout_are_there(site: Site, agent: Program) -> None:

    figures = {
        line.rpartition(" ")[0]: line.rpartition(" ")[2]
        for line in (await agent.read("metrics")).splitlines()
        if not line.startswith("#")
    }

    build = f'version="{metadata.version("ascend-affinity")}"'
    assert figures[f'ascend_agent_build_info{{mode="scheduled",{build}}}'] == "1.0"
    assert figures["ascend_agent_ready"] == "1.0"
    assert figures["ascend_agent_device_list_watched"] == "1.0"
    assert figures["ascend_agent_events_dropped_total"] == "0.0"
    assert figures["ascend_agent_registration_gap_seconds_count"] == "1.0"
    assert float(figures["process_resident_memory_bytes"]) > 0
    assert float(figures["process_open_fds"]) > 0


async def test_an_allocate_under_way_is_answered_before_the_agent_ends(
    site: Site, start: Start
) -> None:
    agent = await start("a", "--kubelet-url", "")
    site.kubelet.switches.hold_admission = True
    socket = site.kubelet.device_plugin_dir / "Ascend910.sock"

    async with plugin_at(socket) as plugin:
        call = plugin.Allocate(allocate_request(5))
        await plugin.GetDevicePluginOptions(api_pb2.Empty())  # comes after it
        agent.process.send_signal(signal.SIGTERM)
        said = await agent.until(lambda text: text != "ok")
        assert await site.bind("late", 1)
        answer = await call

    assert said == "stopping"
    assert visible_in(answer) == "0"
    assert await agent.process.wait() == 0


async def test_a_chip_that_vanishes_stays_in_the_list_and_out_of_service(
    site: Site, agent: Program
) -> None:
    await site.until_allocatable()

    machine = site.root / "npu.yaml"
    machine.write_text(f"{machine.read_text()}vanished: [5]\n")

    await site.until_allocatable(7)
    status = (await site.api.get(f"{NODES}/{NODE}"))["status"]
    assert status["capacity"][RESOURCE] == "8"


async def test_hardware_that_does_not_answer_does_not_keep_it_from_ending(
    site: Site, start: Start
) -> None:
    agent = await start("a", "--driver-deadline-s", "0.5")
    machine = site.root / "npu.yaml"
    machine.unlink()
    os.mkfifo(machine)  # whoever opens it waits for ever
    await until(
        lambda: agent.read("metrics"),
        lambda text: "ascend_agent_driver_stale 1.0" in text,
    )

    async with asyncio.timeout(SETTLED_S):
        assert await agent.end() == 0


async def test_a_disk_that_hangs_is_told_on_the_node_and_holds_up_no_pod(
    site: Site, start: Start
) -> None:
    state = site.root / "state-a"
    state.mkdir()
    os.mkfifo(state / "holds")  # whoever opens it waits for ever

    agent = await start("a")
    await site.until_allocatable()
    await site.serve("train")

    (event,) = await site.events("NpuJournalUnusable")
    assert event["involvedObject"]["kind"] == "Node"
    assert event["message"].startswith(
        f"{state}/holds: the disk did not answer within 3 s. Who has which chip "
    )
    assert await agent.end() == 0


async def test_a_kubelet_that_restarts_is_served_again(
    site: Site, agent: Program
) -> None:
    assert REGISTERED_ONCE in await agent.read("metrics")

    await site.kubelet.restart()
    await until(lambda: agent.read("metrics"), lambda text: REGISTERED_ONCE not in text)
    await site.until_allocatable()

    await site.serve("train")
    await agent.until_ready()


async def test_a_second_agent_of_the_node_waits_and_then_takes_over(
    start: Start, agent: Program
) -> None:

    second = await start("b", is_first=False)
    said = await second.until(lambda text: "another agent" in text)
    undisturbed = await agent.readiness()
    await agent.end()
    await second.until_ready()

    assert said.startswith("another agent serves the kubelet at ")
    assert undisturbed == "ok"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_what_was_mounted_is_published_by_the_next_agent(
    site: Site, start: Start, agent: Program, number: signal.Signals
) -> None:
    site.kubelet.switches.hold_admission = True
    assert await site.bind("first", 2)
    assert await site.bind("second", 2)

    # in the other order, with other ids, and with nobody to tell it to
    site.kubelet.switches.scripted_ids.append(["Ascend910-7", "Ascend910-5"])
    admission = asyncio.create_task(site.kubelet.admit(["second"]))
    await asyncio.sleep(0)
    await admission
    await agent.end(number)
    await start("a")
    # the kubelet has taken its list of devices in as well
    await site.until_allocatable()
    await site.kubelet.admit(["first"])

    await site.settle()
    mounted = site.mounted()
    assert sorted(mounted) == ["first", "second"]
    assert sorted(mounted.values()) == [(0, 1), (2, 3)]


async def test_a_pod_that_was_started_without_devices_is_named(
    site: Site, start: Start
) -> None:
    await site.bind_to(site.pod("bare", 1), {RESOURCE: "Ascend910-3"})
    await site.until_phase("bare", "Running")

    agent = await start("a")

    (event,) = await site.until(lambda: site.events("NpuDevicesMissing"))
    assert event["message"] == (
        "container main runs without its huawei.com/Ascend910 devices: it was "
        "started before the device plugin had registered, or the kubelet has lost "
        "them; delete the pod to have it started again"
    )
    assert 'ascend_agent_claims{state="without-chips"} 1.0' in await agent.read(
        "metrics"
    )
    assert site.mounted() == {"bare": ()}
    # its chip stays reserved for as long as it runs
    report = await site.report()
    free = json.loads(report["data"]["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    assert "Ascend910-3" not in free[RESOURCE].split(",")
    assert await site.bind("next", 1) is False

    # and not a moment longer
    await site.api.delete(f"{PODS}/bare")
    await until(lambda: site.bind("next", 8), every_s=0.1)
    await site.until_phase("next", "Running")
    await site.settle()
    assert site.mounted() == {"next": tuple(range(8))}
    assert 'ascend_agent_claims{state="without-chips"} 0.0' in await agent.read(
        "metrics"
    )


async def test_a_pod_that_went_around_the_scheduler_reads_why_and_what_to_do(
    site: Site, agent: Program
) -> None:
    around = site.pod("around", 1)
    around["spec"]["nodeName"] = "node-1"

    await site.api.create(PODS, around)

    pod = await site.until_phase("around", "Failed")
    assert pod["status"]["reason"] == "UnexpectedAdmissionError"
    assert "did not come through the Ascend scheduler" in pod["status"]["message"]
    await site.settle()


async def test_its_metrics_hold_the_conventions_and_are_on_its_page(
    agent: Program,
) -> None:
    text = await agent.read("metrics")

    page = (Path(__file__).parents[2] / "agent" / "README.md").read_text()
    assert metric_pages.problems(text, page, "ascend_agent") == []
