"""What pod-resources is asked, and what follows from what it shows."""

from dataclasses import replace

import pytest

from agent.claims import confirm
from agent.claims.events import (
    ChipsRead,
    Noted,
    PodDeleted,
    PodUpdated,
)
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations
from tests.agent.node import NODE, RESOURCE, Effects, current, holds, ids, pod
from tests.agent.rules.kubelet import app, init, knows_not, mounts, shows


def asked(now: LedgerStore, *, thorough: bool) -> list[str]:
    found = confirm.pods_to_read(now.ledger, thorough=thorough)
    assert all(uid == f"uid-{name}" for uid, _, name in found)
    assert {namespace for _, namespace, _ in found} <= {"default"}
    return [name for _, _, name in found]


def test_while_something_is_nobodys_all_that_lack_something_are_asked_about() -> None:
    now = current(pod("b", [0], 1), pod("a", [1], 2), pod("c", [2], 3))
    nothing_open = asked(now, thorough=False), confirm.has_open_holds(now.ledger)
    mounts(now, 0)
    mounts(now, 1)
    shows(now, "b", main=(0,))
    now.apply(PodUpdated(pod("ended", [4], 5, phase="Failed")))

    assert nothing_open == ([], False)
    assert asked(now, thorough=False) == ["a", "c"]
    assert asked(now, thorough=True) == ["a", "b", "c"]
    assert confirm.has_open_holds(now.ledger)


def test_when_all_is_known_a_thorough_pass_alone_asks() -> None:
    now = current(pod("a", [0], 1), pod("waits", [1], 2))
    mounts(now, 0)
    shows(now, "a", main=(0,))

    assert asked(now, thorough=False) == []
    assert asked(now, thorough=True) == ["a", "waits"]
    assert not confirm.has_open_holds(now.ledger)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_pod_that_has_ended_is_asked_about_until_its_chips_are_free(
    is_gone: bool,
) -> None:
    now = current(pod("a", [0], 1))
    mounts(now, 0)
    shows(now, "a", main=(0,))

    if is_gone:
        now.apply(PodDeleted("uid-a"))
    else:
        now.apply(PodUpdated(pod("a", [0], 1, phase="Succeeded")))

    assert asked(now, thorough=False) == ["a"]
    assert asked(now, thorough=True) == ["a"]
    assert confirm.has_open_holds(now.ledger)


def test_unsettled_are_those_that_the_kubelet_has_admitted_and_nobody_found() -> None:
    now = current(
        pod("waits", [0], 1, admitted=False),
        pod("runs", [1], 2, admitted=False, phase="Running"),
        pod("admitted", [2], 3),
        pod("found", [3], 4),
        pod("ended", [4], 5, phase="Failed"),
    )
    now.apply(PodUpdated(pod("listed", [5], 6, admitted=False), by_kubelet=True))
    for chip in (6, 7, 0, 1):
        mounts(now, chip)
    shows(now, "found", main=(1,))

    assert confirm.unconfirmed_pods(now.ledger) == {
        "uid-runs",
        "uid-admitted",
        "uid-listed",
    }


def test_what_the_kubelet_shows_is_kept_also_of_pods_that_it_does_not_know() -> None:
    now = current(pod("a", [0], 1))

    knows_not(now, "a", quiet=False)

    (evidence,) = now.ledger.evidence.values()
    assert (evidence.containers, evidence.quiet) == (None, False)


def test_containers_are_told_apart_by_their_names() -> None:
    both = [app("one", 1), app("two", 1)]
    now = current(pod("a", [0, 1], 1, containers=both))
    mounts(now, 6)
    mounts(now, 7)

    shows(now, "a", two=(6,), one=(7,))

    assert holds(now) == {1: ("a/two", "a", (0,)), 2: ("a/one", "a", (1,))}
    assert [hold.need for hold in now.ledger.holds.values()] == [1, 0]


