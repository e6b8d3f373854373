"""What a device id stands for, and how healthy it is: rules 10 and 11."""

from dataclasses import replace

from agent.claims import occupancy
from agent.claims.events import ChipsRead, PodUpdated
from agent.claims.store import LedgerStore
from tests.agent.node import current, ids, pod
from tests.agent.rules.kubelet import mounts, prefers, shows

EVERY_ID = ids(*range(8))


def unhealthy(now: LedgerStore) -> tuple[str, ...]:
    return tuple(name for name, good in occupancy.list_devices(now.ledger) if not good)


def test_an_id_carries_the_health_of_the_chip_that_was_mounted_for_it() -> None:
    now = current(pod("train", [0]))
    mounts(now, 7)

    now.apply(ChipsRead(unhealthy=0b1, busy=0))
    mounted = unhealthy(now)
    now.apply(ChipsRead(unhealthy=1 << 7, busy=0))

    assert mounted == ids(7)
    assert unhealthy(now) == ids(0)  # it stands for the chip that 7 gave up


def test_an_id_that_was_given_twice_is_as_healthy_as_the_worst_of_both_chips() -> None:
    for broken in (0, 1):
        now = current(pod("first", [0], 1), pod("second", [1], 2))
        mounts(now, 7)
        mounts(now, 7)

        now.apply(ChipsRead(unhealthy=1 << broken, busy=0))

        assert "Ascend910-7" in unhealthy(now)


def test_an_id_for_which_no_chip_is_left_is_not_offered() -> None:
    claims = [pod(f"p{chip}", [chip], chip + 1) for chip in range(8)]
    now = current(*claims)
    mounts(now, 7)
    mounts(now, 7)
    for chip in range(1, 7):
        mounts(now, chip)

    # eight chips are behind seven ids
    assert unhealthy(now) == ids(0)


def test_an_id_in_use_is_never_preferred_and_never_offered_as_another() -> None:
    now = current(pod("first", [0], 1), pod("second", [7], 2))
    mounts(now, 7)

    wanted = prefers(now, tuple(n for n in EVERY_ID if n != "Ascend910-7"), 1)

    assert wanted == ids(0)  # stands for chip 7 now
    assert mounts(now, 0) == (7,)


def test_only_ids_that_were_offered_are_preferred() -> None:
    now = current(pod("train", [0, 1]))

    assert prefers(now, ids(1, 5, 6), 2) == ids(1)


def test_an_id_that_is_in_use_does_not_bring_its_chip_along() -> None:
    first = pod("first", [0], 1)
    now = current(first, pod("second", [1], 2))
    assert mounts(now, 0) == (0,)
    shows(now, "first", main=(0,))
    now.apply(PodUpdated(replace(first, phase="Running")))

    assert mounts(now, 0) == (1,)


def test_ids_that_are_offered_again_free_the_claim_they_were_given_for() -> None:
    now = current(pod("train", [0]))
    mounts(now, 7)

    prefers(now, EVERY_ID, 1)  # the pod was rejected, and nobody has said so yet

    assert mounts(now, 7) != ()
    assert len({hold.chips for hold in now.ledger.holds.values()}) == 2


def test_the_list_has_the_same_ids_whatever_happens() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    mounts(now, 7)
    now.apply(ChipsRead(unhealthy=0b1111_0000, busy=0b10))
    mounts(now, 7)

    assert tuple(name for name, _ in occupancy.list_devices(now.ledger)) == EVERY_ID
