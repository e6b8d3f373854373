"""What the state machine has found, each told as shortly as it can be."""

from dataclasses import replace

from agent.claims import values
from agent.claims.events import PassEnded
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import current, ids, pair, pod, staged


def created(made: NpuPod, second: int) -> NpuPod:
    return replace(made, created=f"2026-01-01T00:00:{second:02}Z")


def test_a_name_that_the_kubelet_gives_to_a_newer_pod_is_the_old_ones_no_more() -> None:
    old = created(pod("p", [0], uid="old"), 1)
    new = created(pod("p", [0], uid="new"), 2)
    now = current(old)

    now.update(new, by_kubelet=True)
    after_the_kubelets_list = set(now.ledger.pods)
    now.update(created(pod("p", [1], uid="older"), 1))  # a late watch event

    assert (after_the_kubelets_list, set(now.ledger.pods)) == ({"new"}, {"new"})


def test_of_two_pods_made_in_one_second_the_api_servers_counts() -> None:
    shown = created(pod("p", [0], uid="shown"), 1)
    now = current(shown)

    now.update(created(pod("p", [1], uid="listed"), 1), by_kubelet=True)

    assert set(now.ledger.pods) == {"shown"}


def test_the_api_servers_pod_takes_the_name_of_one_that_only_the_kubelet_showed() -> (
    None
):
    now = current()
    now.update(created(pod("p", [1], uid="listed"), 1), by_kubelet=True)

    now.update(created(pod("p", [0], uid="shown"), 1))

    assert set(now.ledger.pods) == {"shown"}


def test_the_watch_tells_of_pods_of_one_name_in_their_order() -> None:
    now = current(created(pod("p", [0], uid="old"), 2))

    now.update(created(pod("p", [1], uid="new"), 1))  # clocks differ

    assert set(now.ledger.pods) == {"new"}


def test_what_only_the_kubelet_showed_is_no_longer_so_when_it_has_gone() -> None:
    now = current()
    now.update(pod("p", [1]), by_kubelet=True)
    during = now.ledger.kubelet_only

    now.delete("p")

    assert [set(during), set(now.ledger.kubelet_only)] == [{"uid-p"}, set()]


def test_a_hold_lasts_while_a_second_container_has_its_id() -> None:
    now = current(pod("first", [0], 1))
    now.mounts_for("first", 5)
    now.update(pod("second", [1], 2))
    now.mounts(5)  # the kubelet gives the id out again
    now.delete("second")  # or so the watch says
    now.looks_again()
    names = ("first", "unheard-of")
    listed = {("default", name, "main"): frozenset(ids(5)) for name in names}

    for _ in range(3):
        now.apply(PassEnded(quiet=True, in_use=listed))
    both = values.held_chips(now.ledger)
    del listed["default", "unheard-of", "main"]
    now.apply(PassEnded(quiet=True, in_use=listed))

    assert (both, values.held_chips(now.ledger)) == (0b11, 0b01)


def test_what_an_init_container_got_from_another_slot_is_known_by_its_id() -> None:
    now = current(pod("gone", [0], 1), pod("p", [1], 2, containers=staged(1, 1)))
    now.mounts(7)  # p's init container, on the way to which "gone" had been deleted
    now.mounts(7)
    now.delete("gone")

    now.becomes("p", "Running")
    now.shows("p", main=(7,))

    assert now.uids_of_owners() == {1: "uid-p", 2: "uid-p"}


def test_one_container_of_several_without_its_devices_is_named() -> None:
    now = current(pair("p", [0, 1]))
    now.mounts_singly(0, 1)
    now.becomes("p", "Running")

    now.shows("p", one=(0,), two=())

    (note,) = now.notes()
    assert (note.uid, note.reason) == ("uid-p", "NpuDevicesMissing")
    assert note.text.startswith("container two runs without its huawei.com/Ascend910")
    assert now.ledger.bare == {"uid-p"}


def test_a_pod_that_has_gone_half_served_takes_no_place_in_the_queue() -> None:
    now = current(pair("gone", [0, 1]))
    now.mounts_singly(0, 1)
    now.delete("gone")
    now.read_chips(unhealthy=0b1)
    now.update(pod("next", [4], 2))

    # the kubelet offers id 1 again, and not id 0, whose chip is broken
    now.prefers(ids(1, 5), 1)

    assert now.mounts(5) == (4,)


def test_what_a_container_had_before_it_was_made_anew_is_let_go_with_care() -> None:
    now = current(pod("p", [0], 1))
    now.mounts(0)
    now.becomes("p", "Running")
    now.shows("p", main=(0,))
    now.shows("p", main=())  # the kubelet has lost its checkpoint
    now.read_chips(busy=0b1)
    anew = now.mounts(5)

    now.shows("p", main=(5,))
    now.passes(2)
    while_its_process_runs = values.held_chips(now.ledger)
    now.read_chips()
    now.passes(2)

    assert anew != (0,)
    assert while_its_process_runs == 0b1 | 1 << anew[0]
    assert values.held_chips(now.ledger) == 1 << anew[0]


def test_chips_chosen_for_one_lost_container_are_not_its_pods_whole_slot() -> None:
    now = current(pair("p", [0, 1]))
    now.becomes("p", "Running")
    now.shows("p", one=(), two=())  # it runs without devices
    now.read_chips(busy=0b11)
    now.mounts(5)

    now.shows("p", one=(5,), two=())

    assert len(now.slots()["p"]) == 2
