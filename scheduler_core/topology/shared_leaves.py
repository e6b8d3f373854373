"""Choice of leaves under switch affinity 2.0, where leaves have a use.

A leaf is idle, shared or exclusive. A job that uses the spine makes the leaves that
it fills exclusive. It may share a limited number of other leaves with such jobs. A
leaf with too many of them is unhealthy, and later jobs avoid it.

Source:
    As `leaf_order.py`; shared leaves only after the idle ones.
"""

from itertools import pairwise

from scheduler_core.index.counts import set_bits
from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import (
    Part,
    Request,
    Schema,
    leaves_by_free_slots,
    smallest_fitting_leaf,
    take_leaves,
)


def plan(job: Request) -> tuple[Part, ...] | str:
    """Return the parts of a job in the order of ranks, or why none fit.

    Cost:
        A step for each leaf, to see what others make of it.
    """
    if job.pods < job.network.width or job.is_filler:
        for use, healthy in _UNDER_ONE:
            number = smallest_fitting_leaf(job, _leaves_with(job, use, healthy=healthy))
            if number is not None:
                nodes, leaf = (
                    job.best_nodes(number, job.pods),
                    job.network.leaves[number],
                )
                return (Part(nodes=nodes, use=leaf.use, healthy=leaf.healthy),)
    if job.is_filler:
        return job.no_leaf
    return cross_spine(job, job.network.shared_leaves)


def cross_spine(job: Request, shared: int) -> tuple[Part, ...] | str:
    """Return the parts of a job that uses the spine, or why none fit.

    Args:
        job: The job, or the pods of a job that get other leaves than the rest.
        shared: Number of leaves that it may share with other jobs.
    """
    parts = _exclusive(job, shared)
    if job.schema is Schema.NORMAL:
        return parts or _crowded(job) or job.describe_shortage(_open_leaves(job))
    return parts or _describe_idle_and_shared(job, shared)


def _describe_idle_and_shared(job: Request, most: int) -> str:
    """Return how many nodes a job of the large-model schema finds at most.

    Args:
        most: Number of leaves that it may share with other jobs.
    """
    idle = job.count_slots(_leaves_with(job, LeafUse.IDLE))
    leaves = set_bits(_leaves_with(job, LeafUse.SHARED, healthy=True))
    count = min(most, 2)
    shared = sorted(map(job.free_slots, leaves), reverse=True)[:count]
    return (
        f"fewer than {job.pods} nodes under idle leaf switches and {count} shared ones "
        f"can take a pod: {idle} and {sum(shared)}"
    )


#: (use, whether healthy; None is either) of leaves to try for a job that fits under one
_UNDER_ONE = (
    (LeafUse.EXCLUSIVE, None),
    (LeafUse.SHARED, False),
    (LeafUse.SHARED, True),
    (LeafUse.IDLE, None),
)


def _leaves_with(job: Request, use: LeafUse, *, healthy: bool | None = None) -> int:
    """Return the mask of the leaves with a use, and with this health if not None."""
    return sum(
        1 << number
        for number, leaf in enumerate(job.network.leaves)
        if leaf.use is use and healthy in (None, leaf.healthy)
    )


def _exclusive(job: Request, most: int) -> tuple[Part, ...]:
    """Return parts that fill idle leaves, with the rest on shared or one idle leaf.

    Shared leaves, up to `most`, come before the additional idle one. () when the job
    does not fit.
    """
    missing = job.pods
    parts: list[Part] = []
    last: int | None = None
    for leaf in leaves_by_free_slots(job, _leaves_with(job, LeafUse.IDLE)):
        number = job.free_slots(leaf)
        if missing >= number:
            nodes = job.best_nodes(leaf, number)
            parts.append(Part(nodes=nodes, use=LeafUse.EXCLUSIVE))
            missing -= number
        elif last is None:
            last = leaf
        if not missing:
            return tuple(parts)
    shared = _shared(job, missing, most)
    is_left = most and last is not None and job.free_slots(last) >= missing
    if not shared and is_left and last is not None:
        shared = (Part(nodes=job.best_nodes(last, missing), use=LeafUse.SHARED),)
    return (*parts, *shared) if shared else ()


def _shared(job: Request, missing: int, most: int) -> tuple[Part, ...]:
    """Return parts of `missing` nodes under one or two healthy shared leaves, or ().

    At most two, and not more than `most`. The smallest sufficient leaf serves, or pair
    of leaves adjacent by size.
    """
    shared = _leaves_with(job, LeafUse.SHARED, healthy=True)
    leaves = [
        leaf for level in job.slots.levels[1:] for leaf in set_bits(level & shared)
    ]
    for leaf in leaves if most else ():
        if job.free_slots(leaf) >= missing:
            return (Part(nodes=job.best_nodes(leaf, missing), use=LeafUse.SHARED),)
    if most < 2:
        return ()
    for small, large in pairwise(leaves):
        if job.free_slots(small) + job.free_slots(large) >= missing:
            first = job.free_slots(small)
            counts = ((small, first), (large, missing - first))
            return tuple(
                Part(nodes=job.best_nodes(leaf, count), use=LeafUse.SHARED)
                for leaf, count in counts
            )
    return ()


def _open_leaves(job: Request) -> int:
    """Return the mask of the leaves that a job of the normal schema may use.

    A leaf from which a large-model job uses the spine stays exclusive.
    """
    exclusive = _leaves_with(job, LeafUse.EXCLUSIVE)
    return (
        _leaves_with(job, LeafUse.IDLE)
        | _leaves_with(job, LeafUse.SHARED)
        | (exclusive & ~job.network.crossings.large_model_spine)
    )


def _crowded(job: Request) -> tuple[Part, ...]:
    """Return parts on any open leaves, even if too many jobs share them then."""
    idle = _leaves_with(job, LeafUse.IDLE)
    crowded = _leaves_with(job, LeafUse.SHARED, healthy=False)
    others = _open_leaves(job) & ~idle & ~crowded
    shared = others & _leaves_with(job, LeafUse.SHARED)
    rest = (
        *leaves_by_free_slots(job, crowded),
        *leaves_by_free_slots(job, shared, others & ~shared),
    )
    return take_leaves(
        job,
        [
            *(
                (leaf, LeafUse.EXCLUSIVE, True)
                for leaf in leaves_by_free_slots(job, idle)
            ),
            *((leaf, LeafUse.SHARED, False) for leaf in rest),
        ],
    )
