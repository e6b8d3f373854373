"""Which server types there are, and by what numbers their chips are given out.

A product is a row of this table, never a class or a module of its own: what differs
between products is data. Each row says where its numbers come from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from scheduler_core.errors import UnknownProductError


class GroupKind(Enum):
    """What a group of closely linked chips is, as a person would call it."""

    RING = "HCCS ring"
    CARD = "card"
    MODULE = "HiAM module"
    NONE = "group"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """One row: a server type. Two rows are equal only if they are the same row.

    Chips have physical ids from 0; group g holds the ids from `g * group_size` on.
    """

    #: what a person calls it
    name: str
    #: what files call it; unique
    key: str
    #: the Kubernetes resource that its pods ask for
    resource: str
    #: a chip's name is this and its physical id
    chip_prefix: str
    #: chips of a whole server
    chip_count: int
    #: chips of a group; divides `chip_count`
    group_size: int
    group_kind: GroupKind
    #: how many chips one pod may have, ascending
    counts: tuple[int, ...]
    #: {chips wanted: free chips of a group, the best first}; a count that is not
    #: here takes whole groups
    group_preference: Mapping[int, tuple[int, ...]]
    #: whether a node with more healthy chips always comes before one with fewer
    capacity_staged: bool
    #: values of the node label `accelerator-type` that mean this row; "" is no label
    accelerator_types: tuple[str, ...]
    #: where the numbers come from
    source: str

    @property
    def all_chips(self) -> int:
        """The mask of a server on which every chip is there."""
        return (1 << self.chip_count) - 1

    @property
    def groups(self) -> tuple[int, ...]:
        """The mask of each group, the lowest ids first."""
        one = (1 << self.group_size) - 1
        return tuple(
            one << first for first in range(0, self.chip_count, self.group_size)
        )


ATLAS_800_TRAINING = Product(
    name="Atlas 800 training server",
    key="atlas-800-training",
    resource="huawei.com/Ascend910",
    chip_prefix="Ascend910-",
    chip_count=8,
    group_size=4,
    group_kind=GroupKind.RING,
    counts=(1, 2, 4, 8),
    group_preference=MappingProxyType({1: (1, 3, 2, 4), 2: (2, 4, 3), 4: (4,)}),
    capacity_staged=True,
    accelerator_types=("", "module"),
    source=(
        "Node Affinity K8s Scheduling Algorithm Design: 'Affinity Policy "
        "Description' (preferences), 'Scenario Classification' (groups A to D), "
        "'Fault Considerations' (capacity 8, then 7, then lower)"
    ),
)

#: every product that is served
PRODUCTS: tuple[Product, ...] = (ATLAS_800_TRAINING,)

_BY_KEY = {product.key: product for product in PRODUCTS}


def by_key(key: str) -> Product:
    """The product that files call `key`.

    Raises:
        UnknownProductError: There is none.
    """
    try:
        return _BY_KEY[key]
    except KeyError:
        raise UnknownProductError(key, tuple(_BY_KEY)) from None


def find(resource: str, node_labels: Mapping[str, str]) -> Product | None:
    """The product of a node that offers `resource`, told by its labels.

    Args:
        resource: The Kubernetes resource, as `huawei.com/Ascend910`.
        node_labels: All labels of the node; may be empty.

    Returns:
        The row, or None when no row serves such a node.

    Source:
        MindCluster, "Affinity Scheduling": `accelerator-type` absent or `module`
        is the Atlas 800 training server with all eight chips.
    """
    accelerator = node_labels.get("accelerator-type", "")
    for product in PRODUCTS:
        if product.resource == resource and accelerator in product.accelerator_types:
            return product
    return None
