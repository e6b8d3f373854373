"""A pod that is deleted by force has gone before its containers: rule 7."""

import pytest

from agent.claims import occupancy, release
from agent.claims.annotations import make_affinity
from agent.claims.events import ChipsRead, PodDeleted, PodUpdated, StrayProcessesRead
from agent.claims.store import LedgerStore
from tests.agent.node import current, ids, pod
from tests.agent.rules.kubelet import knows_not, mounts, passes, shows
from tests.agent.rules.test_release import confirmed

TRAIN = frozenset({"uid-train"})


def left(now: LedgerStore, *pids: int) -> None:
    """The kernel shows these processes in the group of the pod that has gone."""
    now.apply(StrayProcessesRead(uids=TRAIN, pids={"uid-train": pids} if pids else {}))


def gone() -> LedgerStore:
    """A node where a pod has gone that held chip 0, as all but the kernel say."""
    now = confirmed()
    now.apply(PodDeleted("uid-train"))
    knows_not(now, "train")
    return now


def test_the_kernel_is_to_be_asked_before_chips_are_released() -> None:
    living, ended = confirmed(), gone()

    assert release.pods_to_check_for_processes(living.ledger) == frozenset()
    assert release.pods_to_check_for_processes(ended.ledger) == TRAIN


@pytest.mark.seed("004-13")
def test_a_process_that_a_pod_has_left_keeps_its_chips_from_all() -> None:
    now = gone()

    left(now, 4711)
    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)
    assert make_affinity(now.ledger).releasing == (0,)
    assert ("Ascend910-0", False) in occupancy.list_devices(now.ledger)
    assert release.pods_to_check_for_processes(now.ledger) == TRAIN


def test_they_are_free_when_it_has_ended() -> None:
    now = gone()
    left(now, 4711)
    passes(now, 3)

    left(now)
    passes(now)

    assert make_affinity(now.ledger).held == make_affinity(now.ledger).releasing == ()
    assert now.ledger.stray_processes == {}


def test_they_are_kept_while_nobody_can_tell() -> None:
    now = gone()

    now.apply(StrayProcessesRead(uids=TRAIN, pids={"uid-train": ()}))
    passes(now, 3)

    assert make_affinity(now.ledger).releasing == (0,)


def test_ids_that_the_kubelet_gives_again_do_not_bring_them() -> None:
    now = confirmed()
    now.apply(PodDeleted("uid-train"))
    now.apply(PodUpdated(pod("next", [0], 2)))
    asked = release.pods_to_check_for_processes(now.ledger, frozenset(ids(0, 1)))
    left(now, 4711)

    assert asked == TRAIN
    assert mounts(now, 0) == (1,)


def test_one_that_the_driver_sees_does_not_free_the_chips_of_the_others() -> None:
    now = current(pod("train", [0, 1]))
    mounts(now, 0, 1)
    shows(now, "train", main=(0, 1))
    now.apply(PodDeleted("uid-train"))
    knows_not(now, "train")
    now.apply(ChipsRead(unhealthy=0, busy=0b1))
    asked = release.pods_to_check_for_processes(now.ledger)
    left(now, 4711)
    passes(now, 3)
    during = make_affinity(now.ledger).releasing
    left(now)
    passes(now)

    assert asked == TRAIN
    assert during == (0, 1)
    assert make_affinity(now.ledger).releasing == (0,)
