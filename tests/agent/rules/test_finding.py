"""Who holds what is found by ids and sequence, never by name: rule 6."""

from dataclasses import replace

from agent.claims import values
from tests.agent.node import EVERY_ID, current, pod


def test_a_pod_is_not_taken_for_the_holder_of_ids_that_it_has_not() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    now.mounts_singly(0, 1)

    now.shows("second", main=(0,))

    assert now.uids_of_owners() == {1: "uid-second", 2: ""}


def test_what_was_given_after_a_reading_began_to_be_answered_is_not_in_it() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    read_at = now.ledger.sequence
    now.mounts(0)

    now.shows("second", at=read_at, quiet=False, main=(0,))

    assert now.uids_of_owners() == {1: ""}


def test_of_two_holds_of_one_id_the_newer_is_the_one_that_is_shown() -> None:
    now = current(pod("rejected", [0], 1), pod("train", [1], 2))
    now.mounts(7)
    now.prefers(EVERY_ID, 1)  # the kubelet has taken the id back
    now.mounts(7)

    now.shows("train", main=(7,))

    assert now.uids_of_owners() == {1: "", 2: "uid-train"}


def test_a_new_pod_of_an_old_name_did_not_get_what_was_given_before_it_came() -> None:
    now = current(pod("train", [0], 1))
    now.mounts(0)
    now.delete("train")  # by force: it may still run
    now.update(pod("train", [1], 2, uid="uid-new", admitted=False))

    now.shows("new", main=(0,))

    assert now.uids_of_owners() == {1: ""}
    assert values.held_chips(now.ledger) == 0b1


def test_nor_what_the_old_one_was_given_when_the_new_one_had_come_already() -> None:
    new = pod("train", [1], 2, uid="uid-new", admitted=False)
    now = current(pod("train", [0], 1, admitted=False))
    now.delete("train")  # while the kubelet admits it
    now.update(new)

    now.mounts(5)
    now.shows("new", main=(5,))  # the kubelet knows the old one only
    now.prefers(EVERY_ID, 1)  # that one has ended, and the new one gets its id
    now.mounts(5)
    now.update(replace(new, admitted=True))
    now.shows("new", main=(5,))

    assert now.uids_of_owners() == {1: "", 2: "uid-new"}


def test_absence_in_a_reading_during_an_allocate_does_not_mean_lost_ids() -> None:
    train = pod("train", [0], 1)
    now = current(train)
    now.mounts_for("train", 0)
    now.update(replace(train, phase="Running"))

    now.shows("train", quiet=False, main=())
    during = now.affinity.lost
    now.shows("train", quiet=True, main=())

    assert (during, now.affinity.lost) == ((), (0,))
