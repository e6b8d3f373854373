"""A library that hangs, crashes, cannot be loaded or must not be."""

import asyncio
import os
import signal
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from agent.devices.board_size import fit_row
from agent.devices.dcmi import find_library
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.values import Identity
from agent.devices.dcmi.worker import Worker
from agent.devices.reading import VirtualDevice
from tests.agent.devices import fake_machine
from tests.agent.devices.asking import (
    PATIENCE_S,
    driver_on,
    problem_with,
    reading_with,
)
from tests.agent.devices.dcmi.conftest import Build
from tests.agent.devices.fake_machine import FakeMachine
from tests.support.until import until

#: Long enough for any call of the fake library on a busy machine.
CALL_S = 1.0


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until_gone(pid: int) -> None:
    await until(lambda: not is_running(pid), within_s=PATIENCE_S)


@pytest.mark.parametrize("verb", ["hang", "crash"])
async def test_a_call_that_does_not_come_back_costs_the_readings_of_one_chip(
    machine: FakeMachine, verb: str
) -> None:
    function = "dcmi_get_device_errorcode_v2"
    machine.say(2, 0, codes="80E01801")
    async with driver_on(machine, call_s=CALL_S) as driver:
        await driver.read()
        machine.tell(f"{verb} {function} 2 0")
        said = await problem_with(driver, function)
        machine.say(1, 0, codes="80E18005")
        seen = await reading_with(driver, lambda found: len(found.faults) == 2)

    words = (
        f"{function} (card 2, device 0) has not come back for 1 s"
        if verb == "hang"
        else f"the driver worker was ended by SIGSEGV in {function} (card 2, device 0)"
    )
    assert said.partition(";")[0] == words
    assert [(fault.chip, fault.code) for fault in seen.faults] == [
        (5, "80E01801"),
        (6, "80E18005"),
    ]
    assert [each.chip for each in seen.unread] == [5]
    assert "left out: it did not come back last time" in seen.unread[0].reason


@pytest.mark.parametrize(
    ("function", "place", "out"),
    [
        ("dcmi_get_card_list", "-1 -1", []),
        ("dcmi_get_dcmi_version", "-1 -1", []),
        ("dcmi_subscribe_fault_event", "-1 -1", []),
        ("dcmi_get_device_logic_id", "2 0", []),
        ("dcmi_get_device_ip", "2 0", []),
        ("dcmi_get_device_health", "2 0", [5]),
    ],
)
async def test_a_node_that_was_served_before_is_served_beside_a_hang(
    machine: FakeMachine, function: str, place: str, out: list[int]
) -> None:
    machine.tell(f"hang {function} {place}")
    identities = tuple(
        Identity(card=card, device=0, physical_id=7 - card, logic_id=card)
        for card in range(8)
    )
    known = Known((fit_row("atlas-a2-8", 7),), identities)
    async with driver_on(machine, call_s=CALL_S, load_s=600.0, known=known) as driver:
        said = await problem_with(driver, function)
        seen = await reading_with(driver, lambda _: True)

    assert "has not come back for 1 s" in said
    assert [each.chip for each in seen.unread] == out
    assert seen.chips == tuple(chip for chip in range(8) if chip not in out)


async def test_a_library_that_hangs_at_its_very_beginning_is_named(
    machine: FakeMachine,
) -> None:
    machine.tell("hang dcmi_init -1 -1")
    async with driver_on(machine, call_s=CALL_S) as driver:
        said = await problem_with(driver, "dcmi_init")
        machine.tell()
        seen = await reading_with(driver, lambda found: not found.unread)

    assert said.partition(";")[0] == "dcmi_init has not come back for 1 s"
    assert seen.chips == tuple(range(8))


async def test_a_worker_that_is_killed_is_replaced(
    machine: FakeMachine, driver: DcmiDriver
) -> None:
    assert driver._worker is not None
    os.kill(driver._worker.pid, signal.SIGKILL)
    said = await problem_with(driver, "SIGKILL")
    seen = await reading_with(driver, lambda _: True)

    assert said.partition(";")[0] == "the driver worker was ended by SIGKILL"
    assert seen.chips == tuple(range(8))


async def test_a_chip_that_was_cut_does_not_look_whole_for_a_call_that_fails(
    build: Build,
) -> None:
    machine = build(fake_machine.training_910a)
    machine.say(2, 0, virtual="100:vir04")
    async with driver_on(machine) as driver:
        before = await driver.read()
        machine.tell("answer dcmi_get_device_info -1 -1 -8006")
        assert driver._worker is not None
        os.kill(driver._worker.pid, signal.SIGKILL)
        await problem_with(driver, "SIGKILL")
        after = await reading_with(driver, lambda _: True)

    assert before.virtual == (VirtualDevice(chip=2, number=100, kind="4c"),)
    assert after.virtual == before.virtual


async def test_no_worker_is_left_when_the_driver_is_closed(
    machine: FakeMachine,
) -> None:
    async with driver_on(machine) as driver:
        await driver.read()
        assert driver._worker is not None
        pid = driver._worker.pid
        machine.tell("hang dcmi_get_device_health 2 0")

    await until_gone(pid)


