"""Who gets whose slot when a pod was served from another's."""

from dataclasses import replace

from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import NodeLedger, app, current, pair, pod, restarted, staged

GONE, HEIR = pair("gone", [0, 1], 1), pair("heir", [2, 3], 2)


def inherited(gone: NpuPod, heir: NpuPod, *given: int) -> NodeLedger:
    """A node whose next agent has never seen the pod that was given these ids."""
    before = current(gone, heir)
    before.mounts_singly(*given)
    return restarted(before, heir)


def test_slots_of_several_containers_change_hands_as_a_whole() -> None:
    now = current(pair("first", [0, 1], 1), pair("second", [2, 3], 2))
    now.mounts_singly(4, 5, 6)

    now.shows("second", one=(4,), two=(5,))

    assert now.slots() == {"first": (2, 3), "second": (0, 1)}
    assert now.holds() == {
        1: ("second/one", "second", (0,)),
        2: ("second/two", "second", (1,)),
        3: ("", "first", (2,)),
    }


def test_what_a_rejected_pod_had_from_a_slot_goes_with_what_its_heir_gives_up() -> None:
    now = current(pair("first", [0, 1], 1), pair("second", [2, 3], 2))
    now.mounts(4)  # first's, which is rejected after it; then come second's
    now.mounts_singly(5, 6)

    now.shows("second", one=(5,), two=(6,))

    assert now.slots() == {"first": (0, 3), "second": (1, 2)}
    assert now.holds() == {
        1: ("", "first", (0,)),
        2: ("second/one", "second", (1,)),
        3: ("second/two", "second", (2,)),
    }


def test_an_unlike_pod_keeps_what_it_got_and_the_other_its_slot() -> None:
    three = [app("one", 1), app("two", 1), app("three", 1)]
    now = current(
        pair("first", [0, 1], 1), pod("second", [2, 3, 4], 2, containers=three)
    )
    now.mounts_singly(5, 6, 7)

    now.shows("second", one=(5,), two=(6,), three=(7,))

    assert now.slots() == {"first": (0, 1), "second": (0, 1, 2)}
    assert now.holds() == {
        1: ("second/one", "second", (0,)),
        2: ("second/two", "second", (1,)),
        3: ("second/three", "second", (2,)),
    }


def test_a_pod_around_the_scheduler_has_a_copy_of_the_slot_that_served_it() -> None:
    around = replace(pair("around", [0, 1], 9), annotations={})
    now = current(pair("first", [0, 1], 1), around)
    now.mounts_singly(5, 6)

    now.shows("around", one=(5,), two=(6,))

    assert now.slots() == {"first": (0, 1), "around": (0, 1)}
    assert now.holds() == {
        1: ("around/one", "around", (0,)),
        2: ("around/two", "around", (1,)),
    }
    assert now.ledger.slots["uid-around"].uid == "uid-around"
    assert now.mounts(0) == (2,)  # chosen again


def test_an_unlike_pod_around_the_scheduler_has_what_it_got_alone() -> None:
    around = replace(pod("around", [0], 9), annotations={})
    now = current(pair("first", [0, 1], 1), around)
    now.mounts(5)

    now.shows("around", main=(5,))

    assert now.slots() == {"first": (0, 1)}
    assert now.holds() == {1: ("around/main", "around", (0,))}


def test_what_was_given_to_a_pod_that_has_gone_is_inherited_by_who_has_it() -> None:
    now = inherited(GONE, HEIR, 5, 6)

    now.shows("heir", one=(5,))
    half = now.holds()
    now.shows("heir", one=(5,), two=(6,))

    assert now.slots() == {"heir": (0, 1)}
    assert half == {1: ("heir/one", "heir", (0,)), 2: ("", "heir", (1,))}
    assert now.holds() == {
        1: ("heir/one", "heir", (0,)),
        2: ("heir/two", "heir", (1,)),
    }


def test_what_another_got_from_the_heirs_slot_is_the_heirs_no_more() -> None:
    now = inherited(GONE, HEIR, 4, 5, 6)  # the last one from the heir's slot

    now.shows("heir", one=(4,), two=(5,))

    assert now.slots() == {"heir": (0, 1)}
    assert now.holds() == {
        1: ("heir/one", "heir", (0,)),
        2: ("heir/two", "heir", (1,)),
        3: ("", "gone", (2,)),
    }


def test_half_of_what_a_pod_that_has_gone_was_given_leaves_the_heir_its_own_rest() -> (
    None
):
    now = inherited(GONE, HEIR, 5)

    now.shows("heir", one=(5,))

    assert now.slots() == {"heir": (0, 2)}
    assert now.mounts(6) == (2,)


