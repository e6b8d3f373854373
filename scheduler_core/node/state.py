"""One node at one moment, as decisions see it."""

from dataclasses import dataclass

from scheduler_core.node.reasons import Reason
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product


def resource_of(wanted: Product | str) -> str:
    """The Kubernetes resource that is wanted as such, or as a row of it."""
    return wanted if isinstance(wanted, str) else wanted.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node at one moment. Masks of physical ids; free ⊆ healthy ⊆ inventory."""

    name: str
    #: the row of its hardware, by which jobs are served that ask for no other
    product: Product
    #: chips that the node has
    inventory: int
    healthy: int
    free: int
    #: chips whose network is faulty: not for jobs of several pods, where the row of
    #: the job says so
    network_unhealthy: int = 0
    #: chips that somebody has; of those that are not healthy nothing else says so, and
    #: advice must know it
    taken: int = 0
    #: why nothing goes to this node whatever is free, or None
    barred: Reason | None = None

    def __post_init__(self) -> None:
        """Refuse a node that cannot be.

        Raises:
            ValueError: The masks do not lie in each other.
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
        """Whether pods may be served here by the rule of `row`.

        Its own row may; another if the resource is the same, the node's chips lie
        within that row's, and the node carries the labels that it demands.
        """
        own = self.product
        if row is own or row is distributed(own):
            return True
        return (
            row.resource == own.resource
            and not self.inventory & ~row.all_chips
            and row.node_labels.items() <= own.node_labels.items()
        )

    def row_for(
        self, wanted: Product | str, *, in_network: bool = False
    ) -> Product | None:
        """The row by which it serves what is wanted; None when it does not.

        Args:
            wanted: The resource, then its own row does if it is of that; or a row.
            in_network: Whether the pod's job has several pods (`columns.distributed`).
        """
        if isinstance(wanted, str):
            row = self.product if self.product.resource == wanted else None
        else:
            row = wanted if self.serves(wanted) else None
        return distributed(row) if row is not None and in_network else row

    def usable(self, row: Product) -> int:
        """The mask of the healthy chips that pods served by `row` may have."""
        if row.for_distributed and row.network_health:
            return self.healthy & ~self.network_unhealthy
        return self.healthy

    def free_for(self, row: Product) -> int:
        """The mask of the free chips that pods served by `row` may have."""
        if row.for_distributed and row.network_health:
            return self.free & ~self.network_unhealthy
        return self.free
