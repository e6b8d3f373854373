"""Who holds what is found by ids and sequence, never by name: rule 6."""

from dataclasses import replace

from agent.claims import values
from agent.claims.annotations import make_affinity
from agent.claims.events import PodDeleted, PodUpdated
from agent.claims.store import LedgerStore
from tests.agent.node import current, ids, pod
from tests.agent.rules.kubelet import mounts, prefers, shows

EVERY_ID = ids(*range(8))


def owners(now: LedgerStore) -> dict[int, str]:
    """{sequence of a hold: uid of the pod that was found to have it}."""
    return {
        sequence: hold.owner.uid if hold.owner else ""
        for sequence, hold in now.ledger.holds.items()
    }


def test_a_pod_is_not_taken_for_the_holder_of_ids_that_it_has_not() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    mounts(now, 0)
    mounts(now, 1)

    shows(now, "second", main=(0,))

    assert owners(now) == {1: "uid-second", 2: ""}


def test_what_was_given_after_a_reading_began_to_be_answered_is_not_in_it() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    read_at = now.ledger.sequence
    mounts(now, 0)

    shows(now, "second", at=read_at, quiet=False, main=(0,))

    assert owners(now) == {1: ""}


def test_of_two_holds_of_one_id_the_newer_is_the_one_that_is_shown() -> None:
    now = current(pod("rejected", [0], 1), pod("train", [1], 2))
    mounts(now, 7)
    prefers(now, EVERY_ID, 1)  # the kubelet has taken the id back
    mounts(now, 7)

    shows(now, "train", main=(7,))

    assert owners(now) == {1: "", 2: "uid-train"}


def test_a_new_pod_of_an_old_name_did_not_get_what_was_given_before_it_came() -> None:
    now = current(pod("train", [0], 1))
    mounts(now, 0)
    now.apply(PodDeleted("uid-train"))  # by force: it may still run
    now.apply(PodUpdated(pod("train", [1], 2, uid="uid-new", admitted=False)))

    shows(now, "new", main=(0,))

    assert owners(now) == {1: ""}
    assert values.held_chips(now.ledger) == 0b1


def test_nor_what_the_old_one_was_given_when_the_new_one_had_come_already() -> None:
    new = pod("train", [1], 2, uid="uid-new", admitted=False)
    now = current(pod("train", [0], 1, admitted=False))
    now.apply(PodDeleted("uid-train"))  # while the kubelet admits it
    now.apply(PodUpdated(new))

    mounts(now, 5)
    shows(now, "new", main=(5,))  # the kubelet knows the old one only
    prefers(now, EVERY_ID, 1)  # that one has ended, and the new one gets its id
    mounts(now, 5)
    now.apply(PodUpdated(replace(new, admitted=True)))
    shows(now, "new", main=(5,))

    assert owners(now) == {1: "", 2: "uid-new"}


def test_absence_in_a_reading_during_an_allocate_does_not_mean_lost_ids() -> None:
    train = pod("train", [0], 1)
    now = current(train)
    mounts(now, 0)
    shows(now, "train", main=(0,))
    now.apply(PodUpdated(replace(train, phase="Running")))

    shows(now, "train", quiet=False, main=())
    during = make_affinity(now.ledger).lost
    shows(now, "train", quiet=True, main=())

    assert (during, make_affinity(now.ledger).lost) == ((), (0,))
