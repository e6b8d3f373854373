"""Chips of several product lines, as one library shows them."""

from dataclasses import replace

import pytest

from agent.devices.board_size import UnknownMachineError, fit_row
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.values import ChipState, Identity, Survey
from agent.devices.reading import Process, Unread
from tests.agent.devices import fake_machine
from tests.agent.devices.asking import driver_on, read_once, reading_with
from tests.agent.devices.dcmi.conftest import Build


def two_lines(build: Build, *cards: int) -> fake_machine.FakeMachine:
    """Eight chips of an Atlas A2, and cards of one 310P."""
    machine = build(fake_machine.module_910b)
    for chip in cards:
        machine.add(chip, 0, f"phy={chip} logic={chip} name=310P3 cores=8")
    return machine


async def test_chips_of_several_product_lines_are_told_apart(build: Build) -> None:
    machine = two_lines(build, 8, 9)
    machine.say(9, 0, codes="80E18402", pids="4711")
    async with driver_on(machine) as driver:
        reading = await reading_with(
            driver, lambda seen: bool(seen.other_lines[0].faults)
        )

    first, beside = reading.lines
    assert (first.product.key, first.chips) == ("atlas-a2-8", tuple(range(8)))
    assert (first.faults, first.processes) == ((), ())
    assert (beside.product, beside.chips) == (
        fit_row("atlas-310p", 9, 0b11111111),
        (8, 9),
    )
    assert (beside.chip_name, beside.ai_core_count) == ("310P3", 8)
    assert [(fault.chip, fault.code) for fault in beside.faults] == [(9, "80E18402")]
    assert beside.processes == (Process(chip=9, pid=4711),)
    assert [each.chip for each in beside.details] == [8, 9]


async def test_the_chips_of_one_line_can_go_without_the_others(build: Build) -> None:
    machine = two_lines(build, 8)
    async with driver_on(machine) as driver:
        await driver.read()
        machine.remove(8, 0)
        gone = await reading_with(driver, lambda seen: not seen.other_lines[0].chips)

    assert (len(gone.chips), gone.other_lines[0].product.key) == (8, "atlas-310p")


def looked(chip: int, name: str | None) -> ChipState:
    identity = Identity(card=chip, device=0, physical_id=chip, logic_id=chip, name=name)
    return ChipState(identity=identity)


TRAINING = tuple(looked(chip, "910B3") for chip in range(8))
CARD = looked(8, "310P3")


def test_a_line_that_comes_later_is_told_and_asks_for_other_rows() -> None:
    conversion = Conversion("")
    before = conversion.reading(Survey(chips=TRAINING), 0, 0.0)

    assert conversion.reading(Survey(chips=(*TRAINING, CARD)), 0, 0.0) == replace(
        before,
        unread=(
            Unread(
                chip=8,
                reason="chip 8 is of Ascend310P, which is not served",
            ),
        ),
        changed_row="chip 8 is of Ascend310P, which is not served",
        begins_anew=True,
    )


def test_a_line_that_comes_later_is_read_once_the_rows_are_changed() -> None:
    both = Survey(chips=(*TRAINING, CARD))
    conversion = Conversion("")
    conversion.reading(Survey(chips=TRAINING), 0, 0.0)
    conversion.reading(both, 0, 0.0)

    conversion.change_rows()

    assert conversion.reading(both, 0, 0.0) == Conversion("").reading(both, 0, 0.0)


def test_an_address_that_was_not_told_is_awaited_again_with_other_rows() -> None:
    *training, card = (
        replace(chip, identity=replace(chip.identity, board_id=0x30, product_type=""))
        for chip in (*TRAINING, CARD)
    )
    both = Survey(chips=(*training, card))
    conversion = Conversion("", wait_s=600.0)
    conversion.reading(Survey(chips=tuple(training)), 0, 0.0)
    late = conversion.reading(both, 0, 700.0)

    conversion.change_rows()
    again = conversion.reading(both, 0, 701.0)

    assert {detail.ip for detail in late.details} == {""}
    assert {detail.ip for line in again.lines for detail in line.details} == {None}


