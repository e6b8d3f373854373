"""How much free room lies in pieces too small for what they could have served.

Defined once, here, over a node's free chips:

* A group (ring, card, module, mesh) adds one for each legal count that would lie inside
  it and that it cannot serve although it is not empty. An Atlas 800's ring with 0 to 4
  free chips: 0, 2, 1, 1, 0. Of products whose groups do not matter nothing is added.
* A node adds one if it is neither empty nor whole.

On one node `chips.choose` leaves the least that legal and equally close choices can.
Which node is not decided by it: the order of nodes comes first, and `excess` says what
that costs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product

#: answers that are remembered
_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """What a decision adds, beside what another node would have added."""

    #: by the node that the order of nodes prefers; below 0 it takes away
    added: int
    #: by the node that adds the least
    least: int
    #: the first of those by the order of nodes
    node: str

    @property
    def amount(self) -> int:
        """How much more than the least; 0 is no worse."""
        return self.added - self.least


@lru_cache(maxsize=_REMEMBERED)
def of_chips(product: Product, free: int, inventory: int) -> int:
    """The fragmentation of one node.

    Args:
        product: The row of its hardware.
        free: Mask of its free chips.
        inventory: Mask of all chips that it has: a whole node has all of them free, so
            one with a chip that is not healthy is never whole.
    """
    node = int(free not in {0, inventory})
    if not product.group_loss:
        return node
    parts = ((free & group).bit_count() for group in product.groups)
    return node + sum(map(product.group_loss.__getitem__, parts))


def of_node(node: NodeState) -> int:
    """The fragmentation of one node as it is."""
    return of_chips(node.product, node.free, node.inventory)


def added(node: NodeState, chosen: int) -> int:
    """What giving these of its free chips adds to a node's fragmentation.

    Args:
        node: As it is before.
        chosen: Mask of chips, all of them free.
    """
    after = of_chips(node.product, node.free & ~chosen, node.inventory)
    return after - of_node(node)


@lru_cache(maxsize=_REMEMBERED)
def room(row: Product, free: int, count: int) -> int:
    """How many pods of `count` chips these free chips can take, one after the other."""
    pods = 0
    while chosen := chips.choose(row, free, count):
        free &= ~chosen
        pods += 1
    return pods


def stranded(count: int, nodes: Iterable[NodeState]) -> int:
    """Free chips that pods of `count` could not use, each served by its node's own row.

    The free chips, without `count` for each such pod that could be placed: all of them
    on a node that is barred or never gives so many.

    Args:
        count: Chips of a pod, 1 or more.
        nodes: In any order.
    """
    return sum(
        node.free.bit_count()
        - (0 if node.barred else count * room(node.product, node.free, count))
        for node in nodes
    )


def excess(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    *,
    names: Iterable[str] | None = None,
    in_network: bool = False,
) -> Excess | None:
    """What the node that `pod.place` takes adds, beside the least of all nodes.

    Each node with the chips that it would give. Arguments as for `pod.place`.

    Returns:
        None when no node can serve.

    Cost:
        A few steps for each node that can.
    """
    ours = least = None
    where = ""
    for row, _, name in cluster.ranked(
        wanted, count, names=names, in_network=in_network
    ):
        node = cluster.line(row)[name]
        here = added(node, chips.choose(row, node.free_for(row), count))
        if ours is None:
            ours = here
        if least is None or here < least:
            least, where = here, name
    if ours is None or least is None:
        return None
    return Excess(added=ours, least=least, node=where)
