"""A simulated cluster for `benchmarks.replay`, and the ways to choose in it.

Every way keeps the same hard rules: a pod gets a set of chips that its product's row
admits. They differ in which of the nodes and of the sets they take.
"""

import random  # noqa: TID251  # seeded: the same choices in every run
from collections.abc import Callable, Sequence
from functools import cache

from scheduler_core.explain import fragmentation
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import chips
from scheduler_core.node.chip_mask import ids_of, mask_of
from scheduler_core.node.decision import JobPlacement
from scheduler_core.placement.gang import plan
from scheduler_core.placement.gang_query import Member
from scheduler_core.placement.pod import Placement, place
from scheduler_core.products.table import Product

#: (node, mask) of each pod of a job
Places = Sequence[tuple[str, int]]


class Fleet:
    """Equal nodes without faults.

    Invariant: what the index knows is what is free, and the sums are over all nodes.
    """

    def __init__(self, product: Product, nodes: int) -> None:
        """Begin with nothing on the nodes."""
        self.product = product
        self.cluster = Cluster()
        #: {node: mask of its free chips}, by name
        self.free: dict[str, int] = {}
        self.fragmentation = 0
        #: free chips that pods of a whole node could not use
        self.stranded = 0
        for index in range(nodes):
            name = f"node-{index:03}"
            self.free[name] = 0
            self._set(name, product.all_chips)

    def take(self, name: str, mask: int) -> None:
        """Give chips to a pod; they must be free."""
        if mask & ~self.free[name]:
            raise ValueError(f"{name}: expected free chips, found {ids_of(mask)}")
        self._set(name, self.free[name] & ~mask)

    def give_back(self, name: str, mask: int) -> None:
        """Take in the chips of a pod that has ended."""
        self._set(name, self.free[name] | mask)

    def _set(self, name: str, free: int) -> None:
        product, before = self.product, self.free[name]
        self.free[name] = free
        self.fragmentation += _fragmentation(product, free)
        self.fragmentation -= _fragmentation(product, before)
        self.stranded += _stranded(product, free) - _stranded(product, before)
        everything = product.all_chips
        self.cluster.put(
            NodeState(
                name=name,
                product=product,
                inventory=everything,
                healthy=everything,
                free=free,
            )
        )


def _fragmentation(product: Product, free: int) -> int:
    return fragmentation.measure_chips(product, free, product.all_chips)


@cache
def _stranded(product: Product, free: int) -> int:
    """Free chips that pods of a whole node could not use."""
    count = product.chip_count
    return free.bit_count() - count * fragmentation.count_fitting_pods(
        product, free, count
    )


@cache
def legal_sets(product: Product, free: int, count: int) -> tuple[int, ...]:
    """All that a pod of `count` chips may get of these, the lowest ids first."""
    found = []
    some = free
    while some:
        if some.bit_count() == count and chips.is_legal(product, some):
            found.append(some)
        some = (some - 1) & free
    return tuple(sorted(found, key=ids_of))


#: fleet, pods, chips of each -> their places, or None when not all have one
Way = Callable[[Fleet, int, int], Places | None]
#: free chips by node, chips wanted -> node and set of one pod, or None
_One = Callable[[Fleet, dict[str, int], int], tuple[str, int] | None]


def ours(fleet: Fleet, pods: int, count: int) -> Places | None:
    """As `scheduler_core` chooses."""
    wanted = fleet.product.resource
    if pods == 1:
        answer = place(wanted, count, fleet.cluster)
        some = [answer] if isinstance(answer, Placement) else []
    else:
        gang = [Member(name=f"pod-{index}", chips=count) for index in range(pods)]
        found = plan(wanted, gang, fleet.cluster)
        some = list(found.pods) if isinstance(found, JobPlacement) else []
    return [(each.node, mask_of(each.chips)) for each in some] or None


def _each(one: _One) -> Way:
    """The pods of a job one after the other, all or none."""

    def way(fleet: Fleet, pods: int, count: int) -> Places | None:
        left = dict(fleet.free) if pods > 1 else fleet.free
        found: list[tuple[str, int]] = []
        while len(found) < pods:
            chosen = one(fleet, left, count)
            if chosen is None:
                return None
            found.append(chosen)
            if len(found) < pods:
                left[chosen[0]] &= ~chosen[1]
        return found

    return way


def _first_fit(
    fleet: Fleet, free: dict[str, int], count: int
) -> tuple[str, int] | None:
    for name, mask in free.items():
        if some := legal_sets(fleet.product, mask, count):
            return name, some[0]
    return None


def _best_fit(fleet: Fleet, free: dict[str, int], count: int) -> tuple[str, int] | None:
    product = fleet.product
    for name, mask in sorted(free.items(), key=lambda item: item[1].bit_count()):
        if some := legal_sets(product, mask, count):
            return name, min(some, key=lambda chosen: _beside(product, mask, chosen))
    return None


def _beside(product: Product, free: int, chosen: int) -> int:
    """Free chips that are left in the groups from which these are taken."""
    home = sum(group for group in product.groups if group & chosen)
    return (free & home & ~chosen).bit_count()


def _random_fit(chance: random.Random) -> _One:
    def one(fleet: Fleet, free: dict[str, int], count: int) -> tuple[str, int] | None:
        some = [
            name
            for name, mask in free.items()
            if legal_sets(fleet.product, mask, count)
        ]
        if not some:
            return None
        name = chance.choice(some)
        return name, chance.choice(legal_sets(fleet.product, free[name], count))

    return one


def ways(seed: int) -> dict[str, Way]:
    """All ways by name, ours first; chance begins with the seed."""
    chance = random.Random(seed)  # noqa: S311  # no secret is made
    return {
        "ours": ours,
        "first fit": _each(_first_fit),
        "best fit": _each(_best_fit),
        "random": _each(_random_fit(chance)),
    }
