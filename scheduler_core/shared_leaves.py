"""Switch affinity 2.0: leaves that are idle, shared or exclusive.

A job that uses the spine makes the leaves that it fills its own (exclusive) and may
share a limited number of others with jobs like it. A leaf that more of them share
than should is not healthy: the next such job keeps away from it.

Source:
    As `switches.py`; shared leaves only after the idle ones.
"""

from itertools import pairwise

from scheduler_core.answers import LeafUse
from scheduler_core.leaves import (
    Leaf,
    Part,
    Request,
    Schema,
    roomiest_first,
    smallest,
    take,
)


def plan(job: Request) -> tuple[Part, ...] | str:
    """The parts of a job in the order of ranks, or why there is no place."""
    leaves = job.network.leaves
    if job.pods < job.network.width or job.is_filler:
        for use, healthy in _UNDER_ONE:
            kind = [leaf for leaf in leaves if _is(leaf, use, healthy=healthy)]
            leaf = smallest(job, kind)
            if leaf is not None:
                nodes = job.some(leaf, job.pods)
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


def _is(leaf: Leaf, use: LeafUse, *, healthy: bool | None) -> bool:
    return leaf.use is use and healthy in (None, leaf.healthy)


def _exclusive(job: Request) -> tuple[Part, ...]:
    """Idle leaves as a whole, the rest on shared ones, else on one more idle leaf."""
    missing = job.pods
    parts: list[Part] = []
    last: Leaf | None = None
    for leaf in roomiest_first(job, _of(job, LeafUse.IDLE)):
        number = job.free(leaf)
        if number and missing >= number:
            nodes = job.some(leaf, number)
            parts.append(Part(nodes=nodes, use=LeafUse.EXCLUSIVE))
            missing -= number
        elif number and last is None:
            last = leaf
    if not missing:
        return tuple(parts)
    shared = _shared(job, missing)
    if not shared and last is not None and job.free(last) >= missing:
        shared = (Part(nodes=job.some(last, missing), use=LeafUse.SHARED),)
    return (*parts, *shared) if shared else ()


def _of(job: Request, use: LeafUse, *, healthy: bool | None = None) -> list[Leaf]:
    return [leaf for leaf in job.network.leaves if _is(leaf, use, healthy=healthy)]


def _shared(job: Request, missing: int) -> tuple[Part, ...]:
    """So many nodes under one healthy shared leaf, or under two of about that size."""
    leaves = sorted(_of(job, LeafUse.SHARED, healthy=True), key=job.free)
    for leaf in leaves:
        if job.free(leaf) >= missing:
            return (Part(nodes=job.some(leaf, missing), use=LeafUse.SHARED),)
    if job.network.shared_leaves < 2:
        return ()
    for small, large in pairwise(leaf for leaf in leaves if job.free(leaf)):
        if job.free(small) + job.free(large) >= missing:
            rest = missing - job.free(small)
            return (
                Part(nodes=job.some(small, job.free(small)), use=LeafUse.SHARED),
                Part(nodes=job.some(large, rest), use=LeafUse.SHARED),
            )
    return ()


def _crowded(job: Request) -> tuple[Part, ...]:
    """Any nodes, at the price of leaves that more jobs share than should."""
    crowded = _of(job, LeafUse.SHARED, healthy=False)
    others = [
        *_of(job, LeafUse.SHARED, healthy=True),
        *(leaf for leaf in _of(job, LeafUse.EXCLUSIVE) if not _is_taken(job, leaf)),
    ]
    idle = roomiest_first(job, _of(job, LeafUse.IDLE))
    rest = [*roomiest_first(job, crowded), *roomiest_first(job, others)]
    return take(
        job,
        [
            *((leaf, LeafUse.EXCLUSIVE, True) for leaf in idle),
            *((leaf, LeafUse.SHARED, False) for leaf in rest),
        ],
    )


def _is_taken(job: Request, leaf: Leaf) -> bool:
    """Whether a large-model job uses the spine from this leaf."""
    own = {server.node for server in leaf.servers}
    return any(
        tenant.schema is Schema.LARGE_MODEL
        and own & tenant.nodes
        and tenant.nodes - own
        for tenant in job.network.tenants
    )
