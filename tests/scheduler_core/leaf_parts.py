"""Leaves and slots in a word each; nodes are called after leaf and position: b2."""

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import Leaf, Server

Slots = dict[str, tuple[str, int]]


def leaf(
    name: str,
    width: int = 4,
    *,
    use: LeafUse = LeafUse.IDLE,
    healthy: bool = True,
) -> Leaf:
    """A leaf with a server at each position."""
    servers = tuple(Server(node=f"{name}{p}", slice_id=p) for p in range(width))
    return Leaf(name=name, servers=servers, use=use, healthy=healthy)


def free(**positions: str) -> Slots:
    """Slots by leaf: `free(a="013")` are a0, a1, a3, all equally good."""
    return {f"{name}{p}": ("", 0) for name, some in positions.items() for p in some}
