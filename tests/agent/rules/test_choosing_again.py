"""The agent is the arbiter on its node: rule 2."""

from dataclasses import replace

from agent.claims.events import Identity
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import RESOURCE, NodeLedger, current, pair, pod, unlike


def written(now: NodeLedger) -> dict[str, str]:
    """{pod: the claim that is to be written on it now}."""
    found = now.written().items()
    return {name: keys[RESOURCE] for name, keys in found if RESOURCE in keys}


def test_chips_that_another_holds_are_chosen_again() -> None:
    now = current(pod("first", [0], 1), pod("second", [0], 2))
    now.mounts(0)

    assert now.identity(1) is Identity.RECHOSEN
    assert len({hold.chips for hold in now.ledger.holds.values()}) == 2


def test_chips_on_which_a_process_was_left_are_chosen_again() -> None:
    now = current(pod("train", [0]))
    now.read_chips(busy=0b1)

    assert now.mounts(0) != (0,)


def test_chips_are_chosen_again_by_the_rules_of_the_core() -> None:
    now = current(pod("train", [0, 1]), pod("rest", [2], 2), pod("more", [4], 3))
    now.read_chips(unhealthy=0b10)

    # not 0 and 3, where a ring would be left with nothing that fits together
    assert now.mounts(0, 1) == (0, 3)


def test_the_rest_is_chosen_again_so_that_all_of_the_pod_fits_together() -> None:
    now = current(pair("train", [4, 5]))
    assert now.mounts(4) == (4,)
    now.read_chips(unhealthy=1 << 5)

    assert now.mounts(0) == (6,)


def test_what_was_chosen_again_is_written_before_its_holder_is_known() -> None:
    now = current(pod("train", [0]))
    now.read_chips(unhealthy=0b1)

    (chip,) = now.mounts(0)

    assert written(now) == {"train": f"Ascend910-{chip}"}


def test_what_was_chosen_again_is_told_as_held_at_once() -> None:
    now = current(pod("train", [0]))
    now.read_chips(unhealthy=0b1)

    (chip,) = now.mounts(0)

    assert now.affinity.held == (chip,)


def test_who_gave_a_chip_up_claims_it_until_whoever_it_was_chosen_for_does() -> None:
    now = current(pod("heir", [2], 2), pod("gone", [1], 1))
    now.mounts_for("heir", 1)
    now.delete("gone")
    before = written(now)
    late = pod("late", [3], 3)
    now.update(late)
    now.read_chips(unhealthy=0b11111001)

    assert now.mounts(3) == (2,)
    first = written(now)
    chosen = {**late.annotations, RESOURCE: "Ascend910-2"}
    now.update(replace(late, annotations=chosen))

    assert before == {"heir": "Ascend910-1"}
    assert first == {"late": "Ascend910-2"}
    assert written(now) == {"heir": "Ascend910-1"}


def test_chips_of_an_unlike_claim_are_not_taken() -> None:
    now = current(pod("train", [0, 1, 2, 3], 1), unlike("other", [4, 5, 6, 7], 2))
    now.read_chips(unhealthy=0b1)

    assert "Ascend910-0 unhealthy" in now.refusal(0, 1, 2, 3)


def full(*claims: NpuPod) -> NodeLedger:
    """A node whose chips from 2 on are claimed, and chip 1 is broken."""
    now = current(
        *claims, pod("two", [2, 3], 8, phase="Running"), pod("four", [4, 5, 6, 7], 9)
    )
    now.read_chips(unhealthy=0b10)
    return now


def test_a_refusal_names_chips_that_another_holds() -> None:
    now = full(pod("first", [0], 1), pod("second", [0], 2))
    now.mounts(0)

    assert "Ascend910-0 held by another pod" in now.refusal(1)


def test_a_refusal_names_chips_that_a_process_still_uses() -> None:
    now = full(pod("train", [0], 1))
    now.read_chips(unhealthy=0b10, busy=0b1)

    assert "Ascend910-0 still used by a process" in now.refusal(1)


def test_a_refusal_names_chips_that_the_pods_other_containers_have() -> None:
    now = current(
        pair("train", [0, 1], 1),
        pod("two", [2, 3], 8),
        pod("four", [4, 5, 6, 7], 9),
    )
    now.mounts(0)
    now.read_chips(unhealthy=0b10)

    text = now.refusal(1)

    assert "Ascend910-1 unhealthy" in text
    assert "Ascend910-0 given to its other containers" in text


def test_a_refused_allocate_leaves_nothing_behind() -> None:
    now = full(pod("first", [0], 1), pod("second", [0], 2))
    now.mounts_for("first", 0)
    before = now.ledger

    now.refusal(1)

    assert now.ledger.holds == before.holds
    assert now.ledger.slots == before.slots