def test_a_container_that_is_shown_half_has_all_that_it_was_given() -> None:
    now = current(pod("a", [0, 1], 1))
    mounts(now, 6, 7)
    shows(now, "a", main=(6, 7))
    before = now.ledger.holds

    shows(now, "a", main=(6,))

    assert now.ledger.holds == before


def test_what_was_found_is_no_longer_counted_as_missed_or_given_again() -> None:
    now = current(pod("a", [0], 1))
    mounts(now, 0)
    (hold,) = now.ledger.holds.values()
    spoilt = replace(hold, misses=1, reoffered=True)
    now.replace(replace(now.ledger, holds={1: spoilt}))

    shows(now, "a", main=(0,))

    (found,) = now.ledger.holds.values()
    assert (found.misses, found.reoffered) == (0, False)


def test_a_pod_that_lost_its_devices_is_named() -> None:
    effects = Effects()
    now = current(pod("a", [0], 1), effects=effects)
    mounts(now, 0)
    shows(now, "a", main=(0,))
    effects.clear()

    shows(now, "a", main=())
    shows(now, "a", main=())

    text = "the kubelet no longer knows the devices of container main"
    assert effects == [Noted("uid-a", "NpuDevicesLost", text)]


def test_a_pod_that_is_being_deleted_lacks_nothing() -> None:
    effects = Effects()
    a = pod("a", [0], 1, phase="Running")
    now = current(a, effects=effects)
    mounts(now, 0)
    shows(now, "a", main=(0,))
    effects.clear()
    now.apply(PodUpdated(replace(a, deleting=True)))

    shows(now, "a", main=())

    assert effects == []


def test_of_several_containers_all_that_never_had_devices_are_named() -> None:
    effects = Effects()
    three = [app("one", 1), app("two", 1), app("three", 2), init("prepare", 1)]
    a = pod("a", [0, 1, 2, 3], 1, phase="Running", containers=three)
    now = current(a, effects=effects)
    mounts(now, 0)  # prepare
    mounts(now, 0)
    effects.clear()

    shows(now, "a", one=(0,))

    assert effects == [
        Noted(
            "uid-a",
            "NpuDevicesMissing",
            "container two, three runs without its huawei.com/Ascend910 devices: it "
            "was started before the device plugin had registered, or the kubelet has "
            "lost them; delete the pod to have it started again",
        )
    ]


def test_what_nobody_here_has_given_is_said_with_its_ids() -> None:
    effects = Effects()
    now = current(pod("a", [0, 1], 1, phase="Running"), effects=effects)

    shows(now, "a", main=(6, 7))

    (hold,) = now.ledger.holds.values()
    text = "Ascend910-6, Ascend910-7 was not given out by this agent"
    assert effects == [Noted("uid-a", "NpuHoldRestored", text)]
    assert (hold.sequence, hold.kubelet_ids, hold.slot) == (1, ids(6, 7), "uid-a")
    assert (hold.chips, hold.reserved, hold.need) == ((), (0, 1, 6, 7), 0)
    assert now.ledger.sequence == 1


