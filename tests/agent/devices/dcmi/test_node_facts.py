"""Facts of a node while calls about its first chip fail: finding F5, row by row."""

from dataclasses import replace

import pytest

from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.values import ChipState, Survey
from tests.agent.devices import fake_machine
from tests.agent.devices.asking import read_once
from tests.agent.devices.dcmi.conftest import Build
from tests.agent.devices.dcmi.simulated_node import (
    CHIPS,
    DIES,
    IDENTIFIED_S,
    KNOWN,
    STEP_S,
    WELL,
    SimulatedNode,
    published,
)
from tests.agent.devices.scripted_library import Fails

FAILS = Fails(-8012)


def later(method: str) -> SimulatedNode:
    """A node whose first chip fails to answer when it is identified again."""
    node = SimulatedNode()
    node.run(STEP_S)
    node.library.outcomes[method, (0, 0)] = FAILS
    node.now = IDENTIFIED_S
    node.run(IDENTIFIED_S + STEP_S)
    return node


@pytest.mark.parametrize("method", ["super_pod", "chip_info", "address"])
def test_a_call_that_fails_later_changes_nothing(method: str) -> None:
    """Finding F5: SuperPoD -2, model "", and "-1" in a running pod's configuration."""
    node = later(method)

    assert node.reading is not None
    assert published(node.reading) == WELL


def test_a_superpod_that_no_chip_tells_is_waited_for() -> None:
    """Finding F5: the row without a SuperPoD was served for ever."""
    node = SimulatedNode()
    node.library.outcomes["super_pod", None] = FAILS
    node.run(STEP_S)
    while_failing = node.problem
    node.library.outcomes.clear()
    node.now = IDENTIFIED_S
    node.look()

    assert while_failing == (
        "waiting for all chips, 600 s at most: no chip of Ascend910 tells its SuperPoD"
    )
    assert node.reading is not None
    assert published(node.reading) == WELL


@pytest.mark.parametrize("code", [-8012, -8255])
def test_a_board_that_the_first_chip_does_not_tell_is_that_of_the_others(
    code: int,
) -> None:
    """Finding F5: the whole node was of no family that is served."""
    node = SimulatedNode(wait_s=0.0)
    node.library.outcomes["board_id", (0, 0)] = Fails(code)
    node.run(STEP_S)

    assert node.reading is not None
    assert published(node.reading) == WELL


async def test_a_product_type_that_the_first_chip_does_not_tell_is_that_of_the_others(
    build: Build,
) -> None:
    """Finding F5: a Duo was served as single cards, for ever."""
    machine = build(fake_machine.cards_duo)
    machine.tell("answer dcmi_get_product_type 0 0 -8012")
    reading = await read_once(machine)

    assert (reading.product.key, reading.product_type) == (
        "atlas-300i-duo-chip",
        "Atlas 300I Duo",
    )


def test_facts_stay_while_the_driver_shows_no_chip() -> None:
    """As F5: model, cores and SuperPoD of the node became unknown."""
    node = SimulatedNode()
    node.run(STEP_S)
    for chip in range(CHIPS):
        place = chip // DIES, chip % DIES
        node.library.outcomes["codes", place] = Fails(-8008)
    node.run(2 * STEP_S)

    assert node.reading is not None
    assert node.reading.chips == ()
    found = published(node.reading)
    assert (found.chip_name, found.ai_core_count, found.super_pod) == (
        WELL.chip_name,
        WELL.ai_core_count,
        WELL.super_pod,
    )


def test_near_cpus_of_a_chip_that_is_missing_at_start_are_known() -> None:
    """One dead chip took the NUMA nodes of all chips from the kubelet."""
    chips = tuple(
        replace(chip, numa=chip.physical_id // 4) for chip in KNOWN.identities
    )
    present = (ChipState(identity=chip) for chip in chips if chip.physical_id != 5)
    conversion = Conversion(known=replace(KNOWN, identities=chips))

    assert conversion.reading(Survey(chips=tuple(present)), 0, 0.0).numa == (
        *(0, 0, 0, 0),
        *(1, 1, 1, 1),
    )
