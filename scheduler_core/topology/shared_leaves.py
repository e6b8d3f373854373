"""Switch affinity 2.0: leaves that are idle, shared or exclusive.

A job that uses the spine makes the leaves that it fills its own (exclusive) and may
share a limited number of others with jobs like it. A leaf that more of them share
than should is not healthy: the next such job keeps away from it.

Source:
    As `leaf_order.py`; shared leaves only after the idle ones.
"""

from itertools import pairwise

from scheduler_core.index.counts import ones
from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import (
    Part,
    Request,
    Schema,
    roomiest_first,
    smallest,
    take,
)


def plan(job: Request) -> tuple[Part, ...] | str:
    """The parts of a job in the order of ranks, or why there is no place.

    Cost:
        A step for each leaf, to see what others make of it.
    """
    if job.pods < job.network.width or job.is_filler:
        for use, healthy in _UNDER_ONE:
            number = smallest(job, _of(job, use, healthy=healthy))
            if number is not None:
                leaf, nodes = job.network.leaves[number], job.some(number, job.pods)
                return (Part(nodes=nodes, use=leaf.use, healthy=leaf.healthy),)
    if job.is_filler:
        return f"no leaf switch has {job.pods} nodes that can take a pod"
    found = _exclusive(job)
    if not found and job.schema is Schema.NORMAL:
        found = _crowded(job)
    return found or (
        f"fewer than {job.pods} nodes under idle leaf switches and "
        f"{job.network.shared_leaves} shared ones can take a pod"
    )


#: in which order leaves are tried for a job that fits under one of them
_UNDER_ONE = (
    (LeafUse.EXCLUSIVE, None),
    (LeafUse.SHARED, False),
    (LeafUse.SHARED, True),
    (LeafUse.IDLE, None),
)


def _of(job: Request, use: LeafUse, *, healthy: bool | None = None) -> int:
    """The leaves of that use, as a mask."""
    return sum(
        1 << number
        for number, leaf in enumerate(job.network.leaves)
        if leaf.use is use and healthy in (None, leaf.healthy)
    )


def _exclusive(job: Request) -> tuple[Part, ...]:
    """Idle leaves as a whole, the rest on shared ones, else on one more idle leaf."""
    missing = job.pods
    parts: list[Part] = []
    last: int | None = None
    for leaf in roomiest_first(job, _of(job, LeafUse.IDLE)):
        number = job.free(leaf)
        if missing >= number:
            nodes = job.some(leaf, number)
            parts.append(Part(nodes=nodes, use=LeafUse.EXCLUSIVE))
            missing -= number
        elif last is None:
            last = leaf
        if not missing:
            return tuple(parts)
    shared = _shared(job, missing)
    if not shared and last is not None and job.free(last) >= missing:
        shared = (Part(nodes=job.some(last, missing), use=LeafUse.SHARED),)
    return (*parts, *shared) if shared else ()


def _shared(job: Request, missing: int) -> tuple[Part, ...]:
    """So many nodes under one healthy shared leaf, or under two of about that size."""
    shared = _of(job, LeafUse.SHARED, healthy=True)
    leaves = [leaf for level in job.slots.levels[1:] for leaf in ones(level & shared)]
    for leaf in leaves:
        if job.free(leaf) >= missing:
            return (Part(nodes=job.some(leaf, missing), use=LeafUse.SHARED),)
    if job.network.shared_leaves < 2:
        return ()
    for small, large in pairwise(leaves):
        if job.free(small) + job.free(large) >= missing:
            rest = missing - job.free(small)
            return (
                Part(nodes=job.some(small, job.free(small)), use=LeafUse.SHARED),
                Part(nodes=job.some(large, rest), use=LeafUse.SHARED),
            )
    return ()


def _crowded(job: Request) -> tuple[Part, ...]:
    """Any nodes, at the price of leaves that more jobs share than should."""
    idle = _of(job, LeafUse.IDLE)
    crowded = _of(job, LeafUse.SHARED, healthy=False)
    shared = _of(job, LeafUse.SHARED, healthy=True)
    # From some of them a large-model job uses the spine.
    exclusive = _of(job, LeafUse.EXCLUSIVE) & ~job.network.crossings.taken
    rest = (
        *roomiest_first(job, crowded),
        *roomiest_first(job, shared, exclusive),
    )
    return take(
        job,
        [
            *((leaf, LeafUse.EXCLUSIVE, True) for leaf in roomiest_first(job, idle)),
            *((leaf, LeafUse.SHARED, False) for leaf in rest),
        ],
    )
