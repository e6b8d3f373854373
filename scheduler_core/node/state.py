"""State of one node for one resource: its row and the masks of its chips."""

from dataclasses import dataclass

from scheduler_core.node.reasons import Reason
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product


def resource_of(wanted: Product | str) -> str:
    """Return the resource of a row; a resource is returned as it is."""
    return wanted if isinstance(wanted, str) else wanted.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node at one moment; masks of physical ids, free ⊆ healthy ⊆ inventory."""

    name: str
    #: row of the node's hardware; serves jobs that name no other row
    product: Product
    #: mask of all chips of the node
    inventory: int
    healthy: int
    free: int
    #: mask of chips with a faulty network: rows with `network_health` keep them from
    #: jobs of several pods
    network_unhealthy: int = 0
    #: mask of chips that a pod has. `free` does not tell this of unhealthy chips, and
    #: advice needs it.
    taken: int = 0
    #: reason to refuse the node whatever is free; None when there is none
    barred: Reason | None = None

    def __post_init__(self) -> None:
        """Check that the masks are nested.

        Raises:
            ValueError: A mask is not within the next larger one.
        """
        if (
            self.free & ~self.healthy
            or self.healthy & ~self.inventory
            or self.inventory & ~self.product.all_chips
        ):
            raise ValueError(
                f"node {self.name!r}: expected free within healthy within inventory "
                f"within {self.product.chip_count} chips, found {self.free:#b}, "
                f"{self.healthy:#b}, {self.inventory:#b}"
            )

    def serves(self, row: Product) -> bool:
        """Return whether this node may serve pods by the rule of `row`.

        The node's own row may serve. Another row may if it has the same resource,
        contains the node's chips, and demands no labels beyond those of the own row.
        """
        own_row = self.product
        if row is own_row or row is distributed(own_row):
            return True
        return (
            row.resource == own_row.resource
            and not self.inventory & ~row.all_chips
            and row.node_labels.items() <= own_row.node_labels.items()
        )

    def row_for(
        self, wanted: Product | str, *, in_network: bool = False
    ) -> Product | None:
        """Return the row by which this node serves a request; None if it does not.

        Args:
            wanted: A resource (the node's own row serves) or a row.
            in_network: Whether the pod's job has several pods (`columns.distributed`).
        """
        if isinstance(wanted, str):
            row = self.product if self.product.resource == wanted else None
        else:
            row = wanted if self.serves(wanted) else None
        return distributed(row) if row is not None and in_network else row

    def usable(self, row: Product) -> int:
        """Return the mask of the healthy chips that pods served by `row` may have."""
        if row.for_distributed and row.network_health:
            return self.healthy & ~self.network_unhealthy
        return self.healthy

    def free_for(self, row: Product) -> int:
        """Return the mask of the free chips that pods served by `row` may have."""
        return self.free & self.usable(row)
