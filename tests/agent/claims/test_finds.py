"""What the state machine has found, each told as shortly as it can be."""

from dataclasses import replace

from agent.claims import values
from agent.claims.events import (
    AllocateAsked,
    ChipsRead,
    Granted,
    Noted,
    PassEnded,
    PodDeleted,
    PodUpdated,
    PreferenceAsked,
    ResourcesRead,
)
from agent.claims.store import LedgerStore
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind
from tests.agent.claims.cluster_model import claim, new_pod
from tests.agent.node import Effects, current, ids, pod

APP, INIT = ContainerKind.APP, ContainerKind.INIT


def asks(now: LedgerStore, *chips: int) -> tuple[int, ...]:
    """The chips that an Allocate of these chips' ids is answered with."""
    granted, *_ = now.apply(AllocateAsked(ids(*chips), last_call=True))
    assert isinstance(granted, Granted), granted
    return granted.hold.chips


def shows(now: LedgerStore, uid: str, **containers: tuple[str, ...]) -> None:
    """pod-resources shows these ids for a pod's containers."""
    sequence = now.ledger.sequence
    now.apply(
        ResourcesRead(
            uid=uid,
            containers={name: frozenset(each) for name, each in containers.items()},
            as_of=sequence,
            until=sequence,
            quiet=True,
        )
    )


def runs(now: LedgerStore, uid: str) -> None:
    now.apply(PodUpdated(replace(now.ledger.pods[uid], phase="Running")))


def held_by(now: LedgerStore) -> dict[int, str]:
    """{sequence of a hold: uid of its owner}."""
    return {
        hold.sequence: hold.owner.uid if hold.owner else ""
        for hold in now.ledger.holds.values()
    }


def created(made: NpuPod, second: int) -> NpuPod:
    return replace(made, created=f"2026-01-01T00:00:{second:02}Z")


def test_a_name_that_the_kubelet_gives_to_a_newer_pod_is_the_old_ones_no_more() -> None:
    old = created(pod("p", [0], uid="old"), 1)
    new = created(pod("p", [0], uid="new"), 2)
    now = current(old)

    now.apply(PodUpdated(new, by_kubelet=True))
    after_the_kubelets_list = set(now.ledger.pods)
    now.apply(PodUpdated(created(pod("p", [1], uid="older"), 1)))  # a late watch event

    assert (after_the_kubelets_list, set(now.ledger.pods)) == ({"new"}, {"new"})


def test_of_two_pods_made_in_one_second_the_api_servers_counts() -> None:
    shown = created(pod("p", [0], uid="shown"), 1)
    now = current(shown)

    now.apply(PodUpdated(created(pod("p", [1], uid="listed"), 1), by_kubelet=True))

    assert set(now.ledger.pods) == {"shown"}


def test_the_api_servers_pod_takes_the_name_of_one_that_only_the_kubelet_showed() -> (
    None
):
    now = current()
    now.apply(PodUpdated(created(pod("p", [1], uid="listed"), 1), by_kubelet=True))

    now.apply(PodUpdated(created(pod("p", [0], uid="shown"), 1)))

    assert set(now.ledger.pods) == {"shown"}


def test_the_watch_tells_of_pods_of_one_name_in_their_order() -> None:
    now = current(created(pod("p", [0], uid="old"), 2))

    now.apply(PodUpdated(created(pod("p", [1], uid="new"), 1)))  # clocks differ

    assert set(now.ledger.pods) == {"new"}


def test_what_only_the_kubelet_showed_is_no_longer_so_when_it_has_gone() -> None:
    now = current()
    now.apply(PodUpdated(pod("p", [1]), by_kubelet=True))
    during = now.ledger.kubelet_only

    now.apply(PodDeleted("uid-p"))

    assert [set(during), set(now.ledger.kubelet_only)] == [{"uid-p"}, set()]


