"""Containers that are made anew by themselves, since the kubelet lost their devices."""

from agent.claims.events import AllocateAsked, AwaitClaim, ChipsRead, PodUpdated
from agent.claims.store import LedgerStore
from scheduler_core.wire.annotations import ASCEND_REAL, SERVED
from tests.agent.claims.init_pods import confirmed, owners, train
from tests.agent.node import current, holds, ids, pod
from tests.agent.rules.kubelet import app, init, mounts, passes, refusal, shows


def test_one_that_gets_its_own_chips_again_has_no_init_containers_before_it() -> None:
    now = confirmed()
    shows(now, "train", main=())
    now.apply(PodUpdated(pod("rejected", [4], 2)))
    mounts(now, 6)
    now.apply(PodUpdated(pod("rejected", [4], 2, phase="Failed")))
    assert mounts(now, 6) == (0,)

    shows(now, "train", main=(6,))

    assert owners(now) == {1: "", 3: "", 4: "train/main"}


PAIR = [init("prepare", 2), app("one", 1), app("two", 1)]


def one_of_two_made_anew() -> LedgerStore:
    """A node whose kubelet has lost a pod's devices, and given one container others."""
    now = current(pod("train", [4, 5], containers=PAIR, phase="Running"))
    mounts(now, 4, 5)
    mounts(now, 4)
    mounts(now, 5)
    shows(now, "train", one=(4,), two=(5,))
    shows(now, "train", one=(), two=())
    assert mounts(now, 6) == (6,)  # it could be either's
    shows(now, "train", one=(6,), two=())
    return now


def test_nor_when_it_has_ids_that_they_had() -> None:
    now = one_of_two_made_anew()

    assert mounts(now, 4) == (5,)  # it can only be the other one's
    shows(now, "train", one=(6,), two=(4,))

    assert owners(now) == {1: "", 2: "", 4: "train/one", 5: "train/two"}


def test_nor_when_the_kubelet_knows_another_of_its_pod_again() -> None:
    now = one_of_two_made_anew()

    shows(now, "train", one=(6,), two=(5,))

    assert owners(now) == {1: "", 2: "", 3: "train/two", 4: "train/one"}


def test_the_chips_that_a_pod_made_anew_has_no_more_are_its_claim_no_more() -> None:
    needs = [init("prepare", 2), app("main", 1)]
    now = current(pod("train", [4, 5], containers=needs, phase="Running"))
    mounts(now, 4, 5)
    mounts(now, 4)
    shows(now, "train", main=(4,))
    shows(now, "train", main=())
    now.apply(ChipsRead(unhealthy=0, busy=1 << 4))  # it still runs on its own
    assert mounts(now, 6) == (6,)
    shows(now, "train", main=(6,))
    now.apply(ChipsRead(unhealthy=0, busy=1 << 6))
    passes(now, 2)
    assert holds(now) == {3: ("train/main", "train", (6,))}

    now.apply(PodUpdated(pod("next", [4, 5], 2)))

    assert mounts(now, 4, 5) == (4, 5)


def test_while_one_waits_to_be_found_anew_no_init_container_of_its_pod_asks() -> None:
    now = confirmed()
    shows(now, "train", main=())
    assert mounts(now, 6) == (0,)

    (answer,) = now.apply(AllocateAsked(ids(7), last_call=False))  # somebody's

    assert answer == AwaitClaim(1)


def test_what_ran_without_devices_had_none_for_its_init_containers() -> None:
    now = current(train("train", 0, 1, phase="Running"))
    shows(now, "train", main=())
    now.apply(PodUpdated(pod("rejected", [4], 2)))
    mounts(now, 6)
    now.apply(PodUpdated(pod("rejected", [4], 2, phase="Failed")))
    assert mounts(now, 6) == (0,)

    shows(now, "train", main=(6,))

    assert owners(now) == {1: "", 2: "train/main"}


def test_who_was_taken_for_one_made_anew_but_was_just_admitted_has_them() -> None:
    now = confirmed()
    now.apply(PodUpdated(train("other", 1, 2, phase="Running")))
    mounts(now, 6)
    mounts(now, 6)
    shows(now, "other", main=(6,))
    shows(now, "train", main=())
    shows(now, "other", main=())
    mounts(now, 7)  # of a pod that no watch has shown yet
    mounts(now, 7)
    now.apply(PodUpdated(train("late", 3, 3)))

    shows(now, "late", main=(7,))

    assert {n: owners(now)[n] for n in (5, 6)} == {5: "late/prepare", 6: "late/main"}


def found_and_lost() -> LedgerStore:
    """A node whose journal was lost, and then its kubelet's: one id, and two chips."""
    needs = [init("prepare", 2), app("main", 1)]
    real = {ASCEND_REAL: "Ascend910-4,Ascend910-5"}
    now = current(
        pod(
            "train", [4, 5], SERVED, containers=needs, phase="Running", annotations=real
        )
    )
    shows(now, "train", main=(4,))
    shows(now, "train", main=())
    return now


def test_what_was_found_with_its_init_containers_chips_gets_one_of_them_again() -> None:
    now = found_and_lost()

    assert mounts(now, 6) == (4,)

    shows(now, "train", main=(6,))
    assert holds(now) == {2: ("train/main", "train", (4,))}


def test_who_asks_for_as_many_as_both_had_is_another() -> None:
    assert "no pod on this node has a claim for 2" in refusal(found_and_lost(), 6, 7)
