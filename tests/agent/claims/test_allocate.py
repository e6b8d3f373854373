"""What the kubelet is steered to, and who gets what it asks for."""

from dataclasses import replace

from agent.claims import ledger as ledgers
from agent.claims.events import AllocateAsked, Counted, Granted, Identity, Preferred
from agent.claims.values import Hold
from scheduler_core.products import table
from scheduler_core.wire import annotations
from tests.agent.node import (
    EVERY_ID,
    TRAIN,
    app,
    current,
    ids,
    lost,
    pair,
    pod,
    staged,
    standalone_node,
)


def test_what_must_be_included_comes_first_and_counts() -> None:
    train = pod("train", [4, 5, 6], containers=staged(1, 3))
    now = current(train)
    assert now.mounts(0) == (4,)

    answer = now.steers(EVERY_ID, 3, ids(0))

    assert answer == Preferred(ids(0, 5, 6), claim_missing=False)


def test_nothing_is_preferred_that_was_not_offered() -> None:
    now = current(pod("train", [4, 5]))

    assert now.steers(ids(5, 6, 7), 2) == Preferred(ids(5), claim_missing=False)


def test_without_a_claim_what_must_be_included_is_all() -> None:
    now = current()

    assert now.steers(EVERY_ID, 2, ids(3)) == Preferred(ids(3), claim_missing=True)


def test_a_claim_that_cannot_be_served_is_not_missing() -> None:
    now = current(pod("train", list(range(8))))
    now.read_chips(unhealthy=0b1)

    assert now.steers(EVERY_ID, 8) == Preferred((), claim_missing=False)


def test_while_running_containers_may_ask_no_claim_is_waited_for() -> None:
    now = lost(TRAIN)

    assert now.steers(EVERY_ID, 1) == Preferred((), claim_missing=False)
    assert now.steers(EVERY_ID, 2) == Preferred((), claim_missing=True)


def test_nobodys_container_is_steered_within_what_is_offered() -> None:
    now = standalone_node()

    answer = now.steers(ids(5, 6, 7), 2)

    assert answer == Preferred(ids(5, 6), claim_missing=True)


def test_a_known_pods_container_is_steered_to_what_is_planned_for_it() -> None:
    train = pair("train", [0, 1])
    now = standalone_node(train)
    (first,) = now.mounts(0)

    assert now.slots() == {"train": (0, 1)}
    assert first == 0
    assert now.steers(EVERY_ID[1:], 1) == Preferred(ids(1), claim_missing=False)


def test_a_preference_takes_back_only_the_ids_that_it_offers() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    now.mounts_singly(6, 7)

    now.prefers(ids(0, 6), 1)

    assert {n: hold.reoffered for n, hold in now.ledger.holds.items()} == {
        1: True,
        2: False,
    }


def test_ids_are_kept_in_the_order_of_their_chips() -> None:
    row = table.by_key("atlas-a2-box16")
    now = standalone_node(product=row)
    prefix = row.chip_prefix

    now.apply(AllocateAsked((f"{prefix}10", f"{prefix}9"), last_call=True))

    (hold,) = now.ledger.holds.values()
    assert hold.kubelet_ids == (f"{prefix}9", f"{prefix}10")
    assert hold.chips == (9, 10)


def test_a_hold_says_all_that_was_given() -> None:
    now = current(pair("train", [4, 5]))
    now.mounts(4)

    effects = now.apply(AllocateAsked(ids(6), last_call=False))

    hold = Hold(sequence=2, kubelet_ids=ids(6), chips=(5,), slot="uid-train", need=1)
    assert effects == (Granted(hold), Counted(Identity.OLDEST))
    assert now.ledger.holds[2] == hold
    assert now.ledger.sequence == 2


def test_ids_that_stand_for_nothing_of_it_get_what_is_left_in_order() -> None:
    now = current(pod("train", [1, 2, 3]), pod("more", [0, 4, 5, 6, 7], 2))

    assert now.mounts(2, 6, 7) == (2, 1, 3)


def test_ids_of_an_init_container_keep_its_chips_and_others_get_the_rest() -> None:
    train = pod("train", [4, 5, 6], containers=staged(2, 3))
    now = current(train)
    assert now.mounts(2, 3) == (4, 5)

    assert now.mounts(0, 2, 3) == (6, 4, 5)


