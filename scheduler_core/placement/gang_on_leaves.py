"""Where all pods of a job go that asks for switch affinity, or none of them.

The switches decide how many nodes of which leaf (`leaf_order.py`); which of them, where
that is left open, and which chips of each node, is decided as for any pod.
"""

from collections.abc import Sequence
from functools import partial

from scheduler_core.node import chips
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement.gang import Member, Question, ranked
from scheduler_core.placement.pod import placement
from scheduler_core.topology import leaf_order
from scheduler_core.topology.leaves import Network, Part, Request, Schema

#: said of nodes that could take a pod of the job
_ELSEWHERE = "can take a pod, but its leaf switch does not suit the job"


def plan(
    question: Question, members: Sequence[Member], network: Network, schema: Schema
) -> JobPlacement | Rejection:
    """Place all members of a job under leaves, each on a node of its own.

    Args:
        question: What is wanted, and of which nodes.
        members: The pods, each once; at least one.
        network: The leaves, and what runs under them.
        schema: What the job asks of the switches.

    Returns:
        A place for each pod, by rank, with its leaf; or why there is none.
    """
    size = max(member.chips for member in members)
    parts = leaf_order.decide(
        Request(
            network=network,
            schema=schema,
            pods=len(members),
            slots=question.census(network.groups, size),
            rank=partial(question.rank, size),
        )
    )
    if isinstance(parts, str):
        return Rejection(job=parts, reasons=question.reasons(size, _ELSEWHERE))
    ports = [(part, leaf, node) for part in parts for leaf, node in part.nodes]
    return JobPlacement(
        pods=tuple(
            [
                _place(question, (node, leaf, part), (rank, member))
                for (rank, member), (part, leaf, node) in zip(
                    ranked(members), ports, strict=True
                )
            ]
        )
    )


def _place(
    question: Question, port: tuple[str, str, Part], pod: tuple[int, Member]
) -> Placement:
    name, leaf, part = port
    rank, member = pod
    node = question.nodes[name]
    row = question.row(node)
    free = node.free_for(row)
    chosen = chips.choose(row, free, member.chips)
    place = placement(row, node, free, chosen, pod=member.name, rank=rank)
    return place._replace(
        leaf=leaf,
        leaf_use=part.use,
        leaf_healthy=part.healthy,
        reason=f"{place.reason}, under leaf switch {leaf}",
    )
