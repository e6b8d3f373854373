"""A pod that is deleted by force has gone before its containers: rule 7."""

import pytest

from agent.claims import occupancy, release
from agent.claims.annotations import affinity
from agent.claims.events import ChipsRead, LeftRead, PodGone, PodSeen
from agent.claims.store import Current
from tests.agent.node import current, ids, pod
from tests.agent.rules.kubelet import knows_not, mounts, passes, shows
from tests.agent.rules.test_release import confirmed

TRAIN = frozenset({"uid-train"})


def left(now: Current, *pids: int) -> None:
    """The kernel shows these processes in the group of the pod that has gone."""
    now.apply(LeftRead(uids=TRAIN, found={"uid-train": pids} if pids else {}))


def gone() -> Current:
    """A node where a pod has gone that held chip 0, as all but the kernel say."""
    now = confirmed()
    now.apply(PodGone("uid-train"))
    knows_not(now, "train")
    return now


def test_the_kernel_is_to_be_asked_before_chips_are_released() -> None:
    living, ended = confirmed(), gone()

    assert release.vacating(living.ledger) == frozenset()
    assert release.vacating(ended.ledger) == TRAIN


@pytest.mark.seed("004-13")
def test_a_process_that_a_pod_has_left_keeps_its_chips_from_all() -> None:
    now = gone()

    left(now, 4711)
    passes(now, 3)

    assert affinity(now.ledger).held == (0,)
    assert affinity(now.ledger).releasing == (0,)
    assert ("Ascend910-0", False) in occupancy.devices(now.ledger)
    assert release.vacating(now.ledger) == TRAIN


def test_they_are_free_when_it_has_ended() -> None:
    now = gone()
    left(now, 4711)
    passes(now, 3)

    left(now)
    passes(now)

    assert affinity(now.ledger).held == affinity(now.ledger).releasing == ()
    assert now.ledger.left == {}


def test_they_are_kept_while_nobody_can_tell() -> None:
    now = gone()

    now.apply(LeftRead(uids=TRAIN, found={"uid-train": ()}))
    passes(now, 3)

    assert affinity(now.ledger).releasing == (0,)


def test_ids_that_the_kubelet_gives_again_do_not_bring_them() -> None:
    now = confirmed()
    now.apply(PodGone("uid-train"))
    now.apply(PodSeen(pod("next", [0], 2)))
    asked = release.vacating(now.ledger, frozenset(ids(0, 1)))
    left(now, 4711)

    assert asked == TRAIN
    assert mounts(now, 0) == (1,)


def test_one_that_the_driver_sees_does_not_free_the_chips_of_the_others() -> None:
    now = current(pod("train", [0, 1]))
    mounts(now, 0, 1)
    shows(now, "train", main=(0, 1))
    now.apply(PodGone("uid-train"))
    knows_not(now, "train")
    now.apply(ChipsRead(unhealthy=0, busy=0b1))
    asked = release.vacating(now.ledger)
    left(now, 4711)
    passes(now, 3)
    during = affinity(now.ledger).releasing
    left(now)
    passes(now)

    assert asked == TRAIN
    assert during == (0, 1)
    assert affinity(now.ledger).releasing == (0,)