AGENT = """
import asyncio, sys
from pathlib import Path
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.values import Identity

async def main():
    driver = DcmiDriver(Path(sys.argv[1]), Conversion(), call_s=600, wall_ms=int)
    await driver.read()
    print(driver._worker.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_worker_within_a_call_that_hangs_ends_with_its_agent(
    machine: FakeMachine,
) -> None:
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AGENT, str(machine.library)),
        env={**os.environ, **machine.environment},
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    pid = int(await agent.stdout.readline())
    machine.tell("hang dcmi_get_device_health -1 -1")
    agent.kill()
    await agent.wait()

    await until_gone(pid)


async def test_the_worker_is_small(build: Build) -> None:
    machine = build(fake_machine.superpod_a3)
    async with driver_on(machine) as driver:
        await driver.read()
        assert driver._worker is not None
        status = await asyncio.to_thread(
            Path(f"/proc/{driver._worker.pid}/status").read_text
        )

    (resident,) = [
        line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")
    ]
    assert int(resident) <= 25 * 1024


def test_the_worker_loads_nothing_of_the_agents_but_what_asks_the_library() -> None:
    program = (
        "import sys, agent.devices.dcmi.__main__; "
        "print(*(m for m in sys.modules if m.split('.')[0] in "
        "{'agent', 'service', 'kube', 'scheduler_core', 'grpc', 'asyncio', 'yaml'}))"
    )
    said = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    ours = "agent.devices.dcmi"
    assert set(said.stdout.split()) == {
        *("agent", "agent.devices", ours, f"{ours}.__main__"),
        *(f"{ours}.frames", f"{ours}.structs", f"{ours}.library"),
        *(f"{ours}.reader", f"{ours}.progress", f"{ours}.values"),
    }


async def test_a_library_that_is_not_there_is_named(
    tmp_path: Path, machine: FakeMachine
) -> None:
    machine.library = library = tmp_path / "libdcmi.so"
    async with driver_on(machine) as driver:
        assert await problem_with(driver, "libdcmi.so") == (
            f"{library}: No such file or directory"
        )


async def test_a_file_that_is_no_library_is_named(
    tmp_path: Path, machine: FakeMachine
) -> None:
    machine.library = library = tmp_path / "libdcmi.so"
    library.write_text("no library")
    async with driver_on(machine) as driver:
        said = await problem_with(driver, "libdcmi.so")

    assert said.startswith(f"{library}: {library}: ")


def test_a_library_that_others_may_write_is_not_loaded(tmp_path: Path) -> None:
    library = tmp_path / "libdcmi.so"
    library.touch()
    library.chmod(0o664)
    link = tmp_path / "link.so"
    link.symlink_to(library)

    assert find_library.find_distrust_reason(link) == (
        f"{library}: expected a file that its owner alone may write, found 664"
    )


@pytest.mark.parametrize("is_of_link", [False, True], ids=["library", "link"])
def test_a_library_in_a_folder_that_others_may_write_is_not_loaded(
    tmp_path: Path, *, is_of_link: bool
) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    library = (tmp_path if is_of_link else folder) / "libdcmi.so"
    library.touch(mode=0o755)
    path = folder / "libdcmi.so"
    if is_of_link:
        path.symlink_to(library)
    folder.chmod(0o777)

    assert find_library.find_distrust_reason(path) == (
        f"{folder}: expected a folder that its owner alone may write, found 777"
    )


def test_a_library_of_ours_that_only_we_may_write_is_loaded(tmp_path: Path) -> None:
    library = tmp_path / "libdcmi.so"
    library.touch()
    library.chmod(0o755)

    assert find_library.find_distrust_reason(library) == ""


def test_the_library_is_looked_for_where_the_loader_looks_and_then_at_ascends(
    tmp_path: Path,
) -> None:
    named, known = tmp_path / "named", tmp_path / "known"
    for folder in (named, known):
        folder.mkdir()
    (known / "libdcmi.so").touch()
    environment = {"LD_LIBRARY_PATH": f":{named}", "HOME": "/root"}

    assert find_library.locate({}, ()) is None
    assert find_library.locate(environment, [known]) == known / "libdcmi.so"
    (named / "libdcmi.so").touch()
    assert find_library.locate(environment, [known]) == named / "libdcmi.so"
    assert find_library.make_environment(environment, [known]) == {
        "LD_LIBRARY_PATH": f"{named}:{known}",
        "HOME": "/root",
    }


async def test_a_worker_makes_no_call_about_a_chip_that_is_left_out(
    machine: FakeMachine,
) -> None:
    worker = Worker.start(
        str(machine.library),
        {**os.environ, **machine.environment},
        [("", 2, 0, inf)],
    )
    async with asyncio.timeout(PATIENCE_S):
        while not worker.waiting:
            await worker.wait_for_news(1.0)
    survey = worker.take()["survey"]
    await worker.end()

    assert 2 not in {chip["identity"]["card"] for chip in survey["chips"]}
    (unidentified,) = survey["unidentified"]
    assert unidentified[:2] == [2, -1]
    assert "left out: it did not come back last time" in unidentified[2]
