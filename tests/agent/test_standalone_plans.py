"""Every answer of the planner for one container, and how it thinks of the next."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.claims import standalone
from agent.claims.events import AllocateAsked, Granted, Preferred, Refused
from agent.claims.standalone import Plan, Wish
from agent.claims.values import Ledger
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import PRODUCTS, Product
from scheduler_core.wire.pods import NpuPod
from tests.agent.claims.test_planning import planned
from tests.agent.node import EVERY_ID, NODE, NodeLedger, ids, pod, standalone_node

ALL = PRODUCT.all_chips


def made(name: str, second: int = 0) -> NpuPod:
    """A pod of one chip, created in this second."""
    return replace(pod(name, [0]), created=f"2026-01-01T00:00:{second:02}Z")


@pytest.mark.parametrize("count", range(1, 9))
def test_every_mask_gives_the_cores_choice_or_as_many_chips_as_asked(
    count: int,
) -> None:
    for free in range(ALL + 1):
        found = planned(
            0, Wish(chips_held=0, count_now=count, count_later=0), free=free
        )
        best = chip_sets.choose(PRODUCT, free, count)
        if best:
            assert found == Plan(for_container=best, for_pod=best)
        elif free.bit_count() >= count:
            assert found.for_container == found.for_pod
            assert found.for_container.bit_count() == count
            assert not found.for_container & ~free
        else:
            assert found == Plan(for_container=0, for_pod=0)


@given(st.data())
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.key)
def test_it_is_so_for_every_product(product: Product, data: st.DataObject) -> None:
    free = data.draw(st.integers(0, product.all_chips))
    count = data.draw(st.integers(1, product.chip_count))
    later = data.draw(st.integers(0, 2))
    near = data.draw(st.integers(0, product.all_chips))
    node = replace(
        Ledger(product=product, node=NODE, standalone=True),
        unhealthy=product.all_chips & ~free,
    )
    slot = standalone.make_ownerless_slot(node, count)
    wished = Wish(chips_held=0, count_now=count, count_later=later)

    found = standalone.plan(node, slot, wished, (near, product.all_chips))

    assert found.for_container.bit_count() == (
        count if free.bit_count() >= count else 0
    )
    assert not found.for_container & ~found.for_pod
    assert not found.for_pod & ~free
    together = chip_sets.choose(product, free, count + later)
    if together:
        assert chip_sets.is_legal(product, found.for_pod)
        assert found.for_pod.bit_count() == count + later


def test_chips_that_the_kubelet_names_are_taken_where_they_are_legal() -> None:
    wished = Wish(chips_held=0, count_now=2, count_later=0)

    assert planned(0, wished, 0b0110_0000, ALL).for_container == 0b0110_0000
    assert planned(0, wished, 0b0001_1000, ALL).for_container == 0b0000_0011


def test_a_container_leaves_room_for_those_after_it() -> None:
    # a ring with one free chip is no place for the first of two
    wished = Wish(chips_held=0, count_now=1, count_later=1)
    assert planned(0, wished, free=0b0111_0001) == Plan(
        for_container=0b0001_0000, for_pod=0b0011_0000
    )
    # what the pod has already decides about the rest
    wished = Wish(chips_held=0b1, count_now=1, count_later=0)
    assert planned(0, wished, free=0b1111_0010).for_container == 0b10


def test_a_container_is_legal_by_itself_where_its_pod_cannot_be() -> None:
    # two and one are three: no pod may have three, but a container two
    wished = Wish(chips_held=0, count_now=2, count_later=1)
    assert planned(0, wished, free=0b1001_0011) == Plan(
        for_container=0b0000_0011, for_pod=0b0000_0011
    )


def test_pods_are_served_in_the_order_of_their_creation() -> None:
    now = standalone_node(made("a", 2), made("c", 1), made("b", 1))

    slots = sorted(now.ledger.slots.values(), key=lambda slot: slot.predicate_time)

    assert [slot.uid for slot in slots] == ["uid-c", "uid-b", "uid-a"]
    assert all(slot.chips == 0 for slot in slots)


def gone(busy: int = 0) -> NodeLedger:
    """A node on which a pod had two chips until a moment ago."""
    now = standalone_node(made("a"))
    now.mounts_for("a", 0)
    now.delete("a")
    now.read_chips(unhealthy=ALL & ~0b1, busy=busy)
    now.update(replace(made("b"), annotations={}))
    return now


def test_the_next_pod_need_not_wait_for_the_correction_pass() -> None:
    now = gone()

    preferred = now.steers(EVERY_ID, 1)
    granted = now.apply(AllocateAsked(ids(0), last_call=False))

    assert preferred == Preferred(ids(0), claim_missing=False)
    assert isinstance(granted[0], Granted)
    assert list(now.holds().values()) == [("", "b", (0,))]


def test_a_chip_with_a_process_on_it_is_given_to_nobody() -> None:
    now = gone(busy=0b1)

    now.prefers(EVERY_ID, 1)
    (refused,) = now.apply(AllocateAsked(ids(0), last_call=False))

    assert isinstance(refused, Refused)
    assert refused.text.startswith("too few chips are free: ")
    assert [hold.chips for hold in now.ledger.holds.values()] == [(0,)]


def test_what_a_living_pod_holds_stays_whatever_the_kubelet_offers() -> None:
    now = gone()
    now.apply(AllocateAsked(ids(0), last_call=False))
    now.shows("b", main=(0,))
    now.update(replace(made("c"), annotations={}))

    now.prefers(EVERY_ID, 1)
    (refused,) = now.apply(AllocateAsked(ids(0), last_call=False))

    assert isinstance(refused, Refused)
