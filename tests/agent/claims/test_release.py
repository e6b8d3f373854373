"""What keeps a hold of nobody known, and when all pods have to be listed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.claims import release, values
from agent.claims.events import PassEnded, ResourcesRead
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import (
    TRAIN,
    NodeLedger,
    confirmed,
    current,
    ids,
    pod,
    rejected,
    staged,
)


def ends(now: NodeLedger) -> bool:
    """Whether two passes are enough for it to end."""
    now.passes(2)
    return 1 not in now.ledger.holds


def forgets(name: str, now: NodeLedger) -> None:
    """Another kubelet shows a pod without any ids."""
    now.kubelet = "second"
    now.shows(name, main=())


LATE, RUNS = pod("late", [1], 2), pod("late", [1], 2, phase="Running")


@pytest.mark.parametrize(
    ("late", "look", "can_own"),
    [
        (LATE, lambda _: None, True),  # it waits, and was not looked at
        (LATE, lambda now: now.shows("late", main=()), False),
        (LATE, lambda now: now.shows("late", quiet=False, main=()), True),
        (LATE, lambda now: now.knows_not("late"), True),  # the kubelet is late
        (RUNS, lambda now: now.shows("late", main=()), False),
        (RUNS, lambda now: forgets("late", now), True),  # it may have lost it
        (LATE, lambda now: forgets("late", now), True),  # which may run by now
        (RUNS, lambda now: now.mounts_for("late", 1), False),  # it has all its own
        (RUNS, lambda now: now.mounts_for("late", 0), False),  # under the same id
        (replace(LATE, phase="Succeeded"), lambda _: None, False),
        (pod("pair", [2, 3], 2), lambda _: None, False),  # it asks for two
        (pod("late", [4, 5], 2, containers=staged(1, 2)), lambda _: None, False),
    ],
)
def test_what_a_rejected_pod_was_given_ends_unless_another_can_own_it(
    late: NpuPod, look: Callable[[NodeLedger], object], *, can_own: bool
) -> None:
    now = rejected(late)

    look(now)

    assert ends(now) is not can_own


def test_what_nobody_can_own_ends() -> None:
    assert ends(rejected())


def test_whichever_of_several_pods_may_own_it_keeps_it() -> None:
    settled = pod("a", [4], 2, phase="Running")
    now = rejected(settled, pod("b", [2, 3], 3), pod("c", [1], 4))
    now.mounts_for("a", 4)

    assert not ends(now)


def test_a_pod_that_was_seen_before_it_was_given_may_own_it() -> None:
    now = current(TRAIN, pod("late", [1], 2))
    now.shows("late", main=())
    now.mounts(0)
    now.update(replace(TRAIN, phase="Failed"))

    assert not ends(now)


def test_a_pod_that_is_shown_with_ids_of_it_may_own_it() -> None:
    late = pod("late", [1, 2], 2, admitted=False)
    now = rejected(late)

    now.shows("late", main=(0,))
    during = ends(now)
    now.delete("late")

    assert (during, ends(now)) == (False, True)


def prepared(*pods: NpuPod) -> NodeLedger:
    """A node where what an init container was given is nobody's."""
    train = pod("train", [0, 1], containers=staged(1, 2))
    now = current(train, *pods)
    now.mounts(0)
    now.update(replace(train, phase="Failed"))
    return now


def test_of_an_init_container_only_pods_with_such_a_one_may_be() -> None:
    waits = pod("late", [4], 2, phase="Running")
    inits = pod("late", [4], 2, containers=staged(1, 1))

    assert ends(prepared(waits))
    assert not ends(prepared(inits))


def test_a_pod_on_its_way_through_admission_keeps_what_its_init_container_has() -> None:
    now = current(pod("train", [0, 1], containers=staged(1, 2)))
    now.mounts(0)

    now.shows("train", main=())  # its app container's turn is still to come

    assert not ends(now)


def test_once_it_runs_it_is_not_on_its_way() -> None:
    train = pod("train", [0, 1], containers=staged(1, 2))
    now = current(train)
    now.mounts(0)
    now.mounts(0, 6)
    now.shows("train", main=())

    assert ends(now)


def test_one_miss_is_forgotten_when_somebody_may_own_it_again() -> None:
    now = rejected()
    now.passes()
    now.update(pod("late", [1], 2))
    now.passes()
    now.delete("late")

    now.passes()

    assert now.holds() == {1: ("", "train", (0,))}


def test_without_a_listing_nothing_of_nobody_ends() -> None:
    now = rejected()

    for _ in range(3):
        now.apply(PassEnded(quiet=True))

    assert now.holds() == {1: ("", "train", (0,))}


def test_a_container_with_the_same_chips_explains_the_process_on_them() -> None:
    needs = staged(1, 1)
    now = current(pod("train", [0], 1, phase="Running", containers=needs))
    now.mounts_singly(5, 5)
    now.shows("train", main=(5,))
    let_go = replace(now.ledger.holds[1], owner=None, reoffered=True)
    now.replace(values.put_holds(now.ledger, let_go))
    now.read_chips(busy=0b1)
    now.passes()
    misses = now.ledger.holds[1].misses

    now.delete("train")  # then it explains nothing
    now.passes()
    kept = set(now.ledger.holds)
    now.update(pod("train", [0], 1, phase="Running", containers=needs))
    now.passes()

    assert (misses, kept, set(now.ledger.holds)) == (1, {1, 2}, {2})


