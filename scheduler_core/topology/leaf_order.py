"""Choice of leaf switches and of nodes under them for a job.

    spine    ═══╦═══════════╦═══════════╦═══
    leaf        A           B           C
    node      a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3
    position   0  1  2  3  0  1  2  3  0  1  2  3

Traffic is best under one leaf. It is second best where it loads every spine evenly:
on whole leaves, or on nodes at the same positions of several leaves. The latter are
"logical leaves", read by position. This module chooses the nodes under each leaf;
`placement` chooses the chips.

A node is a slot if it can take one pod of the job, whatever else runs on it. In every
order of leaves, equal ones keep the order of the ConfigMap.

Source:
    Node Scoring, "Optimization Principles for Switch Affinity Scheduling"; Affinity
    Scheduling Description, table 2; MindCluster ascend-for-volcano, nslb.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from scheduler_core.index.counts import nth_bit, set_bits
from scheduler_core.node.decision import LeafUse
from scheduler_core.topology import shared_leaves
from scheduler_core.topology.leaves import (
    Part,
    Request,
    Schema,
    Version,
    leaves_by_free_slots,
    smallest_fitting_leaf,
    sort_by_slice,
    take_leaves,
)


def decide(job: Request) -> tuple[Part, ...] | str:
    """Choose the nodes of a job, one for each pod.

    Returns:
        The parts in the order of ranks, or a sentence that says why none fit.

    Cost:
        A few steps for each number of slots that a leaf can have, for each position
        and for each pod, however many leaves there are.
    """
    return _VERSIONS[job.network.version](job)


def _single_layer(job: Request) -> tuple[Part, ...] | str:
    return _one_leaf(job) or job.no_leaf


def _one_leaf(job: Request) -> tuple[Part, ...]:
    """Return the part under the smallest leaf that fits the whole job; () for none."""
    leaf = smallest_fitting_leaf(job, job.fitting)
    return () if leaf is None else (Part(nodes=job.best_nodes(leaf, job.pods)),)


def _version_one(job: Request) -> tuple[Part, ...] | str:
    if job.is_filler:
        return _one_leaf(job) or job.no_leaf
    if job.pods < job.network.width and (part := _one_leaf(job)):
        return part
    leaves = _open_leaves(job)
    parts = leaves and (_whole_leaves(job, leaves) or _logical_leaves(job, leaves))
    if not parts and job.schema is Schema.NORMAL:
        ordered = leaves_by_free_slots(job, leaves)
        parts = take_leaves(job, ((leaf, LeafUse.IDLE, True) for leaf in ordered))
    return parts or _why_uneven(job, leaves)


def _why_uneven(job: Request, leaves: int) -> str:
    """Return why a job of the large-model schema fits nowhere: too few, or uneven.

    Args:
        leaves: Mask of the leaves that the job may use.
    """
    usable = job.count_slots(leaves)
    if usable < job.pods:
        return job.describe_shortage(leaves)
    return (
        f"no {job.pods} of the {usable} nodes under leaf switches that can take a pod "
        "load the spine switches evenly"
    )


def _open_leaves(job: Request) -> int:
    """Return the mask of the leaves with slots that the job may use.

    A leaf from which another job uses the spine is open only to a job that fits under
    it whole. Jobs of the normal schema may share such a leaf with each other.
    """
    crossings = job.network.crossings
    closed = crossings.spine & ~job.fitting
    if job.schema is Schema.NORMAL:
        closed &= crossings.large_model
    return sum(job.slots.levels[1:]) & ~closed


def _split_pods(job: Request) -> tuple[int, int]:
    """Return the leaves that the job fills, and its nodes (1 to width) on one more."""
    whole = (job.pods - 1) // job.network.width
    return whole, job.pods - whole * job.network.width


def _whole_leaves(job: Request, leaves: int) -> tuple[Part, ...]:
    """Return parts on leaves with all nodes free, in ConfigMap order; () if too few."""
    width = job.network.width
    whole, rest = _split_pods(job)
    full = job.slots.levels[width] & leaves
    if full.bit_count() <= whole:
        return ()
    numbers = [*[width] * whole, rest]
    return tuple(
        Part(nodes=job.best_nodes(leaf, number))
        for leaf, number in zip(set_bits(full), numbers, strict=False)
    )


def _logical_leaves(job: Request, leaves: int) -> tuple[Part, ...]:
    """Return parts on nodes at the same positions of several leaves; () if too few.

    Positions with the most slots come first. Logical leaf i has slot i of each
    position that has more than i slots. Slots of a position are counted from the leaf
    with the most slots.
    """
    columns = [column & leaves for column in job.slots.columns]
    columns_by_length = sorted(
        enumerate(columns), key=lambda item: item[1].bit_count(), reverse=True
    )
    lengths = [column.bit_count() for _, column in columns_by_length]
    whole, rest = _split_pods(job)
    if whole == 0 and rest < job.network.width:
        last = lengths[rest - 1] - 1
        if last < 0:
            return ()
        ports = [
            (position, _leaf_at(job, column, last))
            for position, column in columns_by_length[:rest]
        ]
        return (_part(job, ports),)
    if lengths[-1] < whole or lengths[rest - 1] <= whole:
        return ()
    leaves_of_position = [
        (position, list(islice(leaves_by_free_slots(job, column), whole + 1)))
        for position, column in columns_by_length
    ]
    numbers = [*[job.network.width] * whole, rest]
    return tuple(
        _part(
            job,
            [
                (position, ordered[index])
                for position, ordered in leaves_of_position[:number]
            ],
        )
        for index, number in enumerate(numbers)
    )


def _leaf_at(job: Request, leaves: int, index: int) -> int:
    """Return the leaf at `index` in the order of `leaves_by_free_slots`."""
    for level in job.slots.levels[::-1]:
        leaves_of_level = level & leaves
        if index < leaves_of_level.bit_count():
            return nth_bit(leaves_of_level, index)
        index -= leaves_of_level.bit_count()
    raise IndexError(index)


def _part(job: Request, ports: Iterable[tuple[int, int]]) -> Part:
    """Return the part with the servers at these (position, leaf number) ports."""
    leaf_ports = ((job.network.leaves[leaf], position) for position, leaf in ports)
    return Part(
        nodes=sort_by_slice(
            (leaf.name, leaf.servers[position]) for leaf, position in leaf_ports
        )
    )


_VERSIONS: dict[Version, Callable[[Request], tuple[Part, ...] | str]] = {
    Version.ONE: _version_one,
    Version.TWO: shared_leaves.plan,
    Version.SINGLE_LAYER: _single_layer,
}
