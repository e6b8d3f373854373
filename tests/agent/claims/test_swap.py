"""Who gets whose slot when a pod was served from another's."""

from dataclasses import replace

from agent.claims.events import PodDeleted, PodUpdated
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import current, holds, pod, restarted, slots
from tests.agent.rules.kubelet import app, init, mounts, shows

BOTH = [app("one", 1), app("two", 1)]


def pair(name: str, chips: list[int], time: int, phase: str = "Pending") -> NpuPod:
    """A pod of two containers with a chip each."""
    return pod(name, chips, time, containers=BOTH, phase=phase)


def test_slots_of_several_containers_change_hands_as_a_whole() -> None:
    now = current(pair("first", [0, 1], 1), pair("second", [2, 3], 2))
    mounts(now, 4)
    mounts(now, 5)
    mounts(now, 6)

    shows(now, "second", one=(4,), two=(5,))

    assert slots(now) == {"first": (2, 3), "second": (0, 1)}
    assert holds(now) == {
        1: ("second/one", "second", (0,)),
        2: ("second/two", "second", (1,)),
        3: ("", "first", (2,)),
    }


def test_what_a_rejected_pod_had_from_a_slot_goes_with_what_its_heir_gives_up() -> None:
    now = current(pair("first", [0, 1], 1), pair("second", [2, 3], 2))
    mounts(now, 4)  # first's, which is rejected after it; then come second's
    mounts(now, 5)
    mounts(now, 6)

    shows(now, "second", one=(5,), two=(6,))

    assert slots(now) == {"first": (0, 3), "second": (1, 2)}
    assert holds(now) == {
        1: ("", "first", (0,)),
        2: ("second/one", "second", (1,)),
        3: ("second/two", "second", (2,)),
    }


def test_an_unlike_pod_keeps_what_it_got_and_the_other_its_slot() -> None:
    three = [app("one", 1), app("two", 1), app("three", 1)]
    now = current(
        pair("first", [0, 1], 1), pod("second", [2, 3, 4], 2, containers=three)
    )
    mounts(now, 5)
    mounts(now, 6)
    mounts(now, 7)

    shows(now, "second", one=(5,), two=(6,), three=(7,))

    assert slots(now) == {"first": (0, 1), "second": (0, 1, 2)}
    assert holds(now) == {
        1: ("second/one", "second", (0,)),
        2: ("second/two", "second", (1,)),
        3: ("second/three", "second", (2,)),
    }


def test_a_pod_around_the_scheduler_has_a_copy_of_the_slot_that_served_it() -> None:
    around = replace(pair("around", [0, 1], 9), annotations={})
    now = current(pair("first", [0, 1], 1), around)
    mounts(now, 5)
    mounts(now, 6)

    shows(now, "around", one=(5,), two=(6,))

    assert slots(now) == {"first": (0, 1), "around": (0, 1)}
    assert holds(now) == {
        1: ("around/one", "around", (0,)),
        2: ("around/two", "around", (1,)),
    }
    assert now.ledger.slots["uid-around"].uid == "uid-around"
    assert mounts(now, 0) == (2,)  # chosen again


def test_an_unlike_pod_around_the_scheduler_has_what_it_got_alone() -> None:
    around = replace(pod("around", [0], 9), annotations={})
    now = current(pair("first", [0, 1], 1), around)
    mounts(now, 5)

    shows(now, "around", main=(5,))

    assert slots(now) == {"first": (0, 1)}
    assert holds(now) == {1: ("around/main", "around", (0,))}


def test_what_was_given_to_a_pod_that_has_gone_is_inherited_by_who_has_it() -> None:
    before = current(pair("gone", [0, 1], 1), pair("heir", [2, 3], 2))
    mounts(before, 5)
    mounts(before, 6)

    now = restarted(before, pair("heir", [2, 3], 2))
    shows(now, "heir", one=(5,))
    half = holds(now)
    shows(now, "heir", one=(5,), two=(6,))

    assert slots(now) == {"heir": (0, 1)}
    assert half == {1: ("heir/one", "heir", (0,)), 2: ("", "heir", (1,))}
    assert holds(now) == {
        1: ("heir/one", "heir", (0,)),
        2: ("heir/two", "heir", (1,)),
    }


def test_what_another_got_from_the_heirs_slot_is_the_heirs_no_more() -> None:
    before = current(pair("gone", [0, 1], 1), pair("heir", [2, 3], 2))
    for chip in (4, 5, 6):
        mounts(before, chip)  # the last one from the heir's slot

    now = restarted(before, pair("heir", [2, 3], 2))
    shows(now, "heir", one=(4,), two=(5,))

    assert slots(now) == {"heir": (0, 1)}
    assert holds(now) == {
        1: ("heir/one", "heir", (0,)),
        2: ("heir/two", "heir", (1,)),
        3: ("", "gone", (2,)),
    }


def test_half_of_what_a_pod_that_has_gone_was_given_leaves_the_heir_its_own_rest() -> (
    None
):
    before = current(pair("gone", [0, 1], 1), pair("heir", [2, 3], 2))
    mounts(before, 5)

    now = restarted(before, pair("heir", [2, 3], 2))
    shows(now, "heir", one=(5,))

    assert slots(now) == {"heir": (0, 2)}
    assert mounts(now, 6) == (2,)