def test_a_hold_lasts_while_a_second_container_has_its_id() -> None:
    now = current(pod("first", [0], 1))
    asks(now, 5)
    shows(now, "uid-first", main=ids(5))
    now.apply(PodUpdated(pod("second", [1], 2)))
    asks(now, 5)  # the kubelet gives the id out again
    now.apply(PodDeleted("uid-second"))  # or so the watch says
    listed = {
        ("default", "first", "main"): frozenset(ids(5)),
        ("default", "unheard-of", "main"): frozenset(ids(5)),
    }

    for _ in range(3):
        now.apply(PassEnded(quiet=True, in_use=listed))
    both = values.held_chips(now.ledger)
    del listed["default", "unheard-of", "main"]
    now.apply(PassEnded(quiet=True, in_use=listed))

    assert (both, values.held_chips(now.ledger)) == (0b11, 0b01)


def test_what_an_init_container_got_from_another_slot_is_known_by_its_id() -> None:
    now = current(
        pod("gone", [0], 1),
        new_pod("p", ((INIT, 1), (APP, 1)), annotations=claim(2, 2)),
    )
    asks(now, 7)  # p's init container, on the way to which "gone" had been deleted
    asks(now, 7)
    now.apply(PodDeleted("uid-gone"))

    runs(now, "p")
    shows(now, "p", c1=ids(7))

    assert held_by(now) == {1: "p", 2: "p"}


def test_one_container_of_several_without_its_devices_is_named() -> None:
    effects = Effects()
    now = current(
        new_pod("p", ((APP, 1), (APP, 1)), annotations=claim(3, 1)), effects=effects
    )
    asks(now, 0)
    asks(now, 1)
    runs(now, "p")

    shows(now, "p", c0=ids(0), c1=())

    (note,) = [each for each in effects if isinstance(each, Noted)]
    assert (note.uid, note.reason) == ("p", "NpuDevicesMissing")
    assert note.text.startswith("container c1 runs without its huawei.com/Ascend910")
    assert now.ledger.bare == {"p"}


def test_a_pod_that_has_gone_half_served_takes_no_place_in_the_queue() -> None:
    gone = new_pod("gone", ((APP, 1), (APP, 1)), annotations=claim(0b11, 1))
    now = current(gone)
    asks(now, 0)
    asks(now, 1)
    now.apply(PodDeleted("gone"))
    now.apply(ChipsRead(unhealthy=0b1, busy=0))
    now.apply(PodUpdated(pod("next", [4], 2)))

    # the kubelet offers id 1 again, and not id 0, whose chip is broken
    now.apply(PreferenceAsked(ids(1, 5), (), 1))

    assert asks(now, 5) == (4,)


def test_what_a_container_had_before_it_was_made_anew_is_let_go_with_care() -> None:
    now = current(pod("p", [0], 1))
    asks(now, 0)
    runs(now, "uid-p")
    shows(now, "uid-p", main=ids(0))
    shows(now, "uid-p", main=())  # the kubelet has lost its checkpoint
    now.apply(ChipsRead(unhealthy=0, busy=0b1))
    anew = asks(now, 5)

    shows(now, "uid-p", main=ids(5))
    now.apply(PassEnded(quiet=True, in_use={}))
    now.apply(PassEnded(quiet=True, in_use={}))
    while_its_process_runs = values.held_chips(now.ledger)
    now.apply(ChipsRead(unhealthy=0, busy=0))
    now.apply(PassEnded(quiet=True, in_use={}))
    now.apply(PassEnded(quiet=True, in_use={}))

    assert anew != (0,)
    assert while_its_process_runs == 0b1 | 1 << anew[0]
    assert values.held_chips(now.ledger) == 1 << anew[0]


def test_chips_chosen_for_one_lost_container_are_not_its_pods_whole_slot() -> None:
    needs = ((APP, 1), (APP, 1))
    now = current(new_pod("p", needs, annotations=claim(0b11, 1)))
    runs(now, "p")
    shows(now, "p", c0=(), c1=())  # it runs without devices
    now.apply(ChipsRead(unhealthy=0, busy=0b11))
    asks(now, 5)

    shows(now, "p", c0=ids(5), c1=())

    assert now.ledger.slots["p"].chips.bit_count() == 2
