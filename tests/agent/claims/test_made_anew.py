"""Containers that are made anew by themselves, since the kubelet lost their devices."""

from collections.abc import Callable
from typing import Any

import pytest

from agent.claims.events import AllocateAsked, AwaitClaim
from scheduler_core.wire.annotations import ASCEND_REAL, SERVED
from tests.agent.claims.init_pods import confirmed, train
from tests.agent.node import NodeLedger, app, current, ids, init, pod, staged


def running() -> NodeLedger:
    """A node where a pod runs that was started without this agent."""
    return current(train("train", 0, 1, phase="Running"))


@pytest.mark.parametrize(
    ("node", "owners"),
    [
        (confirmed, {1: "", 3: "", 4: "train/main"}),
        # what ran without devices had none for its init containers
        (running, {1: "", 2: "train/main"}),
    ],
)
def test_one_that_gets_its_own_chips_again_has_no_init_containers_before_it(
    node: Callable[[], NodeLedger], owners: dict[int, str]
) -> None:
    now = node()
    now.shows("train", main=())
    now.update(pod("rejected", [4], 2))
    now.mounts(6)
    now.update(pod("rejected", [4], 2, phase="Failed"))
    assert now.mounts(6) == (0,)

    now.shows("train", main=(6,))

    assert now.owners() == owners


@pytest.mark.parametrize("standalone", [False, True])
def test_one_whose_journal_and_checkpoint_are_lost_gets_the_chips_it_is_served_by(
    *, standalone: bool
) -> None:
    real = {ASCEND_REAL: "Ascend910-4,Ascend910-5"}
    now = NodeLedger(standalone=standalone)
    now.update(pod("train", [4, 5], SERVED, phase="Running", annotations=real))
    now.update(pod("other", [0, 1, 2, 3, 6, 7], SERVED, phase="Running"))
    now.shows("train", main=())

    assert now.mounts(0, 1) == (4, 5)  # the kubelet takes all ids for free

    now.shows("train", main=(0, 1))
    assert now.owners() == {1: "train/main"}
    assert now.slots() == {"train": (4, 5)}


@pytest.mark.parametrize(
    "broken",
    [
        {"phase": "Pending"},
        {"annotations": {ASCEND_REAL: "Ascend910-4"}},
        {"annotations": {ASCEND_REAL: "nonsense"}},
    ],
)
def test_chips_that_no_annotation_of_a_running_pod_names_are_not_given(
    broken: dict[str, Any],
) -> None:
    real = {ASCEND_REAL: "Ascend910-4,Ascend910-5"}
    kinds: dict[str, Any] = {"phase": "Running", "annotations": real} | broken
    now = current(pod("train", [4, 5], SERVED, **kinds))
    now.shows("train", main=())

    assert "no pod on this node has a claim" in now.refusal(0, 1)


PAIR = [init("prepare", 2), app("one", 1), app("two", 1)]


def one_of_two_made_anew() -> NodeLedger:
    """A node whose kubelet has lost a pod's devices, and given one container others."""
    now = current(pod("train", [4, 5], containers=PAIR, phase="Running"))
    now.mounts(4, 5)
    now.mounts_singly(4, 5)
    now.shows("train", one=(4,), two=(5,))
    now.shows("train", one=(), two=())
    assert now.mounts(6) == (6,)  # it could be either's
    now.shows("train", one=(6,), two=())
    return now


def test_nor_when_it_has_ids_that_they_had() -> None:
    now = one_of_two_made_anew()

    assert now.mounts(4) == (5,)  # it can only be the other one's
    now.shows("train", one=(6,), two=(4,))

    assert now.owners() == {1: "", 2: "", 4: "train/one", 5: "train/two"}


def test_nor_when_the_kubelet_knows_another_of_its_pod_again() -> None:
    now = one_of_two_made_anew()

    now.shows("train", one=(6,), two=(5,))

    assert now.owners() == {1: "", 2: "", 3: "train/two", 4: "train/one"}


def test_the_chips_that_a_pod_made_anew_has_no_more_are_its_claim_no_more() -> None:
    now = current(pod("train", [4, 5], containers=staged(2, 1), phase="Running"))
    now.mounts(4, 5)
    now.mounts_for("train", 4)
    now.shows("train", main=())
    now.read_chips(busy=1 << 4)  # it still runs on its own
    assert now.mounts(6) == (6,)
    now.shows("train", main=(6,))
    now.read_chips(busy=1 << 6)
    now.passes(2)
    assert now.holds() == {3: ("train/main", "train", (6,))}

    now.update(pod("next", [4, 5], 2))

    assert now.mounts(4, 5) == (4, 5)


def test_while_one_waits_to_be_found_anew_no_init_container_of_its_pod_asks() -> None:
    now = confirmed()
    now.shows("train", main=())
    assert now.mounts(6) == (0,)

    (answer,) = now.apply(AllocateAsked(ids(7), last_call=False))  # somebody's

    assert answer == AwaitClaim()


def test_who_was_taken_for_one_made_anew_but_was_just_admitted_has_them() -> None:
    now = confirmed()
    now.update(train("other", 1, 2, phase="Running"))
    now.mounts_singly(6, 6)
    now.shows("other", main=(6,))
    now.shows("train", main=())
    now.shows("other", main=())
    now.mounts(7)  # of a pod that no watch has shown yet
    now.mounts(7)
    now.update(train("late", 3, 3))

    now.shows("late", main=(7,))

    assert {n: now.owners()[n] for n in (5, 6)} == {5: "late/prepare", 6: "late/main"}


def found_and_lost() -> NodeLedger:
    """A node whose journal was lost, and then its kubelet's: one id, and two chips."""
    real = {ASCEND_REAL: "Ascend910-4,Ascend910-5"}
    now = current(
        pod(
            "train",
            [4, 5],
            SERVED,
            containers=staged(2, 1),
            phase="Running",
            annotations=real,
        )
    )
    now.shows("train", main=(4,))
    now.shows("train", main=())
    return now


def test_what_was_found_with_its_init_containers_chips_gets_one_of_them_again() -> None:
    now = found_and_lost()

    assert now.mounts(6) == (4,)

    now.shows("train", main=(6,))
    assert now.holds() == {2: ("train/main", "train", (4,))}


def test_who_asks_for_as_many_as_both_had_is_another() -> None:
    assert "no pod on this node has a claim for 2" in found_and_lost().refusal(6, 7)
