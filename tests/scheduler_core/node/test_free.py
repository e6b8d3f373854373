from itertools import product

import pytest

from scheduler_core.node.free import free_chips

#: one chip in every combination of the five facts about it
FACTS = list(product((0, 1), repeat=4))


@pytest.mark.parametrize(("healthy", "claimed", "held", "releasing"), FACTS)
def test_a_chip_is_free_when_it_is_healthy_and_nobody_has_it(
    healthy: int, claimed: int, held: int, releasing: int
) -> None:
    answer = free_chips(
        healthy=healthy, claimed=claimed, held=held, releasing=releasing
    )

    assert answer == int(bool(healthy) and not (claimed or held or releasing))


@pytest.mark.parametrize(("healthy", "claimed", "held", "releasing"), FACTS)
@pytest.mark.parametrize("listed", [0, 1])
def test_of_a_nodes_own_list_held_and_newly_claimed_chips_are_taken_off(
    healthy: int, claimed: int, held: int, releasing: int, listed: int
) -> None:
    answer = free_chips(
        healthy=healthy,
        claimed=claimed,
        held=held,
        releasing=releasing,
        listed=listed,
    )

    assert answer == int(
        bool(healthy and listed) and not (claimed or held or releasing)
    )
