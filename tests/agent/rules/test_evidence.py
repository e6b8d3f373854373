"""Evidence has a date: a look that began before a pod ended proves nothing after it."""

import pytest

from tests.agent.node import NodeLedger, confirmed, ids

F3 = "F3: a look of before a pod's end is taken for the present"


def ended() -> NodeLedger:
    """A node where a pod has just ended, whose process the last look had seen."""
    now = confirmed()
    now.read_chips(busy=0b1)
    now.delete("train")
    return now


@pytest.mark.xfail(strict=True, reason=F3)
def test_a_process_that_was_seen_before_its_pods_end_leaves_the_ids_as_they_were() -> (
    None
):
    now = ended()

    assert now.unhealthy_ids() == ()
    assert now.affinity.releasing == ()


def test_a_process_that_is_seen_after_its_pods_end_takes_exactly_its_ids() -> None:
    now = ended()

    now.read_chips(busy=0b1)

    assert now.unhealthy_ids() == ids(0)
    assert now.affinity.releasing == (0,)


@pytest.mark.xfail(strict=True, reason=F3)
def test_no_process_before_its_end_does_not_free_the_chips_of_a_pod() -> None:
    now = confirmed()
    now.read_chips()
    now.delete("train")
    now.knows_not("train")

    now.passes(3)
    before = now.affinity.held
    now.read_chips()
    now.passes()

    assert (before, now.affinity.held) == ((0,), ())
