"""Chips that the ledger chooses by itself, for one container after the other."""

from dataclasses import replace

import pytest

from agent.claims import standalone, values
from agent.claims.standalone import Plan, Wish
from agent.claims.values import Hold
from scheduler_core.products.table import ATLAS_800_TRAINING, by_key
from scheduler_core.wire.shapes import ContainerKind
from tests.agent.claims.cluster_model import Needs, new_pod
from tests.agent.node import NodeLedger, standalone_node

APP, INIT = ContainerKind.APP, ContainerKind.INIT
ALL = ATLAS_800_TRAINING.all_chips


def comes(now: NodeLedger, *needs: tuple[ContainerKind, int]) -> None:
    """A pod, admitted by the kubelet."""
    made = new_pod("uid-p", needs, name="p", annotations={})
    now.update(replace(made, admitted=True))


def planned(slot_chips: int, wished: Wish, *places: int, free: int = ALL) -> Plan:
    """What is chosen for a container of a pod that has plans for these chips."""
    now = standalone_node()
    now.read_chips(unhealthy=ALL & ~free)
    slot = standalone.make_ownerless_slot(now.ledger, wished.count_now)
    chosen = replace(slot, chips=slot_chips)
    return standalone.plan(now.ledger, chosen, wished, places or (ALL,))


# what was planned before


def test_what_was_planned_for_a_container_is_what_it_gets() -> None:
    # chip 1 would be nearer
    assert planned(0b1001, Wish(chips_held=0b1, count_now=1, count_later=0)) == Plan(
        for_container=0b1000, for_pod=0b1000
    )


def test_of_what_was_planned_each_container_gets_its_part() -> None:
    assert planned(0b1010, Wish(chips_held=0, count_now=1, count_later=1)) == Plan(
        for_container=0b0010, for_pod=0b1010
    )


def test_an_id_of_what_was_planned_is_followed_and_no_other() -> None:
    wished = Wish(chips_held=0, count_now=1, count_later=1)

    assert planned(0b1010, wished, 0b1000, ALL).for_container == 0b1000
    assert planned(0b1010, wished, 0b0001, ALL).for_container == 0b0010


def test_plans_of_another_size_are_made_anew() -> None:
    assert planned(0b1000, Wish(chips_held=0, count_now=1, count_later=1)) == Plan(
        for_container=0b1, for_pod=0b11
    )


def test_plans_with_a_chip_that_broke_since_are_made_anew() -> None:
    found = planned(
        0b1010, Wish(chips_held=0, count_now=1, count_later=1), free=ALL & ~0b1000
    )

    assert found == Plan(for_container=1 << 4, for_pod=0b11 << 4)


def test_who_gets_all_from_init_containers_leaves_the_plans_as_they_are() -> None:
    assert planned(0b1001, Wish(chips_held=0b1, count_now=0, count_later=1)) == Plan(
        for_container=0, for_pod=0b1000
    )


# what is planned anew


def test_the_rest_of_a_pod_is_looked_for_beyond_what_the_kubelet_offers() -> None:
    assert planned(0, Wish(chips_held=0, count_now=1, count_later=1), 1 << 7) == Plan(
        for_container=1 << 7, for_pod=1 << 7 | 1 << 4
    )


def test_an_unusual_count_comes_from_the_group_that_it_fills_best() -> None:
    found = planned(0, Wish(chips_held=0, count_now=3, count_later=0), free=0b0111_1111)

    assert found == Plan(for_container=0b0111_0000, for_pod=0b0111_0000)


@pytest.mark.parametrize(
    ("needs", "count", "lasting", "reusable", "expected"),
    [
        (
            ((INIT, 2), (APP, 1), (APP, 1)),
            1,
            0,
            0b11,
            Wish(chips_held=0b11, count_now=0, count_later=0),
        ),
        (
            ((INIT, 1), (APP, 2), (APP, 2)),
            2,
            0,
            0b1,
            Wish(chips_held=0b1, count_now=1, count_later=2),
        ),
        (
            ((INIT, 1), (APP, 2), (APP, 2)),
            2,
            3,
            0b1,
            Wish(chips_held=0b11, count_now=2, count_later=0),
        ),
    ],
)
def test_a_container_needs_what_its_pods_init_containers_did_not_have(
    needs: Needs, count: int, lasting: int, reusable: int, expected: Wish
) -> None:
    now = standalone_node()
    comes(now, *needs)

    assert (
        standalone.split_wish(now.ledger.slots["uid-p"], count, lasting, reusable)
        == expected
    )


# through the ledger


def test_what_an_init_container_had_is_all_that_its_pod_takes() -> None:
    now = standalone_node()
    comes(now, (INIT, 1), (APP, 1))

    assert now.mounts_singly(5, 5) == [(5,), (5,)]
    assert now.slots() == {"p": (5,)}


def test_a_pods_containers_fill_what_was_planned_for_them() -> None:
    now = standalone_node()
    comes(now, (APP, 1), (APP, 1), (APP, 2))

    assert [now.mounts(6), now.mounts(0), now.mounts(2, 3)] == [(0,), (1,), (2, 3)]
    assert now.slots() == {"p": (0, 1, 2, 3)}


def test_pods_are_served_in_the_order_of_their_creation_whatever_their_uids() -> None:
    now = standalone_node()
    for uid, second in (("a", 2), ("c", 1), ("b", 1)):
        made = new_pod(uid, ((APP, 1),), annotations={})
        now.update(replace(made, created=f"2026-01-01T00:00:0{second}Z"))

    for chip in range(3):
        now.mounts(chip)

    assert [hold.slot for hold in now.ledger.holds.values()] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("product", "chips", "are_apart"),
    [
        ("atlas-800-training", (0, 1, 2), False),
        ("atlas-800-training", (0, 1, 4), True),
        ("atlas-800-training", (0, 4), True),
        ("atlas-800-training", (0, 1, 2, 3, 4), False),
        ("atlas-300i-chip", (0, 4), False),  # one from each card
    ],
)
def test_chips_are_apart_in_more_groups_than_they_would_have_to_be(
    product: str, chips: tuple[int, ...], *, are_apart: bool
) -> None:
    pod = new_pod("p", ((APP, len(chips)),), annotations={})
    owner = values.make_owner(pod, "c0")
    hold = Hold(sequence=1, kubelet_ids=(), chips=chips, slot="p", need=0, owner=owner)
    ledger = values.put_holds(standalone_node(product=by_key(product)).ledger, hold)

    assert standalone.has_scattered_chips(ledger, pod) is are_apart
