"""The sets of chips that a pod may have, found by trying every set.

A module of its own: `product_rules.py` shares nothing with the program, this does.
"""

from itertools import combinations

from scheduler_core.node import chips
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.products.table import Product
from tests.machines import mask


def legal_sets(row: Product, free: int, count: int, taken: int = 0) -> list[int]:
    """Return the sets of so many free chips, legal together with those taken.

    Those of the lowest ids come first.
    """
    some = map(mask, combinations(ids_of(free & ~taken), count))
    return [more for more in some if chips.is_legal(row, more | taken)]
