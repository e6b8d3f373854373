"""Places for all pods of a job that asks for switch affinity, or for none of them.

`topology/leaf_order.py` decides how many nodes of each leaf switch the job gets.
Nodes within a leaf and chips within a node are chosen as for any other pod.
"""

from collections.abc import Sequence
from functools import partial

from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement.gang_query import Member, NodeQuery, assign_ranks
from scheduler_core.topology import joined_leaves, leaf_order
from scheduler_core.topology.joined_leaves import Running
from scheduler_core.topology.leaves import Network, Part, Request, Schema

#: refusal texts of nodes that could take a pod of the job
_UNSUITABLE = "can take a pod, but its leaf switch does not suit the job"
_UNKNOWN = "can take a pod, but its leaf switch is not known"


def plan(
    query: NodeQuery,
    members: Sequence[Member],
    network: Network,
    schema: Schema,
    running: Running | None = None,
) -> JobPlacement | Rejection:
    """Place all members of a job under leaf switches, each on a separate node.

    Args:
        query: Resource or row of the job, and the candidate nodes.
        members: Pods, each once; at least one.
        network: Leaf switches, and the jobs under them.
        schema: Switch affinity of the job.
        running: Other pods of the job, which run; None if there are none. The query has
            none of their nodes.

    Returns:
        A place for each pod with its leaf, ordered by rank; or why the job does not
        fit.
    """
    size = max(member.chips for member in members)
    slots = query.census(network.groups, size)
    request = Request(
        network=network,
        schema=schema,
        pods=len(members),
        slots=slots,
        rank=partial(query.rank, size),
    )
    parts = (
        leaf_order.decide(request)
        if running is None
        else joined_leaves.decide(request, running)
    )
    if isinstance(parts, str):
        reasons = query.reasons_with_unknown(size, slots.total, _UNSUITABLE, _UNKNOWN)
        return Rejection(job=parts, reasons=reasons)
    nodes = [(part, leaf, node) for part in parts for leaf, node in part.nodes]
    return JobPlacement(
        pods=tuple(
            [
                _place(query, (node, leaf, part), (rank, member))
                for (rank, member), (part, leaf, node) in zip(
                    assign_ranks(members), nodes, strict=True
                )
            ]
        )
    )


def _place(
    query: NodeQuery, slot: tuple[str, str, Part], pod: tuple[int, Member]
) -> Placement:
    name, leaf, part = slot
    rank, member = pod
    place = query.place(name, member, rank)
    return place._replace(
        leaf=leaf,
        leaf_use=part.use,
        leaf_healthy=part.healthy,
        reason=f"{place.reason}, under leaf switch {leaf}",
    )
