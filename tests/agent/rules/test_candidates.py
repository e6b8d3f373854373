"""For whom is an Allocate: rules 1 and 5."""

from dataclasses import replace

import pytest

from agent.claims import ledger as ledgers
from agent.claims import occupancy
from agent.claims.events import AllocateAsked, AwaitClaim, Granted, Refused
from scheduler_core.wire import annotations
from tests.agent.node import (
    app,
    current,
    ids,
    init,
    lost,
    pair,
    pod,
    reading,
    running,
    staged,
)

SERVED = {annotations.PREDICATE_TIME: str(annotations.SERVED)}


def test_a_claim_from_which_chips_were_given_serves_no_second_allocate() -> None:
    now = current(pod("train", [0]))
    now.mounts(0)

    assert "no pod on this node has a claim for 1" in now.refusal(1)


def test_a_claim_for_another_node_is_no_candidate() -> None:
    now = current(replace(pod("elsewhere", [0]), node="node-2"))

    assert "no pod on this node has a claim for 1" in now.refusal(0)


def test_a_claim_ends_with_its_pod() -> None:
    gone, ended = pod("gone", [0], 1), pod("ended", [1], 2)
    now = current(gone, ended, pod("waits", [2], 3))

    now.delete("gone")
    now.update(replace(ended, phase="Failed"))

    assert now.mounts(0) == (2,)


def test_what_is_left_of_a_claim_ends_with_its_pod_though_chips_are_still_held() -> (
    None
):
    half = pair("half", [0, 1], 1)
    now = current(half, pod("waits", [2], 2))
    now.mounts(0)
    now.shows("half", one=(0,))

    now.update(replace(half, phase="Failed"))

    assert now.mounts(1) == (2,)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_a_pod_that_was_not_served_is_a_candidate_whatever_its_phase(
    phase: str,
) -> None:
    now = current(pod("train", [3], phase=phase))

    assert now.mounts(0) == (3,)


def test_a_pod_that_is_being_deleted_is_a_candidate() -> None:
    now = current(replace(pod("train", [3]), deleting=True))

    assert now.mounts(0) == (3,)


def test_an_older_claim_for_another_count_is_passed_by() -> None:
    now = current(pod("pair", [0, 1], 1), pod("one", [2], 2))

    assert now.mounts(7) == (2,)


def test_the_containers_of_a_pod_are_served_in_the_order_of_admission() -> None:
    now = current(
        pod("train", [4, 5, 6, 7], containers=[app("main", 2), init("prepare", 4)])
    )

    assert now.mounts(0, 1, 2, 3) == (4, 5, 6, 7)
    assert now.mounts(0, 1) == (4, 5)


def test_the_chips_of_init_containers_come_back_with_their_ids() -> None:
    now = current(pod("train", [4, 5], containers=staged(1, 2)))

    assert now.mounts(0) == (4,)
    assert now.mounts(0, 3) == (4, 5)


def test_ids_of_init_containers_prove_their_pod_though_an_older_one_was_begun() -> None:
    left = pair("left", [0, 1], 1)
    train = pod("train", [4, 5], 2, containers=staged(2, 1))
    now = current(left, train)
    assert now.mounts(0) == (0,)  # and the kubelet admits it no further
    assert now.mounts(6, 7) == (4, 5)

    assert now.mounts(6) == (4,)


def test_other_ids_than_those_of_its_init_containers_disprove_a_pod() -> None:
    train = pod("train", [4], 1, containers=staged(1, 1))
    now = current(train)
    assert now.mounts(6) == (4,)
    now.update(pod("other", [2], 2))

    assert now.mounts(7) == (2,)
    assert now.mounts(6) == (4,)


def test_a_pod_that_was_served_half_goes_on_before_older_claims() -> None:
    half = pod("half", [0, 1, 4], 2, containers=[app("one", 2), app("two", 1)])
    now = current(half, pod("old", [5], 1))

    assert now.mounts(0, 1) == (0, 1)
    assert now.mounts(4) == (4,)


def test_after_a_restart_new_holds_are_counted_on_from_the_old() -> None:
    before = current(pod("first", [0], 1))
    before.mounts(0)

    now = current()
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))
    now.update(pod("second", [1], 2))
    now.mounts(1)

    assert now.affinity.held == (0, 1)
    assert now.affinity.sequence == 2


ONE, TWO = pod("one", [0], 1), pod("two", [1], 2)


def test_a_running_container_whose_ids_the_kubelet_lost_gets_its_own_chips() -> None:
    now = running(ONE, TWO)
    now.shows("two", main=())

    assert now.mounts(6) == (1,)


def test_it_is_thought_of_only_when_no_claim_has_come() -> None:
    now = lost(ONE)

    waits = now.apply(AllocateAsked(ids(6), last_call=False))
    now.update(pod("next", [3], 9))

    assert waits == (AwaitClaim(),)
    assert now.mounts(6) == (3,)


def test_if_several_lost_their_ids_none_of_their_chips_is_given() -> None:
    now = lost(ONE, TWO)

    (chip,) = now.mounts(6)

    assert chip not in {0, 1}


def test_if_one_of_them_reads_its_annotation_nobody_is_served() -> None:
    now = lost(ONE, reading(TWO))

    assert "2 running containers have lost their" in now.refusal(6)


def test_a_lost_container_with_a_process_on_its_chip_is_not_the_one_who_asks() -> None:
    now = lost(ONE)
    now.replace(replace(now.ledger, busy=0b1))

    assert now.mounts(6) != (0,)


@pytest.mark.parametrize("standalone", [False, True])
def test_nor_does_it_get_its_chips_while_unknown_pods_may_ask(
    *, standalone: bool
) -> None:
    now = lost(ONE)
    now.replace(replace(now.ledger, standalone=standalone))

    answer, *_ = now.apply(AllocateAsked(ids(6), last_call=True, unseen_s=2.0))

    if standalone:
        assert isinstance(answer, Granted)
        assert answer.hold.chips == (6,)
    else:
        assert isinstance(answer, Refused)
        assert "has not been able to follow the API server for 2 s" in answer.text
    assert now.owners()[1] == "one/main"


def test_what_the_kubelet_lost_is_published_until_it_knows_again() -> None:
    now = lost(ONE)
    during = now.affinity.lost
    now.mounts_for("one", 6)

    assert (during, now.affinity.lost) == ((0,), ())


def test_a_claim_that_was_served_before_is_no_candidate() -> None:
    now = current(pod("train", [0], annotations=SERVED))

    assert "no pod on this node has a claim" in now.refusal(0)
    assert occupancy.claimed_chips(now.ledger) == 0b1
