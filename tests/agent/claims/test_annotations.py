"""The order of a correction: no chip that is wanted is ever claimed by nobody."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.claims import occupancy
from agent.claims.annotations import Patch, plan_patches
from agent.claims.values import Hold, Ledger, Owner
from scheduler_core.node import chips as chip_sets
from tests.agent.node import RESOURCE, NodeLedger, current, pod

REAL = "huawei.com/AscendReal"


@dataclass(frozen=True)
class Case:
    """A pod of one chip: what it is annotated with, and what it is to be."""

    claim: int
    real: int | None
    wanted: int  #: the chip of its slot
    is_served: bool  #: and mounted already


def node(*cases: Case) -> NodeLedger:
    """A ledger in the middle of a correction."""
    now = current(
        *(
            pod(
                f"{index}",
                [case.claim],
                index + 1,
                annotations={} if case.real is None else {REAL: chips(case.real)},
            )
            for index, case in enumerate(cases)
        )
    )
    ledger = now.ledger
    slots = {
        uid: replace(slot, chips=1 << cases[int(uid[4:])].wanted)
        for uid, slot in ledger.slots.items()
    }
    holds = {
        index + 1: Hold(
            sequence=index + 1,
            kubelet_ids=(chips(case.wanted),),
            chips=(case.wanted,),
            slot=f"uid-{index}",
            need=0,
            owner=Owner(
                uid=f"uid-{index}",
                namespace="default",
                pod=f"{index}",
                container="main",
            ),
        )
        for index, case in enumerate(cases)
        if case.is_served
    }
    now.replace(replace(ledger, slots=slots, holds=holds))
    return now


def chips(chip: int) -> str:
    return f"Ascend910-{chip}"


def batch(now: NodeLedger, unsure: Iterable[str] = ()) -> tuple[Patch, ...]:
    return plan_patches(now.ledger, host_ip="10.0.0.1", unsure=frozenset(unsure))


def land(now: NodeLedger, patch: Patch) -> None:
    known = now.ledger.pods[patch.uid]
    merged = {**known.annotations, **patch.annotations}
    now.update(replace(known, annotations=merged))


def covered(ledger: Ledger) -> int:
    mask = 0
    for each in ledger.pods.values():
        mask |= occupancy.annotated_chips(ledger, each)
    return mask


def told(now: NodeLedger) -> list[dict[str, str]]:
    """What the batch of this moment would write, of claims and AscendReal."""
    return [
        {
            key: text
            for key, text in patch.annotations.items()
            if key in (RESOURCE, REAL)
        }
        for patch in batch(now)
    ]


def correct(now: NodeLedger, data: st.DataObject) -> None:
    """Send what may be sent until there is nothing; some of it fails, at first."""
    wanted = chip_sets.mask_of(
        chip
        for slot in now.ledger.slots.values()
        for chip in chip_sets.ids_of(slot.chips)
    )
    for attempt in range(50):
        order = data.draw(st.permutations(batch(now)))
        least = 1 if attempt > 10 and order else 0
        for patch in order[: data.draw(st.integers(least, len(order)))]:
            before = covered(now.ledger) & wanted
            land(now, patch)
            assert not before & ~covered(now.ledger)
    assert batch(now) == ()


def claims(now: NodeLedger) -> list[str]:
    return [each.annotations[RESOURCE] for each in now.ledger.pods.values()]


@st.composite
def any_cases(draw: st.DrawFn) -> tuple[Case, ...]:
    count = draw(st.integers(1, 6))
    wanted = draw(st.permutations(range(8)))[:count]
    chip = st.integers(0, 7)
    return tuple(
        Case(
            claim=draw(chip),
            real=draw(st.none() | chip),
            wanted=each,
            is_served=draw(st.booleans()),
        )
        for each in wanted
    )


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Case, ...]:
    """Pods that were served from each other's slots, and some made anew since."""
    count = draw(st.integers(1, 6))
    slots = list(range(count))
    served: set[int] = set()
    for one, other in draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)))
    ):
        if not served & {one, other}:
            slots[one], slots[other] = slots[other], slots[one]
            served.add(one)
    anew = draw(st.sets(st.sampled_from(range(count)), max_size=8 - count)) & served
    fresh = dict(zip(sorted(anew), range(count, 8), strict=False))
    return tuple(
        Case(
            claim=index,
            real=slots[index] if index in anew else None,
            wanted=fresh.get(index, slots[index]),
            is_served=index in served,
        )
        for index in range(count)
    )


@pytest.mark.property
@settings(deadline=None)
@given(cases=any_cases(), data=st.data())
def test_whatever_lands_of_a_batch_no_chip_that_is_wanted_is_claimed_by_nobody(
    cases: tuple[Case, ...], data: st.DataObject
) -> None:
    correct(node(*cases), data)


@pytest.mark.property
@settings(deadline=None)
@given(cases=exchanges(), data=st.data())
def test_exchanges_are_written_to_their_end_in_whatever_order_the_patches_land(
    cases: tuple[Case, ...], data: st.DataObject
) -> None:
    now = node(*cases)

    correct(now, data)

    assert claims(now) == [chips(case.wanted) for case in cases]


def test_two_patches_of_one_batch_do_not_lean_on_each_other() -> None:
    now = node(
        Case(claim=2, real=None, wanted=0, is_served=False),
        Case(claim=2, real=None, wanted=1, is_served=False),
        Case(claim=4, real=None, wanted=2, is_served=False),
    )

    assert [patch.uid for patch in batch(now)] == ["uid-0", "uid-2"]


def test_a_pod_that_may_have_been_patched_in_vain_covers_nothing() -> None:
    now = node(
        Case(claim=2, real=None, wanted=0, is_served=False),
        Case(claim=2, real=None, wanted=2, is_served=False),
    )

    sure = [patch.uid for patch in batch(now)]
    unsure = [patch.uid for patch in batch(now, unsure=["uid-1"])]

    assert (sure, unsure) == (["uid-0"], [])


def test_made_anew_on_other_chips_it_claims_them_before_it_lets_the_old_ones_go() -> (
    None
):
    now = node(
        Case(claim=0, real=2, wanted=3, is_served=True),  # mounted anew
        Case(claim=3, real=None, wanted=2, is_served=False),
    )
    rounds = []
    while sent := batch(now):
        rounds.append(told(now))
        for patch in sent:
            land(now, patch)

    assert rounds == [
        [{RESOURCE: chips(3)}],
        [{RESOURCE: chips(2)}],
        [{REAL: chips(3)}],
    ]
