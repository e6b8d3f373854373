"""Where one pod goes, and why; or why it can go nowhere, with counts.

A function of its arguments: it changes nothing, and asked twice it answers twice the
same. Whoever acts on the answer puts the node's new state into the index.
"""

from collections.abc import Container, Iterable

from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement, Rejection, sentence
from scheduler_core.node.state import NodeState
from scheduler_core.products.columns import Product

__all__ = ["Placement", "Rejection", "place", "placement"]


def place(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    *,
    names: Iterable[str] | None = None,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> Placement | Rejection:
    """Choose a node for one pod, and chips of it.

    The node that comes first by the order of its row, then by name; of it the chips
    that the row prefers.

    Args:
        wanted: The resource that the pod asks for, and each node serves by its own
            row; or the row that the pod's job means (`lookup.wanted`).
        count: Chips that the whole pod occupies.
        cluster: The nodes; not changed.
        names: Only these nodes, each once, in any order; None is all.
        avoid: Not these nodes; one that could serve counts as a conflict.
        in_network: Whether the pod's job has several pods (`columns.distributed`).

    Returns:
        Node and chips, or the reasons; their counts add up to the nodes looked at.

    Cost:
        Without `names` a few microseconds, whatever the size of the cluster; with
        them, a look-up for each.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification";
        Node Scoring, "Common Node Selection Principle".
    """
    if names is not None:
        names = tuple(names)
    found = cluster.best(wanted, count, names=names, avoid=avoid, in_network=in_network)
    if found is None:
        reasons = cluster.refusals(wanted, count, names=names, in_network=in_network)
        return Rejection(reasons=reasons)
    node, row = found.node, found.row
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
    """The answer that gives `chosen` of the chips that are `free`.

    Args:
        row: By whose rule.
        node: The node; what is free on it is said apart, since a job may have begun
            to fill it.
        free: Mask of the chips that could be given.
        chosen: Mask of those that are.
        pod: Which pod of its job.
        rank: The pod's number in its job.
    """
    # A chip that is not there is missing only where a whole server is expected.
    of = row.chip_count if row.capacity_staged else node.inventory.bit_count()
    return Placement(
        node=node.name,
        chips=chips.ids_of(chosen),
        reason=sentence(row, free, chosen, node.healthy.bit_count(), of),
        pod=pod,
        rank=rank,
    )
