"""What ordinary init containers were given, which pod-resources never shows."""

from dataclasses import replace

import pytest

from scheduler_core.wire.annotations import PREDICATE_TIME, SERVED
from scheduler_core.wire.pods import NpuPod
from tests.agent.claims.init_pods import confirmed, train
from tests.agent.node import RESOURCE, app, current, init, pod, staged


def test_what_was_given_just_before_under_its_id_is_its_init_containers() -> None:
    assert confirmed().owners() == {1: "train/prepare", 2: "train/main"}


def test_also_from_another_slot() -> None:
    now = current(pod("gone", [0], 1), train("train", 1, 2))
    now.mounts(7)  # the init container's, served as if it were the older pod
    now.mounts(7)

    now.shows("train", main=(7,))

    assert now.owners() == {1: "train/prepare", 2: "train/main"}
    assert now.holds()[1] == ("train/prepare", "train", (0,))


def test_that_a_pod_has_more_than_it_asks_for_because_of_them_is_no_mistake() -> None:
    pods = pod("gone", [0], 1), train("train", 1, 2)
    now = current(*pods)
    now.mounts_singly(7, 7)
    now.shows("train", main=(7,))
    written = now.written()["train"]

    now.update(replace(pods[1], annotations=written))

    assert written[RESOURCE] == "Ascend910-0,Ascend910-1"
    assert now.notes() == []


def test_what_was_given_under_other_ids_is_not() -> None:
    now = current(train("train", 0, 1))
    now.mounts(5)  # it was rejected after this
    now.update(train("next", 1, 2))
    now.prefers(("Ascend910-5", "Ascend910-6"), 1)
    now.mounts_singly(6, 6)

    now.shows("next", main=(6,))

    assert now.owners() == {1: "", 2: "next/prepare", 3: "next/main"}


def test_nor_what_was_given_earlier_under_its_id() -> None:
    now = current(pod("rejected", [4], 1), train("train", 0, 2))
    now.mounts(5)
    now.prefers(("Ascend910-5",), 1)
    now.mounts_singly(5, 5)

    now.shows("train", main=(5,))

    assert now.owners() == {1: "", 2: "train/prepare", 3: "train/main"}


def test_nor_what_has_another_count() -> None:
    pair = pod("pair", [4, 5], 1)
    now = current(pair, pod("one", [0], 2, containers=staged(1, 1)))
    now.mounts(6, 7)  # the pair's, which is rejected
    now.mounts(7)  # not its init container's id, but one's

    now.shows("one", main=(7,))

    assert now.owners()[1] == ""


def test_several_of_them_have_the_last_holds_before_their_pods_next() -> None:
    needs = [init("fetch", 1), init("prepare", 2), app("main", 1)]
    now = current(pod("train", [0, 1], 1, containers=needs))
    now.mounts(6)
    now.mounts(6, 7)
    now.mounts(6)

    now.shows("train", main=(6,))

    assert now.owners() == {1: "train/fetch", 2: "train/prepare", 3: "train/main"}


@pytest.mark.parametrize(
    ("others", "slots"), [([], 1), ([pod("one", [0], 1), pod("other", [1], 2)], 3)]
)
def test_each_of_several_that_ask_for_as_many_has_its_own_hold_of_whichever_slot(
    others: list[NpuPod], slots: int
) -> None:
    needs = [init("fetch", 1), init("prepare", 1), app("main", 1)]
    now = current(*others, pod("train", [2], 3, containers=needs))
    given = [now.mounts(6) for _ in needs]

    now.shows("train", main=(6,))

    assert len(set(given)) == slots
    assert now.owners() == {1: "train/fetch", 2: "train/prepare", 3: "train/main"}


def test_also_if_containers_that_were_made_anew_asked_in_between() -> None:
    now = current(
        *(pod(name, [chip], chip, phase="Running") for chip, name in enumerate("ab")),
        train("train", 2, 3),
    )
    for chip, name in enumerate("ab"):
        now.mounts_for(name, chip)
        now.shows(name)  # the kubelet has lost it
    now.mounts(4)  # one of theirs, which takes the claim
    now.mounts(5)  # the init container's
    now.mounts(6)  # the other of theirs
    now.mounts(5)

    now.shows("train", main=(5,))

    assert (now.owners()[4], now.owners()[6]) == ("train/prepare", "train/main")


def test_with_the_devices_that_the_kubelet_loses_go_those_of_init_containers() -> None:
    now = confirmed()

    now.shows("train", main=())

    assert now.owners() == {1: "", 2: "train/main"}
    assert [now.ledger.holds[n].reoffered for n in (1, 2)] == [True, False]
    assert [now.ledger.holds[n].lost for n in (1, 2)] == [False, True]


