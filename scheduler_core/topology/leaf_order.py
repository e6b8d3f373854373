"""Which nodes a job gets where nodes hang on leaf switches.

    spine    ═══╦═══════════╦═══════════╦═══
    leaf        A           B           C
    node      a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3
    position   0  1  2  3  0  1  2  3  0  1  2  3

Traffic is best under one leaf, and next best where it loads every spine evenly: whole
leaves, or nodes at the same positions of several ("logical leaves", read by position
instead of by leaf). Here is decided how many nodes of which leaf, and which of them;
what chips each pod gets there is not.

A node is a slot if it can take one pod of the job, whatever else runs on it. In every
order of leaves, equal ones keep the order of the ConfigMap.

Source:
    Node Scoring, "Optimization Principles for Switch Affinity Scheduling"; Affinity
    Scheduling Description, table 2; MindCluster ascend-for-volcano, nslb.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from scheduler_core.index.counts import Census, Sites, nth, ones
from scheduler_core.node.decision import LeafUse
from scheduler_core.topology import shared_leaves
from scheduler_core.topology.leaves import (
    Network,
    Part,
    Request,
    Schema,
    Version,
    in_order,
    roomiest_first,
    smallest,
    take,
)


def plan(
    network: Network, schema: Schema, pods: int, slots: Mapping[str, tuple[str, int]]
) -> tuple[Part, ...] | str:
    """Choose the nodes of a job, one for each pod.

    Args:
        network: The leaves, and what runs under them.
        schema: What the job asks for.
        pods: How many it has, 1 or more.
        slots: {node that can take one pod: how good it is, smaller is better}. It
            decides only between nodes that the switches leave equal.

    Returns:
        As `decide`.

    Cost:
        A few steps for each leaf and slot.
    """
    census = Census(Sites(network.groups), count=0, able=slots)
    return decide(
        Request(
            network=network,
            schema=schema,
            pods=pods,
            slots=census,
            rank=slots.__getitem__,
        )
    )


def decide(job: Request) -> tuple[Part, ...] | str:
    """Choose the nodes of a job, one for each pod.

    Returns:
        The parts in the order of ranks, or why there is no place in a sentence.

    Cost:
        A few steps for each number of slots that a leaf can have, for each position
        and for each pod, however many leaves there are.
    """
    return _VERSIONS[job.network.version](job)


def _single_layer(job: Request) -> tuple[Part, ...] | str:
    leaf = smallest(job, job.fitting)
    if leaf is None:
        return f"no leaf switch has {job.pods} nodes that can take a pod"
    return (Part(nodes=job.some(leaf, job.pods)),)


def _version_one(job: Request) -> tuple[Part, ...] | str:
    if job.pods < job.network.width or job.is_filler:
        leaf = smallest(job, job.fitting)
        if leaf is not None:
            return (Part(nodes=job.some(leaf, job.pods)),)
    if job.is_filler:
        return f"no leaf switch has {job.pods} nodes that can take a pod"
    leaves = _open_leaves(job)
    found = leaves and (_whole_leaves(job, leaves) or _logical_leaves(job, leaves))
    if not found and job.schema is Schema.NORMAL:
        each = roomiest_first(job, leaves)
        found = take(job, ((leaf, LeafUse.IDLE, True) for leaf in each))
    return found or (
        f"no {job.pods} nodes that load the spine switches evenly can take a pod"
    )


def _open_leaves(job: Request) -> int:
    """Leaves with slots that the job may use.

    Under one from which another job uses the spine only a job that fits under it
    whole; but jobs of the normal schema go together.
    """
    there = job.network.crossings
    closed = there.spanned & ~job.fitting
    if job.schema is Schema.NORMAL:
        closed &= there.large
    return sum(job.slots.levels[1:]) & ~closed


def _rows_and_rest(job: Request) -> tuple[int, int]:
    """Whole leaves that the job fills, and nodes of one more: 1 to a whole leaf."""
    whole = (job.pods - 1) // job.network.width
    return whole, job.pods - whole * job.network.width


def _whole_leaves(job: Request, leaves: int) -> tuple[Part, ...]:
    """Leaves with all nodes free from the beginning, the rest on the next of them."""
    width = job.network.width
    whole, rest = _rows_and_rest(job)
    full = job.slots.levels[width] & leaves
    if full.bit_count() <= whole:
        return ()
    numbers = [*[width] * whole, rest]
    return tuple(
        Part(nodes=job.some(leaf, number))
        for leaf, number in zip(ones(full), numbers, strict=False)
    )


def _logical_leaves(job: Request, leaves: int) -> tuple[Part, ...]:
    """As whole leaves, but of nodes at the same positions of several leaves.

    The positions with the most slots come first; logical leaf i has the i-th slot of
    each position that has so many, counted from the leaf with the most slots.
    """
    columns = [column & leaves for column in job.slots.columns]
    columns_by_length = sorted(
        enumerate(columns), key=lambda item: item[1].bit_count(), reverse=True
    )
    lengths = [column.bit_count() for _, column in columns_by_length]
    whole, rest = _rows_and_rest(job)
    if whole == 0 and rest < job.network.width:
        last = lengths[rest - 1] - 1
        if last < 0:
            return ()
        some = columns_by_length[:rest]
        return (_part(job, [(at, _roomiest(job, each, last)) for at, each in some]),)
    if lengths[-1] < whole or lengths[rest - 1] <= whole:
        return ()
    first = [
        (position, list(islice(roomiest_first(job, column), whole + 1)))
        for position, column in columns_by_length
    ]
    numbers = [*[job.network.width] * whole, rest]
    return tuple(
        _part(job, [(position, some[index]) for position, some in first[:number]])
        for index, number in enumerate(numbers)
    )


def _roomiest(job: Request, leaves: int, index: int) -> int:
    """The leaf that has `index` others before it in the order of `roomiest_first`."""
    for level in job.slots.levels[::-1]:
        here = level & leaves
        if index < here.bit_count():
            return nth(here, index)
        index -= here.bit_count()
    raise IndexError(index)


def _part(job: Request, ports: Iterable[tuple[int, int]]) -> Part:
    """The servers at these positions of these leaves."""
    some = ((job.network.leaves[leaf], position) for position, leaf in ports)
    return Part(
        nodes=in_order((leaf.name, leaf.servers[position]) for leaf, position in some)
    )


_VERSIONS: dict[Version, Callable[[Request], tuple[Part, ...] | str]] = {
    Version.ONE: _version_one,
    Version.TWO: shared_leaves.plan,
    Version.SINGLE_LAYER: _single_layer,
}