def test_a_chip_whose_name_is_not_told_stays_of_the_line_it_was_of() -> None:
    conversion = Conversion("")
    before = conversion.reading(Survey(chips=(*TRAINING, CARD)), 0, 0.0)
    nameless = conversion.reading(Survey(chips=(*TRAINING, looked(8, None))), 0, 0.0)
    stranger = conversion.reading(Survey(chips=(*TRAINING, looked(9, None))), 0, 0.0)

    assert [line.chips for line in nameless.lines] == [tuple(range(8)), (8,)]
    assert nameless.lines[0] == before.lines[0]
    assert [line.chips for line in stranger.lines] == [tuple(range(8)), ()]


def test_a_chip_of_no_family_among_several_lines_is_said() -> None:
    chips = (*TRAINING, looked(8, "1080"))

    with pytest.raises(UnknownMachineError, match=r"^chips '1080' on board 0x0 are of"):
        Conversion("").reading(Survey(chips=chips), 0, 0.0)


def test_connected_chips_behind_those_of_another_line_are_not_guessed_at() -> None:
    cards = (looked(0, "310P3"), looked(1, "310P3"))
    chips = (*cards, *(looked(chip, "910B3") for chip in range(2, 10)))

    with pytest.raises(UnknownMachineError, match=r"^chips '910B3' have ids from 2 on"):
        Conversion("").reading(Survey(chips=chips), 0, 0.0)
    assert Conversion("atlas-310p").reading(Survey(chips=chips), 0, 0.0).chips == (0, 1)


@pytest.mark.parametrize(
    ("product", "row", "chips"),
    [
        ("atlas-310p", ("atlas-310p", 9, 0b11111111), (8, 9)),
        ("atlas-a2-8", ("atlas-a2-8", 7, 0), tuple(range(8))),
    ],
)
async def test_of_several_product_lines_one_can_be_named(
    build: Build,
    product: str,
    row: tuple[str, int, int],
    chips: tuple[int, ...],
) -> None:
    machine = two_lines(build, 8, 9)
    reading = await read_once(machine, product)

    assert (reading.product, reading.chips, reading.other_lines) == (
        fit_row(*row),
        chips,
        (),
    )


async def test_chips_that_are_called_as_their_line_are_of_that_line_alone(
    build: Build,
) -> None:
    machine = build(fake_machine.superpod_a3)
    machine.add(8, 0, "phy=16 logic=16 name=310P3 cores=8")
    reading = await read_once(machine)

    assert [(line.product.key, line.chips) for line in reading.lines] == [
        ("atlas-a3-16-superpod", tuple(range(16))),
        ("atlas-310p", (16,)),
    ]
    assert [line.super_pod_id for line in reading.lines] == [4, -2]


@pytest.mark.parametrize("duo_card", [0, 1])
def test_a_server_with_duo_and_other_cards_has_one_row_whatever_goes(
    duo_card: int,
) -> None:
    """The row was that of the first chip: other cards were Duo, and rows took turns."""
    types = {duo_card: "Atlas 300I Duo", 1 - duo_card: "Atlas 300I Pro"}
    chips = tuple(
        ChipState(
            identity=Identity(
                card=chip // 2,
                device=chip % 2,
                physical_id=chip,
                logic_id=chip,
                name="310P3",
                board_id=0x64,
                product_type=types[chip // 2],
            )
        )
        for chip in range(4)
    )
    conversion = Conversion("")
    seen = [
        conversion.reading(Survey(chips=present), 0, now_s)
        for now_s, present in enumerate((chips, chips[2:], chips[:2], chips))
    ]

    assert {(each.product.key, each.changed_row) for each in seen} == {
        ("atlas-310p", "")
    }
