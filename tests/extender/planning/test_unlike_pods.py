"""Jobs whose pods ask for unlike CPU and memory, and share nodes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from extender.cache.requests import Resources
from extender.planning import plan
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import Refusal
from scheduler_core.node import chips
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.support.caches import apply, cluster, only_gang
from tests.support.watched import member, node

PER_POD = TopologySnapshot(profile=Profile.PER_POD)
#: chips, CPU and memory of a pod; free chips, CPU and memory of a node
Pod = tuple[int, int, int]
Node = tuple[int, int, int]

amounts = st.sampled_from([1, 2, 3, 5, 8])
rooms = st.sampled_from([4, 8, 10])


def can_place(pods: Sequence[Pod], nodes: Sequence[Node]) -> bool:
    """Whether the pods fit in this order, by brute force."""
    if not pods:
        return True
    (count, cpu, memory), *rest = pods
    for at, (free, cpu_left, memory_left) in enumerate(nodes):
        mask = chips.choose(ATLAS_800_TRAINING, free, count)
        if mask and cpu <= cpu_left and memory <= memory_left:
            after = free & ~mask, cpu_left - cpu, memory_left - memory
            if can_place(rest, [*nodes[:at], after, *nodes[at + 1 :]]):
                return True
    return False


@given(
    pods=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), amounts, amounts), min_size=2, max_size=4
    ),
    rooms=st.lists(st.tuples(rooms, rooms), min_size=1, max_size=3),
)
def test_a_job_of_a_few_unlike_pods_is_planned_exactly_if_it_fits(
    pods: list[Pod], rooms: list[tuple[int, int]]
) -> None:
    names = [f"n{number}" for number in range(len(rooms))]
    cache = cluster(nodes=names)
    for name, (cpu, memory) in zip(names, rooms, strict=True):
        offered = Resources(cpu, memory, 110)
        apply(cache, replace(node(name), allocatable_resources=offered))
    for number, (count, cpu, memory) in enumerate(pods):
        ask = Resources(cpu, memory)
        apply(cache, member(f"w{number}", size=len(pods), count=count, ask=ask))

    found = plan.plan(cache, only_gang(cache), names, 0, PER_POD)

    free = [(0xFF, cpu, memory) for cpu, memory in rooms]
    by_size = sorted(pods, reverse=True)
    fits = any(can_place(order, free) for order in permutations(by_size))
    assert (not isinstance(found, Refusal)) == fits
    if isinstance(found, Refusal):
        return
    for name, (cpu, memory) in zip(names, rooms, strict=True):
        there = [each for each in found if each.node == name]
        asks = [cache.requests.ask(str(each.kept_for)) for each in there]
        assert sum(ask.cpu for ask in asks) <= cpu
        assert sum(ask.memory for ask in asks) <= memory
        assert sum(each.chips for each in there) <= 0xFF
