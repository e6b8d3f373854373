"""Pods that read their annotation mount what it says, whatever Allocate answers."""

from agent.claims.events import Granted, Refused
from tests.agent.node import current, pod, reading


def test_its_chips_are_never_chosen_again() -> None:
    now = current(reading(pod("reader", [0, 1])))
    now.read_chips(unhealthy=0b1)

    (effect,) = now.allocate(0, 1)

    assert isinstance(effect, Refused)
    assert "Ascend910-0 unhealthy" in effect.text


def test_it_gets_its_own_chips_from_whatever_ids() -> None:
    now = current(reading(pod("reader", [0, 1])))

    granted, _ = now.allocate(6, 7)

    assert isinstance(granted, Granted)
    assert granted.hold.chips == (0, 1)


def test_served_for_another_it_holds_what_its_annotation_says() -> None:
    now = current(pod("plain", [0, 1], 1), reading(pod("reader", [2, 3], 2)))
    now.allocate(0, 1)

    now.shows("reader", main=(0, 1))

    (hold,) = now.ledger.holds.values()
    assert hold.chips == (2, 3)
    granted, *_ = now.allocate(2, 3)
    assert isinstance(granted, Granted)
    assert granted.hold.chips == (0, 1)
