"""What a row of the table of products says, and in which words.

A product is a row, never a class or a branch on its name: all that differs between
products is data, and these are its words. The rows stand in `table.py`; what a
`Way` does is in `layouts.py`, what an `Order` does in `order.py`, what a `JobRule`
does in `job_rules.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from types import MappingProxyType


class GroupKind(Enum):
    """What a group of closely linked chips is, as a person would call it."""

    RING = "HCCS ring"
    CARD = "card"
    MODULE = "HiAM module"
    MESH = "mesh"
    NONE = "node"

    def whole(self, number: int) -> str:
        """So many of them: "1 whole mesh", "2 whole meshes"."""
        ending = "" if number == 1 else "es" if self is GroupKind.MESH else "s"
        return f"{number} whole {self.value}{ending}"


class Way(Enum):
    """How the chips of one pod lie on a node (`layouts.py`)."""

    #: as many whole groups as the count fills, the rest inside one further group
    GROUPS = "groups"
    #: half of them in each of the two groups
    HALVES = "halves"
    #: half of them in each of the two groups, at matching positions
    PAIRS = "pairs"
    #: anywhere: whole groups first, then few groups, so that few fragments are left
    WHOLE_FIRST = "whole-first"
    #: anywhere: the groups with the fewest free chips first
    EMPTIEST_FIRST = "emptiest-first"
    #: anywhere: the lowest ids
    LOWEST = "lowest"


class Order(Enum):
    """What makes a node better than another for the same count (`order.py`)."""

    #: the preferred free count of the group that serves, then fewer chips beside it
    GROUP = "group"
    #: a missing chip weighs as much as one chip left over; then fewer free chips
    MISFIT = "misfit"
    #: fewer groups that could serve beyond the need, then fewer chips left over
    SPARE_GROUPS = "spare-groups"


class JobRule(Enum):
    """What a whole job must keep besides the counts of its pods (`job_rules.py`)."""

    #: up to a whole node: one pod; more: every pod takes a whole node
    WHOLE_NODES = "whole-nodes"
    #: nothing
    EACH_POD = "each-pod"
    #: one chip only as a job of one pod
    EVEN = "even"
    #: one pod only
    ONE_POD = "one-pod"
    #: several pods: each takes a whole node, and they fill logical SuperPoDs
    SUPERPOD = "superpod"


class Network(Enum):
    """How nodes are joined, as a person would call it."""

    ROCE = "two-layer RoCE"
    ROCE_SINGLE_LAYER = "single-layer RoCE"
    UNIFIED_BUS = "UnifiedBus and RoCE"


_NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """One row: a server type. Two rows are equal only if they are the same row.

    Chips have physical ids from 0; group g holds the ids from `g * group_size` on.
    """

    #: what a person calls it
    name: str
    #: what files call it; unique
    key: str
    #: the names under which such servers are sold
    servers: tuple[str, ...]
    #: the networks that join them; empty where the documents name none
    networks: tuple[Network, ...] = ()
    #: the Kubernetes resource that its pods ask for
    resource: str
    #: a chip's name is this and its physical id
    chip_prefix: str
    #: chips of a whole server, at most
    chip_count: int
    #: chips of a group; divides `chip_count`
    group_size: int
    group_kind: GroupKind
    #: {how many chips one pod may have: the ways to lay them out, the best first}
    ways: Mapping[int, tuple[Way, ...]]
    #: {chips wanted of one group: free chips of that group, the best first}
    group_preference: Mapping[int, tuple[int, ...]]
    #: whether a node with more healthy chips always comes before one with fewer
    capacity_staged: bool
    order: Order = Order.GROUP
    #: whether pods of a job with several must not get chips whose network is faulty
    network_health: bool
    #: mask of ids that no chip of this server has: those of its other product lines
    absent: int = 0
    #: whether this is a row as jobs of several pods see it (`distributed`)
    for_distributed: bool = False
    job_rule: JobRule = JobRule.EACH_POD
    #: values of `accelerator-type` that mean this row; "" is no such label
    accelerator_types: tuple[str, ...] = ()
    #: values of a node's `accelerator-type` that mean this row, where a job cannot
    #: name it by that; "" is any that no row names
    node_types: tuple[str, ...] = ()
    #: values of the job's annotation `huawei.com/schedule_policy` that mean this row
    policies: tuple[str, ...] = ()
    #: {label of the job: values that mean this row}; "" is no such label
    job_labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    #: {label of the node: value without which it cannot serve this row}
    node_labels: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType(dict[str, str]())
    )
    #: where the numbers come from
    source: str
    #: how many chips one pod may have, ascending
    counts: tuple[int, ...] = field(init=False)
    #: the mask of a server on which every chip is there
    all_chips: int = field(init=False)
    #: the mask of each group, the lowest ids first
    groups: tuple[int, ...] = field(init=False)
    #: by a group's free chips: how many legal counts it cannot serve although it has
    #: some; empty where groups do not matter (`fragmentation.py`)
    group_loss: tuple[int, ...] = field(init=False)
    #: whether chips are given out at matching positions of two groups
    in_pairs: bool = field(init=False)

    def __post_init__(self) -> None:
        """Work out what every decision asks for, once."""
        group = (1 << self.group_size) - 1
        firsts = range(0, self.chip_count, self.group_size)
        object.__setattr__(self, "counts", tuple(sorted(self.ways)))
        every = (1 << self.chip_count) - 1
        object.__setattr__(self, "all_chips", every & ~self.absent)
        object.__setattr__(self, "groups", tuple(group << first for first in firsts))
        object.__setattr__(self, "group_loss", tuple(self._losses()))
        in_pairs = any(Way.PAIRS in ways for ways in self.ways.values())
        object.__setattr__(self, "in_pairs", in_pairs)

    def _losses(self) -> Iterator[int]:
        if not self.group_preference:
            return
        within = [count for count in self.counts if count <= self.group_size]
        yield 0
        for free in range(1, self.group_size + 1):
            yield sum(count > free for count in within)


@cache
def distributed(product: Product) -> Product:
    """The row as the pods of a job with several of them see it.

    Such a job talks over the network, so a chip whose network is faulty does not
    count as free, where the row says so; and halves of a pod need not lie at
    matching positions. Where nothing differs it is the row itself.
    """
    if product.for_distributed or not (product.in_pairs or product.network_health):
        return product
    ways = {
        count: tuple(Way.HALVES if way is Way.PAIRS else way for way in ways)
        for count, ways in product.ways.items()
    }
    return replace(product, ways=MappingProxyType(ways), for_distributed=True)