def test_what_an_unlike_pod_that_has_gone_was_given_does_not_fit_its_heir() -> None:
    gone = pod("gone", [0, 1, 2], 1, containers=[app("one", 1), app("two", 2)])
    before = current(gone, pair("heir", [4, 5], 2))
    mounts(before, 6)
    mounts(before, 0, 7)

    now = restarted(before, pair("heir", [4, 5], 2))
    shows(now, "heir", one=(6,))

    assert slots(now) == {"heir": (0, 4)}
    assert holds(now) == {
        1: ("heir/one", "heir", (0,)),
        2: ("", "gone", (1, 2)),
    }


def test_of_a_larger_pod_that_has_gone_the_heir_takes_what_it_has_room_for() -> None:
    three = [app("one", 1), app("two", 1), app("three", 1)]
    before = current(
        pod("gone", [0, 1, 2], 1, containers=three), pair("heir", [4, 5], 2)
    )
    for chip in (5, 6, 7):
        mounts(before, chip)

    now = restarted(before, pair("heir", [4, 5], 2))
    shows(now, "heir", one=(5,))

    assert slots(now) == {"heir": (0, 1)}
    assert holds(now) == {
        1: ("heir/one", "heir", (0,)),
        2: ("", "heir", (1,)),
        3: ("", "gone", (2,)),
    }


def test_a_smaller_heir_takes_what_it_has_of_whichever_container_it_was() -> None:
    before = current(pair("gone", [0, 1], 1), pod("heir", [4], 2))
    mounts(before, 5)
    mounts(before, 6)

    now = restarted(before, pod("heir", [4], 2))
    shows(now, "heir", main=(6,))

    assert slots(now) == {"heir": (1,)}
    assert holds(now)[2] == ("heir/main", "heir", (1,))


def test_what_a_rejected_pod_had_goes_back_to_the_slot_of_one_that_has_gone() -> None:
    before = current(pair("gone", [0, 1], 1), pair("heir", [2, 3], 2))
    mounts(before, 4)  # of one that was rejected
    mounts(before, 5)
    mounts(before, 6)

    now = restarted(before, pair("heir", [2, 3], 2))
    shows(now, "heir", one=(5,), two=(6,))

    assert slots(now) == {"heir": (1, 2)}
    assert holds(now) == {
        1: ("", "gone", (0,)),
        2: ("heir/one", "heir", (1,)),
        3: ("heir/two", "heir", (2,)),
    }


def test_what_is_not_certain_is_given_up_for_nothing() -> None:
    now = current(pod("train", [0], 1, phase="Running"))
    shows(now, "train", main=(6,))  # its Allocate stands in no journal
    shows(now, "train", main=())
    now.apply(PodUpdated(pod("next", [2], 2)))
    assert mounts(now, 5) == (2,)

    shows(now, "train", main=(5,))

    assert slots(now) == {"train": (0,), "next": (2,)}
    assert holds(now) == {1: ("", "train", ()), 2: ("train/main", "train", (2,))}


def test_a_container_made_anew_from_an_equals_slot_gives_that_one_its_old_chip() -> (
    None
):
    first = pair("first", [0, 1], 1, phase="Running")
    now = current(first)
    mounts(now, 0)
    mounts(now, 1)
    shows(now, "first", one=(0,), two=(1,))
    shows(now, "first", one=(), two=(1,))  # lost
    now.apply(PodUpdated(pair("second", [2, 3], 2)))
    assert mounts(now, 6) == (2,)  # first's, asked for by its worker

    shows(now, "first", one=(6,), two=(1,))

    assert slots(now) == {"first": (1, 2), "second": (0, 3)}
    assert holds(now) == {
        1: ("", "second", (0,)),
        2: ("first/two", "first", (1,)),
        3: ("first/one", "first", (2,)),
    }
    assert [hold.lost for hold in now.ledger.holds.values()] == [False] * 3


def test_what_an_init_container_alone_had_is_part_of_what_a_pod_gives_up() -> None:
    needs = [init("prepare", 2), app("main", 1)]
    now = current(
        pod("first", [0, 1], 1, containers=needs),
        pod("second", [2, 3], 2, containers=needs),
    )
    mounts(now, 6, 7)
    mounts(now, 6)

    shows(now, "second", main=(6,))

    assert slots(now) == {"first": (2, 3), "second": (0, 1)}
    assert holds(now) == {
        1: ("second/prepare", "second", (0, 1)),
        2: ("second/main", "second", (0,)),
    }


def test_a_pod_served_long_ago_gives_up_what_its_container_had() -> None:
    served = pod("train", [0], annotations.SERVED, phase="Running")
    before = current(pod("train", [0], 1))
    mounts(before, 0)
    shows(before, "train", main=(0,))
    now = restarted(before, served)
    shows(now, "train", main=())
    now.apply(PodUpdated(pod("next", [2], 2)))
    assert mounts(now, 6) == (2,)

    shows(now, "train", main=(6,))

    assert slots(now) == {"train": (2,), "next": (0,)}
    assert holds(now) == {1: ("", "next", (0,)), 2: ("train/main", "train", (2,))}


def test_the_slot_of_a_pod_that_has_gone_lasts_as_long_as_something_is_held() -> None:
    now = current(pod("train", [0], 1))
    mounts(now, 0)
    shows(now, "train", main=(0,))

    now.apply(PodDeleted("uid-train"))

    assert slots(now) == {"train": (0,)}