def test_one_that_runs_asks_only_when_no_other_can() -> None:
    runs = pod("runs", [0], 1, phase="Running")
    now = current(runs, pod("waits", [1], 2))

    assert now.mounts(5) == (1,)
    assert now.mounts(6) == (0,)


def test_of_equal_times_the_lower_uid_comes_first() -> None:
    now = current(pod("b", [1], 1), pod("a", [0], 1))

    assert now.mounts_singly(5, 6) == [(0,), (1,)]


def test_a_rejected_pods_begun_slot_waits_for_its_next_container_only() -> None:
    half = pod("half", [0, 1, 2], 2, containers=[app("one", 2), app("two", 1)])
    now = current(half, pod("pair", [4, 5], 1), pod("one", [6], 1))
    now.mounts(4, 5)
    assert now.holds()[1] == ("", "pair", (4, 5))

    now.mounts(0, 1)
    assert now.mounts(7) == (2,)  # half's second, before the older one


def test_lost_containers_that_cannot_be_told_apart_get_new_chips_to_be_found() -> None:
    now = lost(pod("one", [0], 1), pod("two", [1], 2))

    assert now.identity(6) is Identity.RECHOSEN
    assert now.holds()[3] == ("", "fresh-3", (2,))
    assert now.slots() == {"one": (0,), "two": (1,), "fresh-3": (2,)}
    assert now.ledger.holds[3].need == 0
    now.shows("two", main=(6,))
    assert now.holds()[3] == ("two/main", "two", (2,))


def test_a_lost_container_of_a_pod_served_long_ago_gets_its_own() -> None:
    before = lost(TRAIN)
    now = current()
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))
    now.update(pod("train", [0], annotations.SERVED, phase="Running"))

    assert now.slots() == {}
    assert now.mounts(6) == (0,)
    assert now.slots() == {"train": (0,)}
    assert now.ledger.slots["uid-train"].predicate_time == annotations.SERVED
    assert now.holds() == {2: ("", "train", (0,))}
    assert now.ledger.holds[2].need == 0


def test_what_a_pod_had_that_has_gone_is_no_lost_container() -> None:
    before = lost(TRAIN)
    now = current()
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))

    assert now.steers(EVERY_ID[1:], 1).claim_missing


def test_a_pod_that_runs_without_devices_is_served_by_its_own_claim() -> None:
    bare = pod("bare", [3], 1, phase="Running")
    now = current(bare)
    now.shows("bare", main=())

    assert now.mounts(6) == (3,)
    now.shows("bare", main=(6,))
    assert now.ledger.bare == frozenset()


def test_one_container_of_several_gets_its_own_and_no_others() -> None:
    now = current(pair("train", [4, 5], 1, phase="Running"))
    now.mounts_singly(4, 5)
    now.shows("train", one=(4,), two=(5,))
    now.shows("train", one=(4,), two=())

    assert now.mounts(7) == (5,)
    assert now.holds() == {
        1: ("train/one", "train", (4,)),
        3: ("", "train", (5,)),
    }
    assert now.ledger.holds[3].need == 1


def test_a_bare_pod_of_another_count_is_not_the_one_who_asks() -> None:
    now = current(pod("pair", [2, 3], 1, phase="Running"), pod("gone", [5], 2))
    now.shows("pair", main=())

    now.delete("gone")

    assert "no pod on this node has a claim" in now.refusal(6)


def test_a_served_pod_without_a_slot_is_not_taken_for_one_without_a_claim() -> None:
    now = lost(TRAIN)
    served = pod("served", [5], annotations.SERVED, phase="Running")
    now.update(served)
    now.shows("served", main=(5,))

    assert now.mounts(6) == (0,)


def test_nor_one_that_has_ended_or_asks_for_another_count() -> None:
    now = lost(TRAIN)
    ended = replace(pod("ended", [5], phase="Failed"), annotations={})
    now.update(ended)
    now.update(replace(pod("pair", [5, 6]), annotations={}))

    assert now.mounts(6) == (0,)


def test_a_pod_that_has_gone_gives_its_slot_to_nobody() -> None:
    now = current(pod("gone", [0], 1), pod("waits", [1], 2))
    now.mounts_for("gone", 5)

    now.delete("gone")

    assert now.mounts(6) == (1,)
