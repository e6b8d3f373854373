"""Placement of one pod with its reason, or the reasons of the nodes against it.

The functions change nothing: the caller puts the node's new state into the index.
"""

from collections.abc import Container, Iterable
from functools import lru_cache

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement, Rejection, describe_choice
from scheduler_core.node.state import NodeState
from scheduler_core.products.columns import Product

__all__ = ["Placement", "Rejection", "place", "placement"]


def place(
    wanted: Product | str,
    count: int,
    cluster: NodeIndex,
    *,
    names: Iterable[str] | None = None,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> Placement | Rejection:
    """Choose a node for one pod, and chips of that node.

    The node is the first by the order of its row, then by name.
    The chips are those that the row prefers.

    Args:
        wanted: Resource that the pod asks for, of which each node serves by its own
            row; or the row that the pod's job means (`lookup.resolve_job`).
        count: Chips that the whole pod occupies.
        cluster: Nodes; not changed.
        names: Candidate nodes, each once, in any order; None is all.
        avoid: Nodes to leave out; one that could serve counts as a conflict.
        in_network: Whether the pod's job has several pods (`columns.distributed`).

    Returns:
        Node and chips, or the reasons with counts that add up to all candidate nodes.

    Cost:
        Without `names` a few microseconds, whatever the size of the cluster; with
        `names`, a look-up for each.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification";
        Node Scoring, "Common Node Selection Principle".
    """
    if names is not None:
        names = tuple(names)
    best = cluster.best(wanted, count, names=names, avoid=avoid, in_network=in_network)
    if best is None:
        reasons = cluster.refusals(wanted, count, names=names, in_network=in_network)
        return Rejection(reasons=reasons)
    node, row = best.node, best.row
    free = node.free_for(row)
    chosen = chips.choose(row, free, count)
    return placement(row, node, free, chosen)


def placement(
    row: Product,
    node: NodeState,
    free: int,
    chosen: int,
    *,
    pod: str = "",
    rank: int = 0,
) -> Placement:
    """Return the placement of a pod on `chosen`, with the reason for these chips.

    Args:
        row: Row by which the node serves.
        node: Node; its own free chips are not read, since a job may have begun to
            fill it.
        free: Mask of the chips that could be given.
        chosen: Mask of the chips that are given.
        pod: Name of the pod, for a pod of a job.
        rank: Number of the pod in its job.
    """
    chip_ids, reason = _describe(row, free, chosen, node.healthy, node.inventory)
    return Placement(node=node.name, chips=chip_ids, reason=reason, pod=pod, rank=rank)


# The nodes of a large job are mostly alike.
@lru_cache(maxsize=1 << 14)
def _describe(
    row: Product, free: int, chosen: int, healthy: int, inventory: int
) -> tuple[tuple[int, ...], str]:
    """Return the chosen chips, and the reason for them."""
    # A chip that is not there is missing only where a whole server is expected.
    chip_count = row.chip_count if row.capacity_staged else inventory.bit_count()
    reason = describe_choice(row, free, chosen, healthy.bit_count(), chip_count)
    return chips.ids_of(chosen), reason
