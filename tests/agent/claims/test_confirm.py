"""What pod-resources is asked, and what follows from what it shows."""

from dataclasses import replace

import pytest

from agent.claims import confirm, occupancy
from agent.claims.events import Noted
from scheduler_core.products import table
from scheduler_core.wire import annotations
from tests.agent.node import (
    RESOURCE,
    NodeLedger,
    app,
    current,
    ids,
    init,
    pair,
    pod,
    staged,
    standalone_node,
)


def asked(now: NodeLedger, *, thorough: bool) -> list[str]:
    found = confirm.pods_to_read(now.ledger, thorough=thorough)
    assert all(uid == f"uid-{name}" for uid, _, name in found)
    assert {namespace for _, namespace, _ in found} <= {"default"}
    return [name for _, _, name in found]


def test_while_something_is_nobodys_all_that_lack_something_are_asked_about() -> None:
    now = current(pod("b", [0], 1), pod("a", [1], 2), pod("c", [2], 3))
    nothing_open = asked(now, thorough=False), confirm.has_open_holds(now.ledger)
    now.mounts_singly(0, 1)
    now.shows("b", main=(0,))
    now.update(pod("ended", [4], 5, phase="Failed"))

    assert nothing_open == ([], False)
    assert asked(now, thorough=False) == ["a", "c"]
    assert asked(now, thorough=True) == ["a", "b", "c"]
    assert confirm.has_open_holds(now.ledger)


def test_when_all_is_known_a_thorough_pass_alone_asks() -> None:
    now = current(pod("a", [0], 1), pod("waits", [1], 2))
    now.mounts_for("a", 0)

    assert asked(now, thorough=False) == []
    assert asked(now, thorough=True) == ["a", "waits"]
    assert not confirm.has_open_holds(now.ledger)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_pod_that_has_ended_is_asked_about_until_its_chips_are_free(
    is_gone: bool,
) -> None:
    now = current(pod("a", [0], 1))
    now.mounts_for("a", 0)

    if is_gone:
        now.delete("a")
    else:
        now.update(pod("a", [0], 1, phase="Succeeded"))

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
    now.update(pod("listed", [5], 6, admitted=False), by_kubelet=True)
    now.mounts_singly(6, 7, 0, 1)
    now.shows("found", main=(1,))

    assert confirm.unconfirmed_pods(now.ledger) == {
        "uid-runs",
        "uid-admitted",
        "uid-listed",
    }


def test_what_the_kubelet_shows_is_kept_also_of_pods_that_it_does_not_know() -> None:
    now = current(pod("a", [0], 1))

    now.knows_not("a", quiet=False)

    (evidence,) = now.ledger.evidence.values()
    assert (evidence.containers, evidence.quiet) == (None, False)


def test_containers_are_told_apart_by_their_names() -> None:
    now = current(pair("a", [0, 1], 1))
    now.mounts_singly(6, 7)

    now.shows("a", two=(6,), one=(7,))

    assert now.holds() == {1: ("a/two", "a", (0,)), 2: ("a/one", "a", (1,))}
    assert [hold.need for hold in now.ledger.holds.values()] == [1, 0]


def test_a_container_that_is_shown_half_has_all_that_it_was_given() -> None:
    now = current(pod("a", [0, 1], 1))
    now.mounts_for("a", 6, 7)
    before = now.ledger.holds

    now.shows("a", main=(6,))

    assert now.ledger.holds == before


def test_what_was_found_is_no_longer_counted_as_missed_or_given_again() -> None:
    now = current(pod("a", [0], 1))
    now.mounts(0)
    (hold,) = now.ledger.holds.values()
    spoilt = replace(hold, misses=1, reoffered=True)
    now.replace(replace(now.ledger, holds={1: spoilt}))

    now.shows("a", main=(0,))

    (found,) = now.ledger.holds.values()
    assert (found.misses, found.reoffered) == (0, False)


