"""What a new agent makes of what it finds: rules 13 and 15."""

from dataclasses import replace

from agent.claims import occupancy
from agent.claims.annotations import make_affinity
from agent.claims.events import Noted, PassEnded, PodDeleted, PodUpdated
from agent.claims.store import LedgerStore
from scheduler_core.wire import annotations
from tests.agent.claims.agent_model import read_again
from tests.agent.node import Effects, current, pod, restarted
from tests.agent.rules.kubelet import app, init, knows_not, mounts, refusal, shows

RUNNING = pod("train", [0, 1], phase="Running")


def test_without_a_journal_ids_and_claim_stay_reserved_until_the_pod_ends() -> None:
    now = current(RUNNING)
    shows(now, "train", main=(6, 7))
    during = set(make_affinity(now.ledger).held)

    now.apply(PodDeleted("uid-train"))
    knows_not(now, "train")
    now.apply(PassEnded(quiet=True, in_use={}))

    assert during == {0, 1, 6, 7}
    assert make_affinity(now.ledger).held == ()


def test_what_was_published_as_mounted_is_certain_without_a_journal() -> None:
    real = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1"}
    now = current(pod("train", [0, 1], phase="Running", annotations=real))

    shows(now, "train", main=(6, 7))

    assert make_affinity(now.ledger).held == (0, 1)


def test_of_several_containers_nothing_is_certain_without_a_journal() -> None:
    real = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1"}
    both = [app("one", 1), app("two", 1)]
    now = current(
        pod("train", [0, 1], phase="Running", annotations=real, containers=both)
    )

    shows(now, "train", one=(6,), two=(1,))

    assert set(make_affinity(now.ledger).held) == {0, 1, 6}


def test_without_a_journal_no_id_in_use_looks_broken() -> None:
    real = {annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1"}
    both = [app("one", 1), app("two", 1)]
    now = current(
        pod("train", [0, 1], phase="Running", annotations=real, containers=both)
    )

    shows(now, "train", one=(0,), two=(1,))

    assert [
        name for name, healthy in occupancy.list_devices(now.ledger) if not healthy
    ] == []


def test_without_a_journal_only_ids_of_no_chip_look_broken() -> None:
    both = [app("one", 1), app("two", 1)]
    now = current(pod("train", [0, 1], phase="Running", containers=both))

    shows(now, "train", one=(6,), two=(7,))

    unhealthy = [
        name for name, healthy in occupancy.list_devices(now.ledger) if not healthy
    ]
    assert unhealthy == ["Ascend910-0", "Ascend910-1"]


def test_a_hold_that_was_found_again_is_said() -> None:
    effects = Effects()
    now = current(RUNNING, effects=effects)

    shows(now, "train", main=(6, 7))

    (note,) = effects
    assert isinstance(note, Noted)
    assert (note.uid, note.reason) == ("uid-train", "NpuHoldRestored")


def test_what_the_journal_holds_is_held() -> None:
    before = current(pod("train", [0, 1]))
    mounts(before, 6, 7)

    now = restarted(before, pod("train", [0, 1]))

    assert make_affinity(now.ledger).held == (0, 1)
    shows(now, "train", main=(6, 7))
    assert occupancy.map_ids_to_chips(now.ledger)["Ascend910-6"] == 0b1


def test_what_an_init_container_had_is_not_missed_by_the_next_agent() -> None:
    # pod-resources never shows it; a served pod has no slot that could tell its kind
    both = [init("first", 1), app("main", 1)]
    before = current(pod("train", [0], containers=both))
    mounts(before, 0)
    mounts(before, 0)
    shows(before, "train", main=(0,))
    served = pod("train", [0], annotations.SERVED, phase="Running", containers=both)

    now = restarted(before, served)
    shows(now, "train", main=(0,))

    assert make_affinity(now.ledger).lost == ()


def test_an_exchange_that_was_begun_is_finished_for_both() -> None:
    first, second = pod("first", [0, 1], 1), pod("second", [2, 3], 2)
    before = current(first, second)
    mounts(before, 0, 1)
    shows(before, "second", main=(0, 1))

    now = restarted(before, first, second)

    assert {uid: slot.chips for uid, slot in now.ledger.slots.items()} == {
        "uid-first": 0b1100,
        "uid-second": 0b11,
    }


def test_a_circle_of_exchanges_that_was_begun_is_finished_for_all() -> None:
    second, third = pod("second", [2, 3], 2), pod("third", [4, 5], 3)
    before = current(pod("first", [0, 1], 1), second, third)
    mounts(before, 0, 1)
    mounts(before, 6, 7)
    shows(before, "first", main=(6, 7))
    shows(before, "third", main=(0, 1))
    served = pod("first", [2, 3], annotations.SERVED, phase="Running")

    now = restarted(before, served, second, third)

    assert {uid: slot.chips for uid, slot in now.ledger.slots.items()} == {
        "uid-second": 0b11_0000,
        "uid-third": 0b11,
    }


def bare() -> tuple[LedgerStore, Effects]:
    """A node where a pod runs that was started before any plugin."""
    effects = Effects()
    now = current(RUNNING, effects=effects)
    shows(now, "train", main=())
    return now, effects


def test_a_pod_that_runs_without_its_chips_is_named_once() -> None:
    now, effects = bare()
    shows(now, "train", main=())

    (note,) = effects
    assert isinstance(note, Noted)
    assert (note.uid, note.reason) == ("uid-train", "NpuDevicesMissing")
    assert note.text == (
        "container main runs without its huawei.com/Ascend910 devices: it was "
        "started before the device plugin had registered, or the kubelet has lost "
        "them; delete the pod to have it started again"
    )


def test_its_claim_stays_reserved_until_it_has_ended() -> None:
    now, _ = bare()
    during = occupancy.claimed_chips(now.ledger)
    now.apply(PodUpdated(replace(RUNNING, phase="Failed")))

    assert (during, occupancy.claimed_chips(now.ledger)) == (0b11, 0)


def test_its_claim_serves_nobody_who_was_not_started_before() -> None:
    now, _ = bare()
    now.apply(PodUpdated(pod("next", [2, 3], 9)))

    assert mounts(now, 2, 3) == (2, 3)


def test_a_pod_that_waits_to_be_admitted_is_not_taken_for_one_without_chips() -> None:
    effects = Effects()
    now = current(pod("train", [0, 1]), effects=effects)

    shows(now, "train", main=())

    assert effects == []


def test_a_pod_without_a_claim_may_be_who_asks_so_no_bare_pods_chips_are_given() -> (
    None
):
    now, _ = bare()
    around = pod("around", [2, 3])
    now.apply(PodUpdated(replace(around, annotations={})))

    assert "no pod on this node has a claim for 2" in refusal(now, 2, 3)


def test_what_was_found_without_a_journal_is_in_the_next_one() -> None:
    now = current(RUNNING)
    shows(now, "train", main=(6, 7))
    holds = tuple(now.ledger.holds.values())

    assert read_again(holds) == holds


def test_an_app_container_is_served_though_its_init_container_is_not_certain() -> None:
    both = [init("first", 2), app("main", 2)]
    now = current(replace(pod("train", [0, 1], containers=both), admitted=True))
    shows(now, "train", first=(6, 7))

    assert mounts(now, 6, 7) == (0, 1)
