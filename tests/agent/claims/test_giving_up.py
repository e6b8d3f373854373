"""Which chips a pod may give up in its annotations, whoever else may have them."""

from dataclasses import replace

import pytest

from agent.claims.annotations import Patch, plan_patches
from scheduler_core.products import table
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import HOST_IP, RESOURCE, NodeLedger, current, lost, pod


def swapped(*others: NpuPod, now: NodeLedger | None = None) -> NodeLedger:
    """A node where "a" got what "gone" was to have, and chip 0 is nobody's."""
    now = now or current()
    now.update(pod("a", [0], 1), pod("gone", [1], 2), *others)
    now.mounts_singly(5, 6)
    now.shows("a", main=(6,))
    now.delete("gone")
    return now


def both_swapped() -> NodeLedger:
    """A node where "a" and "b" got what was meant for each other."""
    now = current(pod("a", [0], 1), pod("b", [1], 2))
    now.mounts_singly(5, 6)
    now.shows("a", main=(6,))
    now.shows("b", main=(5,))
    return now


def gives_up(now: NodeLedger) -> bool:
    """Whether "a" may say at once that chip 0 is its no more."""
    return RESOURCE in now.written()["a"]


def test_what_nobody_can_have_is_given_up_at_once() -> None:
    assert gives_up(swapped())
    assert gives_up(swapped(pod("pair", [2, 3], 3)))
    assert gives_up(swapped(pod("late", [2], 3, phase="Failed")))


def test_what_a_pod_may_turn_out_to_have_is_not() -> None:
    assert not gives_up(swapped(pod("late", [2], 3)))


def test_a_pod_that_has_all_its_own_will_not() -> None:
    now = swapped(pod("late", [2], 3))
    now.mounts_for("late", 7)

    assert gives_up(now)


@pytest.mark.parametrize("is_newer", [True, False])
def test_one_that_the_kubelet_has_lost_may_have_what_was_given_since(
    *, is_newer: bool
) -> None:
    late = pod("late", [2], 0, phase="Running")
    now = current(late) if is_newer else swapped(late)
    now.mounts_for("late", 7)
    now.shows("late", main=())
    if is_newer:
        swapped(now=now)

    assert gives_up(now) is not is_newer


def test_what_a_pod_of_its_name_may_have_taken_over_is_not_given_up() -> None:
    now = both_swapped()
    now.delete("b")  # it held chip 0

    alone = gives_up(now)
    now.update(pod("c", [3], 3))
    another = gives_up(now)
    now.update(pod("b", [2], 3, uid="uid-new", admitted=False))

    assert (alone, another, gives_up(now)) == (True, True, False)


def test_what_another_has_mounted_is_given_up_when_that_one_says_so() -> None:
    now = both_swapped()
    before = gives_up(now)
    real = {annotations.ASCEND_REAL: "Ascend910-0"}
    now.update(pod("b", [1], 2, annotations=real))

    assert (before, gives_up(now)) == (False, True)


def test_a_patch_names_its_pod_and_what_that_asks_for() -> None:
    now = current(pod("a", [0], 1))
    now.mounts_for("a", 5)

    (patch,) = plan_patches(now.ledger, host_ip=HOST_IP)

    assert replace(patch, annotations={}) == Patch(
        uid="uid-a", namespace="default", name="a", resource=RESOURCE, annotations={}
    )


def test_a_pod_that_has_ended_is_not_written_to_but_those_after_it_are() -> None:
    now = current(pod("a", [0], 1), pod("b", [1], 2))
    now.mounts_singly(5, 6)
    now.shows("a", main=(5,))
    now.shows("b", main=(6,))

    now.update(pod("a", [0], 1, phase="Failed"))

    assert set(now.written()) == {"b"}


def test_all_that_was_lost_is_published() -> None:
    now = lost(pod("a", [0], 1), pod("b", [1], 2))
    for chip, name in enumerate(("c", "d"), start=2):
        now.update(pod(name, [chip], chip + 1, phase="Running"))
        now.shows(name, main=())

    assert now.affinity.lost == (0, 1, 2, 3)


def test_what_is_mounted_is_written_in_the_order_of_its_letters() -> None:
    row = table.by_key("atlas-a2-box16")
    now = NodeLedger(row)
    now.update(pod("a", [2, 9, 10], 1))
    now.mounts_for("a", 2, 9, 10)

    assert now.written()["a"][annotations.ASCEND_REAL] == (
        "Ascend910-10,Ascend910-2,Ascend910-9"
    )


def test_a_broken_word_of_what_is_mounted_leaves_the_claim() -> None:
    now = current(pod("a", [3], annotations={annotations.ASCEND_REAL: "npu"}))
    now.read_chips()
    now.mounts_for("a", 5)

    assert now.written()["a"][annotations.ASCEND_REAL] == "Ascend910-3"
