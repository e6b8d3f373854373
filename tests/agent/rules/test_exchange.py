"""Only equals are interchangeable: rule 3, the agent's half."""

from agent.claims.events import Counted, Identity
from agent.claims.store import LedgerStore
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import Effects, current, pod
from tests.agent.rules.kubelet import app, identity, mounts, shows


def unlike(name: str, chips: list[int], time: int) -> NpuPod:
    policy = {"huawei.com/schedule_policy": "chip4-node8"}
    return pod(name, chips, time, annotations=policy)


def holders(now: LedgerStore) -> dict[str, tuple[int, ...]]:
    """{pod: the chips that it is known to hold}."""
    found: dict[str, tuple[int, ...]] = {}
    for hold in now.ledger.holds.values():
        if hold.owner is not None:
            found[hold.owner.pod] = found.get(hold.owner.pod, ()) + hold.chips
    return found


def test_a_claim_whose_chips_an_equal_got_gets_that_ones_chips() -> None:
    effects = Effects()
    now = current(pod("first", [0, 1], 1), pod("second", [2, 3], 2), effects=effects)
    mounts(now, 0, 1)
    shows(now, "second", main=(0, 1))

    assert Counted(Identity.CORRECTED) in effects
    assert identity(now, 2, 3) is Identity.STEERED
    shows(now, "first", main=(2, 3))
    assert holders(now) == {"first": (2, 3), "second": (0, 1)}


def test_a_claim_whose_chips_an_unlike_pod_got_is_chosen_again() -> None:
    now = current(pod("first", [0, 1], 1), unlike("second", [2, 3], 2))
    mounts(now, 0, 1)
    shows(now, "second", main=(0, 1))

    assert identity(now, 2, 3) is Identity.RECHOSEN
    shows(now, "first", main=(2, 3))
    assert len({c for chips in holders(now).values() for c in chips}) == 4


def test_chips_of_one_container_change_hands_between_equals_only() -> None:
    both = [app("one", 1), app("two", 1)]
    first = pod("first", [0, 1], 1, containers=both)
    second = pod("second", [2, 3], 2, containers=[*both[::-1], app("three", 1)][:2])
    now = current(first, second)
    mounts(now, 0)
    mounts(now, 1)
    shows(now, "second", two=(0,), one=(1,))

    assert holders(now) == {"second": (0, 1)}
    assert {mounts(now, 2), mounts(now, 3)} == {(2,), (3,)}