def test_all_pods_are_listed_for_what_nobody_has_before_it_ends() -> None:
    now = rejected()
    told = []
    for _ in range(3):
        told.append(release.needs_full_list(now.ledger))
        now.passes()

    assert told == [False, True, False]


def test_not_while_somebody_may_own_it_or_a_process_is_on_it() -> None:
    now = rejected()
    now.passes()

    now.read_chips(busy=0b1)
    busy = release.needs_full_list(now.ledger)
    now.read_chips()
    now.update(pod("late", [1], 2))

    assert (busy, release.needs_full_list(now.ledger)) == (False, False)


def test_all_pods_are_listed_while_the_kubelet_shows_a_pod_that_has_ended() -> None:
    now = confirmed()
    told = [release.needs_full_list(now.ledger)]
    now.delete("train")
    told.append(release.needs_full_list(now.ledger))
    now.shows("train", main=())
    told.append(release.needs_full_list(now.ledger))

    assert told == [False, True, False]


def test_a_pod_that_was_never_looked_at_needs_no_listing() -> None:
    now = confirmed()
    now.replace(replace(now.ledger, evidence={}))

    now.delete("train")

    assert not release.needs_full_list(now.ledger)


@pytest.mark.parametrize(("shown", "is_held"), [(ids(0), False), (ids(0, 7), True)])
def test_an_id_that_a_new_pod_of_its_name_got_is_not_shown_for_the_old_one(
    shown: tuple[str, ...], *, is_held: bool
) -> None:
    now = current(pod("train", [0, 1]))
    now.mounts_for("train", 0, 7)
    now.delete("train")
    now.update(pod("train", [2], 2, uid="uid-new"))
    now.mounts(0)

    now.apply(
        ResourcesRead(
            uid="uid-train",
            containers={"main": frozenset(shown)},
            as_of=now.ledger.sequence,
            until=now.ledger.sequence,
            quiet=True,
        )
    )
    now.looks_again()
    now.apply(PassEnded(quiet=True))

    assert (1 in now.ledger.holds) is is_held


def test_what_was_read_of_a_pod_that_has_gone_is_dropped_with_its_last_hold() -> None:
    now = confirmed()
    now.delete("train")
    now.knows_not("train")

    now.passes()
    with_its_hold = set(now.ledger.evidence)
    now.passes()

    assert (with_its_hold, set(now.ledger.evidence)) == ({"uid-train"}, set())
    assert now.ledger.holds == {}
    assert now.ledger.slots == {}


def bare_or_lost(*, is_bare: bool) -> NodeLedger:
    """A node where a pod runs without devices, and another is rejected after it."""
    runs = pod("runs", [1], 1, phase="Running")
    now = current(runs)
    if is_bare:
        now.shows("runs", main=())
    else:
        now.mounts_for("runs", 1)
        now.shows("runs", main=())
    rejected_pod = pod("rejected", [2], 2)
    now.update(rejected_pod)
    now.mounts(2)
    now.update(replace(rejected_pod, phase="Failed"))
    now.read_chips()
    return now


@pytest.mark.parametrize("is_bare", [True, False])
def test_a_pod_that_is_shown_without_ids_given_since_does_not_keep_their_chips(
    *, is_bare: bool
) -> None:
    now = bare_or_lost(is_bare=is_bare)
    given = now.ledger.sequence

    now.shows("runs", main=())
    now.passes()
    after_one = given in now.ledger.holds
    now.passes()

    assert after_one
    assert given not in now.ledger.holds


def test_each_pass_that_frees_them_lists_all_pods() -> None:
    now = bare_or_lost(is_bare=True)
    given = now.ledger.sequence
    now.shows("runs", main=())

    is_listed = [release.needs_full_list(now.ledger)]
    for _ in range(3):
        now.apply(PassEnded(quiet=True))  # nobody was listed
    unlisted = now.ledger.holds[given].misses
    now.passes(in_use=(2,))
    shown = now.ledger.holds[given].misses
    now.passes()
    is_listed.append(release.needs_full_list(now.ledger))

    assert (is_listed, unlisted, shown) == ([True, True], 0, 0)


def test_a_kubelet_that_has_restarted_since_may_have_forgotten_whose_they_are() -> None:
    now = bare_or_lost(is_bare=True)
    given = now.ledger.sequence

    now.kubelet = "second"
    now.shows("runs", main=())
    now.passes(3)

    assert given in now.ledger.holds


def test_a_reading_of_before_they_were_given_does_not_free_them() -> None:
    now = bare_or_lost(is_bare=True)
    given = now.ledger.sequence

    now.shows("runs", at=given - 1, main=())
    now.passes(3)

    assert given in now.ledger.holds


def test_of_an_init_container_a_running_pod_is_not_shown() -> None:
    needs = staged(1, 1)
    runs = pod("runs", [1], 1, phase="Running", containers=needs)
    train = pod("train", [2], 2, containers=needs)
    now = current(runs)
    now.shows("runs", main=())
    now.update(train)
    now.mounts(2)
    now.update(replace(train, phase="Failed"))
    given = now.ledger.sequence

    now.shows("runs", main=())
    now.passes(3)

    assert given in now.ledger.holds
