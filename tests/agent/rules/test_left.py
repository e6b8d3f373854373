"""A pod that is deleted by force has gone before its containers: rule 7."""

import pytest

from agent.claims import occupancy, release
from agent.claims.events import StrayProcessesRead
from tests.agent.node import NodeLedger, confirmed, current, ids, pod

TRAIN = frozenset({"uid-train"})


def left(now: NodeLedger, *pids: int) -> None:
    """The kernel shows these processes in the group of the pod that has gone."""
    now.apply(StrayProcessesRead(uids=TRAIN, pids={"uid-train": pids} if pids else {}))


def gone() -> NodeLedger:
    """A node where a pod has gone that held chip 0, as all but the kernel say."""
    now = confirmed()
    now.delete("train")
    now.knows_not("train")
    return now


def test_the_kernel_is_to_be_asked_before_chips_are_released() -> None:
    living, ended = confirmed(), gone()

    assert release.pods_to_check_for_processes(living.ledger) == frozenset()
    assert release.pods_to_check_for_processes(ended.ledger) == TRAIN


@pytest.mark.seed("004-13")
def test_a_process_that_a_pod_has_left_keeps_its_chips_from_all() -> None:
    now = gone()

    left(now, 4711)
    now.passes(3)

    assert now.affinity.held == (0,)
    assert now.affinity.releasing == (0,)
    assert ("Ascend910-0", False) in occupancy.list_devices(now.ledger)
    assert release.pods_to_check_for_processes(now.ledger) == TRAIN


def test_a_pod_that_ended_before_it_was_seen_with_its_chips_keeps_them_too() -> None:
    now = current(pod("train", [0]))
    now.mounts(0)
    now.delete("train")

    asked = release.pods_to_check_for_processes(now.ledger)
    left(now, 4711)
    now.passes(3)
    while_left = now.affinity.held
    left(now)
    now.passes(2)

    assert asked == TRAIN
    assert while_left == (0,)
    assert now.affinity.held == ()


def test_they_are_free_when_it_has_ended() -> None:
    now = gone()
    left(now, 4711)
    now.passes(3)

    left(now)
    now.passes()

    assert now.affinity.held == now.affinity.releasing == ()
    assert now.ledger.stray_processes == {}


def test_they_are_kept_while_nobody_can_tell() -> None:
    now = gone()

    now.apply(StrayProcessesRead(uids=TRAIN, pids={"uid-train": ()}))
    now.passes(3)

    assert now.affinity.releasing == (0,)


def test_ids_that_the_kubelet_gives_again_do_not_bring_them() -> None:
    now = confirmed()
    now.delete("train")
    now.update(pod("next", [0], 2))
    asked = release.pods_to_check_for_processes(now.ledger, frozenset(ids(0, 1)))
    left(now, 4711)

    assert asked == TRAIN
    assert now.mounts(0) == (1,)


def test_one_that_the_driver_sees_does_not_free_the_chips_of_the_others() -> None:
    now = current(pod("train", [0, 1]))
    now.mounts_for("train", 0, 1)
    now.delete("train")
    now.knows_not("train")
    now.read_chips(busy=0b1)
    asked = release.pods_to_check_for_processes(now.ledger)
    left(now, 4711)
    now.passes(3)
    during = now.affinity.releasing
    left(now)
    now.passes()

    assert asked == TRAIN
    assert during == (0, 1)
    assert now.affinity.releasing == (0,)
