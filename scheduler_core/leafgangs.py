"""Where all pods of a job go that asks for switch affinity, or none of them.

The switches decide how many nodes of which leaf (`switches.py`); which of them, where
that is left open, and which chips of each node, is decided as for any pod.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduler_core import chips, switches
from scheduler_core.answers import JobPlacement, Placement, Rejection
from scheduler_core.cluster import Cluster
from scheduler_core.gangs import Member, ranked
from scheduler_core.leaves import Network, Part, Schema
from scheduler_core.placement import placement
from scheduler_core.reasons import Reason, text_of
from scheduler_core.rows import Product

#: said of nodes that could take a pod of the job
_ELSEWHERE = "can take a pod, but its leaf switch does not suit the job"
_CONFLICT = text_of(Reason.CONFLICT)


def plan(
    wanted: Product | str,
    members: Sequence[Member],
    cluster: Cluster,
    network: Network,
    schema: Schema,
    *,
    names: Iterable[str] | None = None,
) -> JobPlacement | Rejection:
    """Place all members of a job under leaves, each on a node of its own.

    Args:
        wanted: The resource, or the row that the job means (`finding.wanted`).
        members: The pods, each once; at least one.
        cluster: The nodes; not changed.
        network: The leaves, and what runs under them.
        schema: What the job asks of the switches.
        names: Only these nodes, each once, in any order; None is all.

    Returns:
        A place for each pod, by rank, with its leaf; or why there is none.
    """
    asked = None if names is None else tuple(names)
    in_network = len(members) > 1
    size = max(member.chips for member in members)
    rows: dict[str, Product] = {}
    slots: dict[str, tuple[str, int]] = {}
    for row, rank, name in cluster.ranked(
        wanted, size, names=asked, in_network=in_network
    ):
        rows[name], slots[name] = row, (row.key, rank)
    parts = switches.plan(network, schema, len(members), slots)
    if isinstance(parts, str):
        said = cluster.refusals(wanted, size, names=asked, in_network=in_network)
        renamed = [(_ELSEWHERE if t == _CONFLICT else t, nodes) for t, nodes in said]
        reasons = tuple(sorted(renamed, key=lambda item: (-item[1], item[0])))
        return Rejection(job=parts, reasons=reasons)
    ports = [(part, leaf, node) for part in parts for leaf, node in part.nodes]
    return JobPlacement(
        pods=tuple(
            _place(rows[node], cluster, (node, leaf, part), (rank, member))
            for (rank, member), (part, leaf, node) in zip(
                ranked(members), ports, strict=True
            )
        )
    )


def _place(
    row: Product,
    cluster: Cluster,
    port: tuple[str, str, Part],
    pod: tuple[int, Member],
) -> Placement:
    name, leaf, part = port
    rank, member = pod
    node = cluster.get(name)
    if node is None:
        raise KeyError(name)
    free = node.free & node.usable(row)
    chosen = chips.choose(row, free, member.chips)
    place = placement(row, node, free, chosen, pod=member.name, rank=rank)
    return replace(
        place,
        leaf=leaf,
        leaf_use=part.use,
        leaf_healthy=part.healthy,
        reason=f"{place.reason}, under leaf switch {leaf}",
    )
