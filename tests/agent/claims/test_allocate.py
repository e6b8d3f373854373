"""What the kubelet is steered to, and who gets what it asks for."""

from dataclasses import replace

from agent.claims import ledger as ledgers
from agent.claims.events import (
    AllocateAsked,
    ChipsRead,
    Counted,
    Granted,
    Identity,
    PodDeleted,
    PodUpdated,
    PreferenceAsked,
    Preferred,
)
from agent.claims.store import LedgerStore
from agent.claims.values import Hold, Ledger
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import NODE, Effects, current, holds, ids, pod, slots
from tests.agent.rules.kubelet import (
    app,
    identity,
    init,
    mounts,
    prefers,
    refusal,
    shows,
)

EVERY_ID = ids(*range(8))


def standalone(*pods: NpuPod) -> LedgerStore:
    """A node without a scheduler of ours."""
    now = LedgerStore(
        Ledger(product=PRODUCT, node=NODE, standalone=True), Effects().append
    )
    for each in pods:
        now.apply(PodUpdated(replace(each, annotations={})))
    return now


def steered(
    now: LedgerStore, available: tuple[str, ...], must: tuple[str, ...], size: int
) -> Preferred:
    (preferred,) = now.apply(PreferenceAsked(available, must, size))
    assert isinstance(preferred, Preferred)
    return preferred


def lost(*names: str) -> LedgerStore:
    """A node of running pods whose devices the kubelet has lost, from chip 0 on."""
    now = current()
    for chip, name in enumerate(names):
        now.apply(PodUpdated(pod(name, [chip], chip + 1, phase="Running")))
        mounts(now, chip)
        shows(now, name, main=(chip,))
    for name in names:
        shows(now, name, main=())
    return now


def test_what_must_be_included_comes_first_and_counts() -> None:
    train = pod("train", [4, 5, 6], containers=[init("prepare", 1), app("main", 3)])
    now = current(train)
    assert mounts(now, 0) == (4,)

    answer = steered(now, EVERY_ID, ids(0), 3)

    assert answer == Preferred(ids(0, 5, 6), claim_missing=False)


def test_nothing_is_preferred_that_was_not_offered() -> None:
    now = current(pod("train", [4, 5]))

    assert steered(now, ids(5, 6, 7), (), 2) == Preferred(ids(5), claim_missing=False)


def test_without_a_claim_what_must_be_included_is_all() -> None:
    now = current()

    assert steered(now, EVERY_ID, ids(3), 2) == Preferred(ids(3), claim_missing=True)


def test_a_claim_that_cannot_be_served_is_not_missing() -> None:
    now = current(pod("train", list(range(8))))
    now.apply(ChipsRead(unhealthy=0b1, busy=0))

    assert steered(now, EVERY_ID, (), 8) == Preferred((), claim_missing=False)


def test_while_running_containers_may_ask_no_claim_is_waited_for() -> None:
    now = lost("train")

    assert steered(now, EVERY_ID, (), 1) == Preferred((), claim_missing=False)
    assert steered(now, EVERY_ID, (), 2) == Preferred((), claim_missing=True)


def test_nobodys_container_is_steered_within_what_is_offered() -> None:
    now = standalone()

    answer = steered(now, ids(5, 6, 7), (), 2)

    assert answer == Preferred(ids(5, 6), claim_missing=True)


def test_a_known_pods_container_is_steered_to_what_is_planned_for_it() -> None:
    train = pod("train", [0, 1], containers=[app("one", 1), app("two", 1)])
    now = standalone(train)
    (first,) = mounts(now, 0)

    assert slots(now) == {"train": (0, 1)}
    assert first == 0
    assert steered(now, EVERY_ID[1:], (), 1) == Preferred(ids(1), claim_missing=False)


def test_a_preference_takes_back_only_the_ids_that_it_offers() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    mounts(now, 6)
    mounts(now, 7)

    prefers(now, ids(0, 6), 1)

    assert {n: hold.reoffered for n, hold in now.ledger.holds.items()} == {
        1: True,
        2: False,
    }


def test_ids_are_kept_in_the_order_of_their_chips() -> None:
    row = table.by_key("atlas-a2-box16")
    now = LedgerStore(Ledger(product=row, node=NODE, standalone=True), Effects().append)
    prefix = row.chip_prefix

    now.apply(AllocateAsked((f"{prefix}10", f"{prefix}9"), last_call=True))

    (hold,) = now.ledger.holds.values()
    assert hold.kubelet_ids == (f"{prefix}9", f"{prefix}10")
    assert hold.chips == (9, 10)


def test_a_hold_says_all_that_was_given() -> None:
    now = current(pod("train", [4, 5], containers=[app("one", 1), app("two", 1)]))
    mounts(now, 4)

    effects = now.apply(AllocateAsked(ids(6), last_call=False))

    hold = Hold(sequence=2, kubelet_ids=ids(6), chips=(5,), slot="uid-train", need=1)
    assert effects == (Granted(hold), Counted(Identity.OLDEST))
    assert now.ledger.holds[2] == hold
    assert now.ledger.sequence == 2


