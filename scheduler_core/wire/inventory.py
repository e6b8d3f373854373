"""Node annotation `baseDeviceInfos`: the inventory of chips, with their addresses."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from scheduler_core.products.table import PRODUCTS, Product
from scheduler_core.wire.addresses import UNKNOWN, Address, Addresses
from scheduler_core.wire.annotations import (
    WireError,
    annotation_path,
    chip_name,
    is_of_another_line,
    parse_chip,
    parse_chip_names,
)
from scheduler_core.wire.typed import as_integer, as_object, as_string, parse_json

#: key of the annotation on the Node
BASE_DEVICE_INFOS = "baseDeviceInfos"

_PREFIXES = sorted({re.escape(row.chip_prefix) for row in PRODUCTS})
_VIRTUAL = re.compile(f"(?:{'|'.join(_PREFIXES)})[0-9]+c[-.].*")


class Line(NamedTuple):
    """Chips of one product line of a node."""

    #: physical ids of the chips, in any order
    chips: Iterable[int]
    product: Product
    #: known addresses of the chips
    addresses: Addresses


def render(
    chips: Iterable[int],
    product: Product,
    addresses: Addresses | None = None,
    other_lines: Iterable[Line] = (),
) -> str:
    """Render the annotation's text for a node with these chips.

    Args:
        chips: Physical ids, in any order.
        product: Row of the node.
        addresses: Known addresses of the chips.
        other_lines: Other product lines of the node.
    """
    address_by_name = {
        chip_name(chip, line.product): _entry(line.addresses, chip)
        for line in (Line(chips, product, addresses or Addresses()), *other_lines)
        for chip in line.chips
    }
    document = {name: address_by_name[name] for name in sorted(address_by_name)}
    return json.dumps(document, separators=(",", ":"))


def _entry(addresses: Addresses, chip: int) -> dict[str, object]:
    """Return the entry of a chip; without IP while that is still waited for."""
    address = addresses.of(chip)
    number: dict[str, object] = {"SuperDeviceID": address.super_device_id}
    return number if addresses.awaited >> chip & 1 else {"IP": address.ip, **number}


def parse(text: str, product: Product) -> tuple[int, ...]:
    """Parse the physical ids of the node's chips of one product, ascending.

    Virtual devices are left out, and chips of the node's other lines; of a row of
    virtual devices, everything but those of its kind.

    Raises:
        WireError: Not a JSON object, or a key is not the name of a chip.
    """
    names = _chip_entries(text, product)
    return parse_chip_names(names, product, path=annotation_path(BASE_DEVICE_INFOS))


def parse_lines(text: str) -> dict[str, tuple[int, ...]]:
    """Parse {product line, like "Ascend910": physical ids}, of each line of the node.

    Raises:
        WireError: As `parse`.
    """
    largest = sorted(PRODUCTS, key=lambda row: row.chip_count)
    rows = {row.chip_prefix.rstrip("-"): row for row in largest}
    ids = {line: parse(text, row) for line, row in rows.items()}
    return {line: chips for line, chips in ids.items() if chips}


def parse_addresses(text: str, product: Product) -> dict[int, Address]:
    """Parse {physical id: address}, of the chips that have an `IP`, if only "".

    Raises:
        WireError: As `parse`, or an address is malformed.
    """
    path = annotation_path(BASE_DEVICE_INFOS)
    addresses: dict[int, Address] = {}
    for name, value in _chip_entries(text, product).items():
        chip = parse_chip(name, product, path=path)
        chip_path = f"{path}.{name}"
        fields = as_object(value, chip_path)
        if "IP" not in fields:
            continue
        addresses[chip] = Address(
            ip=as_string(fields["IP"], f"{chip_path}.IP"),
            super_device_id=as_integer(
                fields.get("SuperDeviceID", UNKNOWN), f"{chip_path}.SuperDeviceID"
            ),
        )
    return addresses


def _chip_entries(text: str, product: Product) -> Mapping[str, object]:
    """Return the entries of one product's chips, by name, without virtual devices.

    Of a row of virtual devices they are the entries of its kind; none if a number among
    them is not one of its chip, for then none of them has an id.
    """
    path = annotation_path(BASE_DEVICE_INFOS)
    document = as_object(parse_json(text, path), path)
    if product.chip_row is not None:
        own = {n: v for n, v in document.items() if n.startswith(product.chip_prefix)}
        with suppress(WireError):
            parse_chip_names(own, product, path=path)
            return own
        return {}
    return {
        name: value
        for name, value in document.items()
        if not _VIRTUAL.fullmatch(name) and not is_of_another_line(name, product)
    }
