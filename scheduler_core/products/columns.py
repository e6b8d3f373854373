"""Columns of the table of products, and the words that their values use.

A product is a row, never a class or a branch on its name. The rows are in `table.py`.
`layouts.py` implements each `Way`, `order.py` each `Order`, `job_rules.py` each
`JobRule`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from types import MappingProxyType


class GroupKind(Enum):
    """Kind of a group of closely linked chips; the value is used in messages."""

    RING = "HCCS ring"
    CARD = "card"
    MODULE = "HiAM module"
    MESH = "mesh"
    CHIP = "chip"
    NONE = "node"

    def whole(self, number: int) -> str:
        """Return a number of whole groups: "1 whole mesh", "2 whole meshes"."""
        ending = "" if number == 1 else "es" if self is GroupKind.MESH else "s"
        return f"{number} whole {self.value}{ending}"


class Way(Enum):
    """Layout of the chips of one pod on a node (`layouts.py`)."""

    #: as many whole groups as the count fills, the rest inside one further group
    GROUPS = "groups"
    #: half of the chips in each of the two groups
    HALVES = "halves"
    #: half of the chips in each of the two groups, at matching positions
    PAIRS = "pairs"
    #: anywhere: whole groups first, then few groups, so that few fragments remain
    WHOLE_FIRST = "whole-first"
    #: anywhere: the groups with the fewest free chips first
    EMPTIEST_FIRST = "emptiest-first"
    #: anywhere: the lowest ids
    LOWEST = "lowest"


class Order(Enum):
    """Criterion that ranks nodes for the same count (`order.py`)."""

    #: the preferred free count of the group that serves, then fewer other free chips
    GROUP = "group"
    #: a missing chip weighs as much as one chip left over; then fewer free chips
    MISFIT = "misfit"
    #: fewer groups that could serve beyond the need, then fewer chips left over
    SPARE_GROUPS = "spare-groups"


class JobRule(Enum):
    """Rule for a whole job, besides the counts of its pods (`job_rules.py`)."""

    #: one pod up to a whole node; above, every pod takes a whole node
    WHOLE_NODES = "whole-nodes"
    #: no rule for the job
    EACH_POD = "each-pod"
    #: a pod of one chip only in a job of one pod
    EVEN = "even"
    #: one pod only
    ONE_POD = "one-pod"
    #: of several pods each takes a whole node, and they fill logical SuperPoDs
    SUPERPOD = "superpod"


class Network(Enum):
    """Network between nodes; the value is used in messages."""

    ROCE = "two-layer RoCE"
    ROCE_SINGLE_LAYER = "single-layer RoCE"
    UNIFIED_BUS = "UnifiedBus and RoCE"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """One row: a server type; compared by identity.

    Chips have physical ids from 0; group g has the ids from `g * group_size` on.
    """

    #: name in messages
    name: str
    #: name in files; unique
    key: str
    #: commercial names of these servers
    servers: tuple[str, ...]
    #: networks between these servers; empty where the documents name none
    networks: tuple[Network, ...] = ()
    #: Kubernetes resource that its pods request
    resource: str
    #: the name of a chip is this prefix and its physical id
    chip_prefix: str
    #: number of chips of a whole server
    chip_count: int
    #: number of chips of a group; divides `chip_count`
    group_size: int
    group_kind: GroupKind
    #: {legal count of one pod: ways to lay the chips out, the best first}
    ways: Mapping[int, tuple[Way, ...]]
    #: {count from one group: free chips of that group, the best first}
    group_preference: Mapping[int, tuple[int, ...]]
    #: whether a node with more healthy chips always comes before one with fewer
    capacity_staged: bool
    order: Order = Order.GROUP
    #: whether a job of several pods must not get chips with a faulty network
    network_health: bool
    #: row of the chips, in a row whose "chips" are parts of one kind; None elsewhere
    chip_row: "Product | None" = None
    #: mask of ids without a chip of this row: those of the server's other product lines
    absent: int = 0
    #: whether this is the variant for jobs of several pods (`distributed`)
    for_distributed: bool = False
    job_rule: JobRule = JobRule.EACH_POD
    #: values of `accelerator-type` that mean this row; "" is a missing label
    accelerator_types: tuple[str, ...] = ()
    #: values of a node's `accelerator-type` that mean this row where jobs do not use
    #: that label; "" is any value that no other row names
    node_types: tuple[str, ...] = ()
    #: values of the job's annotation `huawei.com/schedule_policy` that mean this row
    policies: tuple[str, ...] = ()
    #: {label of the job: values that mean this row}; "" is a missing label
    job_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: {label of the node: value that it needs to serve this row}
    node_labels: Mapping[str, str] = field(default_factory=dict)
    #: document that states the numbers
    source: str
    #: legal counts of one pod, ascending
    counts: tuple[int, ...] = field(init=False)
    #: mask of a server with all its chips
    all_chips: int = field(init=False)
    #: mask of each group, the lowest ids first
    groups: tuple[int, ...] = field(init=False)
    #: [free chips of a group] = number of legal counts that they are too few for, 0 for
    #: none free; empty where groups do not matter (`fragmentation.py`)
    group_loss: tuple[int, ...] = field(init=False)
    #: whether pods get chips at matching positions of two groups
    in_pairs: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compute the derived columns once, because every decision reads them."""
        group = (1 << self.group_size) - 1
        firsts = range(0, self.chip_count, self.group_size)
        object.__setattr__(self, "counts", tuple(sorted(self.ways)))
        every = (1 << self.chip_count) - 1
        object.__setattr__(self, "all_chips", every & ~self.absent)
        object.__setattr__(self, "groups", tuple(group << first for first in firsts))
        object.__setattr__(self, "group_loss", tuple(self._losses()))
        in_pairs = any(Way.PAIRS in ways for ways in self.ways.values())
        object.__setattr__(self, "in_pairs", in_pairs)

    @property
    def noun(self) -> str:
        """Word for one of the row's chips in messages."""
        return "chip" if self.chip_row is None else "part"

    def _losses(self) -> Iterator[int]:
        if not self.group_preference:
            return
        within = [count for count in self.counts if count <= self.group_size]
        yield 0
        for free in range(1, self.group_size + 1):
            yield sum(count > free for count in within)


@cache
def distributed(product: Product) -> Product:
    """Return the variant of a row for jobs of several pods; the row if equal.

    Such a job uses the network between nodes. With `network_health` its pods get no
    chip with a faulty network. Its halves need no matching positions.
    """
    if product.for_distributed or not (product.in_pairs or product.network_health):
        return product
    ways = {
        count: tuple(Way.HALVES if way is Way.PAIRS else way for way in ways)
        for count, ways in product.ways.items()
    }
    return replace(product, ways=MappingProxyType(ways), for_distributed=True)
