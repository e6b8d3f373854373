"""The node annotation `baseDeviceInfos`: which chips the node has at all."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scheduler_core.products.table import PRODUCTS, Product
from scheduler_core.wire.addresses import UNKNOWN, Address, Addresses
from scheduler_core.wire.annotations import (
    annotation_path,
    chip_name,
    is_of_another_line,
    parse_chip,
    parse_chip_names,
)
from scheduler_core.wire.typed import as_integer, as_object, as_string, parse_json

#: the annotation's key, on the Node
BASE_DEVICE_INFOS = "baseDeviceInfos"

_PREFIXES = sorted({re.escape(row.chip_prefix) for row in PRODUCTS})
_VIRTUAL = re.compile(f"(?:{'|'.join(_PREFIXES)})[0-9]+c[-.].*")


class Line(NamedTuple):
    """The chips of one product line of a node."""

    #: physical ids, in any order
    chips: Iterable[int]
    product: Product
    #: of its chips, as far as they are known
    addresses: Addresses


def render(
    chips: Iterable[int],
    product: Product,
    addresses: Addresses | None = None,
    beside: Iterable[Line] = (),
) -> str:
    """The annotation's text for a node with these chips, in any order.

    Args:
        chips: Physical ids.
        product: The node's row.
        addresses: Of its chips, as far as they are known.
        beside: The node's other product lines.
    """
    known = {
        chip_name(chip, line.product): line.addresses.of(chip)
        for line in (Line(chips, product, addresses or Addresses()), *beside)
        for chip in line.chips
    }
    document = {
        name: {
            "IP": known[name].ip,
            "SuperDeviceID": known[name].super_device_id,
        }
        for name in sorted(known)
    }
    return json.dumps(document, separators=(",", ":"))


def parse(text: str, product: Product) -> tuple[int, ...]:
    """The physical ids of the node's chips of one product, ascending.

    Virtual devices are left out, and chips of the node's other lines.

    Raises:
        WireError: Not a JSON object, or a key that is a chip of no product.
    """
    names = _chips(text, product)
    return parse_chip_names(names, product, path=annotation_path(BASE_DEVICE_INFOS))


def parse_addresses(text: str, product: Product) -> dict[int, Address]:
    """{physical id: its address}, as far as the annotation has them.

    Raises:
        WireError: As `parse`, or an address is none.
    """
    path = annotation_path(BASE_DEVICE_INFOS)
    found: dict[int, Address] = {}
    for name, value in _chips(text, product).items():
        chip = parse_chip(name, product, path=path)
        where = f"{path}.{name}"
        fields = as_object(value, where)
        found[chip] = Address(
            ip=as_string(fields.get("IP", ""), f"{where}.IP"),
            super_device_id=as_integer(
                fields.get("SuperDeviceID", UNKNOWN), f"{where}.SuperDeviceID"
            ),
        )
    return found


def _chips(text: str, product: Product) -> Mapping[str, object]:
    """What the annotation says of each chip of one product, without virtual devices."""
    path = annotation_path(BASE_DEVICE_INFOS)
    document = as_object(parse_json(text, path), path)
    return {
        name: value
        for name, value in document.items()
        if not _VIRTUAL.fullmatch(name) and not is_of_another_line(name, product)
    }
