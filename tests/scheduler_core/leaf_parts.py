"""Leaves and slots in a word each; nodes are called after leaf and position: b2."""

from collections.abc import Iterable
from typing import Any

from scheduler_core.index.counts import Census, Sites
from scheduler_core.topology import leaf_order
from scheduler_core.topology.leaves import Leaf, Network, Part, Request, Schema, Server

Slots = dict[str, tuple[str, int]]


def leaf_of(name: str, nodes: Iterable[str], **more: Any) -> Leaf:
    """Return a leaf with these nodes, from position 0."""
    servers = tuple(Server(node=node, slice_id=p) for p, node in enumerate(nodes))
    return Leaf(name=name, servers=servers, **more)


def leaf(name: str, width: int = 4, **more: Any) -> Leaf:
    """A leaf with a server at each position."""
    return leaf_of(name, (f"{name}{p}" for p in range(width)), **more)


def nodes(found: tuple[Part, ...] | str) -> list[str]:
    """The nodes by rank, each part as one word; what stands against it as one."""
    if isinstance(found, str):
        return [found]
    return [" ".join(node for _, node in part.nodes) for part in found]


def free(**positions: str) -> Slots:
    """Slots by leaf: `free(a="013")` are a0, a1, a3, all equally good."""
    return {f"{name}{p}": ("", 0) for name, some in positions.items() for p in some}


def request(network: Network, schema: Schema, pods: int, slots: Slots) -> Request:
    """A job that asks for nodes among these slots."""
    census = Census(Sites(network.groups), count=0, able=slots)
    rank = slots.__getitem__
    return Request(network=network, schema=schema, pods=pods, slots=census, rank=rank)


def plan(
    network: Network, schema: Schema, pods: int, slots: Slots
) -> tuple[Part, ...] | str:
    """Choose the nodes of a job among these slots."""
    return leaf_order.decide(request(network, schema, pods, slots))
