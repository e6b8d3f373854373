"""A plan enters the cache in one change, as its single reservations would, or not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner, Reservation
from scheduler_core.wire.shapes import ContainerKind, Shape
from tests.support.caches import (
    all_reservations,
    apply,
    cluster,
    conflicts,
    gang,
    kept,
    node_states,
    state_of,
)
from tests.support.clock import NOW_S
from tests.support.watched import RESOURCE, member

NODES = ("n1", "n2", "n3")
PODS = tuple(f"p{number}" for number in range(6))
SHAPES = tuple(
    Shape(resource=RESOURCE, needs=((ContainerKind.APP, count),)) for count in (1, 4)
)


def _job_and_others() -> Cache:
    """A job of six pods without a plan, on three nodes of eight chips."""
    return cluster(*(member(name, size=len(PODS)) for name in PODS), nodes=NODES)


@st.composite
def _reservations(
    draw: st.DrawFn, uid: str, own: int, owners: tuple[Owner, ...]
) -> Reservation:
    """Chips of any node for a pod: mostly those of the mask `own`."""
    shapes = st.sampled_from(SHAPES)
    masks = st.sampled_from([own] * 9 + [0x0F])
    return kept(
        uid,
        draw(st.sampled_from(NODES)),
        draw(masks),
        owner=draw(st.sampled_from(owners)),
        shape=draw(st.none() | shapes if Owner.PREEMPTION in owners else shapes),
        predicate_time=draw(st.integers(1, 9)),
    )


def _state(cache: Cache) -> object:
    """What the cache knows of chips, and answers of nodes."""
    index = cache.index
    return (
        sorted(all_reservations(cache), key=repr),
        {name: sorted(each, key=repr) for name, each in cache.reserved.items()},
        node_states(cache),
        [list(index.ranked(RESOURCE, count)) for count in (1, 2, 4, 8)],
        [conflicts(cache, shape) for shape in SHAPES],
        [state_of(cache, name).last_time for name in NODES],
    )


@pytest.mark.property
@given(st.data())
def test_a_plan_enters_the_cache_as_its_single_reservations_do(
    data: st.DataObject,
) -> None:
    one_by_one, at_once = _job_and_others(), _job_and_others()
    others = [f"uid-{name}" for name in ("other", *PODS[:3])]
    for uid in data.draw(st.lists(st.sampled_from(others), unique=True)):
        there = data.draw(_reservations(uid, 0x40, (Owner.BIND, Owner.PREEMPTION)))
        apply(one_by_one, there, may_conflict=True)
        apply(at_once, there, may_conflict=True)
    uids = data.draw(st.permutations([f"uid-{name}" for name in PODS]))
    plan = tuple(
        data.draw(_reservations(uid, 1 << number, (Owner.PLAN,)))
        for number, uid in enumerate(uids)
    )
    before = _state(at_once)

    conflict = next(
        (
            found
            for wanted in plan
            if (found := one_by_one.step(wanted, NOW_S).conflict) is not None
        ),
        None,
    )
    job = gang(at_once).job
    outcome = at_once.step(events.JobReserved(job=job, reservations=plan), NOW_S)

    assert outcome.conflict == conflict
    if conflict is not None:
        assert (outcome.effects, _state(at_once)) == ((), before)
        assert gang(at_once).plan.places == {}
        return
    assert _state(at_once) == _state(one_by_one)
    places = {wanted.kept_for: wanted.node for wanted in plan}
    assert gang(at_once).plan.places == places
