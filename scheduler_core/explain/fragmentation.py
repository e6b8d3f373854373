"""Fragmentation: free chips in pieces too small for the pods that they could serve.

This is the one definition, over the free chips of a node:

* A group is a ring, card, module or mesh. A group with free chips adds one for each
  legal count that would lie inside the group and does not fit. A ring of an Atlas 800
  with 0 to 4 free chips adds 0, 2, 1, 1, 0. Groups that do not matter add nothing.
* A node adds one if it is neither empty nor whole.

On one node `chips.choose` leaves the least fragmentation of all equally close choices.
The choice of the node does not depend on it.
"""

from collections.abc import Iterable
from functools import lru_cache

from scheduler_core.node import chips
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product

#: number of cached answers of each function
_CACHED_ANSWERS = 1 << 16


@lru_cache(maxsize=_CACHED_ANSWERS)
def measure_chips(product: Product, free: int, inventory: int) -> int:
    """Return the fragmentation of one node.

    Args:
        product: Row of the node's hardware.
        free: Mask of the free chips.
        inventory: Mask of all chips of the node. A whole node has all of them free, so
            a node with an unhealthy chip is never whole.
    """
    partly_used = int(free not in {0, inventory})
    if not product.group_loss:
        return partly_used
    free_by_group = ((free & group).bit_count() for group in product.groups)
    return partly_used + sum(map(product.group_loss.__getitem__, free_by_group))


def measure_node(node: NodeState) -> int:
    """Return the present fragmentation of one node."""
    return measure_chips(node.product, node.free, node.inventory)


def measure_added(node: NodeState, chosen: int) -> int:
    """Return the fragmentation that giving `chosen` adds to a node; may be negative.

    Args:
        node: State before the chips are given.
        chosen: Mask of chips, all of them free.
    """
    fragmentation_after = measure_chips(
        node.product, node.free & ~chosen, node.inventory
    )
    return fragmentation_after - measure_node(node)


@lru_cache(maxsize=_CACHED_ANSWERS)
def count_fitting_pods(row: Product, free: int, count: int) -> int:
    """Return how many pods of `count` chips fit on free chips, one after the other."""
    pods = 0
    while chosen := chips.choose(row, free, count):
        free &= ~chosen
        pods += 1
    return pods


def count_stranded(count: int, nodes: Iterable[NodeState]) -> int:
    """Return the number of free chips that pods of `count` chips could not use.

    These are the free chips without `count` for each such pod that fits by the node's
    row. On a barred node, or one that never gives `count` chips, they are all.

    Args:
        count: Chips of a pod, at least 1.
        nodes: Nodes in any order.
    """
    return sum(
        node.free.bit_count()
        - (
            0
            if node.barred
            else count * count_fitting_pods(node.product, node.free, count)
        )
        for node in nodes
    )