def test_ids_that_stand_for_nothing_of_it_get_what_is_left_in_order() -> None:
    now = current(pod("train", [1, 2, 3]), pod("more", [0, 4, 5, 6, 7], 2))

    assert mounts(now, 2, 6, 7) == (2, 1, 3)


def test_ids_of_an_init_container_keep_its_chips_and_others_get_the_rest() -> None:
    train = pod("train", [4, 5, 6], containers=[init("prepare", 2), app("main", 3)])
    now = current(train)
    assert mounts(now, 2, 3) == (4, 5)

    assert mounts(now, 0, 2, 3) == (6, 4, 5)


def test_one_that_runs_asks_only_when_no_other_can() -> None:
    runs = pod("runs", [0], 1, phase="Running")
    now = current(runs, pod("waits", [1], 2))

    assert mounts(now, 5) == (1,)
    assert mounts(now, 6) == (0,)


def test_of_equal_times_the_lower_uid_comes_first() -> None:
    now = current(pod("b", [1], 1), pod("a", [0], 1))

    assert [mounts(now, 5), mounts(now, 6)] == [(0,), (1,)]


def test_a_rejected_pods_begun_slot_waits_for_its_next_container_only() -> None:
    half = pod("half", [0, 1, 2], 2, containers=[app("one", 2), app("two", 1)])
    now = current(half, pod("pair", [4, 5], 1), pod("one", [6], 1))
    mounts(now, 4, 5)
    assert holds(now)[1] == ("", "pair", (4, 5))

    mounts(now, 0, 1)
    assert mounts(now, 7) == (2,)  # half's second, before the older one


def test_lost_containers_that_cannot_be_told_apart_get_new_chips_to_be_found() -> None:
    now = lost("one", "two")

    assert identity(now, 6) is Identity.RECHOSEN
    assert holds(now)[3] == ("", "fresh-3", (2,))
    assert slots(now) == {"one": (0,), "two": (1,), "fresh-3": (2,)}
    assert now.ledger.holds[3].need == 0
    shows(now, "two", main=(6,))
    assert holds(now)[3] == ("two/main", "two", (2,))


def test_a_lost_container_of_a_pod_served_long_ago_gets_its_own() -> None:
    before = lost("train")
    now = current()
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))
    now.apply(PodUpdated(pod("train", [0], annotations.SERVED, phase="Running")))

    assert slots(now) == {}
    assert mounts(now, 6) == (0,)
    assert slots(now) == {"train": (0,)}
    assert now.ledger.slots["uid-train"].predicate_time == annotations.SERVED
    assert holds(now) == {2: ("", "train", (0,))}
    assert now.ledger.holds[2].need == 0


def test_what_a_pod_had_that_has_gone_is_no_lost_container() -> None:
    before = lost("train")
    now = current()
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))

    assert steered(now, EVERY_ID[1:], (), 1).claim_missing


def test_a_pod_that_runs_without_devices_is_served_by_its_own_claim() -> None:
    bare = pod("bare", [3], 1, phase="Running")
    now = current(bare)
    shows(now, "bare", main=())

    assert mounts(now, 6) == (3,)
    shows(now, "bare", main=(6,))
    assert now.ledger.bare == frozenset()


def test_one_container_of_several_gets_its_own_and_no_others() -> None:
    both = [app("one", 1), app("two", 1)]
    now = current(pod("train", [4, 5], 1, phase="Running", containers=both))
    mounts(now, 4)
    mounts(now, 5)
    shows(now, "train", one=(4,), two=(5,))
    shows(now, "train", one=(4,), two=())

    assert mounts(now, 7) == (5,)
    assert holds(now) == {
        1: ("train/one", "train", (4,)),
        3: ("", "train", (5,)),
    }
    assert now.ledger.holds[3].need == 1


def test_a_bare_pod_of_another_count_is_not_the_one_who_asks() -> None:
    now = current(pod("pair", [2, 3], 1, phase="Running"), pod("gone", [5], 2))
    shows(now, "pair", main=())

    now.apply(PodDeleted("uid-gone"))

    assert "no pod on this node has a claim" in refusal(now, 6)


def test_a_served_pod_without_a_slot_is_not_taken_for_one_without_a_claim() -> None:
    now = lost("train")
    served = pod("served", [5], annotations.SERVED, phase="Running")
    now.apply(PodUpdated(served))
    shows(now, "served", main=(5,))

    assert mounts(now, 6) == (0,)


def test_nor_one_that_has_ended_or_asks_for_another_count() -> None:
    now = lost("train")
    ended = replace(pod("ended", [5], phase="Failed"), annotations={})
    now.apply(PodUpdated(ended))
    now.apply(PodUpdated(replace(pod("pair", [5, 6]), annotations={})))

    assert mounts(now, 6) == (0,)


def test_a_pod_that_has_gone_gives_its_slot_to_nobody() -> None:
    now = current(pod("gone", [0], 1), pod("waits", [1], 2))
    mounts(now, 5)
    shows(now, "gone", main=(5,))

    now.apply(PodDeleted("uid-gone"))

    assert mounts(now, 6) == (1,)
