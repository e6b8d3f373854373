"""Which chips a pod is to be served from, as its annotations change."""

from dataclasses import replace

from agent.claims import occupancy
from scheduler_core.wire import annotations
from tests.agent.node import NodeLedger, current, pod, restarted


def exchanged() -> NodeLedger:
    """A node where "b" got the chip of "a"; nothing of it is written yet."""
    now = current(pod("a", [0], 1), pod("b", [1], 2))
    now.mounts_for("b", 5)
    assert now.slots() == {"a": (1,), "b": (0,)}
    return now


def test_a_claim_that_is_told_again_undoes_no_exchange() -> None:
    now = exchanged()

    now.update(pod("a", [0], 1, phase="Running"))
    now.update(pod("b", [1], 2, phase="Running"))

    assert now.slots() == {"a": (1,), "b": (0,)}


def test_a_claim_that_is_written_anew_is_what_an_unserved_pod_is_served_from() -> None:
    now = current(pod("a", [0], 1))

    now.update(pod("a", [3], 5))

    assert now.slots() == {"a": (3,)}
    assert now.mounts(6) == (3,)


def test_a_claim_that_is_written_anew_changes_nothing_of_what_was_given() -> None:
    now = current(pod("a", [0], 1))
    now.mounts(6)

    now.update(pod("a", [3], 5))

    assert now.slots() == {"a": (0,)}


def test_nor_of_a_pod_that_was_served_before_this_agent_began() -> None:
    before = current(pod("a", [0], 1))
    before.mounts_for("a", 6)
    served = pod("a", [0], annotations.SERVED, phase="Running")
    now = restarted(before, served)

    now.update(replace(pod("a", [3], 5), phase="Running"))

    assert now.slots() == {}


def test_a_pod_of_another_node_and_one_that_has_ended_have_no_slot() -> None:
    a, b = pod("a", [0], 1), pod("b", [1], 2)
    now = current(a, b, pod("c", [2], 3))

    now.update(replace(a, node="node-2"))
    now.update(replace(b, phase="Succeeded"))

    assert now.slots() == {"c": (2,)}


def test_an_id_stands_for_its_own_chip_alone() -> None:
    now = current(pod("a", [3], 1))
    now.mounts(5)
    now.read_chips(unhealthy=0b1)

    assert occupancy.map_ids_to_chips(now.ledger)["Ascend910-5"] == 0b1000
    assert ("Ascend910-5", True) in occupancy.list_devices(now.ledger)
