"""The memory of agent and workers together, whatever the driver does: finding F12.

The agent runs in a control group with the limit of its container, on a node of this
process: the cluster has no part in it. Workers that cannot be ended are frozen ones: a
frozen process of this kind of control group ends only when it is thawed.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from agent.devices.dcmi.driver import MOST_UNENDED
from scheduler_core.products import table
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine
from tests.agent.site import Site, running_site
from tests.e2e.commands import run
from tests.e2e.places import REPOSITORY
from tests.support.until import until

pytestmark = pytest.mark.faults

#: As `daemonset/base/agent/daemonset.yaml` has it.
LIMIT_BYTES = 160 << 20
CHIPS = 16
_GROUPS = Path("/sys/fs/cgroup")
_SOURCE = REPOSITORY / "tests" / "agent" / "devices" / "fake_dcmi" / "dcmi.c"
#: Calls that read chips: each of them hangs in turn, as earlier ones are left out.
_CALLS = (
    *("dcmi_get_card_list", "dcmi_get_dcmi_version", "dcmi_get_device_num_in_card"),
    *("dcmi_get_device_logic_id", "dcmi_get_device_ip", "dcmi_get_device_info"),
    *("dcmi_get_device_errorcode_v2", "dcmi_get_device_health"),
    *("dcmi_get_device_network_health", "dcmi_get_device_resource_info"),
)
_HANGS_S = 20.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Group:
    """A control group of one controller, of version 1."""

    path: Path

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def write(self, name: str, value: object) -> None:
        (self.path / name).write_text(str(value))

    @property
    def killed(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        lines = self.read("memory.oom_control").splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])

    @property
    def resident_bytes(self) -> int:
        """Memory of its processes, without files that the kernel may drop."""
        lines = self.read("memory.stat").splitlines()
        return int(dict(line.split() for line in lines)["rss"])


@contextmanager
def new_group(controller: str) -> Iterator[Group]:
    """Make an empty control group, which is gone afterwards."""
    path = _GROUPS / controller / f"ascend-test-{os.getpid()}"
    if not (_GROUPS / controller / "cgroup.procs").exists():
        pytest.skip(f"needs the controller {controller} of control groups, version 1")
    path.mkdir()
    try:
        yield Group(path)
    finally:
        path.rmdir()


@dataclass(frozen=True, slots=True)
class Bounded:
    """An agent within the limit, the workers that it has, and how much they take."""

    site: Site
    machine: FakeMachine
    agent: psutil.Process
    group: Group
    freezer: Group

    async def hang(self, *, are_frozen: bool) -> tuple[int, int]:
        """Have all calls hang for a while.

        Args:
            are_frozen: Whether no worker can be ended.

        Returns:
            The most bytes that were resident, and the most workers at one time.
        """
        self.machine.tell(*(f"hang {call} -1 -1" for call in _CALLS))
        resident, workers = 0, 0
        for _ in range(round(_HANGS_S / _LOOK_S)):
            found = self.agent.children()
            if are_frozen:
                for worker in found:
                    with suppress(ProcessLookupError):
                        self.freezer.write("cgroup.procs", worker.pid)
                self.freezer.write("freezer.state", "FROZEN")
            resident = max(resident, self.group.resident_bytes)
            workers = max(workers, len(found))
            await asyncio.sleep(_LOOK_S)
        return resident, workers

    async def heal(self) -> None:
        """Let all calls return, and see a fault: the driver is read again."""
        self.freezer.write("freezer.state", "THAWED")
        self.machine.tell()
        self.machine.say(0, 0, codes="80E18402")
        await self.site.until_allocatable(CHIPS - 1)
        self.machine.say(0, 0, codes="")
        await self.site.until_allocatable(CHIPS)


@asynccontextmanager
async def bounded_agent(path: Path) -> AsyncIterator[Bounded]:
    """Run an agent on sixteen chips, within the limit of its container."""
    library = path / "libdcmi.so"
    run("cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", library, _SOURCE)
    machine = fake_machine.superpod_a3(path / "machine")
    told = (
        *("--driver", "dcmi", "--dcmi-library", str(library)),
        *("--driver-deadline-s", "0.5", "--recover-s", "0.1"),
    )
    row = table.by_key("atlas-a3-16-superpod")
    with new_group("memory") as group, new_group("freezer") as freezer:
        group.write("memory.limit_in_bytes", LIMIT_BYTES)
        async with running_site(*told, starts=False, product=row) as site:
            agent = await asyncio.create_subprocess_exec(
                *("sh", "-c", 'echo $$ > "$0" && exec "$@"'),
                str(group.path / "cgroup.procs"),
                *(sys.executable, "-m", "agent", *site.arguments),
                env={**os.environ, **machine.environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                await site.until_allocatable(CHIPS)
                process = psutil.Process(agent.pid)
                yield Bounded(site, machine, process, group, freezer)
            finally:
                freezer.write("freezer.state", "THAWED")
                agent.kill()
                await agent.wait()
                await until(lambda: not group.read("cgroup.procs"))


async def test_the_memory_of_the_container_holds_whatever_the_driver_does(
    tmp_path: Path,
) -> None:
    async with bounded_agent(tmp_path) as bounded:
        # first, because after many failures in a row a new worker comes late
        frozen, workers = await bounded.hang(are_frozen=True)
        await bounded.heal()
        ended, _ = await bounded.hang(are_frozen=False)
        killed, is_running = bounded.group.killed, bounded.agent.is_running()

    print(f"at most {ended >> 20} MiB, and {frozen >> 20} MiB with frozen workers")  # noqa: T201  # for those who read the log
    assert (workers, killed, is_running) == (MOST_UNENDED, 0, True)
    assert max(ended, frozen) < LIMIT_BYTES
