"""Real machines by name, with everything about them written out once."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from scheduler_core.index.cluster import NodeState
from scheduler_core.node.reasons import Reason
from scheduler_core.products.columns import Way
from scheduler_core.products.table import ATLAS_800_TRAINING, Product

#: physical ids of the Atlas 800 training server's HCCS rings
RINGS = ((0, 1, 2, 3), (4, 5, 6, 7))
#: all of its chips
EIGHT = tuple(chain.from_iterable(RINGS))


def mask(ids: Iterable[int]) -> int:
    """The bit mask of these physical ids, by the words of its definition."""
    return sum(1 << chip for chip in set(ids))


def atlas(
    name: str,
    free: Iterable[int] = EIGHT,
    *,
    healthy: Iterable[int] = EIGHT,
    barred: Reason | None = None,
    product: Product = ATLAS_800_TRAINING,
) -> NodeState:
    """An Atlas 800 training server with all chips present."""
    return node_state(
        name, product, mask(free), inventory=0xFF, healthy=mask(healthy), barred=barred
    )


def node_state(  # the parts of a node
    name: str,
    product: Product,
    free: int | None = None,
    *,
    inventory: int | None = None,
    healthy: int | None = None,
    **more: Any,
) -> NodeState:
    """A node by its masks: all chips are there, healthy and free, if nothing is said.

    Args:
        free: Of these, those that are healthy are free.
        more: Further fields of the state.
    """
    there = product.all_chips if inventory is None else inventory
    good = there if healthy is None else healthy
    return NodeState(
        name=name,
        product=product,
        inventory=there,
        healthy=good,
        free=good if free is None else free & good,
        **more,
    )


def variant(**columns: Any) -> Product:
    """A row that differs from the Atlas 800's in these columns only."""
    return replace(ATLAS_800_TRAINING, **columns)


def three_rings() -> Product:
    """A row that is nobody's server: three rings of four, also two whole rings."""
    ways = dict.fromkeys((1, 2, 4, 8, 12), (Way.GROUPS,))
    return variant(key="three-rings", chip_count=12, ways=ways)


def rings_of_three() -> Product:
    """A row that is nobody's server: groups that do not fill bytes."""
    return variant(
        key="rings-of-three",
        chip_count=12,
        group_size=3,
        ways=dict.fromkeys((1, 2, 3), (Way.GROUPS,)),
        group_preference={1: (1, 2, 3), 2: (2, 3), 3: (3,)},
    )


def atlas_with(name: str, left: int, right: int, *, capacity: int = 8) -> NodeState:
    """An Atlas 800 with so many free chips in its rings, and so many healthy at all.

    Chips that are not healthy are taken from those that are not free, the highest
    first.
    """
    free = {*RINGS[0][:left], *RINGS[1][:right]}
    bad = sorted(set(EIGHT) - free, reverse=True)[: 8 - capacity]
    return atlas(name, free, healthy=set(EIGHT) - set(bad))
