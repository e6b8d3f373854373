"""Libraries that are not as the newest: finding F8."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.devices import fake_machine
from tests.agent.devices.asking import driver_on, problem_with, read_once, reading_with
from tests.agent.devices.dcmi.conftest import Build
from tests.agent.devices.fake_machine import FakeMachine

BuildLibrary = Callable[..., Path]
#: A function that nobody calls, and that needs one of another library.
UNRESOLVED = """
extern int dcmi_of_another_library(void);
int dcmi_never_called(void) { return dcmi_of_another_library(); }
"""


async def test_a_library_may_lack_what_is_never_called(
    machine: FakeMachine, build_libdcmi: BuildLibrary
) -> None:
    """Finding F8: `CDLL(path)` refuses such a library."""
    machine.library = build_libdcmi("-Wl,-z,lazy", source=UNRESOLVED)
    reading = await read_once(machine)

    assert reading.chips == tuple(range(8))


async def test_an_older_library_tells_the_model_and_cores(
    machine: FakeMachine, build_libdcmi: BuildLibrary
) -> None:
    """Finding F8: `dcmi_get_device_chip_info` in place of `…_v2`."""
    expected = await read_once(machine)
    machine.library = build_libdcmi("-DWITHOUT_V2")

    assert await read_once(machine) == expected


async def test_a_library_may_take_longer_to_initialise_than_a_call(
    machine: FakeMachine,
) -> None:
    """Finding F8: five seconds for `dcmi_init` too, so the agent never began."""
    machine.tell("slow dcmi_init -1 -1 1500")
    async with driver_on(machine, call_s=0.5, load_s=600.0) as driver:
        reading = await driver.read()

    assert reading.chips == tuple(range(8))


async def test_a_library_of_the_other_interface_is_refused(
    machine: FakeMachine, build_libdcmi: BuildLibrary
) -> None:
    """Finding F8: it has `dcmiv2_*` only."""
    machine.library = build_libdcmi("-Ddcmi_init=dcmiv2_init")
    async with driver_on(machine) as driver:
        said = await problem_with(driver, "dcmiv2")

    assert said == (
        f"{machine.library}: expected functions dcmi_*, found dcmiv2_* only: this is "
        "the driver of chips like Ascend950, which the agent cannot ask yet"
    )


async def test_d30_a_library_of_both_interfaces_is_refused_if_the_first_fails(
    machine: FakeMachine, build_libdcmi: BuildLibrary
) -> None:
    """MindCluster calls `dcmiv2_*` then; only `dcmi_init: not supported` was said."""
    machine.library = build_libdcmi(source="int dcmiv2_init(void) { return 0; }")
    machine.tell("answer dcmi_init -1 -1 -8255")
    async with driver_on(machine) as driver:
        said = await problem_with(driver, "dcmi")

    assert said == (
        f"{machine.library}: expected functions dcmi_*, found dcmiv2_* and dcmi_init: "
        "not supported (-8255): this is the driver of chips like Ascend950, which the "
        "agent cannot ask yet"
    )


async def test_a_library_of_both_interfaces_is_served_by_the_first(
    machine: FakeMachine, build_libdcmi: BuildLibrary
) -> None:
    machine.library = build_libdcmi(source="int dcmiv2_init(void) { return 0; }")

    assert (await read_once(machine)).chips == tuple(range(8))


@pytest.mark.parametrize("product", ["", "atlas-310p"])
async def test_a_200i_soc_a1_is_refused(build: Build, product: str) -> None:
    """Findings F8 and D30: its driver needs daemons beside it, whoever chose it."""
    machine = build(fake_machine.cards_310p)
    for card in range(3):
        machine.say(card, 0, type="Atlas+200I+SoC+A1")
    async with driver_on(machine, product=product) as driver:
        said = await problem_with(driver, "200I")

    assert said == (
        "an Atlas 200I SoC A1 is not served: its driver works in a container only "
        "beside two daemons that the agent does not start"
    )


async def test_an_ipv4_address_is_asked_for_before_an_ipv6_address(
    machine: FakeMachine,
) -> None:
    """Finding F8, of the doubts: the type of the address is part of the question."""
    machine.say(0, 0, ip="10.0.0.1", ip6="2001:db8::1")
    machine.say(1, 0, ip="", ip6="2001:db8::2")
    machine.say(2, 0, ip="0.0.0.0", ip6="2001:db8::3")  # noqa: S104  # no address
    machine.say(3, 0, ip="", ip6="")
    reading = await read_once(machine)

    assert {each.logic_id: each.ip for each in reading.details[4:]} == {
        0: "10.0.0.1",
        1: "2001:db8::2",
        2: "2001:db8::3",
        3: "",
    }


async def test_a_card_without_a_number_is_waited_for_and_then_served(
    machine: FakeMachine,
) -> None:
    """Finding F15: a card -1 was asked, and a hang in such a call not learned from."""
    machine.tell("unnamed 1")
    machine.remove(7, 0)
    async with driver_on(machine, wait_s=600.0) as driver:
        said = await problem_with(driver, "cannot name")
        machine.add(7, 0, "phy=0 logic=7 name=910B3 cores=20 board=0x30")
        machine.tell()
        reading = await reading_with(driver, lambda _: True)

    assert said == (
        "waiting for all chips, 600 s at most: the driver cannot name 1 of its cards "
        "yet"
    )
    assert reading.chips == tuple(range(8))


@pytest.mark.parametrize(
    ("words", "lie", "reason"),
    [
        ({"board": "0xffffffff"}, "", "the driver does not tell the model and board"),
        ({"unit": 255}, "", "card 0, device 0: dcmi_get_device_type: nonsense"),
        (
            {},
            "number dcmi_get_device_num_in_card 0 0 0",
            "card 0: dcmi_get_device_num_in_card: nonsense",
        ),
    ],
    ids=["invalid board", "invalid type", "no device"],
)
async def test_a_chip_that_does_not_know_itself_yet_is_waited_for(
    build: Build, words: dict[str, object], lie: str, reason: str
) -> None:
    """Half the server was served, or the whole node was of no family."""
    machine = build(fake_machine.superpod_a3)
    machine.say(0, 0, **words)
    machine.tell(*filter(None, [lie]))
    async with driver_on(machine, wait_s=600.0) as driver:
        said = await problem_with(driver, "waiting for all chips")

    assert said.startswith(f"waiting for all chips, 600 s at most: {reason}")


async def test_events_are_subscribed_to_once_all_cards_are_there(
    machine: FakeMachine,
) -> None:
    """After a boot it failed before there were cards, and there were no events."""
    machine.tell("unnamed 1", "answer dcmi_subscribe_fault_event -1 -1 -8005")
    async with driver_on(machine, wait_s=600.0) as driver:
        await problem_with(driver, "cannot name")
        machine.tell()
        await reading_with(driver, lambda _: True)
        machine.event(2, "80E01801", 3, 1)
        seen = await reading_with(driver, lambda found: bool(found.faults))

    assert [(fault.chip, fault.severity) for fault in seen.faults] == [(5, 3)]
