"""Rows of the product table that the same hardware may be.

A module of its own: it says what chips cannot prove, `dcmi.machine` what they prove.
Among a row and those it looks like, the label `accelerator-type` of the Node decides,
or `--product`. docs/rows.md has the same as a table for people.
"""

from collections.abc import Mapping
from types import MappingProxyType

from agent.devices.reading import Reading
from scheduler_core.node import chips as chip_sets
from scheduler_core.products import table

#: {key of a row: keys of rows whose servers may show the same chips and boards}
_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # cards that do not tell the name under which they are sold
        "atlas-800-training": ("a300t",),
        "atlas-800-training-half": ("a300t",),
        # training cards have the boards of servers
        "atlas-a2-8": ("flat-2",),
        # a server of a SuperPoD may be used as one that is in none
        "atlas-a3-16-superpod": ("atlas-a3-16",),
        "atlas-a3-8-superpod": ("atlas-a3-8",),
        # chips of this generation do not show how they are connected
        "npu-flat-8": ("npu-atlas-a2-8", "npu-atlas-a3-8", "npu-atlas-a3-8-superpod"),
        "npu-flat-16": (
            "npu-atlas-a2-box16",
            "npu-atlas-a3-16",
            "npu-atlas-a3-16-superpod",
        ),
    }
)
#: Row of cards that may tell the name under which they are sold.
_NAMED = "a300t"


def find(reading: Reading) -> tuple[str, ...]:
    """Return the keys of further rows that the chips of a product line may be of."""
    chips = chip_sets.mask_of(reading.chips)
    return tuple(
        key
        for key in _KEYS.get(reading.product.key, ())
        if not chips & ~table.by_key(key).all_chips
        and not (key == _NAMED and reading.product_type)
    )
