"""Only equals are interchangeable: rule 3, the agent's half."""

from agent.claims.events import Counted, Identity
from tests.agent.node import NodeLedger, app, current, pair, pod, unlike


def holders(now: NodeLedger) -> dict[str, tuple[int, ...]]:
    """{pod: the chips that it is known to hold}."""
    found: dict[str, tuple[int, ...]] = {}
    for hold in now.ledger.holds.values():
        if hold.owner is not None:
            found[hold.owner.pod] = found.get(hold.owner.pod, ()) + hold.chips
    return found


def test_a_claim_whose_chips_an_equal_got_gets_that_ones_chips() -> None:
    now = current(pod("first", [0, 1], 1), pod("second", [2, 3], 2))
    now.mounts_for("second", 0, 1)

    assert Counted(Identity.CORRECTED) in now.effects
    assert now.identity(2, 3) is Identity.STEERED
    now.shows("first", main=(2, 3))
    assert holders(now) == {"first": (2, 3), "second": (0, 1)}


def test_a_claim_whose_chips_an_unlike_pod_got_is_chosen_again() -> None:
    now = current(pod("first", [0, 1], 1), unlike("second", [2, 3], 2))
    now.mounts_for("second", 0, 1)

    assert now.identity(2, 3) is Identity.RECHOSEN
    now.shows("first", main=(2, 3))
    assert len({c for chips in holders(now).values() for c in chips}) == 4


def test_chips_of_one_container_change_hands_between_equals_only() -> None:
    both = [app("one", 1), app("two", 1)]
    first = pair("first", [0, 1], 1)
    second = pod("second", [2, 3], 2, containers=[*both[::-1], app("three", 1)][:2])
    now = current(first, second)
    now.mounts_singly(0, 1)
    now.shows("second", two=(0,), one=(1,))

    assert holders(now) == {"second": (0, 1)}
    assert {now.mounts(2), now.mounts(3)} == {(2,), (3,)}
