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

from collections.abc import Callable, Mapping, Sequence

from scheduler_core import shared_leaves
from scheduler_core.answers import LeafUse
from scheduler_core.leaves import (
    Leaf,
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
        The parts in the order of ranks, or why there is no place in a sentence.

    Cost:
        A few steps for each leaf and slot.
    """
    job = Request(network=network, schema=schema, pods=pods, slots=slots)
    return _VERSIONS[network.version](job)


def _single_layer(job: Request) -> tuple[Part, ...] | str:
    leaf = smallest(job, _open_leaves(job))
    if leaf is None:
        return f"no leaf switch has {job.pods} nodes that can take a pod"
    return (Part(nodes=job.some(leaf, job.pods)),)


def _version_one(job: Request) -> tuple[Part, ...] | str:
    leaves = roomiest_first(job, _open_leaves(job))
    width = job.network.width
    if job.pods < width or job.is_filler:
        leaf = smallest(job, leaves)
        if leaf is not None:
            return (Part(nodes=job.some(leaf, job.pods)),)
    if job.is_filler:
        return f"no leaf switch has {job.pods} nodes that can take a pod"
    found = _whole_leaves(job, leaves) or _logical_leaves(job, leaves)
    if not found and job.schema is Schema.NORMAL:
        found = _anywhere(job, leaves)
    return found or (
        f"no {job.pods} nodes that load the spine switches evenly can take a pod"
    )


def _open_leaves(job: Request) -> list[Leaf]:
    """Leaves that the job may use.

    Under one from which another job uses the spine only a job that fits under it
    whole; but jobs of the normal schema go together.
    """
    return [leaf for leaf in job.network.leaves if _is_open(job, leaf)]


def _is_open(job: Request, leaf: Leaf) -> bool:
    own = {server.node for server in leaf.servers}
    here = [tenant for tenant in job.network.tenants if own & tenant.nodes]
    if all(tenant.nodes <= own for tenant in here) or job.free(leaf) >= job.pods:
        return True
    schemas = {job.schema, *(tenant.schema for tenant in here)}
    return schemas == {Schema.NORMAL}


def _rows_and_rest(job: Request) -> tuple[int, int]:
    """Whole leaves that the job fills, and nodes of one more: 1 to a whole leaf."""
    whole = (job.pods - 1) // job.network.width
    return whole, job.pods - whole * job.network.width


def _whole_leaves(job: Request, leaves: Sequence[Leaf]) -> tuple[Part, ...]:
    """Leaves with all nodes free from the beginning, the rest on the next of them."""
    width = job.network.width
    whole, rest = _rows_and_rest(job)
    full = [leaf for leaf in leaves if job.free(leaf) == width]
    if len(full) <= whole:
        return ()
    numbers = [*[width] * whole, rest]
    return tuple(
        Part(nodes=job.some(leaf, number))
        for leaf, number in zip(full, numbers, strict=False)
    )


def _logical_leaves(job: Request, leaves: Sequence[Leaf]) -> tuple[Part, ...]:
    """As whole leaves, but of nodes at the same positions of several leaves.

    The positions with the most slots come first; logical leaf i has the i-th slot of
    each position that has so many.
    """
    columns = sorted(
        (
            [
                (leaf.name, leaf.servers[position])
                for leaf in leaves
                if position < len(leaf.servers)
                and leaf.servers[position].node in job.slots
            ]
            for position in range(job.network.width)
        ),
        key=len,
        reverse=True,
    )
    logical = [
        [column[index] for column in columns if len(column) > index]
        for index in range(len(columns[0]) if columns else 0)
    ]
    whole, rest = _rows_and_rest(job)
    if whole == 0 and rest < job.network.width:
        fitting = [some for some in logical if len(some) >= rest]
        return (Part(nodes=in_order(fitting[-1][:rest])),) if fitting else ()
    numbers = [*[job.network.width] * whole, rest]
    if len(logical) < len(numbers) or any(
        len(some) < number for some, number in zip(logical, numbers, strict=False)
    ):
        return ()
    return tuple(
        Part(nodes=in_order(some[:number]))
        for some, number in zip(logical, numbers, strict=False)
    )


def _anywhere(job: Request, leaves: Sequence[Leaf]) -> tuple[Part, ...]:
    return take(job, [(leaf, LeafUse.IDLE, True) for leaf in leaves])


_VERSIONS: dict[Version, Callable[[Request], tuple[Part, ...] | str]] = {
    Version.ONE: _version_one,
    Version.TWO: shared_leaves.plan,
    Version.SINGLE_LAYER: _single_layer,
}