def test_the_first_chip_is_reserved_like_any_other() -> None:
    now = current(pod("a", [1], 1, phase="Running"))

    shows(now, "a", main=(0,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved) == ((), (0, 1))


def test_of_an_id_that_is_partly_known_nothing_is_made_up() -> None:
    now = current(pod("a", [0], 1), pod("b", [2, 3], 2, phase="Running"))
    mounts(now, 6)

    shows(now, "b", main=(6, 7))

    assert holds(now) == {1: ("", "a", (0,))}


def test_what_another_holds_is_not_reserved_with_a_claim_that_names_it() -> None:
    now = current(pod("a", [0], 1), pod("b", [0], 2, phase="Running"))
    mounts(now, 6)

    shows(now, "b", main=(7,))

    hold = now.ledger.holds[2]
    assert (hold.chips, hold.reserved) == ((), (7,))


@pytest.mark.parametrize("real", ["", "Ascend910-0,", "npu"])
def test_an_unreadable_word_of_what_is_mounted_makes_nothing_certain(real: str) -> None:
    written = {annotations.ASCEND_REAL: real}
    now = current(pod("a", [0], 1, phase="Running", annotations=written))

    shows(now, "a", main=(6,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved) == ((), (0, 6))


def test_an_init_container_beside_it_leaves_what_is_mounted_certain() -> None:
    written = {annotations.ASCEND_REAL: "Ascend910-3"}
    needs = [init("prepare", 1), app("main", 1)]
    now = current(
        pod("a", [0], 1, phase="Running", annotations=written, containers=needs)
    )

    shows(now, "a", main=(6,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved, hold.need) == ((3,), (), 1)


def test_a_pod_of_the_kubelets_list_alone_is_forgotten_when_it_knows_it_no_more() -> (
    None
):
    now = current()
    now.apply(PodUpdated(pod("a", [0], 1, admitted=False), by_kubelet=True))

    knows_not(now, "a", quiet=False)
    during = set(now.ledger.pods)
    shows(now, "a", main=())
    shown = set(now.ledger.pods)
    knows_not(now, "a")

    assert (during, shown, set(now.ledger.pods)) == ({"uid-a"}, {"uid-a"}, set())


def test_a_pod_of_the_api_server_stays_whatever_the_kubelet_knows() -> None:
    now = current(pod("a", [0], 1))

    knows_not(now, "a")

    assert set(now.ledger.pods) == {"uid-a"}


def apart() -> tuple[LedgerStore, Effects]:
    """A node without a scheduler, on which two chips of two rings are left."""
    effects = Effects()
    now = LedgerStore(
        Ledger(product=PRODUCT, node=NODE, standalone=True), effects.append
    )
    now.apply(ChipsRead(unhealthy=0b1110_1110, busy=0))
    bare = pod("a", [0, 4], 1)
    now.apply(PodUpdated(replace(bare, annotations={})))
    mounts(now, 0, 4)
    effects.clear()
    return now, effects


def test_a_pod_whose_chips_are_not_together_is_told_so_where_nobody_schedules() -> None:
    now, effects = apart()

    shows(now, "a", main=(0, 4))

    assert effects == [
        Noted(
            "uid-a",
            "NpuChipsApart",
            "the pod's chips are not together: when it came, no group of chips on this "
            "node had enough free ones, and in standalone mode nobody looks at other "
            "nodes",
        )
    ]


def test_chips_that_are_together_are_nothing_to_tell() -> None:
    effects = Effects()
    now = LedgerStore(
        Ledger(product=PRODUCT, node=NODE, standalone=True), effects.append
    )
    now.apply(PodUpdated(replace(pod("a", [0, 1], 1), annotations={})))
    mounts(now, 0, 1)
    effects.clear()

    shows(now, "a", main=(0, 1))

    assert effects == []


def test_a_scheduler_is_not_told_of_chips_that_are_not_together() -> None:
    effects = Effects()
    now = current(pod("a", [0, 4], 1), effects=effects)
    mounts(now, 0, 4)
    effects.clear()

    shows(now, "a", main=(0, 4))

    assert effects == []


def test_a_reading_of_before_an_allocate_does_not_show_what_it_gave() -> None:
    now = current(pod("a", [0], 1))
    mounts(now, 0)

    shows(now, "a", at=0, main=(0,))

    assert holds(now) == {1: ("", "a", (0,))}


def test_the_claim_of_a_served_pod_stays_what_it_holds() -> None:
    served = {annotations.PREDICATE_TIME: str(annotations.SERVED)}
    now = current(pod("a", [3], annotations=served, phase="Running"))

    shows(now, "a", main=(3,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved) == ((3,), ())
    assert now.ledger.pods["uid-a"].annotations[RESOURCE] == "Ascend910-3"
