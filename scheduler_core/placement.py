"""Where one pod goes, and why; or why it can go nowhere, with counts.

A function of its arguments: it changes nothing, and asked twice it answers twice the
same. Whoever acts on the answer puts the node's new state into the index.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache

from scheduler_core import chips, scoring
from scheduler_core.cluster import Cluster
from scheduler_core.products import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A node, chips of it, and the reason for the choice in a sentence."""

    node: str
    #: physical ids, ascending
    chips: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why no node serves."""

    #: (text, nodes of which it is said), the most frequent first, then by text
    reasons: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> int:
        """How many nodes were looked at."""
        return sum(nodes for _, nodes in self.reasons)

    @property
    def text(self) -> str:
        """All reasons in a line: "48 no HCCS ring has 4 free chips, 12 …"."""
        if not self.reasons:
            return "no node to look at"
        return ", ".join(f"{nodes} {text}" for text, nodes in self.reasons)


def place(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    *,
    names: Iterable[str] | None = None,
    avoid: Container[str] = (),
) -> Placement | Rejection:
    """Choose a node for one pod, and chips of it.

    First the nodes with the most healthy chips, then the best group of free chips,
    then the node that is fullest besides, then the first name.

    Args:
        wanted: The resource that the pod asks for, or a product that offers it.
        count: Chips that the whole pod occupies.
        cluster: The nodes; not changed.
        names: Only these nodes, each once, in any order; None is all.
        avoid: Not these nodes; one that could serve counts as a conflict.

    Returns:
        Node and chips, or the reasons; their counts add up to the nodes looked at.

    Cost:
        Without `names` a few microseconds, whatever the size of the cluster; with
        them, a look-up for each.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification".
    """
    resource = wanted if isinstance(wanted, str) else wanted.resource
    if names is not None:
        names = tuple(names)
    found = cluster.best(resource, count, names=names, avoid=avoid)
    if found is None:
        return Rejection(reasons=cluster.refusals(resource, count, names=names))
    node = found.node
    return Placement(
        node=node.name,
        chips=chips.ids_of(chips.choose(node.product, node.free, count)),
        reason=sentence(node.product, count, found.rank, node.healthy.bit_count()),
    )


@lru_cache(maxsize=4096)
def sentence(product: Product, count: int, rank: int, healthy: int) -> str:
    """Why a node of this rank was chosen for `count` chips.

    Args:
        product: The node's row.
        count: Chips that were given.
        rank: How good the node is (`scoring.number`).
        healthy: How many of its chips are healthy.
    """
    key = scoring.key_of(product, rank)
    group = product.group_kind.value
    whole = "all" if healthy == product.chip_count else f"{healthy} of"
    having = f"on a node with {whole} {product.chip_count} chips healthy"
    if count > product.group_size:
        return f"{count // product.group_size} whole {group}s, {having}"
    left = product.group_preference[count][key.group]
    share = (
        f"{count} of the {left} free chips of one {group}"
        if left > count
        else f"the last {count} free of one {group}"
    )
    return f"{share} ({key.other} more free on the node), {having}"