def test_they_come_back_when_the_kubelet_knows_them_again() -> None:
    now = confirmed()
    now.shows("train", main=())

    now.shows("train", main=(5,))

    assert now.owners() == {1: "train/prepare", 2: "train/main"}
    assert not now.ledger.holds[2].lost


def test_what_lost_its_devices_gets_its_own_chips_though_they_had_some_too() -> None:
    now = confirmed()
    now.shows("train", main=())

    assert now.mounts(6) == (0,)


def test_they_are_not_its_when_it_was_given_others_since() -> None:
    now = confirmed()
    now.shows("train", main=())
    now.read_chips(busy=0b1)  # it still runs on its own
    now.mounts(5)

    now.shows("train", main=(5,))

    assert now.owners() == {1: "", 2: "", 3: "train/main"}


def test_nor_when_it_was_admitted_again_since() -> None:
    now = confirmed()
    now.update(train("other", 1, 2))
    now.mounts(6)  # the kubelet has lost its checkpoint, and admits them all
    now.mounts(6)

    now.shows("train", main=(6,))

    assert now.owners() == {1: "", 2: "", 3: "train/prepare", 4: "train/main"}
    assert now.slots() == {"train": (1,), "other": (0,)}


def test_what_they_got_follows_the_pod_of_their_name() -> None:
    now = current(train("train", 0, 1, phase="Running"))
    now.mounts_singly(5, 5)
    now.shows("train", main=(5,))  # of its successor, which no watch has told yet
    now.delete("train")
    successor = replace(train("train", 1, 2, phase="Running"), uid="uid-successor")
    now.update(successor)

    now.shows("successor", main=(5,))

    assert {h.owner.uid for h in now.ledger.holds.values() if h.owner} == {
        "uid-successor"
    }
    assert len(now.ledger.holds) == 2


def test_what_a_namesake_had_is_let_go_with_its_init_containers() -> None:
    now = confirmed()
    now.update(pod("other", [3], 2))
    now.mounts(6)

    now.shows("train", main=(6,))  # it is another's hold now

    assert now.owners() == {1: "", 2: "", 3: "train/main"}
    assert [now.ledger.holds[n].reoffered for n in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(("broken", "chips"), [(5, (4, 6)), (4, (0, 1))])
def test_the_rest_is_chosen_again_beside_what_they_had_unless_that_broke(
    broken: int, chips: tuple[int, ...]
) -> None:
    now = current(pod("train", [4, 5], containers=staged(1, 2)))
    assert now.mounts(0) == (4,)
    now.read_chips(unhealthy=1 << broken)

    assert now.mounts(0, 1) == chips
    assert now.slots() == {"train": chips}


def test_several_of_them_and_what_lasts_are_chosen_again_as_far_as_they_must() -> None:
    needs = [init("a", 1), init("b", 2), app("one", 2), app("two", 1), app("three", 1)]
    now = current(pod("train", [4, 5, 6, 7], containers=needs))
    assert now.mounts(0) == (4,)
    assert now.mounts(0, 1) == (4, 5)
    assert now.mounts(0, 1) == (4, 5)
    assert now.mounts(2) == (6,)
    now.read_chips(unhealthy=1 << 7)

    assert "Ascend910-7 unhealthy" in now.refusal(3)


def test_what_a_pod_that_has_gone_had_for_them_holds_up_no_settled_pods_claim() -> None:
    now = confirmed()
    now.update(train("other", 1, 2, phase="Running"))
    now.mounts_singly(6, 6)
    now.shows("other", main=(6,))
    now.read_chips(busy=0b11)
    now.shows("other", main=())
    now.mounts(7)  # made anew, on another chip, without its init container
    now.shows("other", main=(7,))
    now.shows("train", main=())
    now.delete("train")  # by force: it still runs on chip 0
    now.update(pod("heir", [0], 3, phase="Running"))
    assert now.mounts(4) != (0,)
    now.shows("heir", main=(4,))

    assert now.ledger.holds[1].owner is None
    assert now.written()["heir"][PREDICATE_TIME] == str(SERVED)


def test_nor_what_another_got_when_what_lasts_is_made_anew_by_itself() -> None:
    now = confirmed()
    now.update(train("other", 1, 2, phase="Running"))
    now.mounts_singly(6, 6)
    now.shows("other", main=(6,))
    now.read_chips(busy=0b11)
    now.shows("train", main=())
    now.shows("other", main=())
    now.mounts(7)  # train's, which ends before anybody has asked
    now.update(train("train", 0, 1, phase="Failed"))
    (chip,) = now.mounts(7)

    now.shows("other", main=(7,))

    assert [held for owner, _, held in now.holds().values() if "other" in owner] == [
        (chip,)
    ]