def test_a_pod_that_lost_its_devices_is_named() -> None:
    now = current(pod("a", [0], 1))
    now.mounts_for("a", 0)
    now.effects.clear()

    now.shows("a", main=())
    now.shows("a", main=())

    text = "the kubelet no longer knows the devices of container main"
    assert now.effects == [Noted("uid-a", "NpuDevicesLost", text)]


def test_a_pod_that_is_being_deleted_lacks_nothing() -> None:
    a = pod("a", [0], 1, phase="Running")
    now = current(a)
    now.mounts_for("a", 0)
    now.effects.clear()
    now.update(replace(a, deleting=True))

    now.shows("a", main=())

    assert now.effects == []


def test_of_several_containers_all_that_never_had_devices_are_named() -> None:
    three = [app("one", 1), app("two", 1), app("three", 2), init("prepare", 1)]
    a = pod("a", [0, 1, 2, 3], 1, phase="Running", containers=three)
    now = current(a)
    now.mounts(0)  # prepare
    now.mounts(0)
    now.effects.clear()

    now.shows("a", one=(0,))

    assert now.effects == [
        Noted(
            "uid-a",
            "NpuDevicesMissing",
            "container two, three runs without its huawei.com/Ascend910 devices: it "
            "was started before the device plugin had registered, or the kubelet has "
            "lost them; delete the pod to have it started again",
        )
    ]


def test_what_nobody_here_has_given_is_said_with_its_ids() -> None:
    now = current(pod("a", [0, 1], 1, phase="Running"))

    now.shows("a", main=(6, 7))

    (hold,) = now.ledger.holds.values()
    text = "Ascend910-6, Ascend910-7 was not given out by this agent"
    assert now.effects == [Noted("uid-a", "NpuHoldRestored", text)]
    assert (hold.sequence, hold.kubelet_ids, hold.slot) == (1, ids(6, 7), "uid-a")
    assert (hold.chips, hold.reserved, hold.need) == ((), (0, 1, 6, 7), 0)
    assert now.ledger.sequence == 1


