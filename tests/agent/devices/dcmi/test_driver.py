"""Real chips as the library describes them: each family, faults, events, processes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.devices.board_size import fit_row
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.reading import (
    ChipDetails,
    ChipFault,
    Process,
    Reading,
    Unread,
    VirtualDevice,
)
from agent.plugin import vnpu
from scheduler_core.products.table import ATLAS_800_TRAINING
from service.clock import loop_s
from tests.agent.devices import fake_machine
from tests.agent.devices.asking import (
    NOW_MS,
    PATIENCE_S,
    driver_on,
    problem_with,
    read_once,
    reading_with,
)
from tests.agent.devices.dcmi.conftest import Build
from tests.agent.devices.fake_machine import FakeMachine
from tests.support.until import until

#: C functions of one look at a chip.
LOOK = (
    "dcmi_get_device_errorcode_v2",
    "dcmi_get_device_health",
    "dcmi_get_device_resource_info",
)


def codes(reading: Reading) -> list[tuple[int, str]]:
    return [(fault.chip, fault.code) for fault in reading.faults]


async def test_everything_that_an_atlas_800_says(build: Build) -> None:
    machine = build(fake_machine.training_910a)
    machine.say(3, 0, codes="80E01801,81078603")
    machine.say(5, 0, pids="12,11,12")
    reading = await read_once(machine)

    assert reading == Reading(
        product=ATLAS_800_TRAINING,
        chip_name="910A",
        ai_core_count=32,
        chips=(0, 1, 2, 3, 4, 5, 6, 7),
        details=tuple(
            ChipDetails(
                chip=chip,
                logic_id=chip,
                ip=f"192.168.20.{100 + chip}",
                memory_mb=32768,
            )
            for chip in range(8)
        ),
        driver_version="24.1.rc2",
        faults=(
            ChipFault(chip=3, code="80E01801", since_ms=NOW_MS),
            ChipFault(chip=3, code="81078603", since_ms=NOW_MS),
        ),
        processes=(Process(chip=5, pid=11), Process(chip=5, pid=12)),
    )


async def test_d11_a_file_with_a_packages_name_in_the_working_folder_is_not_ours(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("agent", "service", "kube"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    monkeypatch.chdir(tmp_path)

    reading = await read_once(build(fake_machine.training_910a))

    assert reading.chips == tuple(range(8))


async def test_the_check_of_the_network_is_not_asked_for(build: Build) -> None:
    machine = build(fake_machine.training_910a)
    machine.say(3, 0, network=3)
    machine.tell("hang dcmi_get_device_network_health -1 -1")
    reading = await read_once(machine)

    assert reading.chips == tuple(range(8))
    assert (reading.faults, reading.unread) == ((), ())


async def test_chips_go_by_their_physical_ids(machine: FakeMachine) -> None:
    machine.say(7, 0, codes="80E18005")
    reading = await read_once(machine)

    assert codes(reading) == [(0, "80E18005")]
    assert reading.details[0] == ChipDetails(
        chip=0, logic_id=7, ip="10.0.0.8", memory_mb=65536
    )


async def test_an_address_that_was_never_configured_is_not_waited_for(
    machine: FakeMachine,
) -> None:
    machine.tell("answer dcmi_get_device_ip 4 0 -8023")
    async with driver_on(machine, wait_s=600.0) as driver:
        reading = await driver.read()

    assert [(one.chip, one.ip) for one in reading.details[2:4]] == [
        (2, "10.0.0.6"),
        (3, ""),
    ]


async def test_dies_of_a_superpod_have_numbers_in_it(build: Build) -> None:
    machine = build(fake_machine.superpod_a3)
    machine.say(0, 1, ip6="fe80::1")
    machine.say(1, 0, ip6="2001:db8::7")
    reading = await read_once(machine)

    assert (reading.product.key, reading.super_pod_id, reading.server_index) == (
        "atlas-a3-16-superpod",
        4,
        2,
    )
    assert reading.details[:3] == (
        ChipDetails(chip=0, logic_id=0, memory_mb=65536, super_device_id=4000),
        ChipDetails(chip=1, logic_id=1, memory_mb=65536, super_device_id=4001),
        ChipDetails(
            chip=2,
            logic_id=2,
            ip="2001:db8::7",
            memory_mb=65536,
            super_device_id=4002,
        ),
    )


async def test_an_a3_outside_of_a_superpod_says_so(build: Build) -> None:
    machine = build(fake_machine.superpod_a3)
    for die in range(16):
        machine.say(die // 2, die % 2, pod="0xffffffff", server="0xffffffff")
    reading = await read_once(machine)

    assert (reading.product.key, reading.super_pod_id, reading.server_index) == (
        "atlas-a3-16",
        -1,
        -1,
    )


@pytest.mark.parametrize(
    ("make", "key", "count"),
    [
        (fake_machine.cards_300i, "atlas-300i-chip", 8),
        (fake_machine.cards_duo, "atlas-300i-duo-chip", 6),
        (fake_machine.cards_310p, "atlas-310p", 3),
    ],
)
async def test_servers_of_cards_have_the_chips_that_are_put_in(
    build: Build,
    make: Callable[[Path], FakeMachine],
    key: str,
    count: int,
) -> None:
    reading = await read_once(build(make))

    assert (reading.product, reading.chips) == (
        fit_row(key, count - 1),
        tuple(range(count)),
    )
    assert reading.product.chip_count == count


async def test_the_kind_of_server_can_be_said(machine: FakeMachine) -> None:
    reading = await read_once(machine, product="mesh-8")

    assert reading.product.key == "mesh-8"


async def test_parts_of_chips_are_known_by_their_templates(build: Build) -> None:
    machine = build(fake_machine.training_910a)
    machine.say(2, 0, virtual="102:vir16,101:vir04_3c,103:odd")
    machine.say(5, 0, virtual="100:vir10_3c_32g")
    reading = await read_once(machine)

    assert reading.virtual == (
        VirtualDevice(chip=5, number=100, kind="10c.3cpu.32g"),
        VirtualDevice(chip=2, number=101, kind="4c.3cpu"),
        VirtualDevice(chip=2, number=102, kind="16c"),
        VirtualDevice(chip=2, number=103, kind=""),
    )
    assert {row.resource for row in vnpu.rows_of(reading)} == {
        "huawei.com/Ascend910-10c.3cpu.32g",
        "huawei.com/Ascend910-16c",
        "huawei.com/Ascend910-4c.3cpu",
    }


async def test_a_chip_with_a_part_of_no_known_template_is_cut(build: Build) -> None:
    """It was given out whole."""
    machine = build(fake_machine.training_910a)
    machine.say(2, 0, virtual="103:odd")
    reading = await read_once(machine)

    assert [part.chip for part in reading.virtual] == [2]
    assert vnpu.rows_of(reading) == ()


async def test_a_kind_of_server_that_no_chip_is_of_is_said(
    machine: FakeMachine,
) -> None:
    async with driver_on(machine, product="atlas-310p") as driver:
        said = await problem_with(driver, "--product")

    assert said == "the driver shows no chip that could be of --product atlas-310p"


async def test_an_event_brings_a_fault_and_how_severe_it_is(
    machine: FakeMachine, driver: DcmiDriver
) -> None:
    machine.say(2, 0, codes="80E01801")
    machine.event(2, "80E01801", 3, 1)
    seen = await reading_with(
        driver, lambda found: any(f.severity is not None for f in found.faults)
    )
    machine.say(2, 0, codes="")
    machine.event(2, "80E01801", 3, 0)
    over = await reading_with(driver, lambda found: not found.faults)

    (fault,) = seen.faults
    assert (fault.chip, fault.code, fault.severity) == (5, "80E01801", 3)
    assert over.chips == tuple(range(8))


async def test_a_fault_that_came_and_went_between_two_looks_is_seen(
    machine: FakeMachine, driver: DcmiDriver
) -> None:
    machine.event(2, "80E01801", 1, 1)
    machine.event(2, "80E01801", 1, 0)
    seen = await reading_with(driver, lambda found: bool(found.faults))
    over = await reading_with(driver, lambda found: not found.faults)

    assert codes(seen) == [(5, "80E01801")]
    assert over.unread == ()


async def test_an_event_of_no_code_is_no_fault(
    machine: FakeMachine, driver: DcmiDriver
) -> None:
    """It was a fault 00000000 of no list, which takes a chip out of service."""
    machine.event(2, "0", 2, 1)
    machine.event(2, "80E01801", 1, 1)
    seen = await reading_with(driver, lambda found: bool(found.faults))

    assert codes(seen) == [(5, "80E01801")]


async def test_each_event_counts(machine: FakeMachine, driver: DcmiDriver) -> None:
    machine.say(2, 0, codes="80E01801")
    await reading_with(driver, lambda found: bool(found.faults))
    for _ in range(100):
        machine.event(2, "80E01801", 1, 1)

    seen = await reading_with(
        driver, lambda found: sum(fault.count for fault in found.faults) >= 100
    )
    over = await reading_with(driver, lambda found: found.chips == seen.chips)

    assert [fault.count for fault in over.faults] == [100]


async def test_a_machine_on_which_nothing_changes_has_no_news(
    machine: FakeMachine, driver: DcmiDriver
) -> None:

    assert not await driver.wait_for_news(0.05)
    machine.event(2, "80E01801", 3, 1)
    assert await driver.wait_for_news(PATIENCE_S)


async def test_a_reading_is_as_old_as_the_look_under_way(machine: FakeMachine) -> None:
    async with driver_on(machine) as driver:
        await driver.read()
        before_s = driver.known_s
        machine.tell("hang dcmi_get_device_health 2 0")
        driver.look_now()
        await until(lambda: loop_s() - driver.known_s >= 0.5, within_s=PATIENCE_S)
        began_s = driver.known_s
        await asyncio.sleep(0.1)

        assert before_s <= began_s == driver.known_s


async def test_without_events_faults_are_polled(machine: FakeMachine) -> None:
    machine.tell("answer dcmi_subscribe_fault_event -1 -1 -8255")
    async with driver_on(machine) as driver:
        await driver.read()
        machine.say(2, 0, codes="80E01801")
        seen = await reading_with(driver, lambda found: bool(found.faults))

    assert codes(seen) == [(5, "80E01801")]


async def test_a_fault_is_read_before_chips_whose_calls_take_long(
    machine: FakeMachine,
) -> None:
    """It was told with the states of all chips, when the last of them was read."""
    without_events = "answer dcmi_subscribe_fault_event -1 -1 -8255"
    late = [f"slow {each} {card} 0 600" for card in (6, 7) for each in LOOK]
    machine.tell(without_events)
    async with driver_on(machine) as driver:
        await driver.read()
        machine.tell(without_events, *late)
        slow = await reading_with(
            driver, lambda found: sum(each.is_slow for each in found.unread) == 2
        )
        for card in (0, 6, 7):
            machine.say(card, 0, codes="80E01801")
        soon = await reading_with(driver, lambda found: (7, "80E01801") in codes(found))
        over = await reading_with(driver, lambda found: len(found.faults) == 3)

    assert {each.chip for each in slow.unread} == {0, 1}
    assert len(soon.faults) < 3
    assert soon.chips == over.chips == tuple(range(8))


async def test_a_chip_that_is_not_ready_has_dropped_off(machine: FakeMachine) -> None:
    machine.say(0, 0, ready=0)
    machine.tell("answer dcmi_get_device_errorcode_v2 0 0 -8006")
    reading = await read_once(machine)

    assert codes(reading) == [(7, "40F84E00")]


async def test_a_chip_that_no_longer_exists_has_vanished(
    machine: FakeMachine, driver: DcmiDriver
) -> None:
    machine.remove(7, 0)
    seen = await reading_with(driver, lambda found: 0 not in found.chips)

    assert seen.chips == tuple(range(1, 8))


@pytest.mark.parametrize("code", [-8001, -8005, -8006, -8013, -8020, -8255, -99999, 7])
async def test_a_chip_that_cannot_be_read_stays_as_it_was(
    machine: FakeMachine, code: int
) -> None:
    machine.say(0, 0, codes="80E01801")
    async with driver_on(machine) as driver:
        await driver.read()
        machine.tell(f"answer dcmi_get_device_errorcode_v2 0 0 {code}")
        machine.say(0, 0, codes="")
        machine.event(0, "80E01801", 1, 0)  # so that it looks at once
        seen = await reading_with(driver, lambda found: bool(found.unread))

    assert codes(seen) == [(7, "80E01801")]
    (unread,) = seen.unread
    assert unread.chip == 7
    assert unread.reason.startswith("dcmi_get_device_errorcode_v2: ")
    assert f"({code})" in unread.reason


async def test_a_chip_that_was_never_read_is_not_there_yet(
    machine: FakeMachine,
) -> None:
    machine.tell("answer dcmi_get_device_errorcode_v2 0 0 -8006")
    reading = await read_once(machine)

    assert reading.chips == (0, 1, 2, 3, 4, 5, 6)
    assert reading.unread == (
        Unread(chip=7, reason="dcmi_get_device_errorcode_v2: timed out (-8006)"),
    )


async def test_who_uses_a_chip_is_not_forgotten_for_a_call_that_fails(
    machine: FakeMachine,
) -> None:
    machine.say(0, 0, pids="4711")
    async with driver_on(machine) as driver:
        await driver.read()
        machine.say(0, 0, pids="", codes="80E01801")
        machine.tell("answer dcmi_get_device_resource_info 0 0 -8006")
        machine.event(0, "80E01801", 1, 1)
        seen = await reading_with(driver, lambda found: bool(found.faults))

    assert seen.processes == (Process(chip=7, pid=4711),)
    assert seen.unread == (
        Unread(
            chip=7,
            reason="dcmi_get_device_resource_info: timed out (-8006)",
            is_partial=True,
        ),
    )


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("number dcmi_get_card_list -1 -1 100000", "dcmi_get_card_list: nonsense"),
        ("answer dcmi_init -1 -1 -8005", "dcmi_init: internal error (-8005)"),
    ],
)
async def test_what_makes_no_sense_is_said(
    machine: FakeMachine, lie: str, said: str
) -> None:
    machine.tell(lie)
    async with driver_on(machine) as driver:
        assert said in await problem_with(driver, said)


async def test_a_number_of_processes_that_cannot_be_is_no_number(
    machine: FakeMachine,
) -> None:
    machine.tell("number dcmi_get_device_resource_info 0 0 2000000000")
    reading = await read_once(machine)

    assert reading.unread == (
        Unread(
            chip=7,
            reason="dcmi_get_device_resource_info: nonsense (-99997)",
            is_partial=True,
        ),
    )


async def test_two_chips_of_one_id_are_nobody_that_we_serve(
    machine: FakeMachine,
) -> None:
    machine.say(0, 0, phy=3)
    async with driver_on(machine) as driver:
        said = await problem_with(driver, "two chips")

    assert said == "the driver shows two chips with the id 3"
