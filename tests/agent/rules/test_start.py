"""What a new agent makes of what it finds: rules 13 and 15."""

from dataclasses import replace

from agent.claims import occupancy
from scheduler_core.wire import annotations
from tests.agent.claims.agent_model import read_again
from tests.agent.node import NodeLedger, current, ids, pair, pod, restarted, staged

RUNNING = pod("train", [0, 1], phase="Running")


def test_without_a_journal_ids_and_claim_stay_reserved_until_the_pod_ends() -> None:
    now = current(RUNNING)
    now.shows("train", main=(6, 7))
    during = set(now.affinity.held)

    now.delete("train")
    now.knows_not("train")
    now.passes()

    assert during == {0, 1, 6, 7}
    assert now.affinity.held == ()


def test_what_was_published_as_mounted_is_certain_without_a_journal() -> None:
    real = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1"}
    now = current(pod("train", [0, 1], phase="Running", annotations=real))

    now.shows("train", main=(6, 7))

    assert now.affinity.held == (0, 1)


def test_of_several_containers_nothing_is_certain_without_a_journal() -> None:
    real = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1"}
    now = current(pair("train", [0, 1], phase="Running", annotations=real))

    now.shows("train", one=(6,), two=(1,))

    assert set(now.affinity.held) == {0, 1, 6}


def test_without_a_journal_no_id_in_use_looks_broken() -> None:
    real = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1"}
    now = current(pair("train", [0, 1], phase="Running", annotations=real))

    now.shows("train", one=(0,), two=(1,))

    assert now.unhealthy_ids() == ()


def test_without_a_journal_only_ids_of_no_chip_look_broken() -> None:
    now = current(pair("train", [0, 1], phase="Running"))

    now.shows("train", one=(6,), two=(7,))

    assert now.unhealthy_ids() == ids(0, 1)


def test_a_hold_that_was_found_again_is_said() -> None:
    now = current(RUNNING)

    now.shows("train", main=(6, 7))

    (note,) = now.notes()
    assert (note.uid, note.reason) == ("uid-train", "NpuHoldRestored")


def test_what_the_journal_holds_is_held() -> None:
    before = current(pod("train", [0, 1]))
    before.mounts(6, 7)

    now = restarted(before, pod("train", [0, 1]))

    assert now.affinity.held == (0, 1)
    now.shows("train", main=(6, 7))
    assert occupancy.map_ids_to_chips(now.ledger)["Ascend910-6"] == 0b1


def test_what_an_init_container_had_is_not_missed_by_the_next_agent() -> None:
    # pod-resources never shows it; a served pod has no slot that could tell its kind
    needs = staged(1, 1)
    before = current(pod("train", [0], containers=needs))
    before.mounts_singly(0, 0)
    before.shows("train", main=(0,))
    served = pod("train", [0], annotations.SERVED, phase="Running", containers=needs)

    now = restarted(before, served)
    now.shows("train", main=(0,))

    assert now.affinity.lost == ()


def test_an_exchange_that_was_begun_is_finished_for_both() -> None:
    first, second = pod("first", [0, 1], 1), pod("second", [2, 3], 2)
    before = current(first, second)
    before.mounts_for("second", 0, 1)

    now = restarted(before, first, second)

    assert now.slots() == {"first": (2, 3), "second": (0, 1)}
    assert now.mounts(2, 3) == (2, 3)


def test_a_circle_of_exchanges_that_was_begun_is_finished_for_all() -> None:
    second, third = pod("second", [2, 3], 2), pod("third", [4, 5], 3)
    before = current(pod("first", [0, 1], 1), second, third)
    before.mounts(0, 1)
    before.mounts_for("first", 6, 7)
    before.shows("third", main=(0, 1))
    served = pod("first", [2, 3], annotations.SERVED, phase="Running")

    now = restarted(before, served, second, third)

    assert now.slots() == {"second": (4, 5), "third": (0, 1)}


def bare() -> NodeLedger:
    """A node where a pod runs that was started before any plugin."""
    now = current(RUNNING)
    now.shows("train", main=())
    return now


def test_a_pod_that_runs_without_its_chips_is_named_once() -> None:
    now = bare()
    now.shows("train", main=())

    (note,) = now.notes()
    assert (note.uid, note.reason) == ("uid-train", "NpuDevicesMissing")
    assert note.text == (
        "container main runs without its huawei.com/Ascend910 devices: it was "
        "started before the device plugin had registered, or the kubelet has lost "
        "them; delete the pod to have it started again"
    )


def test_its_claim_stays_reserved_until_it_has_ended() -> None:
    now = bare()
    during = occupancy.claimed_chips(now.ledger)
    now.update(replace(RUNNING, phase="Failed"))

    assert (during, occupancy.claimed_chips(now.ledger)) == (0b11, 0)


def test_its_claim_serves_nobody_who_was_not_started_before() -> None:
    now = bare()
    now.update(pod("next", [2, 3], 9))

    assert now.mounts(2, 3) == (2, 3)


def test_a_pod_that_waits_to_be_admitted_is_not_taken_for_one_without_chips() -> None:
    now = current(pod("train", [0, 1]))

    now.shows("train", main=())

    assert now.effects == []


def test_a_pod_without_a_claim_may_be_who_asks_so_no_bare_pods_chips_are_given() -> (
    None
):
    now = bare()
    around = pod("around", [2, 3])
    now.update(replace(around, annotations={}))

    assert "no pod on this node has a claim for 2" in now.refusal(2, 3)


def test_what_was_found_without_a_journal_is_in_the_next_one() -> None:
    now = current(RUNNING)
    now.shows("train", main=(6, 7))
    holds = tuple(now.ledger.holds.values())

    assert read_again(holds) == holds


def test_an_app_container_is_served_though_its_init_container_is_not_certain() -> None:
    now = current(pod("train", [0, 1], containers=staged(2, 2)))
    now.shows("train", prepare=(6, 7))

    assert now.mounts(6, 7) == (0, 1)