def test_the_first_chip_is_reserved_like_any_other() -> None:
    now = current(pod("a", [1], 1, phase="Running"))

    now.shows("a", main=(0,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved) == ((), (0, 1))


def test_of_an_id_that_is_partly_known_nothing_is_made_up() -> None:
    now = current(pod("a", [0], 1), pod("b", [2, 3], 2, phase="Running"))
    now.mounts(6)

    now.shows("b", main=(6, 7))

    assert now.holds() == {1: ("", "a", (0,))}


def test_what_another_holds_is_not_reserved_with_a_claim_that_names_it() -> None:
    now = current(pod("a", [0], 1), pod("b", [0], 2, phase="Running"))
    now.mounts(6)

    now.shows("b", main=(7,))

    hold = now.ledger.holds[2]
    assert (hold.chips, hold.reserved) == ((), (7,))


@pytest.mark.parametrize("real", ["", "Ascend910-0,", "npu"])
def test_an_unreadable_word_of_what_is_mounted_makes_nothing_certain(real: str) -> None:
    written = {annotations.ASCEND_REAL: real}
    now = current(pod("a", [0], 1, phase="Running", annotations=written))

    now.shows("a", main=(6,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved) == ((), (0, 6))


def test_an_init_container_beside_it_leaves_what_is_mounted_certain() -> None:
    written = {annotations.ASCEND_REAL: "Ascend910-3"}
    now = current(
        pod("a", [0], 1, phase="Running", annotations=written, containers=staged(1, 1))
    )

    now.shows("a", main=(6,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved, hold.need) == ((3,), (), 1)


def test_a_pod_of_the_kubelets_list_alone_is_forgotten_when_it_knows_it_no_more() -> (
    None
):
    now = current()
    now.update(pod("a", [0], 1, admitted=False), by_kubelet=True)

    now.knows_not("a", quiet=False)
    during = set(now.ledger.pods)
    now.shows("a", main=())
    shown = set(now.ledger.pods)
    now.knows_not("a")

    assert (during, shown, set(now.ledger.pods)) == ({"uid-a"}, {"uid-a"}, set())


def test_a_pod_of_the_api_server_stays_whatever_the_kubelet_knows() -> None:
    now = current(pod("a", [0], 1))

    now.knows_not("a")

    assert set(now.ledger.pods) == {"uid-a"}


def apart() -> NodeLedger:
    """A node without a scheduler, on which two chips of two rings are left."""
    now = standalone_node()
    now.read_chips(unhealthy=0b1110_1110)
    now.update(replace(pod("a", [0, 4], 1), annotations={}))
    now.mounts(0, 4)
    now.effects.clear()
    return now


def test_a_pod_whose_chips_are_not_together_is_told_so_where_nobody_schedules() -> None:
    now = apart()

    now.shows("a", main=(0, 4))

    assert now.effects == [
        Noted(
            "uid-a",
            "NpuChipsApart",
            "the pod's chips are not together: when it came, no group of chips on this "
            "node had enough free ones, and in standalone mode nobody looks at other "
            "nodes",
        )
    ]


def test_chips_that_are_together_are_nothing_to_tell() -> None:
    now = standalone_node(pod("a", [0, 1], 1))
    now.mounts(0, 1)
    now.effects.clear()

    now.shows("a", main=(0, 1))

    assert now.effects == []


def test_a_scheduler_is_not_told_of_chips_that_are_not_together() -> None:
    now = current(pod("a", [0, 4], 1))
    now.mounts(0, 4)
    now.effects.clear()

    now.shows("a", main=(0, 4))

    assert now.effects == []


def test_a_reading_of_before_an_allocate_does_not_show_what_it_gave() -> None:
    now = current(pod("a", [0], 1))
    now.mounts(0)

    now.shows("a", at=0, main=(0,))

    assert now.holds() == {1: ("", "a", (0,))}


def test_the_claim_of_a_served_pod_stays_what_it_holds() -> None:
    served = {annotations.PREDICATE_TIME: str(annotations.SERVED)}
    now = current(pod("a", [3], annotations=served, phase="Running"))

    now.shows("a", main=(3,))

    (hold,) = now.ledger.holds.values()
    assert (hold.chips, hold.reserved) == ((3,), ())
    assert now.ledger.pods["uid-a"].annotations[RESOURCE] == "Ascend910-3"


def test_of_sixteen_chips_each_restored_id_stands_for_its_own() -> None:
    chips = tuple(range(16))
    real = ",".join(sorted(ids(*chips)))
    now = NodeLedger(table.by_key("atlas-a2-box16"))
    written = {annotations.ASCEND_REAL: real}
    now.update(pod("a", chips, phase="Running", annotations=written))

    now.shows("a", main=chips)

    (hold,) = now.ledger.holds.values()
    assert (hold.kubelet_ids, hold.chips) == (ids(*chips), chips)


def test_a_restored_id_stands_for_its_own_chip_if_that_is_mounted() -> None:
    written = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-5"}
    now = current(pod("a", [0, 5], phase="Running", annotations=written))

    now.shows("a", main=(5, 7))

    (hold,) = now.ledger.holds.values()
    assert (hold.kubelet_ids, hold.chips) == (ids(5, 7), (5, 0))


def test_of_a_restored_hold_the_known_id_is_not_taken_for_the_unknown_one() -> None:
    now = current(pod("a", [6, 7], 1, phase="Running"))

    now.shows("a", main=(1, 6))

    chips_by_id = occupancy.map_ids_to_chips(now.ledger)
    assert chips_by_id["Ascend910-6"] == 1 << 6
    assert chips_by_id["Ascend910-1"] == 1 << 1 | 1 << 7
