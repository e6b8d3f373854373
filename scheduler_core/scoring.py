"""In which order nodes are preferred: first the group, then the node in the group.

The order is a key, smaller is better, and never says whether a node can serve at all
(`chips.why_not` does). Nodes with equal keys are equally good; the name decides.
"""

from typing import NamedTuple

from scheduler_core.products import Product


class Rank(NamedTuple):
    """How good a node is for a count; compares as a tuple, the best is the smallest."""

    #: chips that the node lacks or that are not healthy: 8 healthy come before 7
    missing: int
    #: place of the chosen group's free count in the preference: 0 is group A
    group: int
    #: free chips outside the chosen group: nodes already in use come first
    other: int


def rank(product: Product, healthy: int, free: int, count: int) -> Rank | None:
    """How good a node is for `count` chips.

    A chip that is not healthy counts as used, and all groups of nodes with more
    healthy chips come before those with fewer. That an even number of chips left is
    preferred needs no part of its own: group and other chips fix it already.

    Args:
        product: The node's row.
        healthy: Mask of its healthy chips.
        free: Mask of its free chips, all of them healthy.
        count: Chips wanted.

    Returns:
        The key, or None when no group can serve.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification" and
        "Fault Considerations". The pair 3~3 for two chips stands in no group there;
        it is the last of group C.
    """
    missing = product.chip_count - healthy.bit_count()
    if not product.capacity_staged:
        missing = 0
    if count not in product.counts:
        return None
    if count > product.group_size:
        whole = [group for group in product.groups if free & group == group]
        if len(whole) * product.group_size < count:
            return None
        return Rank(missing, 0, free.bit_count() - count)
    left = {(free & group).bit_count() for group in product.groups}
    for place, wanted in enumerate(product.group_preference[count]):
        if wanted in left:
            return Rank(missing, place, free.bit_count() - wanted)
    return None


def number(product: Product, key: Rank) -> int:
    """The key as one number of the same order, for an index; below 2^10 for 8 chips."""
    groups, others = product.group_size, product.chip_count + 1
    return (key.missing * groups + key.group) * others + key.other


def key_of(product: Product, numbered: int) -> Rank:
    """The key that `number` made this number of."""
    rest, other = divmod(numbered, product.chip_count + 1)
    missing, group = divmod(rest, product.group_size)
    return Rank(missing, group, other)
