"""What kind of server is each node? A row of the product table, by its key.

A node's row is told by its resource and labels, as in a real cluster: the sandbox
gives a node the labels that mean the row, and refuses a row that no labels mean. The
agent shows the chips of that row, and the extender follows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from scheduler_core.products import lookup, table
from scheduler_core.products.columns import Product

#: Of a node of which nothing else is said.
DEFAULT = "atlas-800-training"


class MachineError(ValueError):
    """There is no such machine; the text says which there are."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Chips of another product line that a node has besides its own."""

    #: key of their row in the product table
    product: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node to be: its name and what it has.

    Attributes:
        name: Of the node.
        product: Key of its row in the product table.
        beside: Chips of other product lines, whose ids come after its own.
        driver_file: What its simulated driver reads in the beginning; by default
            that all chips are well.
    """

    name: str
    product: str = DEFAULT
    beside: tuple[Cards, ...] = ()
    driver_file: Path | None = None

    @property
    def row(self) -> Product:
        """What is known of such servers."""
        return table.by_key(self.product)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node by which its row is known."""
        found: dict[str, str] = {}
        for key in (self.product, *(cards.product for cards in self.beside)):
            labels = labels_of(table.by_key(key))
            found |= {} if key == DEFAULT or labels is None else labels
        return found

    @property
    def offers(self) -> Mapping[str, int]:
        """How many chips of each resource there are."""
        offered = {self.row.resource: self.row.chip_count}
        for cards in self.beside:
            offered[table.by_key(cards.product).resource] = cards.count
        return offered

    @property
    def description(self) -> str:
        """What the file of its driver begins with: all chips are well."""
        lines = [f"product: {self.product}"]
        first = self.row.chip_count
        for cards in self.beside:
            lines += [] if len(lines) > 1 else ["beside:"]
            chips = list(range(first, first + cards.count))
            lines.append(f"  - {{product: {cards.product}, chips: {chips}}}")
            first += cards.count
        return "\n".join(lines) + "\n"


def machine(name: str, text: str) -> Machine:
    """Return the node that a text describes, as `KEY` or `KEY+KEY:COUNT`.

    Raises:
        MachineError: There is no such node.
    """
    key, *more = text.split("+")
    made = Machine(name=name, product=check(key), beside=tuple(map(_cards, more)))
    rows = [made.row, *(table.by_key(cards.product) for cards in made.beside)]
    for row in rows:
        if lookup.find_node_row(row.resource, made.labels) is not row:
            raise MachineError(f"{text}: no labels of a node mean all of these")
    if len(made.offers) < len(rows):
        raise MachineError(f"{text}: expected a resource of its own for each line")
    total = sum(made.offers.values())
    if any(total > row.chip_count for row in rows[1:]):
        raise MachineError(f"{text}: expected ids that each line can have, not {total}")
    return made


def _cards(text: str) -> Cards:
    key, _, count = text.partition(":")
    if not count.isdecimal() or int(count) < 1:
        raise MachineError(f"{text}: expected KEY:COUNT, such as atlas-310p:2")
    return Cards(check(key), int(count))


def labels_of(row: Product) -> Mapping[str, str] | None:
    """Return labels of a node that mean a row, None if none do."""
    said = [text for text in (*row.accelerator_types, *row.node_types) if text]
    for text in (*said, ""):
        kind = {lookup.ACCELERATOR_TYPE: text} if text else {}
        labels = {**row.node_labels, **kind}
        if lookup.find_node_row(row.resource, labels) is row:
            return labels
    return None


def served() -> tuple[Product, ...]:
    """Return the rows that a node of the sandbox can have."""
    return tuple(row for row in table.PRODUCTS if labels_of(row) is not None)


def check(key: str) -> str:
    """Return the key of a row that a node can have.

    Raises:
        MachineError: There is none, or a node's labels cannot mean it.
    """
    keys = [row.key for row in served()]
    if key in keys:
        return key
    if any(row.key == key for row in table.PRODUCTS):
        raise MachineError(
            f"no node can be {key!r}: only what a job asks for means that row, "
            "no label of a node does"
        )
    raise MachineError(f"no such product: {key!r}; there are {', '.join(keys)}")


def product_in(driver_file: Path) -> str:
    """Return the product that a driver file names.

    The agent reads the rest and is stricter; what it refuses it says in its log.

    Raises:
        MachineError: The file cannot be read, or names none that a node can have.
    """
    try:
        document = yaml.safe_load(driver_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise MachineError(f"{driver_file}: {error}") from error
    found = document.get("product") if isinstance(document, dict) else None
    if not isinstance(found, str):
        raise MachineError(f"{driver_file}: expected a line `product: {DEFAULT}`")
    try:
        return check(found)
    except MachineError as error:
        raise MachineError(f"{driver_file}: {error}") from error
