"""What a device id stands for, and how healthy it is: rules 10 and 11."""

from dataclasses import replace

import pytest

from agent.claims import occupancy
from tests.agent.node import EVERY_ID, current, ids, pod


def test_an_id_carries_the_health_of_the_chip_that_was_mounted_for_it() -> None:
    now = current(pod("train", [0]))
    now.mounts(7)

    now.read_chips(unhealthy=0b1)
    mounted = now.unhealthy_ids()
    now.read_chips(unhealthy=1 << 7)

    assert mounted == ids(7)
    assert now.unhealthy_ids() == ids(0)  # it stands for the chip that 7 gave up


@pytest.mark.parametrize("broken", [0, 1])
def test_an_id_that_was_given_twice_is_as_healthy_as_the_worst_of_both_chips(
    broken: int,
) -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    now.mounts_singly(7, 7)

    now.read_chips(unhealthy=1 << broken)

    assert "Ascend910-7" in now.unhealthy_ids()


def test_an_id_for_which_no_chip_is_left_is_not_offered() -> None:
    claims = [pod(f"p{chip}", [chip], chip + 1) for chip in range(8)]
    now = current(*claims)
    now.mounts_singly(7, 7)
    for chip in range(1, 7):
        now.mounts(chip)

    # eight chips are behind seven ids
    assert now.unhealthy_ids() == ids(0)


def test_an_id_in_use_is_never_preferred_and_never_offered_as_another() -> None:
    now = current(pod("first", [0], 1), pod("second", [7], 2))
    now.mounts(7)

    wanted = now.prefers(tuple(n for n in EVERY_ID if n != "Ascend910-7"), 1)

    assert wanted == ids(0)  # stands for chip 7 now
    assert now.mounts(0) == (7,)


def test_only_ids_that_were_offered_are_preferred() -> None:
    now = current(pod("train", [0, 1]))

    assert now.prefers(ids(1, 5, 6), 2) == ids(1)


def test_an_id_that_is_in_use_does_not_bring_its_chip_along() -> None:
    first = pod("first", [0], 1)
    now = current(first, pod("second", [1], 2))
    assert now.mounts(0) == (0,)
    now.shows("first", main=(0,))
    now.update(replace(first, phase="Running"))

    assert now.mounts(0) == (1,)


def test_ids_that_are_offered_again_free_the_claim_they_were_given_for() -> None:
    now = current(pod("train", [0]))
    now.mounts(7)

    now.prefers(EVERY_ID, 1)  # the pod was rejected, and nobody has said so yet

    assert now.mounts(7) != ()
    assert len({hold.chips for hold in now.ledger.holds.values()}) == 2


def test_the_list_has_the_same_ids_whatever_happens() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    now.mounts(7)
    now.read_chips(unhealthy=0b1111_0000, busy=0b10)
    now.mounts(7)

    assert tuple(name for name, _ in occupancy.list_devices(now.ledger)) == EVERY_ID