def test_what_an_unlike_pod_that_has_gone_was_given_does_not_fit_its_heir() -> None:
    gone = pod("gone", [0, 1, 2], 1, containers=[app("one", 1), app("two", 2)])
    before = current(gone, pair("heir", [4, 5], 2))
    before.mounts(6)
    before.mounts(0, 7)

    now = restarted(before, pair("heir", [4, 5], 2))
    now.shows("heir", one=(6,))

    assert now.slots() == {"heir": (0, 4)}
    assert now.holds() == {
        1: ("heir/one", "heir", (0,)),
        2: ("", "gone", (1, 2)),
    }


def test_of_a_larger_pod_that_has_gone_the_heir_takes_what_it_has_room_for() -> None:
    three = [app("one", 1), app("two", 1), app("three", 1)]
    gone = pod("gone", [0, 1, 2], 1, containers=three)
    now = inherited(gone, pair("heir", [4, 5], 2), 5, 6, 7)

    now.shows("heir", one=(5,))

    assert now.slots() == {"heir": (0, 1)}
    assert now.holds() == {
        1: ("heir/one", "heir", (0,)),
        2: ("", "heir", (1,)),
        3: ("", "gone", (2,)),
    }


def test_a_smaller_heir_takes_what_it_has_of_whichever_container_it_was() -> None:
    now = inherited(GONE, pod("heir", [4], 2), 5, 6)

    now.shows("heir", main=(6,))

    assert now.slots() == {"heir": (1,)}
    assert now.holds()[2] == ("heir/main", "heir", (1,))


def test_what_a_rejected_pod_had_goes_back_to_the_slot_of_one_that_has_gone() -> None:
    now = inherited(GONE, HEIR, 4, 5, 6)  # the first of one that was rejected

    now.shows("heir", one=(5,), two=(6,))

    assert now.slots() == {"heir": (1, 2)}
    assert now.holds() == {
        1: ("", "gone", (0,)),
        2: ("heir/one", "heir", (1,)),
        3: ("heir/two", "heir", (2,)),
    }


def test_what_is_not_certain_is_given_up_for_nothing() -> None:
    now = current(pod("train", [0], 1, phase="Running"))
    now.shows("train", main=(6,))  # its Allocate stands in no journal
    now.shows("train", main=())
    now.update(pod("next", [2], 2))
    assert now.mounts(5) == (2,)

    now.shows("train", main=(5,))

    assert now.slots() == {"train": (0,), "next": (2,)}
    assert now.holds() == {1: ("", "train", ()), 2: ("train/main", "train", (2,))}


def test_a_container_made_anew_from_an_equals_slot_gives_that_one_its_old_chip() -> (
    None
):
    first = pair("first", [0, 1], 1, phase="Running")
    now = current(first)
    now.mounts_singly(0, 1)
    now.shows("first", one=(0,), two=(1,))
    now.shows("first", one=(), two=(1,))  # lost
    now.update(pair("second", [2, 3], 2))
    assert now.mounts(6) == (2,)  # first's, asked for by its worker

    now.shows("first", one=(6,), two=(1,))

    assert now.slots() == {"first": (1, 2), "second": (0, 3)}
    assert now.holds() == {
        1: ("", "second", (0,)),
        2: ("first/two", "first", (1,)),
        3: ("first/one", "first", (2,)),
    }
    assert [hold.lost for hold in now.ledger.holds.values()] == [False] * 3


def test_what_an_init_container_alone_had_is_part_of_what_a_pod_gives_up() -> None:
    needs = staged(2, 1)
    now = current(
        pod("first", [0, 1], 1, containers=needs),
        pod("second", [2, 3], 2, containers=needs),
    )
    now.mounts(6, 7)
    now.mounts(6)

    now.shows("second", main=(6,))

    assert now.slots() == {"first": (2, 3), "second": (0, 1)}
    assert now.holds() == {
        1: ("second/prepare", "second", (0, 1)),
        2: ("second/main", "second", (0,)),
    }


def test_a_pod_served_long_ago_gives_up_what_its_container_had() -> None:
    served = pod("train", [0], annotations.SERVED, phase="Running")
    before = current(pod("train", [0], 1))
    before.mounts_for("train", 0)
    now = restarted(before, served)
    now.shows("train", main=())
    now.update(pod("next", [2], 2))
    assert now.mounts(6) == (2,)

    now.shows("train", main=(6,))

    assert now.slots() == {"train": (2,), "next": (0,)}
    assert now.holds() == {1: ("", "next", (0,)), 2: ("train/main", "train", (2,))}


def test_the_slot_of_a_pod_that_has_gone_lasts_as_long_as_something_is_held() -> None:
    now = current(pod("train", [0], 1))
    now.mounts_for("train", 0)

    now.delete("train")

    assert now.slots() == {"train": (0,)}
